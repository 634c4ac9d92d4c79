//! `POST /test/faults`: have faults act on the account's requests or webhooks.
//!
//! Locks    nothing
//! Writes   one fault plan
//! Emits    nothing
//! Refuses  an unknown route, fault or type of event; a plan too many

use charge_once_service::edge::KnownRoutes;
use charge_once_strict_params::Params;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::commands::{
    Origin,
    replies::{CREATED, checked},
};
use crate::{
    domain::ids::FaultPlanId,
    idempotency::{Command, Rejection, Reply},
    store::fault_plans,
    wire::fault_plans::{CreateFaultPlanParams, FaultPlanView, too_many_plans},
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
