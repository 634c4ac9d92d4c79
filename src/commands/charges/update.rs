//! `POST /charges/{id}`: change what is written on a charge, never its money.
//!
//! Locks    the charge
//! Writes   description, receipt_email, metadata
//! Emits    charge.updated, if anything changed
//! Refuses  parameters that are unknown or wrong
//! Fails    while the processor is asked for the charge

use charge_once_strict_params::Params;
use sqlx::PgConnection;

use crate::commands::{
    Origin,
    replies::{OK, checked, missing},
};
use crate::{
    domain::{charge::ChargeStatus, event::EventType, ids::ChargeId},
    idempotency::{Command, Failure, Rejection, Reply},
    store,
    wire::{
        charges::{ChargeView, UpdateChargeParams},
        error::ApiError,
    },
};

/// Updates a charge.
pub struct UpdateCharge {
    /// The request's origin.
    pub origin: Origin,
    /// The charge, as the path names it.
    pub id: String,
    /// As decoded; checked here, so that a wrong one is a stored refusal.
    pub params: Params,
}

impl Command for UpdateCharge {
    async fn execute(&self, tx: &mut PgConnection) -> Result<Reply, Rejection> {
        let update: UpdateChargeParams = checked(&self.params)?;
        let account = self.origin.account;
        let id = ChargeId::parse(&self.id).ok_or_else(|| missing("id", ChargeId::PREFIX))?;
        let before = store::charges::lock(tx, account, id)
            .await?
            .ok_or_else(|| missing("id", ChargeId::PREFIX))?;
        // If its processor was never asked, the charge is deleted, and this update with it.
        if before.status == ChargeStatus::Pending {
            let busy = "the processor is asked for the charge";
            return Err(Rejection::Failed(Failure::busy(busy)));
        }
        let mut charge = before.clone();
        charge.description = update.description.apply(charge.description);
        charge.receipt_email = update.receipt_email.apply(charge.receipt_email);
        charge.metadata = update
            .metadata
            .apply(charge.metadata)
            .map_err(ApiError::from)?;
        if charge != before {
            charge = store::charges::update(tx, account, id, &charge).await?;
            let views = (ChargeView::from(&before), ChargeView::from(&charge));
            self.origin
                .emit_change(tx, EventType::ChargeUpdated, &views.0, &views.1)
                .await?;
        }
        let id = charge.id.to_string();
        self.origin.show(tx, OK, id, &charge, &update.expand).await
    }
}
