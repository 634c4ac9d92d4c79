//! Refunds as clients send and see them.

use super::prelude::*;
pub use super::views::charges::RefundView;
use crate::domain::refund::RefundReason;

parameters! {
    /// The parameters of a new refund.
    pub struct CreateRefundParams as "CreateRefund" {
        /// Which charge: ch_… It, or payment_intent, is required.
        charge: Option<IdOf<ChargeId>>,
        /// Minor units. Default: what remains.
        amount: Option<Amount>,
        /// duplicate, fraudulent or requested_by_customer.
        reason: Option<RefundReason>,
        metadata: MetadataParam,
        /// Whose charge: pi_…
        payment_intent: Option<IdOf<PaymentIntentId>>,
        expand: Expand<ExpandRefund>,
    }
    example {
        "charge": "ch_01kar2w7n9e4xt8f5mq0v3z6yd", "amount": 500,
        "reason": "requested_by_customer",
    }

    /// What may change of a refund.
    pub struct UpdateRefundParams as "UpdateRefund" {
        metadata: MetadataChange,
        expand: Expand<ExpandRefund>,
    }
    example {"metadata": {"channel": "telephone"}}
}
