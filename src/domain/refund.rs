//! What a refund is made of.

use serde::Serialize;

use super::{
    charge::{Charge, REFERENCE_MAX_CHARS},
    error::ApiError,
    ids::ChargeId,
    list::Expandable,
    params::{Metadata, MetadataChange, Params},
};

/// Why money is given back, as the client says.
const REASONS: &[&str] = &["duplicate", "fraudulent", "requested_by_customer"];

/// The checked parameters of a new refund.
#[derive(Debug, Clone)]
pub struct NewRefund {
    /// Which charge; `None` for text that can't be a charge's id.
    pub charge: Option<ChargeId>,
    /// Minor units; `None` for what remains.
    pub amount: Option<i64>,
    /// One of [`REASONS`].
    pub reason: Option<String>,
    /// The client's own names.
    pub metadata: Metadata,
    /// Whether the reply shows the whole charge.
    pub expand_charge: bool,
}

impl NewRefund {
    /// Checks the parameters of `POST /refunds`.
    pub fn parse(params: &Params) -> Result<Self, ApiError> {
        let mut fields = params.fields()?;
        let Some(charge) = fields.text("charge", REFERENCE_MAX_CHARS)? else {
            return Err(fields.missing("charge"));
        };
        let amount = fields.amount("amount", 1)?;
        let reason = fields.text("reason", REFERENCE_MAX_CHARS)?;
        if let Some(reason) = &reason
            && !REASONS.contains(&reason.as_str())
        {
            let message = format!("Must be one of {}.", REASONS.join(", "));
            return Err(fields.invalid("reason", message));
        }
        let new_refund = Self {
            charge: ChargeId::parse(&charge),
            amount,
            reason,
            metadata: fields.metadata()?,
            expand_charge: fields.expands("charge")?,
        };
        fields.finish()?;
        Ok(new_refund)
    }
}

/// The checked parameters of a change to a refund.
#[derive(Debug, Clone)]
pub struct RefundUpdate {
    /// The client's own names.
    pub metadata: MetadataChange,
    /// Whether the reply shows the whole charge.
    pub expand_charge: bool,
}

impl RefundUpdate {
    /// Checks the parameters of `POST /refunds/{id}`.
    pub fn parse(params: &Params) -> Result<Self, ApiError> {
        let mut fields = params.fields()?;
        let update = Self {
            metadata: fields.metadata_change()?,
            expand_charge: fields.expands("charge")?,
        };
        fields.finish()?;
        Ok(update)
    }
}

/// A refund, as clients see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct Refund {
    /// `re_…`
    #[schema(example = "re_01kar2w7n9e4xt8f5mq0v3z6yd")]
    pub id: String,
    /// Always `refund`.
    #[schema(example = "refund")]
    pub object: &'static str,
    /// Minor units.
    #[schema(example = 500)]
    pub amount: i64,
    /// Always null: there is no ledger of balances here.
    #[schema(required = true, value_type = Option<String>)]
    pub balance_transaction: (),
    /// The charge that was given back; whole with `expand[]=charge`.
    #[schema(no_recursion)]
    pub charge: Expandable<Charge>,
    /// Unix seconds.
    #[schema(example = 1_795_000_000)]
    pub created: i64,
    /// ISO 4217, lower case.
    #[schema(example = "usd")]
    pub currency: String,
    /// Your own names.
    #[schema(value_type = BTreeMap<String, String>)]
    pub metadata: Metadata,
    /// Always null.
    #[schema(required = true, value_type = Option<String>)]
    pub payment_intent: (),
    /// `duplicate`, `fraudulent`, `requested_by_customer` or null.
    #[schema(required = true)]
    pub reason: Option<String>,
    /// `succeeded`; across a network also `pending` and `failed`.
    #[schema(example = "succeeded")]
    pub status: String,
}
