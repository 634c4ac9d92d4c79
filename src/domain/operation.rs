//! What a card processor across a network is asked for, and what is kept of it.

use std::time::Duration;

use charge_once_strict_params::Expansion;
use uuid::Uuid;

use super::{charge::NewCharge, dialect::Dialect, money::Currency, prelude::*, refund::Refund};

pub use charge_once_processor::Answer;

/// A promise of money that a card is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CardAuthorization {
    /// The pending charge that it is for.
    pub charge: ChargeId,
    /// How much.
    pub amount: Money,
    /// The card, as the canonical test token.
    pub card_token: String,
    /// Whether to take the money at once.
    pub capture: bool,
}

impl CardAuthorization {
    /// What a new charge asks its card for.
    pub fn of(charge: ChargeId, new: &NewCharge) -> Self {
        Self {
            charge,
            amount: new.amount,
            card_token: new.card.test_card.token().to_owned(),
            capture: new.capture,
        }
    }
}

/// Money that is to go back to a card, or a promise that is to be released.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefundRequest {
    /// The charge that took the money.
    pub charge: ChargeId,
    /// The pending refund that it is for.
    pub refund: RefundId,
    /// How much, in minor units.
    pub amount: i64,
}

impl RefundRequest {
    /// What a pending refund asks for.
    pub fn of(refund: &Refund) -> Self {
        Self {
            charge: refund.charge,
            refund: refund.id,
            amount: refund.amount.minor_units,
        }
    }
}

/// Promised money that is to be taken. The rest is released.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CaptureRequest {
    /// The charge that promised the money.
    pub charge: ChargeId,
    /// How much, in minor units.
    pub amount: i64,
}

/// What the processor is asked to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ask {
    /// Promise money.
    Authorize(CardAuthorization),
    /// Take what was promised.
    Capture(CaptureRequest),
    /// Give back what was taken, or release what was promised.
    Refund(RefundRequest),
}

impl Ask {
    /// The charge that it is about.
    pub fn charge(&self) -> ChargeId {
        match self {
            Self::Authorize(authorization) => authorization.charge,
            Self::Capture(capture) => capture.charge,
            Self::Refund(refund) => refund.charge,
        }
    }
}

named! {
    /// The verb that asks, as the table names it.
    pub enum Verb {
        /// `POST /charges`, or that step of a checkout.
        CreateCharge,
        /// `POST /charges/{id}/capture`
        CaptureCharge,
        /// `POST /refunds`, or that step of a checkout.
        CreateRefund,
        /// `POST /orders/{id}/pay`
        PayOrder,
        /// `POST /payment_intents` with `confirm=true`.
        CreateIntent,
        /// `POST /payment_intents/{id}/confirm`
        ConfirmIntent,
        /// The page on which a card's holder authenticates.
        AuthenticateIntent,
        /// `POST /payment_intents/{id}/capture`
        CaptureIntent,
        /// `POST /payment_intents/{id}/cancel`
        CancelIntent,
    }
}

/// What led to the confirmation of an intent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfirmedBy {
    /// `POST /payment_intents` with `confirm=true`.
    Creation,
    /// `POST /payment_intents/{id}/confirm`
    Confirmation,
    /// The page on which a card's holder authenticates.
    Holder,
}

/// What a verb asks a card, with what its answer is written to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Question {
    /// For the money of a charge.
    Charge(CardAuthorization),
    /// For what a charge was promised.
    Capture(CaptureRequest),
    /// For a refund.
    Refund(RefundRequest),
    /// For the money of an order.
    OrderPayment(OrderId, CardAuthorization),
    /// For the money of an intent.
    IntentPayment(PaymentIntentId, ConfirmedBy, CardAuthorization),
    /// For what an intent was promised.
    IntentCapture(PaymentIntentId, CaptureRequest),
    /// For the release of what an intent was promised.
    IntentCancellation(PaymentIntentId, RefundRequest),
    /// For the money of the order of a checkout.
    CheckoutPayment(CheckoutId, OrderId, CardAuthorization),
    /// For the refund of the charge of a checkout.
    CheckoutRefund(CheckoutId, RefundRequest),
}

/// A question, and how the reply to its request looks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "AskedColumns", into = "AskedColumns")]
pub struct Asked {
    /// What is asked.
    pub question: Question,
    /// What the reply shows whole.
    pub expand: Expansion,
}

/// What is asked as the table holds it, in columns of which not all go together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct AskedColumns {
    verb: Verb,
    charge_id: ChargeId,
    refund_id: Option<RefundId>,
    order_id: Option<OrderId>,
    checkout_id: Option<CheckoutId>,
    payment_intent_id: Option<PaymentIntentId>,
    amount: i64,
    currency: Option<Currency>,
    card_token: Option<String>,
    capture: Option<bool>,
    expand: bool,
    expand_paths: Option<Vec<String>>,
}

/// Makes both directions of a table: of each question, what is asked, the verb that asks, and the
/// checkout, the order and the intent that it is about. `Charge(card) = Authorize(card) by
/// CreateCharge of (None, None, None);` makes `Question::Charge(card)` of such a row, and the row
/// of the question.
macro_rules! questions {
    ($($question:ident($($part:tt)+) = $ask:ident($asked:ident) by $verb:ident of $of:tt;)+) => {
        impl Question {
            fn of(ask: Ask, verb: Verb, of: Subjects) -> Option<Self> {
                match (ask, verb, of) {
                    $((Ask::$ask($asked), Verb::$verb, $of) => Some(Self::$question($($part)+)),)+
                    _ => None,
                }
            }

            fn parts(&self) -> (Ask, Verb, Subjects) {
                match self.clone() {
                    $(Self::$question($($part)+) => (Ask::$ask($asked), Verb::$verb, $of),)+
                }
            }
        }
    };
}

type Subjects = (Option<CheckoutId>, Option<OrderId>, Option<PaymentIntentId>);

questions! {
    Charge(card) = Authorize(card) by CreateCharge of (None, None, None);
    Capture(request) = Capture(request) by CaptureCharge of (None, None, None);
    Refund(request) = Refund(request) by CreateRefund of (None, None, None);
    OrderPayment(order, card) = Authorize(card) by PayOrder of (None, Some(order), None);
    IntentPayment(intent, ConfirmedBy::Creation, card)
        = Authorize(card) by CreateIntent of (None, None, Some(intent));
    IntentPayment(intent, ConfirmedBy::Confirmation, card)
        = Authorize(card) by ConfirmIntent of (None, None, Some(intent));
    IntentPayment(intent, ConfirmedBy::Holder, card)
        = Authorize(card) by AuthenticateIntent of (None, None, Some(intent));
    IntentCapture(intent, request)
        = Capture(request) by CaptureIntent of (None, None, Some(intent));
    IntentCancellation(intent, request)
        = Refund(request) by CancelIntent of (None, None, Some(intent));
    CheckoutPayment(checkout, order, card)
        = Authorize(card) by CreateCharge of (Some(checkout), Some(order), None);
    CheckoutRefund(checkout, request)
        = Refund(request) by CreateRefund of (Some(checkout), None, None);
}

impl AskedColumns {
    /// What a row of release 0.2 shows whole: it says whether, and each verb had one answer. That
    /// release had no intents.
    fn expanded_before(&self) -> Vec<String> {
        let path = match self.verb {
            Verb::CreateCharge | Verb::CaptureCharge => Some("refunds"),
            Verb::CreateRefund | Verb::PayOrder => Some("charge"),
            Verb::CreateIntent
            | Verb::ConfirmIntent
            | Verb::AuthenticateIntent
            | Verb::CaptureIntent
            | Verb::CancelIntent => None,
        };
        let path = path.filter(|_| self.expand);
        path.map(str::to_owned).into_iter().collect()
    }

    /// The question in these columns. `None`: no verb of this release asks so, and nothing could
    /// write the answer down.
    fn question(self) -> Option<Question> {
        let (charge, amount) = (self.charge_id, self.amount);
        let ask = match (self.card_token, self.refund_id) {
            (Some(card_token), None) => Ask::Authorize(CardAuthorization {
                charge,
                amount: Money {
                    minor_units: amount,
                    currency: self.currency?,
                },
                card_token,
                capture: self.capture?,
            }),
            (None, Some(refund)) => Ask::Refund(RefundRequest {
                charge,
                refund,
                amount,
            }),
            (None, None) => Ask::Capture(CaptureRequest { charge, amount }),
            (Some(_), Some(_)) => return None,
        };
        let of = (self.checkout_id, self.order_id, self.payment_intent_id);
        Question::of(ask, self.verb, of)
    }
}

impl TryFrom<AskedColumns> for Asked {
    type Error = &'static str;

    fn try_from(mut columns: AskedColumns) -> Result<Self, Self::Error> {
        let paths = columns.expand_paths.take();
        let expand = Expansion(paths.unwrap_or_else(|| columns.expanded_before()));
        let question = columns
            .question()
            .ok_or("no verb of this release asks so")?;
        Ok(Self { question, expand })
    }
}

impl From<Asked> for AskedColumns {
    fn from(Asked { question, expand }: Asked) -> Self {
        let (ask, verb, (checkout_id, order_id, payment_intent_id)) = question.parts();
        let (amount, refund_id, card) = match &ask {
            Ask::Authorize(card) => (card.amount.minor_units, None, Some(card)),
            Ask::Capture(capture) => (capture.amount, None, None),
            Ask::Refund(request) => (request.amount, Some(request.refund), None),
        };
        Self {
            verb,
            charge_id: ask.charge(),
            refund_id,
            order_id,
            checkout_id,
            payment_intent_id,
            amount,
            currency: card.map(|card| card.amount.currency),
            card_token: card.map(|card| card.card_token.clone()),
            capture: card.map(|card| card.capture),
            expand: !expand.is_empty(),
            expand_paths: Some(expand.0),
        }
    }
}

impl Question {
    /// What the processor is asked to do.
    pub fn ask(&self) -> Ask {
        self.parts().0
    }

    /// The id of what the request is about, as its reply will have it unless a card is declined.
    pub fn resource(&self) -> String {
        match self {
            Self::IntentPayment(intent, ..)
            | Self::IntentCapture(intent, _)
            | Self::IntentCancellation(intent, _) => intent.to_string(),
            Self::OrderPayment(order, _) => order.to_string(),
            Self::Charge(card) | Self::CheckoutPayment(_, _, card) => card.charge.to_string(),
            Self::Capture(capture) => capture.charge.to_string(),
            Self::Refund(request) | Self::CheckoutRefund(_, request) => request.refund.to_string(),
        }
    }
}

/// What is unfinished about an object: no other request may decide about it meanwhile.
#[derive(Debug, Clone, Copy, Default)]
pub struct OpenWork {
    /// A processor across a network has not answered about it.
    pub operation: bool,
    /// The checkout that made it has not ended.
    pub checkout: bool,
}

named! {
    /// What became of an operation, as a person found out from the processor's operator.
    pub enum Resolution {
        /// It was executed.
        Done,
        /// It was declined.
        Declined,
        /// It was not executed, by no attempt, and will not be.
        NotExecuted,
    }
}

/// A request, as its reply and its events name it, also if another process ends it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AskedBy {
    /// Decides what paths in the reply start with.
    pub dialect: Dialect,
    /// The version of Stripe's API that the request names; its events name the same one.
    pub api_version: Option<String>,
    /// The `req_…` that executes.
    pub request_id: String,
    /// The key that it executes under; empty where a request needs none.
    pub idempotency_key: String,
}

/// Everything that it takes to ask the processor, to complete, and to answer the client, after a
/// crash of the process that began it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Operation {
    /// The key that the processor gets.
    pub id: Uuid,
    /// The account that it belongs to.
    #[serde(rename = "account_id")]
    pub account: AccountId,
    /// What is asked for, each time the same.
    #[serde(flatten)]
    pub asked: Asked,
    /// The request that began it.
    #[serde(flatten)]
    pub asked_by: AskedBy,
    /// The processor that it was sent to: another one doesn't know its key, and would execute it
    /// again.
    pub processor: String,
    /// How long ago it was written down, by the database's clock.
    #[serde(skip)]
    pub age: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::money::Currency;

    fn asked() -> [Question; 3] {
        let charge = ChargeId(Uuid::nil());
        [
            Question::Charge(CardAuthorization {
                charge,
                amount: Money {
                    minor_units: 1,
                    currency: Currency::of_stored("usd").unwrap(),
                },
                card_token: "tok_visa".to_owned(),
                capture: true,
            }),
            Question::Capture(CaptureRequest { charge, amount: 1 }),
            Question::Refund(RefundRequest {
                charge,
                refund: RefundId(Uuid::nil()),
                amount: 1,
            }),
        ]
    }

    /// All that columns can hold: each is one question and that one's columns, or none.
    #[test]
    fn columns_hold_one_question_or_none() {
        let mut known = Vec::new();
        let asked = |verb: &Verb| asked().map(|question| (*verb, question));
        for (verb, question) in Verb::ALL.iter().flat_map(asked) {
            let expand = Expansion(vec!["charge".to_owned()]);
            let asked = AskedColumns::from(Asked { question, expand });
            for others in 0..8 {
                let is_set = |bit: u8| others & bit > 0;
                let columns = AskedColumns {
                    verb,
                    order_id: is_set(1).then_some(OrderId(Uuid::nil())),
                    checkout_id: is_set(2).then_some(CheckoutId(Uuid::nil())),
                    payment_intent_id: is_set(4).then_some(PaymentIntentId(Uuid::nil())),
                    ..asked.clone()
                };
                if let Ok(asked) = Asked::try_from(columns.clone()) {
                    assert_eq!(AskedColumns::from(asked), columns);
                    known.push(format!("{} {others}", verb.as_str()));
                }
            }
        }
        let expected = "create_charge 0, create_charge 3, capture_charge 0, create_refund 0, \
                        create_refund 2, pay_order 1, create_intent 4, confirm_intent 4, \
                        authenticate_intent 4, capture_intent 4, cancel_intent 4";
        assert_eq!(known.join(", "), expected);
    }
}
