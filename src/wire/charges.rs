//! Charges as clients send and see them.

pub use super::views::charges::ChargeView;
use super::{payment_methods::RadarOptionsParams, prelude::*, source::SourceParam};
use crate::domain::charge::{ChargeRefusal, NewCharge};

parameters! {
    /// The parameters of a new charge.
    pub struct CreateChargeParams as "CreateCharge" {
        /// Minor units.
        amount: Amount,
        currency: Currency,
        source: SourceParam,
        /// Whether to take the money at once. Default: true.
        capture: Option<bool>,
        /// Your own reference.
        customer: Option<Reference>,
        /// For people.
        description: Option<Description>,
        /// On the card statement.
        statement_descriptor: Option<StatementDescriptor>,
        /// Where the receipt goes.
        receipt_email: Option<Email>,
        metadata: MetadataParam,
        /// For Radar, which isn't here. Without effect.
        radar_options: Option<Nested<RadarOptionsParams>>,
        expand: Expand<ExpandNewCharge>,
    }
    example {
        "amount": 2000, "currency": "usd", "source": "tok_visa", "description": "Two mugs",
        "metadata": {"order_id": "6735"},
    }

    /// What may change of a charge.
    pub struct UpdateChargeParams as "UpdateCharge" {
        /// For people.
        description: Change<Description>,
        /// Where the receipt goes.
        receipt_email: Change<Email>,
        metadata: MetadataChange,
        expand: Expand<ExpandCharge>,
    }
    example {"description": "Two mugs, blue"}

    /// How much is captured.
    pub struct CaptureChargeParams as "CaptureCharge" {
        /// Minor units. Default: all of it.
        amount: Option<Amount>,
        expand: Expand<ExpandCharge>,
    }
    example {"amount": 1500}
}

impl From<CreateChargeParams> for NewCharge {
    fn from(params: CreateChargeParams) -> Self {
        Self {
            amount: Money {
                minor_units: params.amount,
                currency: params.currency,
            },
            card: params.source,
            capture: params.capture.unwrap_or(true),
            customer: params.customer,
            description: params.description,
            statement_descriptor: params.statement_descriptor,
            receipt_email: params.receipt_email,
            metadata: params.metadata,
        }
    }
}

/// The error of a refused capture or refund; `charge` is the parameter that names the charge.
pub fn refused(refusal: ChargeRefusal, charge: &str) -> ApiError {
    let about = |code| ApiError::explained(code).with_param(charge.to_owned());
    let at_most = |code, what: &str, limit: i64| {
        ApiError::new(code, format!("At most {limit} minor units can be {what}."))
            .with_param("amount".to_owned())
    };
    match refusal {
        ChargeRefusal::Failed => {
            let message = "The charge failed: there is no money to take or to give back.";
            ApiError::invalid(charge, message)
        }
        ChargeRefusal::AlreadyCaptured => about(ErrorCode::ChargeAlreadyCaptured),
        ChargeRefusal::AlreadyRefunded => about(ErrorCode::ChargeAlreadyRefunded),
        ChargeRefusal::NotCaptured => about(ErrorCode::ChargeNotCaptured),
        ChargeRefusal::ExceedsAuthorization { authorized } => at_most(
            ErrorCode::CaptureAmountTooLarge,
            "captured of this charge",
            authorized,
        ),
        ChargeRefusal::ExceedsCapture { refundable } => at_most(
            ErrorCode::RefundAmountTooLarge,
            "refunded of this charge now",
            refundable,
        ),
    }
}
