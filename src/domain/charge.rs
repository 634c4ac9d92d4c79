//! A charge: money promised, taken and given back, and the rules of that.

use serde::{Deserializer, de::Error};
use serde_json::{Map, Value};

use super::{
    people::BillingDetails,
    prelude::*,
    test_cards::{Decision, Decline, TestCard},
};

/// A test card with the expiry date it was presented with.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Card {
    /// Which card.
    #[serde(rename = "card_token", with = "columns::card_token")]
    pub test_card: &'static TestCard,
    /// 1 to 12.
    #[serde(rename = "card_exp_month")]
    pub exp_month: i16,
    /// Four digits.
    #[serde(rename = "card_exp_year")]
    pub exp_year: i16,
}

/// A charge that is to be made.
#[derive(Debug, Clone)]
pub struct NewCharge {
    /// How much, from 1 to 99 999 999 minor units.
    pub amount: Money,
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
}

/// What a charge shows of the intent that made it, and of the method as it was then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IntentCharge {
    /// The intent whose confirmation made it.
    #[serde(rename = "payment_intent_id")]
    pub intent: PaymentIntentId,
    /// What was charged.
    #[serde(rename = "payment_method_id")]
    pub method: PaymentMethodId,
    /// Who the bill goes to.
    #[serde(rename = "billing_details", deserialize_with = "columns::or_default")]
    pub billing: BillingDetails,
    /// Equal for two charges of the same card.
    #[serde(rename = "card_fingerprint", deserialize_with = "columns::or_default")]
    pub fingerprint: String,
    /// Whether a security code came with the card.
    #[serde(rename = "card_has_cvc", deserialize_with = "columns::or_default")]
    pub has_cvc: bool,
    /// Whether its holder authenticated.
    #[serde(deserialize_with = "columns::or_default")]
    pub is_authenticated: bool,
    /// Behind the seller's name on the card statement.
    pub statement_descriptor_suffix: Option<String>,
}

/// What a charge keeps of its intent; `None` where the column of the intent is NULL. A flattened
/// `Option` would also be `None` where any other of these columns can't be read.
fn by_intent<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<IntentCharge>, D::Error> {
    let row = Map::<String, Value>::deserialize(deserializer)?;
    match row.get("payment_intent_id") {
        None | Some(Value::Null) => Ok(None),
        Some(_) => {
            let part = IntentCharge::deserialize(Value::Object(row));
            part.map(Some).map_err(D::Error::custom)
        }
    }
}

/// The card processor's answer about a new charge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Authorization {
    /// The money was promised.
    Approved,
    /// It was declined.
    Declined(Decline),
}

impl Authorization {
    /// What the simulated processor answers about a card at once. `None`: it takes its time, or is
    /// down.
    pub fn at_once(card: &TestCard) -> Option<Self> {
        match card.decision {
            Decision::Approve => Some(Self::Approved),
            Decision::Decline(decline) => Some(Self::Declined(decline)),
            Decision::ApproveSlowly | Decision::Outage => None,
        }
    }

    /// Why the money was not promised, if it was not.
    pub fn decline(self) -> Option<Decline> {
        match self {
            Self::Approved => None,
            Self::Declined(decline) => Some(decline),
        }
    }
}

named! {
    /// Whether the money of a charge was promised.
    pub enum ChargeStatus {
        /// The processor has not answered.
        Pending,
        /// It was promised, and perhaps taken.
        Succeeded,
        /// It was declined.
        Failed,
    }
}

impl ChargeStatus {
    /// The status of a charge with this answer, or with none yet.
    pub fn of(said: Option<Authorization>) -> Self {
        match said {
            None => Self::Pending,
            Some(Authorization::Approved) => Self::Succeeded,
            Some(Authorization::Declined(_)) => Self::Failed,
        }
    }
}

/// All that is kept of the card of a charge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptCard {
    /// `visa`, `mastercard` or `amex`.
    #[serde(rename = "card_brand")]
    pub brand: String,
    /// The last four digits of its number.
    #[serde(rename = "card_last4")]
    pub last4: String,
    /// 1 to 12.
    #[serde(rename = "card_exp_month")]
    pub exp_month: i16,
    /// Four digits.
    #[serde(rename = "card_exp_year")]
    pub exp_year: i16,
}

impl From<Card> for KeptCard {
    fn from(presented: Card) -> Self {
        Self {
            brand: presented.test_card.brand.to_owned(),
            last4: presented.test_card.last4.to_owned(),
            exp_month: presented.exp_month,
            exp_year: presented.exp_year,
        }
    }
}

/// Why a charge failed, as it was told when it did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChargeFailure {
    /// The name of a [`DeclineCode`](super::test_cards::DeclineCode).
    #[serde(rename = "failure_code")]
    pub code: String,
    /// The issuer's reason.
    pub decline_code: Option<String>,
    /// For the customer.
    #[serde(rename = "failure_message", deserialize_with = "columns::or_default")]
    pub message: String,
}

impl From<Decline> for ChargeFailure {
    fn from(decline: Decline) -> Self {
        Self {
            code: decline.code.as_str().to_owned(),
            decline_code: decline.decline_code.map(str::to_owned),
            message: decline.message.to_owned(),
        }
    }
}

/// A charge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Charge {
    /// Which one.
    pub id: ChargeId,
    /// What was asked for.
    #[serde(flatten)]
    pub amount: Money,
    /// Minor units taken so far.
    pub amount_captured: i64,
    /// Minor units given back so far; for a released charge, those that were promised.
    pub amount_refunded: i64,
    /// Whether the money has been taken.
    pub captured: bool,
    /// Whether the promise was given up before it was captured.
    pub released: bool,
    /// Whether the money was promised.
    pub status: ChargeStatus,
    /// Why it was not.
    #[serde(flatten)]
    pub failure: Option<ChargeFailure>,
    /// The card that was charged.
    #[serde(flatten)]
    pub card: KeptCard,
    /// The client's own reference.
    pub customer: Option<String>,
    /// For people.
    pub description: Option<String>,
    /// On the card statement.
    pub statement_descriptor: Option<String>,
    /// Where the receipt goes.
    pub receipt_email: Option<String>,
    /// The order that it pays or was to pay.
    #[serde(rename = "order_id")]
    pub order: Option<OrderId>,
    /// Where it came from, if a confirmation of an intent made it.
    #[serde(flatten, deserialize_with = "by_intent")]
    pub by_intent: Option<IntentCharge>,
    /// The processor across a network that holds its money; `None` where that is simulated.
    pub processor: Option<String>,
    /// The client's own names.
    pub metadata: Metadata,
    /// 1 when it is written, and one more with each change.
    pub version: i64,
    /// When it was written, by the database's clock.
    pub created_at: DateTime<Utc>,
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
    ExceedsAuthorization {
        /// What was promised, in minor units.
        authorized: i64,
    },
    /// More than is left.
    ExceedsCapture {
        /// What is left, in minor units.
        refundable: i64,
    },
}

impl Charge {
    /// The charge that `new` makes with the processor's answer, pending if there is none yet;
    /// `order` is the one that it was to pay.
    pub fn made(
        id: ChargeId,
        new: &NewCharge,
        order: Option<OrderId>,
        said: Option<Authorization>,
        created_at: DateTime<Utc>,
    ) -> Self {
        let status = ChargeStatus::of(said);
        let captured = status == ChargeStatus::Succeeded && new.capture;
        let decline = said.and_then(Authorization::decline);
        Self {
            id,
            amount: new.amount,
            amount_captured: if captured { new.amount.minor_units } else { 0 },
            amount_refunded: 0,
            captured,
            released: false,
            status,
            failure: decline.map(ChargeFailure::from),
            card: new.card.into(),
            customer: new.customer.clone(),
            description: new.description.clone(),
            statement_descriptor: new.statement_descriptor.clone(),
            receipt_email: new.receipt_email.clone(),
            order,
            by_intent: None,
            processor: None,
            metadata: new.metadata.clone(),
            version: 1,
            created_at,
        }
    }

    /// Whether the money is promised or taken.
    pub fn is_paid(&self) -> bool {
        self.status == ChargeStatus::Succeeded
    }

    /// Whether its money is promised, neither taken nor released.
    pub fn is_only_promised(&self) -> bool {
        self.is_paid() && !self.captured && !self.released
    }

    /// Whether all of it was given back, or released.
    pub fn is_refunded(&self) -> bool {
        self.released || (self.captured && self.amount_refunded == self.amount_captured)
    }

    /// How much is taken, in minor units, when a capture asks for `amount` or for all of it. A
    /// charge is captured once; the rest is released.
    pub fn capture(&self, amount: Option<i64>) -> Result<i64, ChargeRefusal> {
        if !self.is_paid() {
            return Err(ChargeRefusal::Failed);
        }
        if self.captured {
            return Err(ChargeRefusal::AlreadyCaptured);
        }
        if self.is_refunded() {
            return Err(ChargeRefusal::AlreadyRefunded);
        }
        let authorized = self.amount.minor_units;
        let amount = amount.unwrap_or(authorized);
        if amount > authorized {
            return Err(ChargeRefusal::ExceedsAuthorization { authorized });
        }
        Ok(amount)
    }

    /// The charge with the processor's answer; `capture` is whether it was asked to take the money
    /// at once, and `processor` its name if it is across a network.
    #[must_use]
    pub fn answered(self, said: Authorization, capture: bool, processor: Option<&str>) -> Self {
        let captured = capture && said == Authorization::Approved;
        Self {
            status: ChargeStatus::of(Some(said)),
            captured,
            amount_captured: if captured { self.amount.minor_units } else { 0 },
            failure: said.decline().map(ChargeFailure::from),
            processor: processor.map(str::to_owned),
            ..self
        }
    }

    /// The charge after `amount` minor units of what was promised are taken.
    #[must_use]
    pub fn taken(self, amount: i64) -> Self {
        Self {
            captured: true,
            amount_captured: amount,
            ..self
        }
    }

    /// The charge after a refund of `amount` minor units, which counts from its beginning. A refund
    /// of what was only promised releases it.
    #[must_use]
    pub fn refunded(self, amount: i64) -> Self {
        Self {
            amount_refunded: self.amount_refunded + amount,
            released: !self.captured,
            ..self
        }
    }

    /// What it was before a refund of `amount` minor units, which may have waited for a processor.
    #[must_use]
    pub fn before_refund(&self, amount: i64) -> Self {
        Self {
            released: false,
            amount_refunded: self.amount_refunded - amount,
            ..self.clone()
        }
    }

    /// How much is given back, in minor units, when a refund asks for `amount` or for what is left.
    /// What was only promised is released, all of it.
    pub fn refund(&self, amount: Option<i64>) -> Result<i64, ChargeRefusal> {
        if !self.is_paid() {
            return Err(ChargeRefusal::Failed);
        }
        if self.is_refunded() {
            return Err(ChargeRefusal::AlreadyRefunded);
        }
        let refundable = if self.captured {
            self.amount_captured - self.amount_refunded
        } else {
            self.amount.minor_units
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
