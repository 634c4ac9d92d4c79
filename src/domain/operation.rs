//! What a card processor across a network is asked for, and what is kept of it.

use std::time::Duration;

use charge_once_strict_params::Expansion;
use strum::{EnumString, IntoStaticStr, VariantArray};
use uuid::Uuid;

use super::{
    charge::NewCharge,
    dialect::Dialect,
    ids::{AccountId, ChargeId, CheckoutId, OrderId, PaymentIntentId, RefundId},
    money::Money,
    refund::Refund,
};

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
            card_token: new.card.card.token().to_owned(),
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

/// The verb that asks, as the table names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
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

named!(Verb);

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
}

/// What a step of a checkout asks a card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StepQuestion {
    /// For the money of its order.
    Charge(OrderId, CardAuthorization),
    /// For the refund of its charge.
    Refund(RefundRequest),
}

impl From<StepQuestion> for Question {
    fn from(question: StepQuestion) -> Self {
        match question {
            StepQuestion::Charge(order, card) => Self::OrderPayment(order, card),
            StepQuestion::Refund(request) => Self::Refund(request),
        }
    }
}

/// A question, and how the verb shows what follows from the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// What is asked.
    pub question: Question,
    /// What the reply shows whole.
    pub expand: Expansion,
}

/// An effect outside the database: what is asked for, and everything that its completion needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Of a verb.
    Verb(Asked),
    /// Of a step of this checkout.
    Step(CheckoutId, StepQuestion),
}

/// An effect as the table holds it, in columns of which not all go together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EffectColumns {
    /// Which verb asks.
    pub verb: Verb,
    /// What for.
    pub ask: Ask,
    /// The order that is paid.
    pub order: Option<OrderId>,
    /// The checkout that it is a step of.
    pub checkout: Option<CheckoutId>,
    /// The intent whose verb asks.
    pub intent: Option<PaymentIntentId>,
    /// What the reply shows whole.
    pub expand: Expansion,
}

impl EffectColumns {
    fn of(verb: Verb, ask: Ask) -> Self {
        Self {
            verb,
            ask,
            order: None,
            checkout: None,
            intent: None,
            expand: Expansion::default(),
        }
    }

    /// The effect in these columns. `None`: no verb of this release asks so, and nothing could
    /// write the answer down.
    pub fn effect(self) -> Option<Effect> {
        let (intent, order, expand) = (self.intent, self.order, self.expand);
        if let Some(checkout) = self.checkout {
            let question = match (self.verb, self.ask, order, intent) {
                (Verb::CreateCharge, Ask::Authorize(card), Some(order), None) => {
                    StepQuestion::Charge(order, card)
                }
                (Verb::CreateRefund, Ask::Refund(refund), None, None) => {
                    StepQuestion::Refund(refund)
                }
                _ => return None,
            };
            return Some(Effect::Step(checkout, question));
        }
        let paid = |by, intent, card| Question::IntentPayment(intent, by, card);
        let question = match (self.verb, self.ask, order, intent) {
            (Verb::CreateCharge, Ask::Authorize(card), None, None) => Question::Charge(card),
            (Verb::CaptureCharge, Ask::Capture(capture), None, None) => Question::Capture(capture),
            (Verb::CreateRefund, Ask::Refund(refund), None, None) => Question::Refund(refund),
            (Verb::PayOrder, Ask::Authorize(card), Some(order), None) => {
                Question::OrderPayment(order, card)
            }
            (Verb::CreateIntent, Ask::Authorize(card), None, Some(intent)) => {
                paid(ConfirmedBy::Creation, intent, card)
            }
            (Verb::ConfirmIntent, Ask::Authorize(card), None, Some(intent)) => {
                paid(ConfirmedBy::Confirmation, intent, card)
            }
            (Verb::AuthenticateIntent, Ask::Authorize(card), None, Some(intent)) => {
                paid(ConfirmedBy::Holder, intent, card)
            }
            (Verb::CaptureIntent, Ask::Capture(capture), None, Some(intent)) => {
                Question::IntentCapture(intent, capture)
            }
            (Verb::CancelIntent, Ask::Refund(refund), None, Some(intent)) => {
                Question::IntentCancellation(intent, refund)
            }
            _ => return None,
        };
        Some(Effect::Verb(Asked { question, expand }))
    }
}

impl Question {
    /// What the processor is asked to do.
    pub fn ask(&self) -> Ask {
        EffectColumns::from(self).ask
    }
}

impl From<&Question> for EffectColumns {
    fn from(question: &Question) -> Self {
        let authorize = |card: &CardAuthorization| Ask::Authorize(card.clone());
        let (verb, ask, order, intent) = match question {
            Question::Charge(card) => (Verb::CreateCharge, authorize(card), None, None),
            Question::Capture(capture) => (Verb::CaptureCharge, Ask::Capture(*capture), None, None),
            Question::Refund(refund) => {
                (Verb::CreateRefund, Ask::Refund(refund.clone()), None, None)
            }
            Question::OrderPayment(order, card) => {
                (Verb::PayOrder, authorize(card), Some(*order), None)
            }
            Question::IntentPayment(intent, by, card) => {
                let verb = match by {
                    ConfirmedBy::Creation => Verb::CreateIntent,
                    ConfirmedBy::Confirmation => Verb::ConfirmIntent,
                    ConfirmedBy::Holder => Verb::AuthenticateIntent,
                };
                (verb, authorize(card), None, Some(*intent))
            }
            Question::IntentCapture(intent, capture) => {
                let ask = Ask::Capture(*capture);
                (Verb::CaptureIntent, ask, None, Some(*intent))
            }
            Question::IntentCancellation(intent, refund) => {
                let ask = Ask::Refund(refund.clone());
                (Verb::CancelIntent, ask, None, Some(*intent))
            }
        };
        Self {
            order,
            intent,
            ..Self::of(verb, ask)
        }
    }
}

impl From<&Effect> for EffectColumns {
    fn from(effect: &Effect) -> Self {
        match effect {
            Effect::Verb(Asked { question, expand }) => Self {
                expand: expand.clone(),
                ..Self::from(question)
            },
            Effect::Step(checkout, StepQuestion::Charge(order, card)) => Self {
                order: Some(*order),
                checkout: Some(*checkout),
                ..Self::of(Verb::CreateCharge, Ask::Authorize(card.clone()))
            },
            Effect::Step(checkout, StepQuestion::Refund(refund)) => Self {
                checkout: Some(*checkout),
                ..Self::of(Verb::CreateRefund, Ask::Refund(refund.clone()))
            },
        }
    }
}

impl Effect {
    /// What the processor is asked to do.
    pub fn ask(&self) -> Ask {
        EffectColumns::from(self).ask
    }

    /// The id of what the request is about, as its reply will have it unless a card is declined.
    pub fn resource(&self) -> String {
        let columns = EffectColumns::from(self);
        if let Some(intent) = columns.intent {
            return intent.to_string();
        }
        match (columns.verb, columns.order, columns.ask) {
            (Verb::PayOrder, Some(order), _) => order.to_string(),
            (_, _, Ask::Refund(request)) => request.refund.to_string(),
            (_, _, ask) => ask.charge().to_string(),
        }
    }
}

/// What became of an operation, as a person found out from the processor's operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Resolution {
    /// It was executed.
    Done,
    /// It was declined.
    Declined,
    /// It was not executed, by no attempt, and will not be.
    NotExecuted,
}

named!(Resolution);

/// Everything that it takes to ask the processor, to complete, and to answer the client, after a
/// crash of the process that began it.
#[derive(Debug, Clone)]
pub struct Operation {
    /// The key that the processor gets.
    pub id: Uuid,
    /// The account that it belongs to.
    pub account: AccountId,
    /// What is asked for, each time the same.
    pub effect: Effect,
    /// Decides what paths in the reply start with.
    pub dialect: Dialect,
    /// The version of the API that the request named, for its events.
    pub api_version: Option<String>,
    /// The `req_…` that began it.
    pub request_id: String,
    /// The client's key.
    pub idempotency_key: String,
    /// The processor that it was sent to: another one doesn't know its key, and would execute it
    /// again.
    pub processor: String,
    /// How long ago it was written down, by the database's clock.
    pub age: Duration,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;
    use crate::domain::money::Currency;

    fn asks() -> [Ask; 3] {
        let charge = ChargeId(Uuid::nil());
        [
            Ask::Authorize(CardAuthorization {
                charge,
                amount: Money {
                    minor_units: 1,
                    currency: Currency::of_stored("usd").unwrap(),
                },
                card_token: "tok_visa".to_owned(),
                capture: true,
            }),
            Ask::Capture(CaptureRequest { charge, amount: 1 }),
            Ask::Refund(RefundRequest {
                charge,
                refund: RefundId(Uuid::nil()),
                amount: 1,
            }),
        ]
    }

    /// All that columns can hold: each is one effect and that one's columns, or none.
    #[test]
    fn columns_hold_one_effect_or_none() {
        let mut known = Vec::new();
        for (verb, ask) in Verb::VARIANTS
            .iter()
            .flat_map(|verb| asks().map(|ask| (*verb, ask)))
        {
            for others in 0..8 {
                let is_set = |bit: u8| others & bit > 0;
                let columns = EffectColumns {
                    order: is_set(1).then_some(OrderId(Uuid::nil())),
                    checkout: is_set(2).then_some(CheckoutId(Uuid::nil())),
                    intent: is_set(4).then_some(PaymentIntentId(Uuid::nil())),
                    ..EffectColumns::of(verb, ask.clone())
                };
                if let Some(effect) = columns.clone().effect() {
                    assert_eq!(EffectColumns::from(&effect), columns);
                    known.push((verb.as_str(), others));
                }
            }
        }
        let expected = [
            ("create_charge", 0),
            ("create_charge", 3),
            ("capture_charge", 0),
            ("create_refund", 0),
            ("create_refund", 2),
            ("pay_order", 1),
            ("create_intent", 4),
            ("confirm_intent", 4),
            ("authenticate_intent", 4),
            ("capture_intent", 4),
            ("cancel_intent", 4),
        ];
        assert_eq!(known, expected);
    }
}
