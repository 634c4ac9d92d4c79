//! `POST /refunds/{id}`: change what is written on a refund, never its money.
//!
//! Locks    the refund
//! Writes   metadata
//! Emits    refund.updated, if anything changed
//! Refuses  parameters that are unknown or wrong
//! Fails    while the processor is asked for the refund

use charge_once_strict_params::Params;
use sqlx::PgConnection;

use crate::commands::{
    Origin,
    replies::{OK, checked, missing},
};
use crate::{
    domain::{event::EventType, ids::RefundId, refund::RefundStatus},
    idempotency::{Command, Failure, Rejection, Reply},
    store,
    wire::{
        error::ApiError,
        refunds::{RefundView, UpdateRefundParams},
    },
};

/// Updates a refund.
pub struct UpdateRefund {
    /// The request's origin.
    pub origin: Origin,
    /// The refund, as the path names it.
    pub id: String,
    /// As decoded; checked here, so that a wrong one is a stored refusal.
    pub params: Params,
}

impl Command for UpdateRefund {
    async fn execute(&self, tx: &mut PgConnection) -> Result<Reply, Rejection> {
        let update: UpdateRefundParams = checked(&self.params)?;
        let account = self.origin.account;
        let id = RefundId::parse(&self.id).ok_or_else(|| missing("id", RefundId::PREFIX))?;
        let before = store::refunds::lock(tx, account, id)
            .await?
            .ok_or_else(|| missing("id", RefundId::PREFIX))?;
        // If its processor was never asked, the refund is deleted, and this update with it.
        if before.status == RefundStatus::Pending {
            let busy = "the processor is asked for the refund";
            return Err(Rejection::Failed(Failure::busy(busy)));
        }
        let mut refund = before.clone();
        refund.metadata = update
            .metadata
            .apply(refund.metadata)
            .map_err(ApiError::from)?;
        if refund != before {
            refund = store::refunds::update(tx, account, id, &refund).await?;
            let views = (RefundView::from(&before), RefundView::from(&refund));
            self.origin
                .emit_change(tx, EventType::RefundUpdated, &views.0, &views.1)
                .await?;
        }
        let id = refund.id.to_string();
        self.origin.show(tx, OK, id, &refund, &update.expand).await
    }
}
