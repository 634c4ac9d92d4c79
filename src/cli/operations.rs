//! `charge-once operations`: what an operator can do about operations whose outcome is unknown.
//!
//! Promise: an operator's resolution takes the path of the processor's own answer, under a lease of
//! its own, so it never crosses with a process that still works on the operation. The processor is
//! asked once more first, and a resolution that contradicts it is refused. The name of the person
//! is kept.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{
    BoxError,
    named::{Names, ensure_person},
    print, say,
    session::{self, OnlyShard},
};
use crate::{
    config::Config,
    database::Database,
    domain::{
        ids::RequestId,
        operation::{Answer, Operation, Resolution},
        test_cards::{Decline, DeclineCode},
    },
    idempotency::{
        COMPLETION_RESERVE, CallOutcome, Failure, FailureKind, Idempotency, LeaseSettings, Outcome,
        Phases, Request,
    },
    processor::{CardProcessor, HttpProcessor, Instruction, InstructionOutcome},
    server,
    store::{self, operations::Waiting},
    work::{ProcessorEffect, RefundedElsewhere},
};

/// How old an operation must be before a person may resolve it. By then the reconciler, whose
/// pauses are 15 seconds at most, has asked hundreds of times.
///
/// It, or a client's retry, may have sent it again a moment ago. So a resolution that nothing
/// happened needs an operation that was last sent this long ago: by then no attempt is still on its
/// way through a network.
const BY_HAND_AFTER: Duration = Duration::from_secs(3600);

/// How long an operation is sent again without PROCESSOR_URL: as long as processors remember keys
/// by default.
const SENT_AGAIN_WITHIN: Duration = Duration::from_secs(24 * 3600);

/// A resolution asks no processor to execute anything.
struct NotAsked;

impl CardProcessor for NotAsked {
    async fn execute(&self, _: Uuid, _: &Instruction, _: DateTime<Utc>) -> InstructionOutcome {
        InstructionOutcome::Unknown("a resolution executes nothing".into())
    }

    async fn look_up(&self, _: Uuid) -> InstructionOutcome {
        InstructionOutcome::Unknown("a resolution is decided by a person".into())
    }
}

/// An operator knows that it was declined, not why.
const DECLINED: Decline = Decline {
    code: DeclineCode::CardDeclined,
    decline_code: Some("generic_decline"),
    message: "Your card was declined.",
};

/// What is done about operations in doubt.
#[derive(Debug, clap::Subcommand)]
pub enum OperationsCommand {
    /// Lists the operations that wait for an answer, and refused refunds that checkouts wait for.
    List {
        /// Prints one JSON document.
        #[arg(long)]
        json: bool,
        /// Which database, where there are several.
        #[command(flatten)]
        only: OnlyShard,
    },
    /// Resolves one that is at least an hour old, after you have asked the processor's operator for
    /// its outcome.
    ///
    /// With PROCESSOR_URL the processor is looked up first, and an outcome that contradicts it is
    /// refused; so are `declined` and `not-executed` while the operation may still be sent again. A
    /// refused refund that a checkout waits for is resolved by `done` at any age, once you have
    /// returned the money yourself. The processor may have refused it, or a person before you.
    Resolve {
        /// The operation's id, which is the key that the processor got.
        id: Uuid,
        /// What the processor did.
        #[arg(value_enum)]
        outcome: OperationOutcome,
        /// Your name: 1 to 100 characters, kept with the operation.
        #[arg(long, value_name = "NAME")]
        by: String,
    },
}

/// The outcome of an operation, as a person enters it.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub enum OperationOutcome {
    /// It was executed.
    Done,
    /// It was declined.
    Declined,
    /// It was not executed, by no attempt, and will not be: the key becomes free.
    NotExecuted,
}

pub(super) fn run(command: OperationsCommand) -> Result<(), BoxError> {
    let config = Config::from_env()?;
    match command {
        OperationsCommand::List { json, only } => {
            only.prints_one(&config, json)?;
            session::each(&config, &only, async |database| show(database, json).await)
        }
        OperationsCommand::Resolve { id, outcome, by } => {
            ensure_person(&by)?;
            let word = match outcome {
                OperationOutcome::Done => Resolution::Done,
                OperationOutcome::Declined => Resolution::Declined,
                OperationOutcome::NotExecuted => Resolution::NotExecuted,
            };
            let mut is_resolved = false;
            let ended = session::each(&config, &OnlyShard::default(), async |database| {
                // One shard at most has it.
                is_resolved = is_resolved || resolve(database, &config, id, word, &by).await?;
                Ok(())
            });
            if is_resolved {
                return print("Resolved. A retry with its idempotency key is answered by it.");
            }
            ended.and_then(|()| {
                let why = "there is no such operation in flight any more, another process is at \
                               work on it, or a later refund of its checkout waits for an answer: \
                               `charge-once operations list` shows what waits";
                Err(why.into())
            })
        }
    }
}

async fn show(database: &Database, json: bool) -> Result<(), BoxError> {
    let (waiting, names) = list(database).await?;
    if json {
        return print(&as_json(&waiting, &names).to_string());
    }
    if waiting.unfinished.is_empty() && waiting.refused.is_empty() {
        say("no operations are in flight");
    }
    for operation in waiting.unfinished {
        let status = match operation.in_doubt {
            true => "in doubt",
            false => "in flight",
        };
        print(&format!(
            "{}  {}  {}  {}  {}  since {:.0}  {status}, taken over {} times",
            operation.id,
            operation.idempotency_key,
            names.told(operation.account),
            operation.verb,
            operation.charge,
            operation.created_at,
            operation.takeovers,
        ))?;
    }
    for refund in waiting.refused {
        print(&format!(
            "{}  {}  {}  create_refund  {}  since {:.0}  refused, and {} waits for it",
            refund.operation,
            refund.idempotency_key,
            names.told(refund.account),
            refund.charge,
            refund.created_at,
            refund.checkout,
        ))?;
    }
    Ok(())
}

fn as_json(waiting: &Waiting, names: &Names) -> Value {
    let unfinished = waiting.unfinished.iter().map(|operation| {
        let told = json!({
            "operation": operation.id,
            "kind": operation.verb,
            "charge": operation.charge.to_string(),
            "created_at": operation.created_at,
            "in_doubt": operation.in_doubt,
            "takeovers": operation.takeovers,
        });
        names.tell(operation.account, &operation.idempotency_key, told)
    });
    let refused = waiting.refused.iter().map(|refund| {
        let told = json!({
            "operation": refund.operation,
            "charge": refund.charge.to_string(),
            "created_at": refund.created_at,
            "checkout": refund.checkout.to_string(),
        });
        names.tell(refund.account, &refund.idempotency_key, told)
    });
    json!({
        "operations": unfinished.collect::<Value>(),
        "refused_refunds": refused.collect::<Value>(),
    })
}

/// Why an operation was not resolved: it must not be with this outcome, the database can't be
/// reached, or it refuses what a resolution writes.
fn not_resolved(Failure { kind, cause, .. }: Failure) -> String {
    match kind {
        FailureKind::Internal => format!(
            "nothing was resolved, because the database refuses to store it: {cause}. `charge-once check` says \
             whether rows contradict each other, and the role of DATABASE_URL must be the servers'"
        ),
        FailureKind::Busy | FailureKind::Unavailable | FailureKind::Unsupported => {
            cause.to_string()
        }
    }
}

/// The operations that wait for an answer, oldest first, and after them the refused refunds that
/// checkouts wait for; at most 1000 of each.
async fn list(database: &Database) -> Result<(Waiting, Names), BoxError> {
    let listing = database.snapshot(|connection| {
        Box::pin(async move {
            let waiting = store::operations::list_waiting(&mut *connection).await?;
            let unfinished = waiting.unfinished.iter().map(|one| one.account);
            let refused = waiting.refused.iter().map(|one| one.account);
            let names = Names::of(connection, unfinished.chain(refused)).await?;
            Ok((waiting, names))
        })
    });
    Ok(listing.await?)
}

/// Resolves an operation with a person's outcome. `false` if it is not in doubt, or if another
/// process works on it.
async fn resolve(
    database: &Database,
    config: &Config,
    id: Uuid,
    word: Resolution,
    person: &str,
) -> Result<bool, BoxError> {
    let unusable = |error| format!("IDEMPOTENCY_TTL or IDEMPOTENCY_LEASE can't be used: {error}");
    let idempotency = server::idempotency(database, config).map_err(unusable)?;
    let (processor, timeout) = (config.processor.as_ref(), config.values.processor_timeout);
    let client = processor.map(|of| HttpProcessor::new(&of.url, timeout, || None));
    let client = client.transpose();
    let client = client.map_err(|error| format!("PROCESSOR_URL can't be used: {error}"))?;
    let asked = client.as_ref().zip(processor);
    // The processor is not asked to execute anything.
    let effect = ProcessorEffect {
        processor: NotAsked,
        name: "a person".to_owned(),
        send_again_within: Duration::ZERO,
        resolved_by: Some(person.to_owned()),
    };
    let phases = Phases::new(idempotency.clone(), effect, lease_settings(config));
    let phases = phases.map_err(unusable)?;
    let sent_again_within = processor.map_or(SENT_AGAIN_WITHIN, |of| of.send_again_within);
    let resolved = phases.resolve(id, async |operation| {
        if operation.age < BY_HAND_AFTER {
            return not_now(
                "it is younger than an hour: leave it to the reconciler, which asks the processor",
            );
        }
        let Some((client, _)) = asked.filter(|(_, of)| of.name == operation.processor) else {
            return not_now(format!(
                "it was sent to {}: set PROCESSOR_URL to its address, and PROCESSOR_NAME to \
                 this name, even if nothing answers there any more",
                operation.processor
            ));
        };
        let said = look_up(client, operation).await;
        let is_no = matches!(word, Resolution::Declined | Resolution::NotExecuted);
        if is_no && said.is_none() && operation.age < sent_again_within + BY_HAND_AFTER {
            return not_now(
                "it may have been sent to the processor within the last hour, and may still be executed: \
                 enter this outcome once it has only been looked up for an hour",
            );
        }
        weigh(word, said)
    });
    if resolved.await.map_err(not_resolved)? {
        return Ok(true);
    }
    match word {
        Resolution::Done => refunded_elsewhere(database, &idempotency, id, person).await,
        Resolution::Declined | Resolution::NotExecuted => Ok(false),
    }
}

/// How long a resolution may hold the key, and ask the processor.
fn lease_settings(config: &Config) -> LeaseSettings {
    let deadline = config.values.database_deadline;
    // The processor has a limit of its own, which is to fire first.
    let call_limit = match config.processor {
        Some(_) => config.values.processor_timeout * 2,
        None => deadline,
    };
    LeaseSettings {
        lease: deadline + call_limit + COMPLETION_RESERVE,
        call_limit,
    }
}

/// Resolves a refund that was refused and that a canceled checkout waits for: a person has returned
/// the money elsewhere. It may be an earlier one than the last, which was refused as well. `false`
/// if no checkout waits for it.
async fn refunded_elsewhere(
    database: &Database,
    idempotency: &Idempotency,
    id: Uuid,
    person: &str,
) -> Result<bool, BoxError> {
    let looking = database.read(move |connection| {
        let refused = store::operations::list_refused_refunds(connection, Some(id));
        Box::pin(refused)
    });
    let Some(refused) = looking.await?.pop() else {
        return Ok(false);
    };
    let (account, checkout) = (refused.account, refused.checkout);
    let path = format!("/checkouts/{checkout}/refunded_elsewhere");
    let request_id = RequestId(Uuid::now_v7()).to_string();
    let request = Request::reserved(account.0, path, request_id, Duration::ZERO);
    let request = request.map_err(|error| not_resolved(Failure::internal(error)))?;
    let command = RefundedElsewhere {
        account,
        checkout,
        operation: id,
        person: person.to_owned(),
    };
    match idempotency.run(request, command).await {
        Outcome::Stored { .. } => Ok(true),
        Outcome::InUse { .. } | Outcome::Reused | Outcome::Unfinished => Ok(false),
        Outcome::Failed(failure) => Err(not_resolved(failure).into()),
    }
}

/// The definite answer of the processor that was asked, if it has one.
async fn look_up(processor: &HttpProcessor, operation: &Operation) -> Option<Answer> {
    match processor.look_up(operation.id).await {
        InstructionOutcome::Answered(answer) => Some(answer),
        InstructionOutcome::NotExecuted(cause) | InstructionOutcome::Unknown(cause) => {
            tracing::warn!(%cause, "the processor says nothing definite: the word alone counts");
            None
        }
    }
}

/// The processor's answer if there is one, and the person's outcome otherwise.
fn weigh(word: Resolution, said: Option<Answer>) -> CallOutcome<Answer> {
    match (word, said) {
        (Resolution::Done, None | Some(Answer::Done)) => CallOutcome::Answered(Answer::Done),
        (Resolution::Declined, None) => CallOutcome::Answered(Answer::Declined(DECLINED)),
        // The processor knows the reason.
        (Resolution::Declined, Some(answer @ Answer::Declined(_))) => CallOutcome::Answered(answer),
        (Resolution::NotExecuted, None) => {
            CallOutcome::NotExecuted(Failure::unavailable("by an operator's word"))
        }
        (Resolution::Declined | Resolution::NotExecuted, Some(Answer::Done)) => {
            contradicted("done")
        }
        (Resolution::Done | Resolution::NotExecuted, Some(Answer::Declined(_))) => {
            contradicted("declined")
        }
    }
}

fn contradicted(by: &str) -> CallOutcome<Answer> {
    not_now(format!(
        "the processor says \"{by}\", so nothing was resolved; a server that runs with PROCESSOR_URL \
         resolves it by that answer, or say the same"
    ))
}

/// The operation stays as it is.
fn not_now(why: impl ToString) -> CallOutcome<Answer> {
    CallOutcome::Unknown(Failure::unavailable(why))
}
