//! A request in a batch, and how it leaves.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use tokio::sync::oneshot;
use tracing::Span;

use super::decide::{Decide, Decision, Rows};
use crate::{Outcome, Rejection, Request, in_flight::Leadership};

/// A request in a batch. Dropped without an answer, it runs alone: that is how it ends wherever a
/// batch fails before COMMIT.
pub(super) struct Member<R> {
    pub(super) request: Request,
    pub(super) command: Arc<dyn Decider<R>>,
    /// Whether it has named a row.
    pub(super) has_read: bool,
    pub(super) leadership: Arc<Leadership>,
    pub(super) answer: oneshot::Sender<Ended>,
    /// Its wait for the batch.
    pub(super) span: Span,
}

/// A command of any type that shares these rows: [`Decide`], as far as a batch asks for it.
pub(super) trait Decider<R: Rows>: Send + Sync {
    fn reads(&self, rows: &R) -> Vec<R::Name>;

    fn decide(&self, rows: &R, now: DateTime<Utc>) -> Result<Decision<R::Changes>, Rejection>;
}

impl<D: Decide> Decider<D::Rows> for D {
    fn reads(&self, rows: &D::Rows) -> Vec<<D::Rows as Rows>::Name> {
        Decide::reads(self, rows)
    }

    fn decide(
        &self,
        rows: &D::Rows,
        now: DateTime<Utc>,
    ) -> Result<Decision<<D::Rows as Rows>::Changes>, Rejection> {
        Decide::decide(self, rows, now)
    }
}

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
            command,
            has_read: false,
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
