//! Requests with an effect outside the database, whose first and last transactions are shared.
//!
//! Promise: what [`Phases`] promises. The steps are the same, under the same leases; what no batch
//! can serve runs as by [`Phases::run`].

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

use chrono::{DateTime, Utc};
use tokio::time::Instant;
use uuid::Uuid;

use super::{
    Batches, Decide, Decision, RanAlone, Rows,
    alone::Running,
    member::{Decider, Ended, Ending, Pending, Stage},
};
use crate::{
    Begin, CallOutcome, ExternalEffect, Outcome, Phases, Rejection, Request, Verdict, conclude,
    in_flight::Leadership,
    lock,
    phases::{CompletionOutcome, LeasedOperation, lease::Lease},
};

/// A first step that can be decided from rows. Its [`Begin`] is for requests that run alone, and
/// its [`Decide`] names the rows.
pub trait SharedBegin: Begin + Decide {
    /// What is written down for the other steps.
    type Operation: Send + Sync + 'static;

    /// Decides, without a side effect: it may be asked again. `operation` is the key that the
    /// effect will be asked for under.
    fn begin_from(
        &self,
        rows: &Self::Rows,
        now: DateTime<Utc>,
        operation: Uuid,
    ) -> Result<FirstVerdict<Self>, Rejection>;
}

/// What a first step has decided: a definite outcome, or to ask for the effect.
pub type FirstVerdict<B> = Verdict<
    Decision<<<B as Decide>::Rows as Rows>::Changes>,
    Begun<<<B as Decide>::Rows as Rows>::Changes, <B as SharedBegin>::Operation>,
>;

/// What a first step has decided to ask for, when `changes` are committed, which write `operation`
/// down.
#[derive(Debug)]
pub struct Begun<C, O> {
    /// What is reserved, and written down.
    pub changes: C,
    /// What the other steps need.
    pub operation: O,
    /// The id of what it makes or changes, for a look at the key meanwhile.
    pub resource_id: Option<String>,
}

/// An effect whose last step can be decided from rows.
pub trait SharedEffect: ExternalEffect {
    /// What its steps read and write.
    type Rows: Rows;
    /// Writes the outcome.
    type Completion: Decide<Rows = Self::Rows>;

    /// The last step for this answer.
    fn completion(&self, operation: &Self::Operation, answer: &Self::Answer) -> Self::Completion;
}

/// Phases that share transactions. Cheap to clone.
pub struct SharedPhases<E: SharedEffect> {
    /// For what runs alone.
    pub phases: Phases<E>,
    batches: Batches<E::Rows>,
}

impl<E: SharedEffect> Clone for SharedPhases<E> {
    fn clone(&self) -> Self {
        Self {
            phases: self.phases.clone(),
            batches: self.batches.clone(),
        }
    }
}

/// A first step in a batch, and what it has decided to ask for.
struct FirstStep<B: SharedBegin> {
    begin: B,
    asked: Mutex<Option<(Uuid, B::Operation)>>,
    /// For as long as the request lasts, as in [`Phases::run`].
    may_begin: AtomicBool,
}

impl<B: SharedBegin> FirstStep<B> {
    /// What was decided last, if it is this operation.
    fn take(&self, operation: Uuid) -> Option<B::Operation> {
        let (id, asked) = lock(&self.asked).take()?;
        (id == operation).then_some(asked)
    }
}

impl<B: SharedBegin> Decider<B::Rows> for FirstStep<B> {
    fn reads(&self, rows: &B::Rows) -> Vec<<B::Rows as Rows>::Name> {
        self.begin.reads(rows)
    }

    fn decide(
        &self,
        rows: &B::Rows,
        now: DateTime<Utc>,
    ) -> Result<Ending<<B::Rows as Rows>::Changes>, Rejection> {
        let id = Uuid::now_v7();
        match self.begin.begin_from(rows, now, id)? {
            Verdict::Answered(decision) => Ok(decision.into()),
            Verdict::Pending(Begun {
                changes,
                operation,
                resource_id,
            }) => {
                *lock(&self.asked) = Some((id, operation));
                Ok(Ending {
                    recorded: Verdict::Pending(Pending {
                        operation: id,
                        resource_id,
                    }),
                    changes: Some(changes),
                })
            }
        }
    }
}

impl<E: SharedEffect> SharedPhases<E> {
    /// Both work on the same tables.
    pub fn new(phases: Phases<E>, batches: Batches<E::Rows>) -> Self {
        Self { phases, batches }
    }

    /// Runs a verb as [`Phases::run`] does, and shares its transactions with other requests.
    pub async fn run<B: SharedBegin<Rows = E::Rows, Operation = E::Operation>>(
        &self,
        request: Request,
        begin: B,
    ) -> Outcome {
        let first = Arc::new(FirstStep {
            begin,
            asked: Mutex::default(),
            may_begin: AtomicBool::new(true),
        });
        let idempotency = &self.batches.shared.idempotency;
        let running = idempotency.lead_or_follow(request.unsealed(), |_, request, leadership| {
            let (this, first) = (self.clone(), Arc::clone(&first));
            Box::pin(async move {
                let leadership = Arc::new(leadership);
                let conclusion = this.lead(&request, &first, &leadership).await;
                conclude(&request, &leadership, conclusion)
            })
        });
        running.await
    }

    async fn lead<B: SharedBegin<Rows = E::Rows, Operation = E::Operation>>(
        &self,
        request: &Request,
        first: &Arc<FirstStep<B>>,
        leadership: &Arc<Leadership>,
    ) -> Outcome {
        let mut because = RanAlone::Undecided;
        let (begin, may_begin) = (&first.begin, &first.may_begin);
        if begin.is_shared() && may_begin.load(Ordering::Relaxed) {
            let step = Stage::Begins {
                kind: E::KIND,
                length: self.phases.lease,
            };
            let joining = (Arc::clone(first) as _, step, begin.weight());
            let until = self.batches.shared.idempotency.answered_by();
            match self.batches.join(request, joining, leadership, until).await {
                Ok(Ended::Concluded(conclusion)) => return conclusion,
                Err(why) => because = why,
                Ok(Ended::Undecided | Ended::LeaseLost) => {}
                Ok(Ended::Begun(begun)) => {
                    match self.go_on(request, first, *begun, leadership).await {
                        Some(conclusion) => return conclusion,
                        // Its outcome counts, and this request must not begin another one.
                        None => may_begin.store(false, Ordering::Relaxed),
                    }
                }
            }
        }
        // Until its first transaction ends: a call takes as long as the other side does.
        let mut running = self.enter_alone(request, because);
        let began = |held_up| {
            if let Some(running) = running.take() {
                running.leave(held_up);
            }
        };
        let alone = &self.phases;
        Box::pin(alone.lead(request, begin, may_begin, leadership, began)).await
    }

    /// Asks for what was begun, and completes it. `None`: another process concludes it.
    async fn go_on<B: SharedBegin<Operation = E::Operation>>(
        &self,
        request: &Request,
        first: &FirstStep<B>,
        (lease, leased_until): (Lease, DateTime<Utc>),
        leadership: &Arc<Leadership>,
    ) -> Option<Outcome> {
        // It was decided for this lease. Without it, the lease waits for its end.
        let operation = first.take(lease.operation)?;
        let leased = LeasedOperation {
            lease,
            leased_until,
            operation,
        };
        let called = self.phases.call(&leased).await;
        let deadline = self.phases.complete_by();
        let completing = async {
            let because = match self.complete(request, &leased, &called, leadership).await {
                Ok(completed) => return Ok(completed),
                Err(because) => because,
            };
            let running = self.enter_alone(request, because);
            let completed = self.phases.complete(&leased, &called, deadline).await;
            if let Some(running) = running {
                running.leave(completed.is_err());
            }
            completed
        };
        let completed = self.phases.conclude(&leased, &called, completing);
        completed.await.conclusion(false)
    }

    /// Lets the account's requests run alone until this one has run, if its batch failed or the
    /// account is held already. `None`: a batch could not decide the request, and came to no harm.
    fn enter_alone(&self, request: &Request, because: RanAlone) -> Option<Running<'_>> {
        let batches = &self.batches.shared;
        batches.observer.ran_alone(because);
        let is_suspect = because != RanAlone::Undecided;
        is_suspect.then(|| batches.alone.enter(request.account_id, because))
    }

    /// Completes in a batch. An error: nothing is known of it, and [`Phases`] asks the lease first.
    async fn complete(
        &self,
        request: &Request,
        leased: &LeasedOperation<E::Operation>,
        called: &CallOutcome<E::Answer>,
        leadership: &Arc<Leadership>,
    ) -> Result<CompletionOutcome, RanAlone> {
        let undecided = RanAlone::Undecided;
        let CallOutcome::Answered(answer) = called else {
            return Err(undecided);
        };
        let completion = self.phases.effect.completion(&leased.operation, answer);
        if !completion.is_shared() {
            return Err(undecided);
        }
        let bytes = completion.weight();
        let step = Stage::Completes(leased.lease.clone());
        let joining = (Arc::new(completion) as _, step, bytes);
        // The other half is for the attempts alone.
        let deadline = self.batches.shared.idempotency.settings.database_deadline;
        let until = Instant::now() + deadline / 2;
        match self
            .batches
            .join(request, joining, leadership, until)
            .await?
        {
            Ended::Concluded(Outcome::Stored { record, .. }) => {
                Ok(CompletionOutcome::Completed(record))
            }
            Ended::LeaseLost => Ok(CompletionOutcome::LeaseLost),
            Ended::Concluded(_) | Ended::Begun(_) | Ended::Undecided => Err(undecided),
        }
    }
}
