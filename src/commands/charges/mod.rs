//! The verbs of `/charges`.

pub(super) mod capture;
pub(super) mod create;

use super::{
    found_intents::{refusal, settled},
    prelude::*,
};

/// The charge that promised or took an intent's money, for a refund.
pub(super) fn charge_of(
    draft: &Draft<'_>,
    id: Option<PaymentIntentId>,
) -> Result<ChargeId, Rejection> {
    let intent = settled(draft, id, "payment_intent")?;
    intent.charge.ok_or_else(|| {
        let message = format!(
            "This PaymentIntent ({}) does not have a successful charge to refund.",
            intent.id
        );
        refusal(&intent, message)
    })
}
