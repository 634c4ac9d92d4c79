//! What a verb is: a function over the rows that it needs.
//!
//! ```text
//! reads      which rows are locked and read, in at most three rounds
//! decide     the rules: pure; a reply, or a question to the card
//! answered   the card's answer, in the same transaction or in a later one
//! withdraw   undoes what a question reserved that was never asked
//! ```

use super::{Noun, Rows};
use crate::commands::prelude::*;

/// The rules of one verb, with its parameters.
pub trait Rules: Send + Sync + 'static {
    /// The rows that it needs next, given those that were read. It is asked again after each round,
    /// and names rows that were read already, too.
    fn reads(&self, seen: &SeenRows<'_>) -> Vec<RowId>;

    /// Decides. It has read what [`Rules::reads`] named, and may be asked again.
    fn decide(&self, draft: &mut Draft<'_>) -> Result<Verdict, Rejection>;

    /// The card that it asks, if the parameters name one.
    fn card(&self) -> Option<Card> {
        None
    }
}

/// A request about the object that its path names.
pub struct On<Id, P> {
    /// The object; `None` if the path names none of its kind.
    pub id: Option<Id>,
    /// What the request says.
    pub params: P,
}

impl<Id: ObjectId, P> On<Id, P> {
    /// The request with these parameters about what the path names by `id`.
    pub fn of(id: &str, params: P) -> Self {
        Self {
            id: Id::parse(id),
            params,
        }
    }
}

/// The rows of one account.
pub struct SeenRows<'a> {
    /// The account.
    pub account: AccountId,
    /// What was read.
    pub rows: &'a Rows,
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

/// What a verb has decided: what the client is told, or what the card is to be asked first.
pub type Verdict = crate::idempotency::Verdict<Said, Box<Question>>;

/// The verb has ended, and shows an object.
pub fn show(status: u16, object: impl Into<Object>) -> Verdict {
    Verdict::Answered(Said::show(status, object))
}

/// The card is to be asked.
pub fn ask(question: Question) -> Verdict {
    Verdict::Pending(Box::new(question))
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
    },
}

impl Said {
    /// Shows an object.
    pub fn show(status: u16, object: impl Into<Object>) -> Self {
        Self::Show {
            status,
            object: Box::new(object.into()),
        }
    }
}

/// What a reply shows.
#[derive(derive_more::From)]
pub enum Object {
    /// A [`Charge`].
    Charge(Charge),
    /// An [`Order`].
    Order(Order),
    /// A [`PaymentIntent`].
    PaymentIntent(PaymentIntent),
    /// A [`Refund`].
    Refund(Refund),
    /// A [`SetupIntent`].
    SetupIntent(SetupIntent),
    /// A [`PaymentMethod`].
    PaymentMethod(PaymentMethod),
    /// A [`Customer`].
    Customer(Customer),
}
