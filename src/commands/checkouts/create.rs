//! `POST /checkouts`: an order, its charge and its items in one request.
//!
//! No transaction covers it, because a charge may be across a network. The request begins here, in
//! one transaction, and ends here, in another one; what lies between are the steps in `steps.rs`,
//! each a transaction or an operation of its own.
//!
//! Locks    the checkout, at the end
//! Writes   one checkout with its planned steps; at the end its status
//! Emits    checkout.completed or checkout.canceled
//! Refuses  parameters that are missing, unknown or wrong; at the end, what a step refused for good

use charge_once_strict_params::Params;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::commands::{
    Origin,
    replies::{CREATED, checked, stored_refusal},
};
use crate::{
    domain::{
        checkout::{CheckoutRun, CheckoutStatus, NewCheckout},
        event::EventType,
        ids::{AccountId, CheckoutId},
    },
    idempotency::{Begin, BeginOutcome, Failure, Rejection, Reply},
    store::{self, checkouts::AskedBy},
    telemetry::traces,
    wire::checkouts::{CheckoutView, CreateCheckoutParams, refusal_of},
};

/// Creates a checkout.
pub struct CreateCheckout {
    /// The request's origin.
    pub origin: Origin,
    /// As decoded; checked here, so that a wrong one is a stored refusal.
    pub params: Params,
}

impl Begin for CreateCheckout {
    async fn begin(
        &self,
        tx: &mut PgConnection,
        operation: Uuid,
    ) -> Result<BeginOutcome, Rejection> {
        let new = NewCheckout::from(checked::<CreateCheckoutParams>(&self.params)?);
        let Origin {
            account,
            dialect,
            api_version,
            request_id,
            idempotency_key,
            traceparent: _,
        } = &self.origin;
        let asked_by = AskedBy {
            dialect: *dialect,
            api_version: api_version.as_deref(),
            request_id,
            idempotency_key,
        };
        let id = CheckoutId(operation);
        store::checkouts::insert(tx, *account, id, &new, asked_by).await?;
        Ok(BeginOutcome::Begun {
            resource_id: Some(id.to_string()),
        })
    }
}

/// Reads a checkout for the process that is about to continue it, and counts the attempt.
pub(super) async fn set_out_for_next_step(
    tx: &mut PgConnection,
    account: AccountId,
    id: CheckoutId,
) -> Result<CheckoutRun, Failure> {
    let run = store::checkouts::lock(&mut *tx, account, id)
        .await?
        .ok_or_else(gone)?;
    store::checkout_steps::count_attempt(tx, account, id).await?;
    Ok(run)
}

/// Ends a checkout whose steps have all been run.
pub(super) async fn end_checkout(
    tx: &mut PgConnection,
    account: AccountId,
    id: CheckoutId,
) -> Result<Reply, Failure> {
    let run = store::checkouts::lock(&mut *tx, account, id)
        .await?
        .ok_or_else(gone)?;
    end(tx, run).await.map_err(|rejection| match rejection {
        Rejection::Failed(failure) => failure,
        Rejection::Refused(_) => Failure::internal("the end of a checkout was refused"),
    })
}

async fn end(tx: &mut PgConnection, run: CheckoutRun) -> Result<Reply, Rejection> {
    let ending = run.checkout.ending();
    let ended = store::checkouts::end(&mut *tx, run.account, run.checkout.id, ending).await?;
    let (origin, checkout) = (Origin::of(&run), ended.checkout);
    let (id, view) = (checkout.id.to_string(), CheckoutView::from(&checkout));
    match ending {
        CheckoutStatus::Completed => {
            let completed = EventType::CheckoutCompleted;
            origin.emit(tx, completed, &view).await?;
            origin.reply(CREATED, "checkouts", id, &view)
        }
        CheckoutStatus::Canceled | CheckoutStatus::InProgress => {
            let canceled = EventType::CheckoutCanceled;
            origin.emit(tx, canceled, &view).await?;
            let unknown = || Failure::internal("a checkout was refused with an unknown code");
            let refusal = refusal_of(&checkout).ok_or_else(|| Rejection::Failed(unknown()))?;
            let mut reply = stored_refusal(refusal)?;
            reply.resource_id = Some(id);
            Ok(reply)
        }
    }
}

impl Origin {
    /// The origin of a checkout's request, for all of its steps.
    pub(in crate::commands) fn of(run: &CheckoutRun) -> Self {
        Self {
            account: run.account,
            dialect: run.dialect,
            api_version: run.api_version.clone(),
            request_id: run.request_id.clone(),
            idempotency_key: run.idempotency_key.clone(),
            traceparent: traces::traceparent(),
        }
    }
}

fn gone() -> Failure {
    Failure::internal("a checkout is gone")
}
