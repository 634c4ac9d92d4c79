//! Refunds as clients send and see them.

use charge_once_strict_params::{
    Error, Expand, Field, ID_MAX_CHARS, TextKind, ValueKind, parameters,
    schema::{id_pattern, text},
};
use utoipa::openapi::{ObjectBuilder, RefOr, Schema};

pub use super::charge_views::RefundView;
use super::{
    metadata::MetadataParam,
    parameter::{Amount, ExpandRefund},
};
use crate::domain::{ids::ChargeId, metadata::MetadataChange, refund::RefundReason};

parameters! {
    /// The parameters of a new refund.
    pub struct CreateRefundParams as "CreateRefund" {
        /// Which charge: ch_…
        charge: ChargeReference,
        /// Minor units. Default: what remains.
        amount: Option<Amount>,
        /// duplicate, fraudulent or requested_by_customer.
        reason: Option<RefundReason>,
        metadata: MetadataParam,
        expand: Expand<ExpandRefund>,
    }
    example {
        "charge": "ch_01kar2w7n9e4xt8f5mq0v3z6yd", "amount": 500,
        "reason": "requested_by_customer",
    }
}

parameters! {
    /// What may change of a refund.
    pub struct UpdateRefundParams as "UpdateRefund" {
        metadata: MetadataChange,
        expand: Expand<ExpandRefund>,
    }
    example {"metadata": {"channel": "telephone"}}
}

/// Text that names a charge. A command gets `None` for text that can't be a charge's id, and
/// answers as it does for a charge that is not there.
pub struct ChargeReference;

impl TextKind for ChargeReference {
    type Value = Option<ChargeId>;
    const MAX_CHARS: usize = ID_MAX_CHARS;
    const MUST_BE: &'static str = "Must be the id of a charge.";

    fn parse(text: &str) -> Option<Self::Value> {
        Some(ChargeId::parse(text))
    }

    fn schema() -> ObjectBuilder {
        text().pattern(Some(id_pattern(ChargeId::PREFIX)))
    }
}

impl ValueKind for RefundReason {
    type Value = Self;

    fn read(field: &mut Field<'_, '_>) -> Result<Option<Self>, Error> {
        let Some(text) = field.fields.text(field.name, usize::MAX)? else {
            return Ok(None);
        };
        let reason = Self::parse(&text).map(Some);
        reason.ok_or_else(|| field.invalid(format!("Must be one of {}.", reasons(", "))))
    }

    fn schema() -> RefOr<Schema> {
        text().pattern(Some(format!("^({})$", reasons("|")))).into()
    }
}

fn reasons(separator: &str) -> String {
    let names: Vec<_> = RefundReason::ALL
        .iter()
        .map(|reason| reason.as_str())
        .collect();
    names.join(separator)
}
