//! A refund: money given back.

use super::prelude::*;

named! {
    /// Why money is given back, as the client says.
    pub enum RefundReason {
        /// The customer was charged twice.
        Duplicate,
        /// The customer did not order.
        Fraudulent,
        /// The customer wants it.
        RequestedByCustomer,
    }

    /// How far a refund is.
    pub enum RefundStatus {
        /// The processor has not answered. The refund counts anyway, so that no money is returned
        /// twice.
        Pending,
        /// The money was given back.
        Succeeded,
        /// The processor refused to give it back.
        Failed,
    }
}

/// A refund.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refund {
    /// Which one.
    pub id: RefundId,
    /// The charge that is given back.
    #[serde(rename = "charge_id")]
    pub charge: ChargeId,
    /// The intent that made that charge, from whose row it is read.
    #[serde(rename = "payment_intent_id", skip_serializing)]
    pub intent: Option<PaymentIntentId>,
    /// How much of the charge.
    #[serde(flatten)]
    pub amount: Money,
    /// Why.
    pub reason: Option<RefundReason>,
    /// How far it is.
    pub status: RefundStatus,
    /// The client's own names.
    pub metadata: Metadata,
    /// 1 when it is written, and one more with each change.
    pub version: i64,
    /// When it was written, by the database's clock.
    pub created_at: DateTime<Utc>,
}
