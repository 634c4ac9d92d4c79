//! `POST /checkouts`: runs its steps one after the other, and continues them after a crash.
//!
//! Promise: the client's key stays in flight, with a lease, until the checkout has ended. The
//! holder of the lease reads the next step from the checkout's table and runs it with that step's
//! key. A crash, a failure or an unknown outcome ends the run, and the next run continues with the
//! next step of the table. If a late holder and its successor run one checkout, the keys of the
//! steps decide: each step runs once.

use std::{sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use uuid::Uuid;

use super::{
    RunStep,
    create::{end_checkout, set_out_for_next_step},
};
use crate::{
    commands::{NO_PROCESSOR, NetworkPhases, SlowLane},
    database::Database,
    domain::{
        checkout::{CheckoutRun, StepName},
        ids::{AccountId, CheckoutId},
    },
    idempotency::{
        CallOutcome, ExternalEffect, Failure, FailureKind, Idempotency, Outcome, Phases, Reply,
        Request,
    },
    store,
};

/// The way to run checkouts.
pub type CheckoutPhases = Phases<CheckoutSteps>;

/// The steps of checkouts, as the one call between a checkout's beginning and its end.
pub struct CheckoutSteps {
    /// The one way to write.
    pub idempotency: Idempotency,
    /// Where a checkout's steps are read.
    pub database: Database,
    /// For `tok_slow`, where the processor is simulated.
    pub slow_lane: SlowLane,
    /// The name of the processor across a network, if there is one.
    pub processor: Option<Arc<str>>,
    /// Runs steps in phases, where the processor is across a network.
    pub network: Option<NetworkPhases>,
    /// How long a run waits for a step that another run executes: as long as a transaction may
    /// take, so that only a step across the network ends the run.
    pub step_wait: Duration,
}

impl ExternalEffect for CheckoutSteps {
    const KIND: &'static str = "checkout";
    type Operation = CheckoutRun;
    type Answer = ();

    async fn read(
        &self,
        tx: &mut PgConnection,
        account_id: Uuid,
        operation: Uuid,
    ) -> Result<CheckoutRun, Failure> {
        set_out_for_next_step(tx, AccountId(account_id), CheckoutId(operation)).await
    }

    /// Never says "not executed": what has run stays, and the same key goes on from there.
    async fn call(&self, begun: &CheckoutRun, _: DateTime<Utc>) -> CallOutcome<()> {
        match self.run(begun.clone()).await {
            Ok(()) => CallOutcome::Answered(()),
            Err(failure) => CallOutcome::Unknown(failure),
        }
    }

    async fn complete(
        &self,
        tx: &mut PgConnection,
        begun: &CheckoutRun,
        (): &(),
    ) -> Result<Reply, Failure> {
        end_checkout(tx, begun.account, begun.checkout.id).await
    }

    /// Only where no step was run.
    async fn release(&self, tx: &mut PgConnection, begun: &CheckoutRun) -> Result<(), Failure> {
        Ok(store::checkouts::delete(tx, begun.account, begun.checkout.id).await?)
    }
}

impl CheckoutSteps {
    /// Runs steps until none is left.
    async fn run(&self, mut run: CheckoutRun) -> Result<(), Failure> {
        while let Some(step) = run.checkout.next() {
            self.run_step(&run, step).await?;
            run = self.read_again(&run).await?;
            if run.checkout.next() == Some(step) {
                return Err(not_done(&run, step));
            }
        }
        Ok(())
    }

    /// Runs one step, or finds that it was run.
    async fn run_step(&self, run: &CheckoutRun, step: StepName) -> Result<(), Failure> {
        let request = self.request(run, step)?;
        let command = RunStep {
            account: run.account,
            checkout: run.checkout.id,
            step,
            slow_lane: self.slow_lane.clone(),
            processor: self.processor.clone(),
        };
        let outcome = match &self.network {
            Some(network) => network.phases.run(request, command).await,
            None => self.idempotency.run(request, command).await,
        };
        let what = |cause: &str| format!("{} of {}: {cause}", step.as_str(), run.checkout.id);
        match outcome {
            // Its outcome is in the checkout's table.
            Outcome::Stored { .. } => Ok(()),
            Outcome::InUse => Err(Failure::unavailable(what("another process runs this step"))),
            Outcome::Unfinished => Err(Failure::unsupported(what(&format!(
                "it was begun with a processor across a network, and {NO_PROCESSOR}"
            )))),
            Outcome::Reused => Err(Failure::internal(what("its key is another request's"))),
            // "Busy" would say that nothing was done, and earlier steps were.
            Outcome::Failed(failure) => Err(match failure.kind {
                FailureKind::Internal => Failure::internal(what(&failure.cause)),
                FailureKind::Unsupported => Failure::unsupported(what(&failure.cause)),
                FailureKind::Busy | FailureKind::Unavailable => {
                    Failure::unavailable(what(&failure.cause))
                }
            }),
        }
    }

    async fn read_again(&self, run: &CheckoutRun) -> Result<CheckoutRun, Failure> {
        let (account, id) = (run.account, run.checkout.id);
        self.database
            .of(account.0)
            .read(move |connection| Box::pin(store::checkouts::find(connection, account, id)))
            .await?
            .ok_or_else(|| Failure::internal("a checkout is gone"))
    }

    /// A step as a request of its own, always the same one. Its key is in a scope that no client
    /// can write; a refund that the processor refused to make is followed by another one, under a
    /// new key.
    fn request(&self, run: &CheckoutRun, step: StepName) -> Result<Request, Failure> {
        let path = format!("/checkouts/{}/{}", run.checkout.id, step.as_str());
        let path = match step {
            StepName::CreateRefund => format!("{path}/{}", run.refused_refunds),
            StepName::CreateOrder
            | StepName::CreateCharge
            | StepName::AllocateInventory
            | StepName::CancelOrder => path,
        };
        let request_id = run.request_id.clone();
        Request::reserved(run.account.0, path, request_id, self.step_wait)
            .map_err(Failure::internal)
    }
}

/// A step that ended and is still the next one. Only a refund may: the processor refused to make
/// it.
fn not_done(run: &CheckoutRun, step: StepName) -> Failure {
    let id = run.checkout.id;
    match step {
        StepName::CreateRefund => {
            Failure::unavailable(format!("create_refund of {id} was refused"))
        }
        StepName::CreateOrder
        | StepName::CreateCharge
        | StepName::AllocateInventory
        | StepName::CancelOrder => Failure::internal(format!(
            "{} of {id} has run by its record, and not by the checkout's table",
            step.as_str()
        )),
    }
}
