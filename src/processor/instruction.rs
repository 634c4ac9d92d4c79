//! What is sent to a card processor.

use serde::{Deserialize, Serialize};

use crate::domain::operation::{CardAuthorization, Effect, RefundRequest};

/// What the processor is asked to do. References are this service's ids with their prefixes,
/// amounts are minor units.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "lowercase")]
pub enum Instruction {
    /// Promise money, and take it at once where `capture` says so.
    Authorize {
        /// The charge that it is for: `ch_…`.
        charge: String,
        /// How much.
        amount: i64,
        /// ISO 4217, lower case.
        currency: String,
        /// The card, as the canonical test token.
        card: String,
        /// Whether to take the money at once.
        capture: bool,
    },
    /// Take promised money, once; the rest is released.
    Capture {
        /// The charge that promised it.
        charge: String,
        /// How much, at most what was promised.
        amount: i64,
    },
    /// Give money back, or release what was only promised.
    Refund {
        /// The charge that took it.
        charge: String,
        /// The refund that it is for: `re_…`.
        refund: String,
        /// How much.
        amount: i64,
    },
}

impl From<&Effect> for Instruction {
    fn from(effect: &Effect) -> Self {
        match effect {
            Effect::CreateCharge { authorization, .. }
            | Effect::PayOrder { authorization, .. }
            | Effect::ChargeCheckout { authorization, .. } => authorization.into(),
            Effect::CaptureCharge { charge, amount, .. } => Self::Capture {
                charge: charge.to_string(),
                amount: *amount,
            },
            Effect::CreateRefund { request, .. } | Effect::RefundCheckout { request, .. } => {
                request.into()
            }
        }
    }
}

impl From<&CardAuthorization> for Instruction {
    fn from(authorization: &CardAuthorization) -> Self {
        Self::Authorize {
            charge: authorization.charge.to_string(),
            amount: authorization.amount.minor_units,
            currency: authorization.amount.currency.to_string(),
            card: authorization.card_token.clone(),
            capture: authorization.capture,
        }
    }
}

impl From<&RefundRequest> for Instruction {
    fn from(request: &RefundRequest) -> Self {
        Self::Refund {
            charge: request.charge.to_string(),
            refund: request.refund.to_string(),
            amount: request.amount,
        }
    }
}
