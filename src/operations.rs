//! What an operator can do about operations whose outcome is unknown.
//!
//! Promise: settling by hand goes the same way as settling by the processor's answer, under a lease
//! of its own, so it can't cross with somebody who is still at work. The processor is asked once
//! more before, and no word is taken against its own. Whose word it was is kept.

use std::time::Duration;

use uuid::Uuid;

use crate::{
    commands::ProcessorOperations,
    config::Config,
    database::Database,
    domain::{
        error::ErrorCode,
        operation::{Answer, Operation},
        test_cards::Decline,
    },
    idempotency::{Called, Failure, Idempotency, LeaseSettings, Phases, Settings},
    processor::{Asked, CardProcessor, HttpProcessor, HttpProcessorError, SimulatedProcessor},
    store::{self, operations::Unsettled},
};

pub use crate::domain::operation::Word;

/// How old an operation must be to be settled by a person. By then the reconciler, whose pauses are
/// five minutes at most, has asked a dozen times.
///
/// It, or a client's retry, may have sent it again a moment ago. So a word by which nothing happened
/// takes an operation that was last sent this long ago: by then no attempt is still on its way through
/// a network.
pub const BY_HAND_AFTER: Duration = Duration::from_secs(3600);

/// For how long an operation is sent again where PROCESSOR_URL doesn't say: as long as processors
/// remember keys by default.
const SENT_AGAIN_WITHIN: Duration = Duration::from_secs(24 * 3600);

/// An operator knows that it was declined, not why.
const DECLINED: Decline = Decline {
    code: ErrorCode::CardDeclined,
    decline_code: Some("generic_decline"),
    message: "Your card was declined.",
};

/// Why nothing came of it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operations can't be read.
    #[error(transparent)]
    Read(#[from] crate::database::ReadError),
    /// The retention or the lease can't be used.
    #[error("IDEMPOTENCY_TTL or IDEMPOTENCY_LEASE can't be used: {0}")]
    Settings(#[from] sqlx::error::BoxDynError),
    /// The processor can't be asked.
    #[error("PROCESSOR_URL can't be used: {0}")]
    Processor(#[from] HttpProcessorError),
    /// It is not to be settled by this word, or the outcome can't be written.
    #[error("{0}")]
    Failed(std::sync::Arc<str>),
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure.cause)
    }
}

/// The operations that wait for an answer, oldest first, at most 1000.
pub async fn list(database: &Database) -> Result<Vec<Unsettled>, Error> {
    let unsettled = database
        .read(|connection| Box::pin(store::operations::list_unsettled(connection)))
        .await?;
    Ok(unsettled)
}

/// Settles one by the word of `person`. `false`: it isn't in flight, or somebody is at work on it.
pub async fn settle(
    database: &Database,
    config: &Config,
    id: Uuid,
    word: Word,
    person: String,
) -> Result<bool, Error> {
    let settings = Settings {
        retention: config.idempotency_ttl,
        pool_wait: config.timeouts.pool_wait,
        database_deadline: config.timeouts.database_deadline,
        pool_connections: config.pool_connections,
    };
    let idempotency = Idempotency::new(database.pool().clone(), settings)?;
    let processor = match &config.processor {
        None => None,
        Some(processor) => {
            let client = HttpProcessor::new(&processor.url, processor.timeout)?;
            Some((client, processor.name.as_str()))
        }
    };
    // Nobody is asked to execute anything.
    let operations = ProcessorOperations {
        processor: SimulatedProcessor::new(config.pool_connections),
        name: "an operator's word".to_owned(),
        send_again_within: Duration::ZERO,
        by_the_word_of: Some(person),
    };
    let call_limit = match &config.processor {
        None => config.timeouts.database_deadline,
        // It has a limit of its own, which is to fire first.
        Some(processor) => processor.timeout * 2,
    };
    let lease = LeaseSettings {
        lease: call_limit + config.timeouts.idle_in_transaction * 2,
        call_limit,
    };
    let phases = Phases::new(idempotency, operations, lease)?;
    let processor = processor.as_ref().map(|(client, name)| (client, *name));
    let sent_again_within = match &config.processor {
        None => SENT_AGAIN_WITHIN,
        Some(processor) => processor.send_again_within,
    };
    let settled = phases.settle_by_hand(id, async |operation| {
        if operation.age < BY_HAND_AFTER {
            return Called::Unknown(Failure::unavailable(
                "it is younger than an hour: leave it to the reconciler, which asks the processor",
            ));
        }
        let said = look_up(processor, operation).await;
        let is_no = matches!(word, Word::Declined | Word::NotExecuted);
        if is_no && said.is_none() && operation.age < sent_again_within + BY_HAND_AFTER {
            return Called::Unknown(Failure::unavailable(
                "it may have been sent again within the last hour, and still be on its way: take this \
                 word an hour after it is only looked up",
            ));
        }
        weigh(word, said)
    });
    Ok(settled.await?.is_some())
}

/// The definite answer of the processor that was asked, if it has one.
async fn look_up(
    processor: Option<(&HttpProcessor, &str)>,
    operation: &Operation,
) -> Option<Answer> {
    let asked = match processor {
        Some((client, name)) if name == operation.processor => client.look_up(operation.id).await,
        Some(_) | None => Asked::Unknown(format!(
            "PROCESSOR_URL doesn't name the one that was asked, {}",
            operation.processor
        )),
    };
    match asked {
        Asked::Answered(answer) => Some(answer),
        Asked::NotExecuted(cause) | Asked::Unknown(cause) => {
            tracing::warn!(%cause, "the processor says nothing definite: the word alone counts");
            None
        }
    }
}

/// The processor's answer where there is one, and the word only where there is none.
fn weigh(word: Word, said: Option<Answer>) -> Called<Answer> {
    match (word, said) {
        (Word::Done, None | Some(Answer::Done)) => Called::Answered(Answer::Done),
        (Word::Declined, None) => Called::Answered(Answer::Declined(DECLINED)),
        // It knows why.
        (Word::Declined, Some(answer @ Answer::Declined(_))) => Called::Answered(answer),
        (Word::NotExecuted, None) => {
            Called::NotExecuted(Failure::unavailable("by an operator's word"))
        }
        (Word::Declined | Word::NotExecuted, Some(Answer::Done)) => contradicted("done"),
        (Word::Done | Word::NotExecuted, Some(Answer::Declined(_))) => contradicted("declined"),
    }
}

fn contradicted(by: &str) -> Called<Answer> {
    Called::Unknown(Failure::unavailable(format!(
        "the processor says \"{by}\", so nothing was settled; a server that runs with PROCESSOR_URL \
         settles it by that answer, or say the same"
    )))
}
