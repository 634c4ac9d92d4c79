//! `POST /refunds/{id}`: change what is written on a refund, never its money.
//!
//! Reads    the refund
//! Writes   metadata
//! Emits    refund.updated, if anything changed
//! Refuses  parameters that are unknown or wrong
//! Fails    while the processor is asked for the refund

use charge_once_strict_params::Expansion;

use crate::commands::{
    Draft, RowId, Rules, Said, SeenRows, Verdict,
    replies::{OK, missing},
};
use crate::{
    domain::{
        event::EventType,
        ids::RefundId,
        refund::{Refund, RefundStatus},
    },
    idempotency::{Failure, Rejection},
    wire::{error::ApiError, refunds::UpdateRefundParams},
};

/// Updates a refund.
pub struct UpdateRefund {
    /// The refund, as the path names it.
    pub id: String,
    /// What changes.
    pub params: UpdateRefundParams,
}

impl Rules for UpdateRefund {
    fn reads(&self, _: &SeenRows<'_>) -> Vec<RowId> {
        let id = RefundId::parse(&self.id).map(RowId::Refund);
        id.into_iter().collect()
    }

    fn decide(&self, draft: &mut Draft<'_>) -> Result<Verdict, Rejection> {
        let found = RefundId::parse(&self.id).and_then(|id| draft.get::<Refund>(id));
        let before = found
            .ok_or_else(|| missing("id", RefundId::PREFIX))?
            .clone();
        // If its processor was never asked, the refund is deleted, and this update with it.
        if before.status == RefundStatus::Pending {
            let busy = "the processor is asked for the refund";
            return Err(Rejection::Failed(Failure::busy(busy)));
        }
        let mut refund = before.clone();
        let metadata = self.params.metadata.clone().apply(refund.metadata);
        refund.metadata = metadata.map_err(ApiError::from)?;
        if refund != before {
            refund = draft.put(refund);
            draft.emit_change(EventType::RefundUpdated, &before, &refund)?;
        }
        Ok(Verdict::Said(Said::show(OK, refund, &self.params.expand)))
    }

    fn expand(&self) -> Option<&Expansion> {
        Some(&self.params.expand)
    }
}
