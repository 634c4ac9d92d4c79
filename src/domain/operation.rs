//! What a card processor across a network is asked to do, and what is kept of it.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{
    dialect::Dialect,
    ids::{AccountId, ChargeId, CheckoutId, OrderId, RefundId},
    test_cards::Decline,
};

/// What the processor is asked to do. References are this service's ids with their prefixes, amounts
/// are minor units.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "lowercase")]
pub enum Instruction {
    /// Promise money, and take it at once where `capture` says so.
    Authorise {
        /// The charge that it is for: `ch_…`.
        charge: String,
        /// How much.
        amount: i64,
        /// ISO 4217, lower case.
        currency: String,
        /// The card, as the canonical test token.
        card: String,
        /// Whether to take the money at once.
        capture: bool,
    },
    /// Take promised money, once; the rest is released.
    Capture {
        /// The charge that promised it.
        charge: String,
        /// How much, at most what was promised.
        amount: i64,
    },
    /// Give money back, or release what was only promised.
    Refund {
        /// The charge that took it.
        charge: String,
        /// The refund that it is for: `re_…`.
        refund: String,
        /// How much.
        amount: i64,
    },
}

/// A definite answer: it stays the same however often the instruction is sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Executed.
    Done,
    /// Refused for good.
    Declined(Decline),
}

/// The outcome of an operation, from a person who asked the processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    /// It was executed.
    Done,
    /// It was declined.
    Declined,
    /// It was not executed, by no attempt, and will not be.
    NotExecuted,
}

impl Word {
    /// Its name in the table.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Declined => "declined",
            Self::NotExecuted => "not_executed",
        }
    }
}

/// The request that an operation is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// `POST /charges`
    CreateCharge,
    /// `POST /charges/{id}/capture`
    CaptureCharge,
    /// `POST /refunds`
    CreateRefund,
    /// `POST /orders/{id}/pay`
    PayOrder,
}

impl Verb {
    /// All of them.
    pub const ALL: &'static [Self] = &[
        Self::CreateCharge,
        Self::CaptureCharge,
        Self::CreateRefund,
        Self::PayOrder,
    ];

    /// Its name in the table.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::CreateCharge => "create_charge",
            Self::CaptureCharge => "capture_charge",
            Self::CreateRefund => "create_refund",
            Self::PayOrder => "pay_order",
        }
    }

    /// The verb with this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|verb| verb.as_str() == name)
    }
}

/// Everything that a process needs to call the processor, to complete the operation, and to answer
/// the client.
#[derive(Debug, Clone)]
pub struct Operation {
    /// The key that the processor gets.
    pub id: Uuid,
    /// Whose it is.
    pub account: AccountId,
    /// Which request it is for.
    pub verb: Verb,
    /// What is sent, each time the same.
    pub instruction: Instruction,
    /// The charge that it is about.
    pub charge: ChargeId,
    /// The refund that is made.
    pub refund: Option<RefundId>,
    /// The order that is paid.
    pub order: Option<OrderId>,
    /// The checkout that it is a step of.
    pub checkout: Option<CheckoutId>,
    /// Decides what paths in the reply start with.
    pub dialect: Dialect,
    /// Whether the reply shows references as whole objects.
    pub expand: bool,
    /// The `req_…` that began it.
    pub request_id: String,
    /// The client's key.
    pub idempotency_key: String,
    /// Whom it was sent to: another processor doesn't know its key, and would execute it again.
    pub processor: String,
    /// How long ago it was written down, by the database's clock.
    pub age: Duration,
}

impl Operation {
    /// The id of what the request is about, as its reply will have it unless a card is declined.
    pub fn resource(&self) -> String {
        match (self.verb, self.refund, self.order) {
            (Verb::CreateRefund, Some(refund), _) => refund.to_string(),
            (Verb::PayOrder, _, Some(order)) => order.to_string(),
            (
                Verb::CreateCharge | Verb::CaptureCharge | Verb::CreateRefund | Verb::PayOrder,
                _,
                _,
            ) => self.charge.to_string(),
        }
    }
}
