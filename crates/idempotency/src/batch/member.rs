//! A request in a batch, and what it is decided to be.

use std::{future::Future, sync::Arc};

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use tokio::sync::oneshot;
use tracing::Span;

use super::Decide;
use crate::{Outcome, Rejection, Reply, Request, in_flight::Leadership};

/// What an application writes for one request: rows that are decided, of whatever tables.
pub trait Rows: Send + Sized + 'static {
    /// Writes the rows of many requests, with a statement for each table rather than for each row.
    /// It neither begins nor commits, not even a savepoint by `tx.begin()`: sqlx does not know of
    /// this transaction. It fails if a row is not written.
    fn write(
        tx: &mut PgConnection,
        rows: Vec<Self>,
    ) -> impl Future<Output = Result<(), sqlx::Error>> + Send;
}

/// A definite outcome, before anything is written.
#[derive(Debug)]
pub struct Decision<R> {
    /// The answer to save.
    pub reply: Reply,
    /// What to write with it; nothing for a refusal.
    pub rows: Option<R>,
}

/// A request in a batch. Dropped without an answer, it runs alone: that is how it ends wherever a
/// batch fails before COMMIT.
pub(super) struct Member<R> {
    pub(super) request: Request,
    pub(super) decide: Decider<R>,
    pub(super) leadership: Arc<Leadership>,
    pub(super) answer: oneshot::Sender<Ended>,
    /// Its wait for the batch.
    pub(super) span: Span,
}

/// Decides for a command of any type.
pub(super) type Decider<R> = Box<dyn Fn(DateTime<Utc>) -> Result<Decision<R>, Rejection> + Send>;

/// How a request left its batch.
pub(super) enum Ended {
    Concluded(Outcome),
    /// It takes more than a batch does, and did no harm to this one.
    Undecided,
}

impl<R: Rows> Member<R> {
    /// The request, and where its answer arrives.
    pub(super) fn new<C: Decide<Rows = R>>(
        request: &Request,
        command: Arc<C>,
        leadership: &Arc<Leadership>,
        span: Span,
    ) -> (Self, oneshot::Receiver<Ended>) {
        let (answer, answered) = oneshot::channel();
        let member = Self {
            request: request.clone(),
            decide: Box::new(move |now| command.decide(now)),
            leadership: Arc::clone(leadership),
            answer,
            span,
        };
        (member, answered)
    }
}

impl<R> Member<R> {
    pub(super) fn conclude(self, conclusion: Outcome) {
        self.end(Ended::Concluded(conclusion));
    }

    /// Leaves the batch. The task that waits ends only with the runtime.
    pub(super) fn end(self, ended: Ended) {
        drop(self.answer.send(ended));
    }
}
