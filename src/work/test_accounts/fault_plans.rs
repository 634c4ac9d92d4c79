//! `POST /test/faults`, and DELETE with a key: have faults act on the account's requests or
//! webhooks, or no more.
//!
//! Locks    the plan that is deleted
//! Writes   one fault plan
//! Emits    nothing
//! Refuses  an unknown route, fault or type of event; a plan too many, or one that is gone

use charge_once_service::edge::KnownRoutes;
use charge_once_strict_params::Params;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::commands::{
    Origin,
    replies::{CREATED, OK, checked},
};
use crate::{
    domain::ids::FaultPlanId,
    idempotency::{Command, Rejection, Reply},
    store::fault_plans,
    wire::fault_plans::{
        CreateFaultPlanParams, DeletedFaultPlanView, FaultPlanView, too_many_plans,
    },
};

/// Creates a fault plan.
pub struct CreateFaultPlan {
    /// The request's origin: a test account, or the dev account.
    pub origin: Origin,
    /// As decoded; checked here, so that a wrong one is a stored refusal.
    pub params: Params,
    /// The routes that a plan can be about.
    pub routes: &'static KnownRoutes,
}

impl Command for CreateFaultPlan {
    async fn execute(&self, tx: &mut PgConnection) -> Result<Reply, Rejection> {
        let params: CreateFaultPlanParams = checked(&self.params)?;
        let plan = params.plan(FaultPlanId(Uuid::now_v7()), self.routes)?;
        let written = fault_plans::insert(tx, self.origin.account, &plan).await?;
        let view = FaultPlanView::from(&written.ok_or_else(too_many_plans)?);
        let mut reply = Reply::json(CREATED, &view)?;
        reply.resource_id = Some(view.id);
        Ok(reply)
    }
}

/// Deletes a fault plan under an idempotency key.
pub struct DeleteFaultPlan {
    /// The request's origin. Its path names the plan.
    pub origin: Origin,
    /// As decoded; there may be none, and that refusal is stored.
    pub params: Params,
}

impl Command for DeleteFaultPlan {
    async fn execute(&self, tx: &mut PgConnection) -> Result<Reply, Rejection> {
        checked::<()>(&self.params)?;
        let id = FaultPlanId::parse(&self.origin.path_id);
        let gone = || self.origin.missing("id", id);
        let found = id.ok_or_else(gone)?;
        if !fault_plans::delete(tx, self.origin.account, found).await? {
            return Err(gone().into());
        }
        Ok(Reply::json(
            OK,
            &DeletedFaultPlanView::of(found.to_string()),
        )?)
    }
}
