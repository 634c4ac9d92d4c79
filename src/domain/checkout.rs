//! What a checkout is made of, which steps it takes, and what undoes them.
//!
//! ```text
//! create_order ─▶ create_charge ─▶ allocate_inventory ─▶ completed
//!                       │ declined         │ out of stock
//!                       │                  ▼
//!                       │            create_refund
//!                       ▼                  ▼
//!                  cancel_order ◀──────────┘ ─▶ canceled
//! ```

use chrono::{DateTime, Utc};
use strum::{EnumString, IntoStaticStr, VariantArray};

use super::{
    charge::Card,
    dialect::Dialect,
    ids::{AccountId, ChargeId, CheckoutId, OrderId},
    metadata::Metadata,
    money::Money,
    order::{Item, NewOrder},
};

/// A checkout that is to be made.
#[derive(Debug, Clone)]
pub struct NewCheckout {
    /// The sum of the items.
    pub amount: Money,
    /// 1 to 100 lines, each with a stock-keeping unit.
    pub items: Vec<Item>,
    /// The card that pays.
    pub card: Card,
    /// The client's own reference.
    pub customer: Option<String>,
    /// The client's own names.
    pub metadata: Metadata,
}

/// One step of a checkout: one transaction, or one operation in phases.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, EnumString, IntoStaticStr, VariantArray,
)]
#[strum(serialize_all = "snake_case")]
pub enum StepName {
    /// Opens the order.
    CreateOrder,
    /// Makes the charge for it.
    CreateCharge,
    /// Takes the items from the inventory, and with that the order is paid.
    AllocateInventory,
    /// Gives the charge back: there were not enough items.
    CreateRefund,
    /// Closes the order that came to nothing.
    CancelOrder,
}

named!(StepName);

impl StepName {
    /// The planned steps.
    pub const PLAN: &'static [Self] = &[
        Self::CreateOrder,
        Self::CreateCharge,
        Self::AllocateInventory,
    ];

    /// Where it stands among the steps.
    pub fn position(self) -> i16 {
        match self {
            Self::CreateOrder => 1,
            Self::CreateCharge => 2,
            Self::AllocateInventory => 3,
            Self::CreateRefund => 4,
            Self::CancelOrder => 5,
        }
    }

    /// What has to be undone once this step is refused for good.
    pub fn compensation(self) -> &'static [Self] {
        match self {
            Self::CreateCharge => &[Self::CancelOrder],
            Self::AllocateInventory => &[Self::CreateRefund, Self::CancelOrder],
            Self::CreateOrder | Self::CreateRefund | Self::CancelOrder => &[],
        }
    }
}

/// How far a step is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum StepState {
    /// To be run, or running.
    Pending,
    /// Done, for good.
    Done,
    /// Refused, for good: what was done before is undone by later steps.
    Refused,
    /// Not to be run any more, because an earlier step was refused.
    Skipped,
}

named!(StepState);

/// One step and how far it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// What it does.
    pub name: StepName,
    /// How far it is.
    pub state: StepState,
    /// The id of what it made or changed, once it ended.
    pub resource: Option<String>,
    /// Number of attempts: one when the step becomes the next one, and one more whenever the
    /// checkout is continued after a crash or a failure.
    pub attempts: i32,
}

/// Where a checkout stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum CheckoutStatus {
    /// It has steps to run, forwards or undoing, or its end is to be written.
    InProgress,
    /// The order is paid and its items are allocated.
    Completed,
    /// Nothing is left of it: no money, no items, a canceled order.
    Canceled,
}

named!(CheckoutStatus);

/// Why a step was refused for good, as it is told to the client when the checkout ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepRefusal {
    /// The code of the error, for programs.
    pub code: String,
    /// For people.
    pub message: String,
    /// The parameter at fault.
    pub param: Option<String>,
    /// The issuer's reason, for a declined card.
    pub decline_code: Option<String>,
}

/// A checkout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkout {
    /// Which one.
    pub id: CheckoutId,
    /// The sum of the items.
    pub amount: Money,
    /// The lines.
    pub items: Vec<Item>,
    /// The client's own reference.
    pub customer: Option<String>,
    /// The client's own names; the order has them too.
    pub metadata: Metadata,
    /// The order, once there is one.
    pub order: Option<OrderId>,
    /// Why a step was refused for good, if one was.
    pub refusal: Option<StepRefusal>,
    /// Where it stands.
    pub status: CheckoutStatus,
    /// What was run, and what is to be.
    pub steps: Vec<Step>,
    /// When it was written, by the database's clock.
    pub created_at: DateTime<Utc>,
}

impl Checkout {
    /// The step that is to be run now; `None` once no step is left.
    pub fn next(&self) -> Option<StepName> {
        let pending = self
            .steps
            .iter()
            .find(|step| step.state == StepState::Pending);
        pending.map(|step| step.name)
    }

    /// How it ends, once there is no step left.
    pub fn ending(&self) -> CheckoutStatus {
        match self.refusal {
            None => CheckoutStatus::Completed,
            Some(_) => CheckoutStatus::Canceled,
        }
    }

    /// The id of what a step made.
    pub fn resource(&self, name: StepName) -> Option<&str> {
        let step = self.steps.iter().find(|step| step.name == name)?;
        step.resource.as_deref()
    }

    /// The charge, if one succeeded or failed.
    pub fn charge(&self) -> Option<ChargeId> {
        self.resource(StepName::CreateCharge)
            .and_then(ChargeId::parse)
    }

    /// The order that its first step creates.
    pub fn new_order(&self) -> NewOrder {
        NewOrder {
            amount: self.amount,
            items: self.items.clone(),
            customer: self.customer.clone(),
            client_order_id: None,
            metadata: self.metadata.clone(),
        }
    }
}

/// A checkout with all that it takes to run its next step.
#[derive(Debug, Clone)]
pub struct CheckoutRun {
    /// The account that it belongs to.
    pub account: AccountId,
    /// The checkout.
    pub checkout: Checkout,
    /// The card that pays.
    pub card: Card,
    /// How many refunds the processor refused to make; the next one is another operation.
    pub refused_refunds: i32,
    /// Whether the last of them was refused less than an hour ago, so that the next one waits.
    pub refund_waits: bool,
    /// The dialect of the reply.
    pub dialect: Dialect,
    /// The version of the API that the request named, for its events.
    pub api_version: Option<String>,
    /// The `req_…` that began it.
    pub request_id: String,
    /// The client's key.
    pub idempotency_key: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_run_in_the_order_that_they_are_listed_in_and_are_undone_by_later_ones() {
        assert!(StepName::ALL.is_sorted_by_key(|step| step.position()));
        for step in StepName::ALL {
            for undoing in step.compensation() {
                assert!(undoing.position() > step.position(), "{undoing:?}");
                assert!(!StepName::PLAN.contains(undoing), "{undoing:?}");
            }
        }
    }
}
