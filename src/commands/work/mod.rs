//! How a verb runs: its rows are read, it decides, and what it decided is written.
//!
//! Promise: a verb is a function over the rows that it needs. Whether it shares its transaction
//! with other requests, whether the card is simulated in this process or asked across a network,
//! and where it goes on after a crash is decided here, once for all of them.
//!
//! ```text
//! reads      which rows are locked and read, in at most three rounds
//! decide     the rules: pure; a reply, or a question to the card
//! answered   the card's answer, in the same transaction or in a later one
//! withdraw   undoes what a question reserved that was never asked
//! ```

mod draft;
mod rows;
mod statements;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use charge_once_strict_params::Expansion;
use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use uuid::Uuid;

use super::{
    Origin, SlowLane,
    card_answers::{at_once, authorize},
    expansions::Shown,
    questions,
};
use crate::{
    domain::{
        charge::{Authorization, Card, Charge},
        customer::Customer,
        ids::{AccountId, CustomerId},
        operation::{Answer, Asked, Effect, Operation, Question},
        order::Order,
        payment_intent::PaymentIntent,
        payment_method::PaymentMethod,
        refund::Refund,
        setup_intent::SetupIntent,
    },
    idempotency::{
        Begin, BeginOutcome, Begun, Decide, Decision, Failure, Rejection, Reply, RunAgain,
        SharedBegin, read_rounds, transaction_time,
    },
    wire::error::ApiError,
};

pub use draft::Draft;
use rows::{Changes, Noun, RowName};
pub use rows::{RowId, Rows};

/// The rules of one verb, with its parameters.
pub trait Rules: Send + Sync + 'static {
    /// The rows that it needs next, given those that were read. It is asked again after each round,
    /// and names rows that were read already, too.
    fn reads(&self, seen: &SeenRows<'_>) -> Vec<RowId>;

    /// Decides. It has read what [`Rules::reads`] named, and may be asked again.
    fn decide(&self, draft: &mut Draft<'_>) -> Result<Verdict, Rejection>;

    /// The card that it asks, if the parameters name one.
    fn card(&self) -> Option<&Card> {
        None
    }

    /// What the reply shows whole. A verb that shows all of it by itself says nothing here.
    fn expand(&self) -> Option<&Expansion> {
        None
    }
}

/// The rows of one account.
pub struct SeenRows<'a> {
    account: AccountId,
    rows: &'a Rows,
}

impl SeenRows<'_> {
    /// The object with this id, if it was read and is there.
    pub fn get<N: Noun>(&self, id: N::Id) -> Option<&N> {
        self.rows.get(self.account, id)
    }

    /// The customer with this id, also if the verb has only looked at them.
    pub fn customer(&self, id: CustomerId) -> Option<&Customer> {
        let seen = || self.rows.customers_seen.get(&(self.account, id));
        self.get::<Customer>(id).or_else(seen)
    }
}

/// What a verb has decided.
pub enum Verdict {
    /// It has ended.
    Said(Said),
    /// The card is to be asked.
    Ask(Box<Asked>),
}

impl Verdict {
    /// The card is to be asked; the reply shows whole what `expand` names.
    pub fn ask(question: Question, expand: &Expansion) -> Self {
        let expand = expand.clone();
        Self::Ask(Box::new(Asked { question, expand }))
    }
}

/// What the client is told.
pub enum Said {
    /// This.
    Reply(Reply),
    /// An object as it is now.
    Show {
        /// The status of the reply.
        status: u16,
        /// What is shown.
        object: Box<Object>,
        /// The references in it that are shown whole.
        expand: Expansion,
    },
}

/// What a reply shows.
pub enum Object {
    /// A charge.
    Charge(Charge),
    /// An order.
    Order(Order),
    /// A payment intent.
    Intent(PaymentIntent),
    /// A refund.
    Refund(Refund),
    /// A setup intent.
    Setup(SetupIntent),
    /// A payment method.
    Method(PaymentMethod),
    /// A customer.
    Customer(Customer),
}

impl Said {
    /// Shows an object.
    pub fn show(status: u16, object: impl Into<Object>, expand: &Expansion) -> Self {
        Self::Show {
            status,
            object: Box::new(object.into()),
            expand: expand.clone(),
        }
    }

    /// The reply, where nothing else is to be read for it.
    fn reply(self, origin: &Origin) -> Result<Reply, Rejection> {
        let (status, object) = match self {
            Self::Reply(reply) => return Ok(reply),
            Self::Show { status, object, .. } => (status, object),
        };
        object.reply(origin, status)
    }

    /// The reply, with what `expand` names shown whole.
    pub(super) async fn expanded(
        self,
        origin: &Origin,
        tx: &mut PgConnection,
    ) -> Result<Reply, Rejection> {
        match self {
            Self::Show {
                status,
                object,
                expand,
            } if !expand.is_empty() => object.expanded(origin, tx, status, &expand).await,
            said @ (Self::Show { .. } | Self::Reply(_)) => said.reply(origin),
        }
    }
}

/// Makes replies of objects.
macro_rules! objects {
    ($($kind:ident: $noun:ident;)+) => {
        $(impl From<$noun> for Object {
            fn from(object: $noun) -> Self {
                Self::$kind(object)
            }
        })+

        impl Object {
            fn reply(&self, origin: &Origin, status: u16) -> Result<Reply, Rejection> {
                match self {
                    $(Self::$kind(object) => {
                        let view = <$noun as Shown>::View::from(object);
                        origin.reply(status, $noun::COLLECTION, object.id.to_string(), &view)
                    })+
                }
            }

            async fn expanded(
                &self,
                origin: &Origin,
                tx: &mut PgConnection,
                status: u16,
                expand: &Expansion,
            ) -> Result<Reply, Rejection> {
                match self {
                    $(Self::$kind(object) => {
                        origin.show(tx, status, object.id.to_string(), object, expand).await
                    })+
                }
            }
        }
    };
}

objects! {
    Charge: Charge;
    Order: Order;
    Intent: PaymentIntent;
    Refund: Refund;
    Setup: SetupIntent;
    Method: PaymentMethod;
    Customer: Customer;
}

/// A request for a verb.
pub struct RunVerb<V> {
    /// The request's origin.
    pub origin: Origin,
    /// The verb with its parameters, or why they are refused: that is stored like any other
    /// outcome.
    pub verb: Result<V, ApiError>,
    /// How much the request asks for, in bytes.
    pub weight: usize,
    /// For `tok_slow`, where the processor is simulated.
    pub slow_lane: SlowLane,
    /// The name of the processor across a network, if there is one.
    pub processor: Option<Arc<str>>,
}

impl<V: Rules> RunVerb<V> {
    fn verb(&self) -> Result<&V, Rejection> {
        self.verb.as_ref().map_err(|refused| refused.clone().into())
    }

    fn draft<'a>(&'a self, rows: &'a Rows, now: DateTime<Utc>) -> Draft<'a> {
        Draft::new(&self.origin, now, self.processor.as_deref(), rows)
    }
}

impl<V: Rules> Decide for RunVerb<V> {
    type Rows = Rows;

    fn reads(&self, rows: &Rows) -> Vec<RowName> {
        let account = self.origin.account;
        let named = match &self.verb {
            Ok(verb) => verb.reads(&SeenRows { account, rows }),
            Err(_) => Vec::new(),
        };
        named.into_iter().map(|id| (account, id)).collect()
    }

    /// What waits, or reads more, would hold up the others.
    fn is_shared(&self) -> bool {
        let Ok(verb) = &self.verb else {
            return true;
        };
        let answers = |card: &Card| Authorization::at_once(card.card).is_some();
        verb.expand().is_none_or(Expansion::is_empty)
            && (self.processor.is_some() || verb.card().is_none_or(answers))
    }

    fn decide(&self, rows: &Rows, now: DateTime<Utc>) -> Result<Decision<Changes>, Rejection> {
        let mut draft = self.draft(rows, now);
        let said = match self.verb()?.decide(&mut draft)? {
            Verdict::Said(said) => said,
            Verdict::Ask(asked) => {
                let waits = || Failure::unavailable("the processor takes its time, or is down");
                let answer = at_once(&asked.question.ask()).ok_or_else(waits);
                let answer = answer.map_err(Rejection::Failed)?;
                questions::answered(&asked, answer, &mut draft)?
            }
        };
        draft.decided(said)
    }

    async fn alone(&self, tx: &mut PgConnection) -> Result<Reply, Rejection> {
        let mut rows = Rows::default();
        read_rounds(self, &mut rows, tx).await?;
        let mut draft = self.draft(&rows, transaction_time(tx).await?);
        let said = match self.verb()?.decide(&mut draft)? {
            Verdict::Said(said) => said,
            Verdict::Ask(asked) => {
                let answer = authorize(tx, &asked.question.ask(), &self.slow_lane).await?;
                questions::answered(&asked, answer, &mut draft)?
            }
        };
        let changes = draft.into_changes();
        let has_looked = rows.has_looked();
        let written = rows.write_with(tx, changes).await;
        written.map_err(|error| not_written(error, has_looked))?;
        said.expanded(&self.origin, tx).await
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
    ) -> Result<BeginOutcome, Rejection> {
        let mut rows = Rows::default();
        read_rounds(self, &mut rows, tx).await?;
        let mut draft = self.draft(&rows, transaction_time(tx).await?);
        let step = self.verb()?.decide(&mut draft)?;
        let changes = draft.into_changes();
        let has_looked = rows.has_looked();
        let written = rows.write_with(tx, changes).await;
        written.map_err(|error| not_written(error, has_looked))?;
        match step {
            Verdict::Said(said) => Ok(BeginOutcome::Replied(
                said.expanded(&self.origin, tx).await?,
            )),
            Verdict::Ask(asked) => {
                let effect = Effect::Verb(*asked);
                self.origin.begin_effect(tx, operation, effect).await
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
    ) -> Result<Begun<Changes, Operation>, Rejection> {
        let mut draft = self.draft(rows, now);
        let asked = match self.verb()?.decide(&mut draft)? {
            Verdict::Said(said) => return draft.decided(said).map(Begun::Decided),
            Verdict::Ask(asked) => asked,
        };
        let charge = draft.get::<Charge>(asked.question.ask().charge());
        let took = charge.and_then(|charge| charge.processor.as_deref());
        let processor = took.or(draft.processor).unwrap_or_default();
        let effect = Effect::Verb(*asked);
        let resource_id = Some(effect.resource());
        let operation = self.origin.operation(operation, effect, processor);
        draft.begin(operation.clone());
        Ok(Begun::Asks {
            changes: draft.into_changes(),
            operation,
            resource_id,
        })
    }
}

/// The last step of a verb that has asked a processor across a network.
pub struct Completion {
    /// The origin of the request that asked.
    pub(super) origin: Origin,
    /// The processor.
    pub(super) processor: String,
    /// The operation that is completed.
    pub(super) operation: Uuid,
    /// What it asked.
    pub(super) asked: Asked,
    /// The answer.
    pub(super) answer: Answer,
}

impl Decide for Completion {
    type Rows = Rows;

    fn reads(&self, rows: &Rows) -> Vec<RowName> {
        let account = self.origin.account;
        let named = questions::reads(&self.asked.question, &SeenRows { account, rows });
        named.into_iter().map(|id| (account, id)).collect()
    }

    fn is_shared(&self) -> bool {
        self.asked.expand.is_empty()
    }

    fn decide(&self, rows: &Rows, now: DateTime<Utc>) -> Result<Decision<Changes>, Rejection> {
        let mut draft = Draft::new(&self.origin, now, Some(&self.processor), rows);
        let said = questions::answered(&self.asked, self.answer, &mut draft)?;
        draft.end(self.operation, self.answer);
        draft.decided(said)
    }

    /// Its reply, about.
    fn weight(&self) -> usize {
        1024
    }
}

/// Why rows were not written. What was read without a lock may have changed since, such as an
/// order's name that was free: the whole transaction runs again then. A lock that was forgotten is
/// a defect.
fn not_written(error: sqlx::Error, has_looked: bool) -> Failure {
    if has_looked && matches!(error, sqlx::Error::RowNotFound) {
        return Failure {
            run_again: RunAgain::AtOnce,
            ..Failure::busy("a row is not as it was read")
        };
    }
    error.into()
}

/// Runs rules inside a transaction that has its key already, for what is not a verb of its own: a
/// step of a checkout, and the answer of a processor across a network.
pub(super) async fn in_transaction<T>(
    origin: &Origin,
    processor: Option<&str>,
    tx: &mut PgConnection,
    reads: impl Fn(&SeenRows<'_>) -> Vec<RowId>,
    decide: impl FnOnce(&mut Draft<'_>) -> Result<T, Rejection>,
) -> Result<T, Rejection> {
    let mut rows = Rows::default();
    let account = origin.account;
    loop {
        let named = reads(&SeenRows {
            account,
            rows: &rows,
        });
        if !rows
            .read_more(tx, named.into_iter().map(|id| (account, id)))
            .await?
        {
            break;
        }
    }
    let mut draft = Draft::new(origin, transaction_time(tx).await?, processor, &rows);
    let decided = decide(&mut draft)?;
    let changes = draft.into_changes();
    rows.write_with(tx, changes).await?;
    Ok(decided)
}
