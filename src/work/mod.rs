//! How a verb runs: its rows are read, it decides, and what it decided is written.
//!
//! Promise: a verb is a function over the rows that it needs. Whether it shares its transaction
//! with other requests, whether the card is simulated in this process or asked across a network,
//! and where it goes on after a crash is decided here, once for all of them. Nothing here begins or
//! commits a transaction.
//!
//! A few requests are no functions over rows, and have SQL between their rules: those of webhook
//! endpoints, of accounts for tests and of keys that are given up, and `DELETE /customers/{id}`.

mod card_answers;
mod checkouts;
mod delete_customer;
pub mod expansions;
mod idempotency_keys;
mod processor_effect;
mod statements;
mod test_accounts;
#[cfg(test)]
mod tests;
mod webhook_endpoints;

use std::sync::Arc;

use charge_once_strict_params::Expansion;
use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::{
    commands::{
        Changes, Draft, Origin, RowId, RowName, Rows, Rules, Said, SeenRows, Server, questions,
    },
    domain::{
        charge::{Authorization, Card, Charge},
        operation::{Answer, Asked, Operation, Question},
    },
    idempotency::{
        Begin, Begun, Decide, Decision, Failure, FirstVerdict, Rejection, Reply, RunAgain,
        SharedBegin, Verdict, read_rounds, transaction_time,
    },
    wire::error::ApiError,
};
use card_answers::{at_once, authorize};

pub use card_answers::SlowLane;
pub use checkouts::{CheckoutPhases, CheckoutSteps, CreateCheckout, RefundedElsewhere};
pub use delete_customer::{DeleteCustomer, delete_customer};
pub use idempotency_keys::{AbandonKey, expired_key};
pub use processor_effect::{NetworkPhases, ProcessorEffect};
pub use test_accounts::{CreateFaultPlan, CreateTestAccount, DeleteFaultPlan, ExpireKeys};
pub use webhook_endpoints::{CreateWebhookEndpoint, DeleteWebhookEndpoint, UpdateWebhookEndpoint};

/// A request for a verb.
pub struct RunVerb<V> {
    /// The request's origin.
    pub origin: Origin,
    /// The verb with its parameters, or why they are refused: that is stored like any other
    /// outcome.
    pub verb: Result<V, ApiError>,
    /// How much the request asks for, in bytes.
    pub weight: usize,
    /// The references that its reply shows whole.
    pub expand: Expansion,
    /// For `tok_slow`, where the processor is simulated.
    pub slow_lane: SlowLane,
    /// The name of the processor across a network, if there is one.
    pub processor: Option<Arc<str>>,
    /// What the addresses of pages begin with; `None` if the verb makes none.
    pub public_url: Option<Arc<str>>,
}

impl<V: Rules> RunVerb<V> {
    fn verb(&self) -> Result<&V, Rejection> {
        self.verb.as_ref().map_err(|refused| refused.clone().into())
    }

    fn reads_of(&self, seen: &SeenRows<'_>) -> Vec<RowId> {
        let named = self.verb.as_ref().map(|verb| verb.reads(seen));
        named.unwrap_or_default()
    }

    fn server(&self) -> Server<'_> {
        Server {
            processor: self.processor.as_deref(),
            public_url: self.public_url.as_deref(),
        }
    }

    fn draft<'a>(&'a self, rows: &'a Rows, now: DateTime<Utc>) -> Draft<'a> {
        Draft::new(&self.origin, now, self.server(), rows)
    }

    /// Writes down what the processor is to be asked, before it is asked: the one that took the
    /// charge's money, if that was taken.
    fn ask(&self, draft: &mut Draft<'_>, question: Question, operation: Uuid) -> Operation {
        let charge = draft.get::<Charge>(question.ask().charge());
        let took = charge.and_then(|charge| charge.processor.as_deref());
        let processor = took.or(draft.server.processor).unwrap_or_default();
        let asked = Asked {
            question,
            expand: self.expand.clone(),
        };
        let operation = self.origin.operation(operation, asked, processor);
        draft.begin(operation.clone());
        operation
    }
}

impl<V: Rules> Decide for RunVerb<V> {
    type Rows = Rows;

    fn reads(&self, rows: &Rows) -> Vec<RowName> {
        names(&self.origin, rows, |seen| self.reads_of(seen))
    }

    /// What waits, or reads more, would hold up the others.
    fn is_shared(&self) -> bool {
        let Ok(verb) = &self.verb else {
            return true;
        };
        let answers = |card: Card| Authorization::at_once(card.test_card).is_some();
        self.expand.is_empty() && (self.processor.is_some() || verb.card().is_none_or(answers))
    }

    fn decide(&self, rows: &Rows, now: DateTime<Utc>) -> Result<Decision<Changes>, Rejection> {
        let mut draft = self.draft(rows, now);
        let said = match self.verb()?.decide(&mut draft)? {
            Verdict::Answered(said) => said,
            Verdict::Pending(question) => {
                let waits = || Failure::unavailable("the processor takes its time, or is down");
                let answer = at_once(&question.ask()).ok_or_else(waits);
                let answer = answer.map_err(Rejection::Failed)?;
                questions::answered(&question, answer, &mut draft)?
            }
        };
        decided(draft, said)
    }

    async fn alone(&self, tx: &mut PgConnection) -> Result<Reply, Rejection> {
        let mut rows = Rows::default();
        read_rounds(|rows| self.reads(rows), &mut rows, tx).await?;
        let mut draft = self.draft(&rows, transaction_time(tx).await?);
        let said = match self.verb()?.decide(&mut draft)? {
            Verdict::Answered(said) => said,
            Verdict::Pending(question) => {
                let answer = authorize(tx, &question.ask(), &self.slow_lane).await?;
                questions::answered(&question, answer, &mut draft)?
            }
        };
        let changes = draft.into_changes();
        write(rows, changes, tx).await?;
        expansions::reply(said, &self.expand, &self.origin, tx).await
    }

    fn weight(&self) -> usize {
        self.weight
    }
}

impl<V: Rules> Begin for RunVerb<V> {
    async fn begin(
        &self,
        tx: &mut PgConnection,
        operation: Uuid,
    ) -> Result<Verdict<Reply, Option<String>>, Rejection> {
        let reads = |seen: &SeenRows<'_>| self.reads_of(seen);
        let decided = in_transaction(&self.origin, self.server(), tx, reads, |draft| {
            Ok(match self.verb()?.decide(draft)? {
                Verdict::Answered(said) => Ok(said),
                Verdict::Pending(question) => Err(self.ask(draft, *question, operation)),
            })
        });
        match decided.await? {
            Ok(said) => {
                let reply = expansions::reply(said, &self.expand, &self.origin, tx).await?;
                Ok(Verdict::Answered(reply))
            }
            Err(asked) => {
                let resource_id = asked.asked.question.resource();
                Ok(Verdict::Pending(Some(resource_id)))
            }
        }
    }
}

impl<V: Rules> SharedBegin for RunVerb<V> {
    type Operation = Operation;

    fn begin_from(
        &self,
        rows: &Rows,
        now: DateTime<Utc>,
        operation: Uuid,
    ) -> Result<FirstVerdict<Self>, Rejection> {
        let mut draft = self.draft(rows, now);
        let question = match self.verb()?.decide(&mut draft)? {
            Verdict::Answered(said) => return decided(draft, said).map(Verdict::Answered),
            Verdict::Pending(question) => question,
        };
        let resource_id = Some(question.resource());
        let operation = self.ask(&mut draft, *question, operation);
        Ok(Verdict::Pending(Begun {
            changes: draft.into_changes(),
            operation,
            resource_id,
        }))
    }
}

/// The last step of a verb that has asked a processor across a network.
pub struct Completion {
    /// The origin of the request that asked.
    origin: Origin,
    /// What is completed.
    operation: Operation,
    answer: Answer,
}

impl Completion {
    fn reads_of(&self, seen: &SeenRows<'_>) -> Vec<RowId> {
        questions::reads(&self.operation.asked.question, seen)
    }

    fn said(&self, draft: &mut Draft<'_>) -> Result<Said, Rejection> {
        let said = questions::answered(&self.operation.asked.question, self.answer, draft)?;
        draft.end(self.operation.id, self.answer);
        Ok(said)
    }
}

impl Decide for Completion {
    type Rows = Rows;

    fn reads(&self, rows: &Rows) -> Vec<RowName> {
        names(&self.origin, rows, |seen| self.reads_of(seen))
    }

    fn is_shared(&self) -> bool {
        self.operation.asked.expand.is_empty()
    }

    fn decide(&self, rows: &Rows, now: DateTime<Utc>) -> Result<Decision<Changes>, Rejection> {
        let server = Server::answered_by(&self.operation.processor);
        let mut draft = Draft::new(&self.origin, now, server, rows);
        let said = self.said(&mut draft)?;
        decided(draft, said)
    }

    async fn alone(&self, tx: &mut PgConnection) -> Result<Reply, Rejection> {
        let reads = |seen: &SeenRows<'_>| self.reads_of(seen);
        let server = Server::answered_by(&self.operation.processor);
        let said = in_transaction(&self.origin, server, tx, reads, |draft| self.said(draft));
        let expand = &self.operation.asked.expand;
        expansions::reply(said.await?, expand, &self.origin, tx).await
    }

    /// Its reply, about.
    fn weight(&self) -> usize {
        1024
    }
}

/// The rows that the rules name for their account.
fn names(
    origin: &Origin,
    rows: &Rows,
    reads: impl Fn(&SeenRows<'_>) -> Vec<RowId>,
) -> Vec<RowName> {
    let account = origin.account;
    let named = reads(&SeenRows { account, rows }).into_iter();
    named.map(|id| (account, id)).collect()
}

/// What was decided, with the reply that says it.
fn decided(draft: Draft<'_>, said: Said) -> Result<Decision<Changes>, Rejection> {
    Ok(Decision {
        reply: expansions::plain_reply(said, draft.origin)?,
        changes: draft.into_changes().if_any(),
    })
}

/// Writes what was decided. What was read without a lock may have changed since, such as an order's
/// name that was free: the whole transaction runs again then. A forgotten lock is a defect.
async fn write(rows: Rows, changes: Changes, tx: &mut PgConnection) -> Result<(), Failure> {
    let has_looked = rows.has_looked();
    match rows.write_with(tx, changes).await {
        Err(sqlx::Error::RowNotFound) if has_looked => Err(Failure {
            run_again: RunAgain::AtOnce,
            ..Failure::busy("a row is not as it was read")
        }),
        written => Ok(written?),
    }
}

/// Runs rules inside a transaction that has its key already: the first half of a verb in phases,
/// the answer of a processor across a network, the beginning and the end of a checkout.
async fn in_transaction<T>(
    origin: &Origin,
    server: Server<'_>,
    tx: &mut PgConnection,
    reads: impl Fn(&SeenRows<'_>) -> Vec<RowId>,
    decide: impl FnOnce(&mut Draft<'_>) -> Result<T, Rejection>,
) -> Result<T, Rejection> {
    let mut rows = Rows::default();
    read_rounds(|rows| names(origin, rows, &reads), &mut rows, tx).await?;
    let mut draft = Draft::new(origin, transaction_time(tx).await?, server, &rows);
    let decided = decide(&mut draft)?;
    let changes = draft.into_changes();
    write(rows, changes, tx).await?;
    Ok(decided)
}
