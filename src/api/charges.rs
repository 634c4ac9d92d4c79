//! Charges as clients send and see them.

use charge_once_strict_params::{Error, Fields};

pub use super::charge_views::ChargeView;
use super::{
    error::{ApiError, ErrorCode},
    metadata::{metadata, metadata_change},
    params::{DESCRIPTION_MAX_CHARS, Params, REFERENCE_MAX_CHARS, amount, currency, text_change},
    source::source,
};
use crate::domain::{
    change::Change,
    charge::{ChargeRefusal, NewCharge},
    metadata::MetadataChange,
    money::Money,
};

/// What fits on a card statement.
const STATEMENT_DESCRIPTOR_MAX_CHARS: usize = 22;
/// RFC 5321, section 4.5.3.1: a path of 256 octets, less its angle brackets.
const EMAIL_MAX_CHARS: usize = 254;

/// The parameters of `POST /charges`.
#[derive(Debug, Clone)]
pub struct CreateChargeParams {
    /// What is to be made.
    pub new: NewCharge,
    /// Whether the reply lists the refunds.
    pub expand_refunds: bool,
}

impl CreateChargeParams {
    /// Checks them.
    pub fn parse(params: &Params) -> Result<Self, ApiError> {
        let mut fields = params.fields()?;
        let Some(minor_units) = amount(&mut fields, "amount", 1)? else {
            return Err(fields.missing("amount").into());
        };
        let currency = currency(&mut fields)?;
        let card = source(&mut fields, params.allows_lost_reply)?;
        let new = NewCharge {
            amount: Money {
                minor_units,
                currency,
            },
            card,
            capture: fields.boolean("capture")?.unwrap_or(true),
            customer: fields.text("customer", REFERENCE_MAX_CHARS)?,
            description: fields.text("description", DESCRIPTION_MAX_CHARS)?,
            statement_descriptor: fields
                .text("statement_descriptor", STATEMENT_DESCRIPTOR_MAX_CHARS)?,
            receipt_email: receipt_email(&mut fields)?,
            metadata: metadata(&mut fields)?,
        };
        let expand_refunds = fields.expands("refunds")?;
        fields.finish()?;
        Ok(Self {
            new,
            expand_refunds,
        })
    }
}

/// The parameters of `POST /charges/{id}`.
#[derive(Debug, Clone)]
pub struct UpdateChargeParams {
    /// For people.
    pub description: Change<String>,
    /// Where the receipt goes.
    pub receipt_email: Change<String>,
    /// The client's own names.
    pub metadata: MetadataChange,
    /// Whether the reply lists the refunds.
    pub expand_refunds: bool,
}

impl UpdateChargeParams {
    /// Checks them.
    pub fn parse(params: &Params) -> Result<Self, ApiError> {
        let mut fields = params.fields()?;
        let description = text_change(&mut fields, "description", DESCRIPTION_MAX_CHARS)?;
        let receipt_email = text_change(&mut fields, "receipt_email", EMAIL_MAX_CHARS)?;
        if let Change::Set(email) = &receipt_email {
            plausible_email(&fields, email)?;
        }
        let update = Self {
            description,
            receipt_email,
            metadata: metadata_change(&mut fields)?,
            expand_refunds: fields.expands("refunds")?,
        };
        fields.finish()?;
        Ok(update)
    }
}

/// The parameters of `POST /charges/{id}/capture`.
#[derive(Debug, Clone)]
pub struct CaptureChargeParams {
    /// Minor units; `None` for all of it.
    pub amount: Option<i64>,
    /// Whether the reply lists the refunds.
    pub expand_refunds: bool,
}

impl CaptureChargeParams {
    /// Checks them.
    pub fn parse(params: &Params) -> Result<Self, ApiError> {
        let mut fields = params.fields()?;
        let capture = Self {
            amount: amount(&mut fields, "amount", 1)?,
            expand_refunds: fields.expands("refunds")?,
        };
        fields.finish()?;
        Ok(capture)
    }
}

fn receipt_email(fields: &mut Fields<'_>) -> Result<Option<String>, Error> {
    let email = fields.text("receipt_email", EMAIL_MAX_CHARS)?;
    if let Some(email) = &email {
        plausible_email(fields, email)?;
    }
    Ok(email)
}

/// An address that a mail system could take: something, one `@`, something. Whether it exists is
/// for the receipt to find out.
fn plausible_email(fields: &Fields<'_>, email: &str) -> Result<(), Error> {
    let plausible = email
        .split_once('@')
        .is_some_and(|(name, host)| !name.is_empty() && !host.is_empty() && !host.contains('@'))
        && !email.chars().any(|c| c.is_whitespace() || c.is_control());
    if plausible {
        Ok(())
    } else {
        Err(fields.invalid("receipt_email", "Must be an e-mail address."))
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
        ChargeRefusal::Failed => ApiError::new(
            ErrorCode::ParameterInvalid,
            "The charge failed: there is no money to take or to give back.",
        )
        .with_param(charge.to_owned()),
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
