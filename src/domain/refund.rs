//! A refund: money given back.

use chrono::{DateTime, Utc};

use super::{
    ids::{ChargeId, RefundId},
    metadata::Metadata,
    money::Money,
};

/// Why money is given back, as the client says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefundReason {
    /// The customer was charged twice.
    Duplicate,
    /// The customer did not order.
    Fraudulent,
    /// The customer wants it.
    RequestedByCustomer,
}

impl RefundReason {
    /// All of them.
    pub const ALL: &'static [Self] =
        &[Self::Duplicate, Self::Fraudulent, Self::RequestedByCustomer];

    /// Its name, in requests, in replies and in the table.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Duplicate => "duplicate",
            Self::Fraudulent => "fraudulent",
            Self::RequestedByCustomer => "requested_by_customer",
        }
    }

    /// The reason with this name.
    pub fn parse(name: &str) -> Option<Self> {
        let mut reasons = Self::ALL.iter().copied();
        reasons.find(|reason| reason.as_str() == name)
    }
}

/// How far a refund is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefundStatus {
    /// The processor has not answered. The refund counts anyway, so that no money is returned
    /// twice.
    Pending,
    /// The money was given back.
    Succeeded,
    /// The processor refused to give it back.
    Failed,
}

impl RefundStatus {
    /// Its name, in replies and in the table.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
        }
    }

    /// The status with this name.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Pending, Self::Succeeded, Self::Failed]
            .into_iter()
            .find(|status| status.as_str() == name)
    }
}

/// A refund that is to be made.
#[derive(Debug, Clone)]
pub struct NewRefund {
    /// Which charge is given back.
    pub charge: ChargeId,
    /// Minor units of the charge's currency.
    pub amount: i64,
    /// Why.
    pub reason: Option<RefundReason>,
    /// The client's own names.
    pub metadata: Metadata,
}

/// A refund.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refund {
    /// Which one.
    pub id: RefundId,
    /// The charge that is given back.
    pub charge: ChargeId,
    /// How much of it.
    pub amount: Money,
    /// Why.
    pub reason: Option<RefundReason>,
    /// How far it is.
    pub status: RefundStatus,
    /// The client's own names.
    pub metadata: Metadata,
    /// When it was written, by the database's clock.
    pub created_at: DateTime<Utc>,
}
