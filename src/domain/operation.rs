//! What a card processor across a network is asked for, and what is kept of it.

use std::time::Duration;

use strum::{EnumString, IntoStaticStr, VariantArray};
use uuid::Uuid;

use super::{
    charge::NewCharge,
    dialect::Dialect,
    ids::{AccountId, ChargeId, CheckoutId, OrderId, RefundId},
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

/// An effect outside the database: what is asked for, and everything that its completion needs. One
/// variant for each request that asks the processor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// `POST /charges`
    CreateCharge {
        /// What the card is asked for.
        authorization: CardAuthorization,
        /// Whether the reply lists the refunds.
        expand_refunds: bool,
    },
    /// `POST /charges/{id}/capture`
    CaptureCharge {
        /// The charge that promised the money.
        charge: ChargeId,
        /// How much to take, in minor units; the rest is released.
        amount: i64,
        /// Whether the reply lists the refunds.
        expand_refunds: bool,
    },
    /// `POST /refunds`
    CreateRefund {
        /// What goes back.
        request: RefundRequest,
        /// Whether the reply shows the whole charge.
        expand_charge: bool,
    },
    /// `POST /orders/{id}/pay`
    PayOrder {
        /// The order that is paid.
        order: OrderId,
        /// What the card is asked for.
        authorization: CardAuthorization,
        /// Whether the reply shows the whole charge.
        expand_charge: bool,
    },
    /// The step `create_charge` of a checkout.
    ChargeCheckout {
        /// The checkout.
        checkout: CheckoutId,
        /// The order that an earlier step made.
        order: OrderId,
        /// What the card is asked for.
        authorization: CardAuthorization,
    },
    /// The step `create_refund` of a checkout.
    RefundCheckout {
        /// The checkout.
        checkout: CheckoutId,
        /// What goes back.
        request: RefundRequest,
    },
}

impl Effect {
    /// The charge that it is about.
    pub fn charge(&self) -> ChargeId {
        match self {
            Self::CreateCharge { authorization, .. }
            | Self::PayOrder { authorization, .. }
            | Self::ChargeCheckout { authorization, .. } => authorization.charge,
            Self::CaptureCharge { charge, .. } => *charge,
            Self::CreateRefund { request, .. } | Self::RefundCheckout { request, .. } => {
                request.charge
            }
        }
    }

    /// The checkout that it is a step of.
    pub fn checkout(&self) -> Option<CheckoutId> {
        match self {
            Self::ChargeCheckout { checkout, .. } | Self::RefundCheckout { checkout, .. } => {
                Some(*checkout)
            }
            Self::CreateCharge { .. }
            | Self::CaptureCharge { .. }
            | Self::CreateRefund { .. }
            | Self::PayOrder { .. } => None,
        }
    }

    /// The id of what the request is about, as its reply will have it unless a card is declined.
    pub fn resource(&self) -> String {
        match self {
            Self::CreateRefund { request, .. } | Self::RefundCheckout { request, .. } => {
                request.refund.to_string()
            }
            Self::PayOrder { order, .. } => order.to_string(),
            Self::CreateCharge { .. }
            | Self::CaptureCharge { .. }
            | Self::ChargeCheckout { .. } => self.charge().to_string(),
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
