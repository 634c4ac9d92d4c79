//! `POST /checkouts`: runs its steps one after the other, and continues them after a crash.
//!
//! Promise: the client's key stays in flight, with a lease, until the checkout has ended. The
//! holder of the lease reads the next step from the checkout's table and runs it with that step's
//! key. A crash, a failure or an unknown outcome ends the run, and the next run continues with the
//! next step of the table. If a late holder and its successor run one checkout, the keys of the
//! steps decide: each step runs once.

use std::{sync::Arc, time::Duration};

use charge_once_strict_params::Expansion;
use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use uuid::Uuid;

use super::{NetworkPhases, RunVerb, SlowLane, expansions::plain_reply, in_transaction};
use crate::{
    commands::{Draft, NO_PROCESSOR, Origin, RowId, SeenRows, Server, checkouts},
    database::Database,
    domain::{
        checkout::{Checkout, NewCheckout, StepName},
        ids::{AccountId, CheckoutId},
        operation::Resolution,
    },
    idempotency::{
        Begin, CallOutcome, Command, ExternalEffect, Failure, FailureKind, Idempotency, Outcome,
        Phases, Rejection, Reply, Request, Verdict,
    },
    store,
    telemetry::traces,
    wire::error::ApiError,
};

/// Begins a checkout.
pub struct CreateCheckout {
    /// The request's origin.
    pub origin: Origin,
    /// What is bought, or why the parameters are refused: that is stored like any other outcome.
    pub new: Result<NewCheckout, ApiError>,
}

impl Begin for CreateCheckout {
    async fn begin(
        &self,
        tx: &mut PgConnection,
        operation: Uuid,
    ) -> Result<Verdict<Reply, Option<String>>, Rejection> {
        let new = self.new.clone()?;
        let id = CheckoutId(operation);
        let begin = |draft: &mut Draft<'_>| {
            checkouts::begin(draft, id, new);
            Ok(())
        };
        in_transaction(&self.origin, Server::default(), tx, |_| Vec::new(), begin).await?;
        Ok(Verdict::Pending(Some(id.to_string())))
    }
}

/// A checkout that is under way, with its account.
#[derive(Debug, Clone)]
pub struct CheckoutRun {
    account: AccountId,
    checkout: Checkout,
}

impl CheckoutRun {
    /// The origin of its request, for all of its steps.
    fn origin(&self) -> Origin {
        Origin {
            account: self.account,
            asked_by: self.checkout.asked_by.clone(),
            traceparent: traces::traceparent(),
            path_id: String::new(),
        }
    }
}

/// The way to run checkouts.
pub type CheckoutPhases = Phases<CheckoutSteps>;

/// The steps of checkouts, as the one call between a checkout's beginning and its end.
pub struct CheckoutSteps {
    /// Runs steps where the processor is simulated.
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
        let (account, id) = (AccountId(account_id), CheckoutId(operation));
        let locked = store::checkouts::lock_all(tx, &[(account, id)]).await?;
        let (_, found) = locked.into_iter().next().ok_or_else(gone)?;
        let version = found.version;
        let mut checkout = found.attempted();
        checkout.version += 1;
        store::checkouts::update_all(tx, &[(account, &checkout, version)]).await?;
        store::checkouts::put_steps(tx, [(account, &checkout)].into_iter()).await?;
        Ok(CheckoutRun { account, checkout })
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
        let (origin, id) = (begun.origin(), begun.checkout.id);
        let reads = |_: &SeenRows<'_>| vec![RowId::Checkout(id)];
        let ended = in_transaction(&origin, Server::default(), tx, reads, |draft| {
            checkouts::end(draft, id)
        });
        ended.await.map_err(|rejection| match rejection {
            Rejection::Failed(failure) => failure,
            Rejection::Refused(_) => Failure::internal("the end of a checkout was refused"),
        })
    }

    /// Only where no step was run.
    async fn release(&self, tx: &mut PgConnection, begun: &CheckoutRun) -> Result<(), Failure> {
        let gone = [(begun.account, begun.checkout.id)];
        Ok(store::checkouts::delete_all(tx, &gone).await?)
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
        let command = RunVerb {
            origin: run.origin(),
            verb: Ok(checkouts::RunStep {
                checkout: run.checkout.id,
                step,
            }),
            // It shares its transaction with none.
            weight: 0,
            expand: Expansion::default(),
            slow_lane: self.slow_lane.clone(),
            processor: self.processor.clone(),
            public_url: None,
        };
        let outcome = match &self.network {
            Some(network) => network.phases.run(request, command).await,
            None => self.idempotency.run(request, command).await,
        };
        let what = |cause: &str| format!("{} of {}: {cause}", step.as_str(), run.checkout.id);
        match outcome {
            // Its outcome is in the checkout's table.
            Outcome::Stored { .. } => Ok(()),
            Outcome::InUse { .. } => {
                Err(Failure::unavailable(what("another process runs this step")))
            }
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
        let database = self.database.of(account.0);
        let found = database
            .read(move |connection| Box::pin(store::checkouts::find(connection, account, id)));
        let checkout = found.await?.ok_or_else(gone)?;
        Ok(CheckoutRun { account, checkout })
    }

    /// A step as a request of its own, always the same one. Its key is in a scope that no client
    /// can write; a refund that the processor refused to make is followed by another one, under a
    /// new key.
    fn request(&self, run: &CheckoutRun, step: StepName) -> Result<Request, Failure> {
        let path = format!("/checkouts/{}/{}", run.checkout.id, step.as_str());
        let path = match step {
            StepName::CreateRefund => format!("{path}/{}", run.checkout.refused_refunds),
            StepName::CreateOrder
            | StepName::CreateCharge
            | StepName::AllocateInventory
            | StepName::CancelOrder => path,
        };
        let request_id = run.checkout.asked_by.request_id.clone();
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

fn gone() -> Failure {
    Failure::internal("a checkout is gone")
}

/// Accepts a manual resolution that the money of a canceled checkout was returned, although the
/// refund was refused, by the processor or by an earlier resolution.
pub struct RefundedElsewhere {
    /// The account of the checkout.
    pub account: AccountId,
    /// Which checkout.
    pub checkout: CheckoutId,
    /// The refund that was refused.
    pub operation: Uuid,
    /// The person who says so.
    pub person: String,
}

impl Command for RefundedElsewhere {
    async fn execute(&self, tx: &mut PgConnection) -> Result<Reply, Rejection> {
        let (account, id) = (self.account, self.checkout);
        let found = store::checkouts::find(tx, account, id).await?;
        let checkout = found.ok_or_else(gone)?;
        let origin = CheckoutRun { account, checkout }.origin();
        let reads = |seen: &SeenRows<'_>| checkouts::refund_elsewhere_reads(seen, id);
        let refunded = |draft: &mut Draft<'_>| checkouts::refund_elsewhere(draft, id);
        let said = in_transaction(&origin, Server::default(), tx, reads, refunded).await?;
        let (operation, done) = (self.operation, Resolution::Done);
        store::manual_resolutions::insert(tx, account, operation, done, &self.person).await?;
        plain_reply(said, &origin)
    }
}
