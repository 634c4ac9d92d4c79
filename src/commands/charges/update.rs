//! `POST /charges/{id}`: change what is written on a charge, never its money.
//!
//! Reads    the charge
//! Writes   description, receipt_email, metadata
//! Emits    charge.updated, if anything changed
//! Refuses  parameters that are unknown or wrong
//! Fails    while the processor is asked about the charge

use charge_once_strict_params::Expansion;

use crate::commands::{
    Draft, RowId, Rules, Said, SeenRows, Verdict,
    replies::{OK, missing},
};
use crate::{
    domain::{
        charge::{Charge, ChargeStatus},
        event::EventType,
        ids::ChargeId,
    },
    idempotency::{Failure, Rejection},
    wire::{charges::UpdateChargeParams, error::ApiError},
};

/// Updates a charge.
pub struct UpdateCharge {
    /// The charge, as the path names it.
    pub id: String,
    /// What changes.
    pub params: UpdateChargeParams,
}

impl Rules for UpdateCharge {
    fn reads(&self, _: &SeenRows<'_>) -> Vec<RowId> {
        let id = ChargeId::parse(&self.id).map(RowId::Charge);
        id.into_iter().collect()
    }

    fn decide(&self, draft: &mut Draft<'_>) -> Result<Verdict, Rejection> {
        let found = ChargeId::parse(&self.id).and_then(|id| draft.get::<Charge>(id));
        let before = found
            .ok_or_else(|| missing("id", ChargeId::PREFIX))?
            .clone();
        // If its processor was never asked, the charge is deleted, and this update with it. What a
        // pending refund counts may be taken back, and its event would have told it.
        let is_asked = draft.open_work(RowId::Charge(before.id)).operation;
        if before.status == ChargeStatus::Pending || is_asked {
            let busy = "the processor is asked about the charge";
            return Err(Rejection::Failed(Failure::busy(busy)));
        }
        let mut charge = before.clone();
        let update = &self.params;
        charge.description = update.description.clone().apply(charge.description);
        charge.receipt_email = update.receipt_email.clone().apply(charge.receipt_email);
        let metadata = update.metadata.clone().apply(charge.metadata);
        charge.metadata = metadata.map_err(ApiError::from)?;
        if charge != before {
            charge = draft.put(charge);
            draft.emit_change(EventType::ChargeUpdated, &before, &charge)?;
        }
        Ok(Verdict::Said(Said::show(OK, charge, &update.expand)))
    }

    fn expand(&self) -> Option<&Expansion> {
        Some(&self.params.expand)
    }
}
