//! A request in a batch, and how it leaves.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use sqlx::postgres::types::PgInterval;
use tokio::sync::oneshot;
use tracing::Span;
use uuid::Uuid;

use super::decide::{Decide, Decision, Rows};
use crate::{
    Outcome, Rejection, Reply, Request, Verdict, in_flight::Leadership, phases::lease::Lease,
};

/// A request in a batch. Dropped without an answer, it runs alone: that is how it ends wherever a
/// batch fails before COMMIT.
pub(super) struct Member<R> {
    pub(super) request: Request,
    pub(super) command: Arc<dyn Decider<R>>,
    pub(super) step: Stage,
    /// Whether it has named a row.
    pub(super) has_read: bool,
    pub(super) leadership: Arc<Leadership>,
    pub(super) answer: oneshot::Sender<Ended>,
    /// Its wait for the batch.
    pub(super) span: Span,
}

/// What a request does in this transaction.
pub(super) enum Stage {
    /// All of it: it claims its key, and has its answer.
    Whole,
    /// It claims its key, and has its answer or leaves the key in flight, with such a lease.
    Begins {
        kind: &'static str,
        length: PgInterval,
    },
    /// It completes what this process has the lease of.
    Completes(Lease),
}

/// A command of any type that shares these rows: [`Decide`], as far as a batch asks for it.
pub(super) trait Decider<R: Rows>: Send + Sync {
    fn reads(&self, rows: &R) -> Vec<R::Name>;

    fn decide(&self, rows: &R, now: DateTime<Utc>) -> Result<Ending<R::Changes>, Rejection>;
}

/// What a request has decided: what its key's record says, and what is written with it.
pub(super) struct Ending<C> {
    pub(super) recorded: Verdict<Reply, Pending>,
    pub(super) changes: Option<C>,
}

/// What the record of a key says until it has a reply.
pub(super) struct Pending {
    pub(super) operation: Uuid,
    pub(super) resource_id: Option<String>,
}

impl<C> From<Decision<C>> for Ending<C> {
    fn from(decision: Decision<C>) -> Self {
        Self {
            recorded: Verdict::Answered(decision.reply),
            changes: decision.changes,
        }
    }
}

impl<D: Decide> Decider<D::Rows> for D {
    fn reads(&self, rows: &D::Rows) -> Vec<<D::Rows as Rows>::Name> {
        Decide::reads(self, rows)
    }

    fn decide(
        &self,
        rows: &D::Rows,
        now: DateTime<Utc>,
    ) -> Result<Ending<<D::Rows as Rows>::Changes>, Rejection> {
        Decide::decide(self, rows, now).map(Ending::from)
    }
}

/// How a request left its batch.
pub(super) enum Ended {
    Concluded(Outcome),
    /// Its key is in flight, and this process has the lease until then, by the database's clock.
    Begun(Box<(Lease, DateTime<Utc>)>),
    /// Another process has taken over what it wanted to complete.
    LeaseLost,
    /// It takes more than a batch does, and did no harm to this one.
    Undecided,
}

impl<R: Rows> Member<R> {
    /// The request, and where its answer arrives.
    pub(super) fn new(
        request: &Request,
        (command, step): (Arc<dyn Decider<R>>, Stage),
        leadership: &Arc<Leadership>,
        span: Span,
    ) -> (Self, oneshot::Receiver<Ended>) {
        let (answer, answered) = oneshot::channel();
        let member = Self {
            request: request.clone(),
            command,
            step,
            has_read: false,
            leadership: Arc::clone(leadership),
            answer,
            span,
        };
        (member, answered)
    }
}

impl<R> Member<R> {
    /// The lease that it has, if it completes something.
    pub(super) fn lease(&self) -> Option<&Lease> {
        match &self.step {
            Stage::Completes(lease) => Some(lease),
            Stage::Whole | Stage::Begins { .. } => None,
        }
    }

    pub(super) fn conclude(self, conclusion: Outcome) {
        self.end(Ended::Concluded(conclusion));
    }

    /// Leaves the batch. The task that waits ends only with the runtime.
    pub(super) fn end(self, ended: Ended) {
        drop(self.answer.send(ended));
    }
}
