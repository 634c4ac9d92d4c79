//! Refunds as clients send and see them.

pub use super::charge_views::RefundView;
use super::{
    error::ApiError,
    metadata::{metadata, metadata_change},
    params::{Params, REFERENCE_MAX_CHARS, amount},
};
use crate::domain::{
    ids::ChargeId,
    metadata::{Metadata, MetadataChange},
    refund::RefundReason,
};

/// The parameters of `POST /refunds`.
#[derive(Debug, Clone)]
pub struct CreateRefundParams {
    /// Which charge; `None` for text that can't be a charge's id.
    pub charge: Option<ChargeId>,
    /// Minor units; `None` for what remains.
    pub amount: Option<i64>,
    /// Why.
    pub reason: Option<RefundReason>,
    /// The client's own names.
    pub metadata: Metadata,
    /// Whether the reply shows the whole charge.
    pub expand_charge: bool,
}

impl CreateRefundParams {
    /// Checks them.
    pub fn parse(params: &Params) -> Result<Self, ApiError> {
        let mut fields = params.fields()?;
        let Some(charge) = fields.text("charge", REFERENCE_MAX_CHARS)? else {
            return Err(fields.missing("charge").into());
        };
        let amount = amount(&mut fields, "amount", 1)?;
        let reason = match fields.text("reason", REFERENCE_MAX_CHARS)? {
            None => None,
            Some(text) => Some(RefundReason::parse(&text).ok_or_else(|| {
                let reasons: Vec<_> = RefundReason::ALL
                    .iter()
                    .map(|known| known.as_str())
                    .collect();
                fields.invalid("reason", format!("Must be one of {}.", reasons.join(", ")))
            })?),
        };
        let create = Self {
            charge: ChargeId::parse(&charge),
            amount,
            reason,
            metadata: metadata(&mut fields)?,
            expand_charge: fields.expands("charge")?,
        };
        fields.finish()?;
        Ok(create)
    }
}

/// The parameters of `POST /refunds/{id}`.
#[derive(Debug, Clone)]
pub struct UpdateRefundParams {
    /// The client's own names.
    pub metadata: MetadataChange,
    /// Whether the reply shows the whole charge.
    pub expand_charge: bool,
}

impl UpdateRefundParams {
    /// Checks them.
    pub fn parse(params: &Params) -> Result<Self, ApiError> {
        let mut fields = params.fields()?;
        let update = Self {
            metadata: metadata_change(&mut fields)?,
            expand_charge: fields.expands("charge")?,
        };
        fields.finish()?;
        Ok(update)
    }
}
