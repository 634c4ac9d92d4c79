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

/// The verb that asks, and that gets the answer. Its name is in the table.
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

/// An effect outside the database: what is asked for, and everything that its completion needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effect {
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

impl Effect {
    /// An effect for no order, no checkout and no intent, with a reply that shows ids.
    pub fn of(verb: Verb, ask: Ask) -> Self {
        Self {
            verb,
            ask,
            order: None,
            checkout: None,
            intent: None,
            expand: Expansion::default(),
        }
    }

    /// Whether a command of this release begins such an effect. No other can be completed, so no
    /// other may be sent.
    pub fn has_a_command(&self) -> bool {
        let (order, checkout) = (self.order.is_some(), self.checkout.is_some());
        if self.intent.is_some() {
            return !order
                && !checkout
                && matches!(
                    (self.verb, &self.ask),
                    (
                        Verb::CreateIntent | Verb::ConfirmIntent | Verb::AuthenticateIntent,
                        Ask::Authorize(_)
                    ) | (Verb::CaptureIntent, Ask::Capture(_))
                        | (Verb::CancelIntent, Ask::Refund(_))
                );
        }
        matches!(
            (self.verb, &self.ask, order, checkout),
            (Verb::CreateCharge, Ask::Authorize(_), false, false)
                | (Verb::CreateCharge, Ask::Authorize(_), true, true)
                | (Verb::CaptureCharge, Ask::Capture(_), false, false)
                | (Verb::CreateRefund, Ask::Refund(_), false, _)
                | (Verb::PayOrder, Ask::Authorize(_), true, false)
        )
    }

    /// The id of what the request is about, as its reply will have it unless a card is declined.
    pub fn resource(&self) -> String {
        if let Some(intent) = self.intent {
            return intent.to_string();
        }
        match (self.verb, self.order, &self.ask) {
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
    use super::*;

    #[test]
    fn only_what_a_command_begins_may_be_sent() {
        let (charge, order, checkout) = (
            ChargeId(Uuid::nil()),
            Some(OrderId(Uuid::nil())),
            Some(CheckoutId(Uuid::nil())),
        );
        let capture = || Ask::Capture(CaptureRequest { charge, amount: 1 });
        let refund = || {
            Ask::Refund(RefundRequest {
                charge,
                refund: RefundId(Uuid::nil()),
                amount: 1,
            })
        };
        let table = [
            (Verb::CaptureCharge, capture(), None, None, true),
            (Verb::CaptureCharge, capture(), None, checkout, false),
            (Verb::CaptureCharge, capture(), order, None, false),
            (Verb::CaptureCharge, refund(), None, None, false),
            (Verb::CreateRefund, refund(), None, None, true),
            (Verb::CreateRefund, refund(), None, checkout, true),
            (Verb::CreateRefund, refund(), order, checkout, false),
            (Verb::PayOrder, refund(), order, None, false),
            (Verb::CreateCharge, capture(), None, None, false),
        ];
        for (verb, ask, order, checkout, is_known) in table {
            let effect = Effect {
                order,
                checkout,
                ..Effect::of(verb, ask)
            };
            assert_eq!(effect.has_a_command(), is_known, "{effect:?}");
        }
        let table = [
            (Verb::CaptureIntent, capture(), order, false),
            (Verb::CaptureIntent, capture(), None, true),
            (Verb::CaptureIntent, refund(), None, false),
            (Verb::CancelIntent, refund(), None, true),
            (Verb::ConfirmIntent, capture(), None, false),
            (Verb::CaptureCharge, capture(), None, false),
        ];
        for (verb, ask, order, is_known) in table {
            let of_intent = Effect {
                order,
                intent: Some(PaymentIntentId(Uuid::nil())),
                ..Effect::of(verb, ask)
            };
            assert_eq!(of_intent.has_a_command(), is_known, "{of_intent:?}");
            let of_none = Effect {
                intent: None,
                ..of_intent
            };
            assert!(!is_known || !of_none.has_a_command(), "{of_none:?}");
        }
    }
}
