//! What one request decides, on the rows that it shares with others.
//!
//! Promise: nothing here waits, reads a clock or touches the database. What is drafted becomes
//! visible to other requests only when all of it was decided: a refusal has changed nothing.

use chrono::{DateTime, Utc};

use super::{
    Origin,
    rows::{Changes, Noun, Row, RowId, Rows},
};
use crate::commands::prelude::*;

/// The server that decides, as the rules know it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Server<'a> {
    /// The name of the processor across a network that is asked; `None` where cards are simulated.
    pub processor: Option<&'a str>,
    /// What the addresses of pages begin with; `None` where no page is made.
    pub public_url: Option<&'a str>,
}

impl<'a> Server<'a> {
    /// The server for an answer of this processor, which leads to no page.
    pub fn answered_by(processor: &'a str) -> Self {
        Self {
            processor: Some(processor),
            public_url: None,
        }
    }
}

/// The rows that a request sees, and its changes.
pub struct Draft<'a> {
    /// The request's origin.
    pub origin: &'a Origin,
    /// The transaction's time.
    pub now: DateTime<Utc>,
    /// The server that decides.
    pub server: Server<'a>,
    rows: &'a Rows,
    changes: Changes,
}

impl<'a> Draft<'a> {
    /// No change yet.
    pub fn new(origin: &'a Origin, now: DateTime<Utc>, server: Server<'a>, rows: &'a Rows) -> Self {
        Self {
            origin,
            now,
            server,
            rows,
            changes: Changes::default(),
        }
    }

    /// All that was changed.
    pub fn into_changes(self) -> Changes {
        self.changes
    }

    /// The object with this id, if the account has it and the verb reads it.
    pub fn get<N: Noun>(&self, id: N::Id) -> Option<&N> {
        self.row(id)?.is.as_ref()
    }

    /// The object that the parameter `param` names. Refuses the request if there is none.
    pub fn find<N: Noun<Id: ObjectId>>(
        &self,
        id: Option<N::Id>,
        param: &str,
    ) -> Result<&N, Rejection> {
        let found = id.and_then(|id| self.get(id));
        found.ok_or_else(|| self.origin.missing(param, id).into())
    }

    /// The object that an earlier step or transaction made: `what`, should it be gone.
    pub fn known<N: Noun>(&self, id: Option<N::Id>, what: &str) -> Result<N, Rejection> {
        let found = id.and_then(|id| self.get::<N>(id));
        found.cloned().ok_or_else(|| lost(what))
    }

    fn row<N: Noun>(&self, id: N::Id) -> Option<&Row<N>> {
        let account = self.origin.account;
        let changed = N::table(&self.changes.tables).get(account, id.clone());
        changed.or_else(|| N::table(&self.rows.tables).get(account, id))
    }

    /// The order with this `client_order_id`, also one that a request before has opened.
    pub fn order_named(&self, name: &str) -> Option<&Order> {
        let account = self.origin.account;
        let read = self.rows.orders_by_name.get(&(account, name.to_owned()));
        read.or_else(|| {
            let mut orders = self.rows.tables.orders.of(account);
            orders.find(|order| order.terms.client_order_id.as_deref() == Some(name))
        })
    }

    /// The customer with this id, also if the verb has only looked at them.
    pub fn customer(&self, id: CustomerId) -> Option<&Customer> {
        let seen = || self.rows.customers_seen.get(&(self.origin.account, id));
        self.get::<Customer>(id).or_else(seen)
    }

    /// How many methods a customer has that the verb has counted. A new customer has none.
    pub fn methods_of(&self, customer: CustomerId) -> i64 {
        let counted = self.rows.methods_of.get(&(self.origin.account, customer));
        counted.copied().unwrap_or_default()
    }

    /// What is unfinished about a charge, an order or a new method that was read.
    pub fn open_work(&self, row: RowId) -> OpenWork {
        let found = self.rows.open_work.get(&(self.origin.account, row));
        found.copied().unwrap_or_default()
    }

    /// Makes an object, or changes one, and returns it. Each change raises its version.
    pub fn put<N: Noun>(&mut self, mut object: N) -> N {
        let id = object.id();
        let before = self.row::<N>(id.clone());
        let based_on = before.and_then(|row| row.based_on);
        if let Some(before) = before.and_then(|row| row.is.as_ref()) {
            *object.version_mut() = before.version() + 1;
        }
        let row = Row {
            is: Some(object.clone()),
            based_on,
            is_changed: true,
        };
        N::table_mut(&mut self.changes.tables).set(self.origin.account, id, row);
        object
    }

    /// Deletes an object.
    pub fn delete<N: Noun>(&mut self, id: N::Id) {
        let based_on = self.row::<N>(id.clone()).and_then(|row| row.based_on);
        let row = Row {
            is: None,
            based_on,
            is_changed: true,
        };
        N::table_mut(&mut self.changes.tables).set(self.origin.account, id, row);
    }

    /// Writes down what a processor across a network is to be asked.
    pub fn begin(&mut self, operation: Operation) {
        self.changes.begun.push(operation);
    }

    /// Writes down what that processor has answered.
    pub fn end(&mut self, operation: Uuid, answer: Answer) {
        let account = self.origin.account;
        self.changes.answered.push((account, operation, answer));
    }

    /// Tells of an event that happened to `object`, as it is now.
    pub fn emit<N: Noun>(&mut self, event: EventType, object: &N) -> Result<(), Rejection> {
        self.tell(event, None, object)
    }

    /// Makes an object, or changes one, tells of it, and returns it.
    pub fn put_with<N: Noun>(&mut self, event: EventType, object: N) -> Result<N, Rejection> {
        let object = self.put(object);
        self.tell(event, None, &object)?;
        Ok(object)
    }

    /// Changes an object from what it was `before`, tells of that, and returns it.
    pub fn put_change<N: Noun>(
        &mut self,
        event: EventType,
        before: &N,
        after: N,
    ) -> Result<N, Rejection> {
        let after = self.put(after);
        self.tell(event, Some(N::View::from(before)), &after)?;
        Ok(after)
    }

    fn tell<N: Noun>(
        &mut self,
        event: EventType,
        before: Option<N::View>,
        object: &N,
    ) -> Result<(), Rejection> {
        let (view, version) = (N::View::from(object), object.version());
        let event = self.origin.event(event, before.as_ref(), &view, version)?;
        self.changes.events.push(event);
        Ok(())
    }
}
