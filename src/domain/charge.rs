//! What a charge is made of, and what its outcome looks like.

use serde::Serialize;

use super::{
    error::{ApiError, ErrorCode},
    list::List,
    money::Currency,
    params::{Change, Fields, Metadata, MetadataChange, Params, TextOrFields},
    refund::Refund,
    test_cards::{self, Decline, TOKEN_EXPIRY, TestCard},
};

/// The card that is charged when the request names none.
const DEFAULT_SOURCE: &str = "tok_visa";

/// Longest reference of the client's own, in characters.
pub const REFERENCE_MAX_CHARS: usize = 255;
/// The longest text for people.
pub const DESCRIPTION_MAX_CHARS: usize = 1_000;
/// What fits on a card statement.
const STATEMENT_DESCRIPTOR_MAX_CHARS: usize = 22;
/// RFC 5321, section 4.5.3.1: a path of 256 octets, less its angle brackets.
const EMAIL_MAX_CHARS: usize = 254;

/// The checked parameters of a new charge.
#[derive(Debug, Clone)]
pub struct NewCharge {
    /// Minor units, 1 to 99 999 999.
    pub amount: i64,
    /// What the amount counts.
    pub currency: Currency,
    /// The card and its expiry date.
    pub card: Card,
    /// Whether to take the money at once.
    pub capture: bool,
    /// The client's own reference.
    pub customer: Option<String>,
    /// For people.
    pub description: Option<String>,
    /// For the card statement.
    pub statement_descriptor: Option<String>,
    /// Where the receipt goes.
    pub receipt_email: Option<String>,
    /// The client's own names.
    pub metadata: Metadata,
    /// Whether the reply lists the refunds.
    pub expand_refunds: bool,
}

/// A test card with the expiry date it was presented with.
#[derive(Debug, Clone, Copy)]
pub struct Card {
    /// Which card.
    pub card: &'static TestCard,
    /// 1 to 12.
    pub exp_month: i16,
    /// Four digits.
    pub exp_year: i16,
}

/// Whether the money was promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Authorisation {
    /// It was.
    Approved,
    /// It was not, for good.
    Declined(Decline),
}

impl NewCharge {
    /// Checks the parameters of `POST /charges`.
    pub fn parse(params: &Params) -> Result<Self, ApiError> {
        let mut fields = params.fields()?;
        let Some(amount) = fields.amount("amount", 1)? else {
            return Err(fields.missing("amount"));
        };
        let currency = currency(&mut fields)?;
        let card = source(&mut fields)?;
        let new_charge = Self {
            amount,
            currency,
            card,
            capture: fields.boolean("capture")?.unwrap_or(true),
            customer: fields.text("customer", REFERENCE_MAX_CHARS)?,
            description: fields.text("description", DESCRIPTION_MAX_CHARS)?,
            statement_descriptor: fields
                .text("statement_descriptor", STATEMENT_DESCRIPTOR_MAX_CHARS)?,
            receipt_email: receipt_email(&mut fields)?,
            metadata: fields.metadata()?,
            expand_refunds: fields.expands("refunds")?,
        };
        fields.finish()?;
        Ok(new_charge)
    }
}

/// The checked parameters of a change to a charge.
#[derive(Debug, Clone)]
pub struct ChargeUpdate {
    /// For people.
    pub description: Change<String>,
    /// Where the receipt goes.
    pub receipt_email: Change<String>,
    /// The client's own names.
    pub metadata: MetadataChange,
    /// Whether the reply lists the refunds.
    pub expand_refunds: bool,
}

impl ChargeUpdate {
    /// Checks the parameters of `POST /charges/{id}`.
    pub fn parse(params: &Params) -> Result<Self, ApiError> {
        let mut fields = params.fields()?;
        let description = fields.text_change("description", DESCRIPTION_MAX_CHARS)?;
        let receipt_email = fields.text_change("receipt_email", EMAIL_MAX_CHARS)?;
        if let Change::Set(email) = &receipt_email {
            plausible_email(&fields, email)?;
        }
        let update = Self {
            description,
            receipt_email,
            metadata: fields.metadata_change()?,
            expand_refunds: fields.expands("refunds")?,
        };
        fields.finish()?;
        Ok(update)
    }
}

/// The checked parameters of a capture.
#[derive(Debug, Clone)]
pub struct Capture {
    /// Minor units; `None` for all of it.
    pub amount: Option<i64>,
    /// Whether the reply lists the refunds.
    pub expand_refunds: bool,
}

impl Capture {
    /// Checks the parameters of `POST /charges/{id}/capture`.
    pub fn parse(params: &Params) -> Result<Self, ApiError> {
        let mut fields = params.fields()?;
        let capture = Self {
            amount: fields.amount("amount", 1)?,
            expand_refunds: fields.expands("refunds")?,
        };
        fields.finish()?;
        Ok(capture)
    }
}

/// Why money can't be taken or given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChargeRefusal {
    /// There never was any.
    Failed,
    /// It was captured before.
    AlreadyCaptured,
    /// It was given back, or released.
    AlreadyRefunded,
    /// A part of what was only promised.
    NotCaptured,
    /// More than was promised.
    ExceedsAuthorisation {
        /// What was, in minor units.
        authorised: i64,
    },
    /// More than is left.
    ExceedsCapture {
        /// What is, in minor units.
        refundable: i64,
    },
}

impl Charge {
    /// How much is taken, in minor units, when a capture asks for `amount` or for all of it. A
    /// charge is captured once; the rest is released.
    pub fn capture(&self, amount: Option<i64>) -> Result<i64, ChargeRefusal> {
        if !self.paid {
            return Err(ChargeRefusal::Failed);
        }
        if self.captured {
            return Err(ChargeRefusal::AlreadyCaptured);
        }
        if self.refunded {
            return Err(ChargeRefusal::AlreadyRefunded);
        }
        let amount = amount.unwrap_or(self.amount);
        if amount > self.amount {
            let authorised = self.amount;
            return Err(ChargeRefusal::ExceedsAuthorisation { authorised });
        }
        Ok(amount)
    }

    /// How much is given back, in minor units, when a refund asks for `amount` or for what is left.
    /// What was only promised is released, all of it.
    pub fn refund(&self, amount: Option<i64>) -> Result<i64, ChargeRefusal> {
        if !self.paid {
            return Err(ChargeRefusal::Failed);
        }
        if self.refunded {
            return Err(ChargeRefusal::AlreadyRefunded);
        }
        let refundable = if self.captured {
            self.amount_captured - self.amount_refunded
        } else {
            self.amount
        };
        let amount = amount.unwrap_or(refundable);
        if amount > refundable {
            Err(ChargeRefusal::ExceedsCapture { refundable })
        } else if !self.captured && amount < refundable {
            Err(ChargeRefusal::NotCaptured)
        } else {
            Ok(amount)
        }
    }
}

impl ChargeRefusal {
    /// The refusal for the client; `charge` is the parameter that names the charge.
    pub fn explained(self, charge: &str) -> ApiError {
        let about = |code| ApiError::explained(code).with_param(charge.to_owned());
        let at_most = |code, what: &str, limit: i64| {
            ApiError::new(code, format!("At most {limit} minor units can be {what}."))
                .with_param("amount".to_owned())
        };
        match self {
            Self::Failed => ApiError::new(
                ErrorCode::ParameterInvalid,
                "The charge failed: there is no money to take or to give back.",
            )
            .with_param(charge.to_owned()),
            Self::AlreadyCaptured => about(ErrorCode::ChargeAlreadyCaptured),
            Self::AlreadyRefunded => about(ErrorCode::ChargeAlreadyRefunded),
            Self::NotCaptured => about(ErrorCode::ChargeNotCaptured),
            Self::ExceedsAuthorisation { authorised } => at_most(
                ErrorCode::CaptureAmountTooLarge,
                "captured of this charge",
                authorised,
            ),
            Self::ExceedsCapture { refundable } => at_most(
                ErrorCode::RefundAmountTooLarge,
                "refunded of this charge now",
                refundable,
            ),
        }
    }
}

/// The required parameter `currency`.
pub(super) fn currency(fields: &mut Fields<'_>) -> Result<Currency, ApiError> {
    let Some(code) = fields.text("currency", usize::MAX)? else {
        return Err(fields.missing("currency"));
    };
    Currency::parse(&code).ok_or_else(|| {
        fields.invalid(
            "currency",
            "Must be the ISO 4217 code of a currency in use, such as usd.",
        )
    })
}

/// The parameter `source`.
pub(super) fn source(fields: &mut Fields<'_>) -> Result<Card, ApiError> {
    let unknown = fields.invalid("source", "Must be a test token such as tok_visa.");
    let (exp_month, exp_year) = TOKEN_EXPIRY;
    match fields.text_or_object("source")? {
        None => token(DEFAULT_SOURCE),
        Some(TextOrFields::Text(text)) => token(text),
        Some(TextOrFields::Fields(card)) => return card_of_fields(card),
    }
    .map(|card| Card {
        card,
        exp_month,
        exp_year,
    })
    .ok_or(unknown)
}

fn token(text: &str) -> Option<&'static TestCard> {
    test_cards::by_token(text)
}

/// `{object: "card", number, exp_month, exp_year, cvc}` with a test card's number.
fn card_of_fields(mut fields: Fields<'_>) -> Result<Card, ApiError> {
    if fields
        .text("object", usize::MAX)?
        .is_some_and(|object| object != "card")
    {
        return Err(fields.invalid("object", "Must be card."));
    }
    let Some(number) = fields.text("number", usize::MAX)? else {
        return Err(fields.missing("number"));
    };
    let digits: String = number.chars().filter(|c| !matches!(c, ' ' | '-')).collect();
    let Some(card) = test_cards::by_number(&digits) else {
        return Err(fields.invalid("number", "Must be the number of a test card."));
    };
    let Some(exp_month) = fields.integer("exp_month", 1..=12)? else {
        return Err(fields.missing("exp_month"));
    };
    let Some(exp_year) = fields.integer("exp_year", 2000..=2099)? else {
        return Err(fields.missing("exp_year"));
    };
    if let Some(cvc) = fields.text("cvc", usize::MAX)? {
        let plausible = matches!(cvc.len(), 3 | 4) && cvc.bytes().all(|b| b.is_ascii_digit());
        if !plausible {
            return Err(fields.invalid("cvc", "Must be three or four digits."));
        }
    }
    fields.finish()?;
    // Both fit: their ranges were checked above.
    let narrow = |number: i64| i16::try_from(number).unwrap_or(i16::MAX);
    Ok(Card {
        card,
        exp_month: narrow(exp_month),
        exp_year: narrow(exp_year),
    })
}

fn receipt_email(fields: &mut Fields<'_>) -> Result<Option<String>, ApiError> {
    let email = fields.text("receipt_email", EMAIL_MAX_CHARS)?;
    if let Some(email) = &email {
        plausible_email(fields, email)?;
    }
    Ok(email)
}

/// An address that a mail system could take: something, one `@`, something. Whether it exists is
/// for the receipt to find out.
fn plausible_email(fields: &Fields<'_>, email: &str) -> Result<(), ApiError> {
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

/// A charge, as clients see it. The members and their order are Stripe's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct Charge {
    /// `ch_…`
    #[schema(example = "ch_01kar2w7n9e4xt8f5mq0v3z6yd")]
    pub id: String,
    /// Always `charge`.
    #[schema(example = "charge")]
    pub object: &'static str,
    /// Minor units.
    #[schema(example = 2000)]
    pub amount: i64,
    /// Minor units taken so far.
    #[schema(example = 2000)]
    pub amount_captured: i64,
    /// Minor units given back so far.
    #[schema(example = 0)]
    pub amount_refunded: i64,
    /// Always null: there is no ledger of balances here.
    #[schema(required = true, value_type = Option<String>)]
    pub balance_transaction: (),
    /// Always empty.
    pub billing_details: Empty,
    /// Whether the money has been taken.
    #[schema(example = true)]
    pub captured: bool,
    /// Unix seconds.
    #[schema(example = 1_795_000_000)]
    pub created: i64,
    /// ISO 4217, lower case.
    #[schema(example = "usd")]
    pub currency: String,
    /// Your own reference.
    #[schema(required = true)]
    pub customer: Option<String>,
    /// For people.
    #[schema(required = true)]
    pub description: Option<String>,
    /// Always false.
    #[schema(example = false)]
    pub disputed: bool,
    /// Why the charge failed: an error code.
    #[schema(required = true)]
    pub failure_code: Option<String>,
    /// The same for people.
    #[schema(required = true)]
    pub failure_message: Option<String>,
    /// Always null.
    #[schema(required = true, value_type = Option<String>)]
    pub invoice: (),
    /// Always false: no real card is ever charged.
    #[schema(example = false)]
    pub livemode: bool,
    /// Your own names.
    #[schema(value_type = BTreeMap<String, String>)]
    pub metadata: Metadata,
    /// The order that this charge pays.
    #[schema(required = true)]
    pub order: Option<String>,
    /// What the card network said; null while it hasn't been heard.
    #[schema(required = true)]
    pub outcome: Option<ChargeOutcome>,
    /// Whether the money is promised or taken.
    #[schema(example = true)]
    pub paid: bool,
    /// Always null.
    #[schema(required = true, value_type = Option<String>)]
    pub payment_intent: (),
    /// Always null.
    #[schema(required = true, value_type = Option<String>)]
    pub payment_method: (),
    /// The card, as newer clients read it.
    pub payment_method_details: PaymentMethodDetails,
    /// Where the receipt goes.
    #[schema(required = true)]
    pub receipt_email: Option<String>,
    /// Whether all of it was given back, or released.
    #[schema(example = false)]
    pub refunded: bool,
    /// The newest refunds; only with `expand[]=refunds`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refunds: Option<List<Refund>>,
    /// The card, as older clients read it.
    pub source: CardSource,
    /// On the card statement.
    #[schema(required = true)]
    pub statement_descriptor: Option<String>,
    /// `succeeded`, `pending` or `failed`.
    #[schema(example = "succeeded")]
    pub status: String,
}

/// An object without members.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct Empty {}

/// What the card network said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct ChargeOutcome {
    /// `approved_by_network` or `declined_by_network`.
    #[schema(example = "approved_by_network")]
    pub network_status: &'static str,
    /// The issuer's reason for a decline.
    #[schema(required = true)]
    pub reason: Option<String>,
    /// Always `normal`.
    #[schema(example = "normal")]
    pub risk_level: &'static str,
    /// For the seller.
    #[schema(example = "Payment complete.")]
    pub seller_message: &'static str,
    /// `authorized` or `issuer_declined`.
    #[serde(rename = "type")]
    #[schema(example = "authorized")]
    pub outcome_type: &'static str,
}

/// How the charge was paid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct PaymentMethodDetails {
    /// The card.
    pub card: CardDetails,
    /// Always `card`.
    #[serde(rename = "type")]
    #[schema(example = "card")]
    pub method_type: &'static str,
}

/// All that is kept of a card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct CardDetails {
    /// `visa`, `mastercard` or `amex`.
    #[schema(example = "visa")]
    pub brand: String,
    /// 1 to 12.
    #[schema(example = 12)]
    pub exp_month: i16,
    /// Four digits.
    #[schema(example = 2099)]
    pub exp_year: i16,
    /// Always `credit`, as the test cards are.
    #[schema(example = "credit")]
    pub funding: &'static str,
    /// The last four digits of the number.
    #[schema(example = "4242")]
    pub last4: String,
}

/// The card as a `source`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct CardSource {
    /// `card_…`
    pub id: String,
    /// Always `card`.
    #[schema(example = "card")]
    pub object: &'static str,
    /// The card.
    #[serde(flatten)]
    pub card: CardDetails,
}

/// What is known of a charge's authorisation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// The processor's answer is out.
    Pending,
    /// The money was promised.
    Approved,
    /// It was not.
    Declined,
}

impl ChargeOutcome {
    /// The outcome of a charge; `reason` is why it was declined.
    pub fn new(standing: Standing, reason: Option<String>) -> Option<Self> {
        match standing {
            Standing::Pending => None,
            Standing::Declined => Some(Self {
                network_status: "declined_by_network",
                reason,
                risk_level: "normal",
                seller_message: "The bank did not approve this payment.",
                outcome_type: "issuer_declined",
            }),
            Standing::Approved => Some(Self {
                network_status: "approved_by_network",
                reason: None,
                risk_level: "normal",
                seller_message: "Payment complete.",
                outcome_type: "authorized",
            }),
        }
    }
}
