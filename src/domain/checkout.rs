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

use serde::{Deserialize, Serialize};

use super::{
    charge::{Card, REFERENCE_MAX_CHARS, currency, source},
    dialect::Dialect,
    error::ApiError,
    ids::{AccountId, ChargeId, CheckoutId, OrderId},
    money::Currency,
    order::{ITEMS_MAX, Item, NewOrder, item, total},
    params::{Fields, Metadata, Params},
};

/// The checked parameters of a new checkout.
#[derive(Debug, Clone)]
pub struct NewCheckout {
    /// The sum of the items, in minor units.
    pub amount: i64,
    /// What the amounts count.
    pub currency: Currency,
    /// 1 to 100 lines, each with a stock-keeping unit.
    pub items: Vec<Item>,
    /// The card that pays.
    pub card: Card,
    /// The client's own reference.
    pub customer: Option<String>,
    /// The client's own names.
    pub metadata: Metadata,
}

impl NewCheckout {
    /// Checks the parameters of `POST /checkouts`.
    pub fn parse(params: &Params) -> Result<Self, ApiError> {
        let mut fields = params.fields()?;
        let currency = currency(&mut fields)?;
        let items = fields.objects("items", 1..=ITEMS_MAX, item_with_sku)?;
        let new_checkout = Self {
            amount: total(&items)?,
            currency,
            items,
            card: source(&mut fields)?,
            customer: fields.text("customer", REFERENCE_MAX_CHARS)?,
            metadata: fields.metadata()?,
        };
        fields.finish()?;
        Ok(new_checkout)
    }
}

/// Without a stock-keeping unit there is nothing to allocate.
fn item_with_sku(fields: &mut Fields<'_>) -> Result<Item, ApiError> {
    let item = item(fields)?;
    match item.sku {
        Some(_) => Ok(item),
        None => Err(fields.missing("sku")),
    }
}

/// One step of a checkout: one transaction, or one operation in phases.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema,
)]
#[serde(rename_all = "snake_case")]
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

impl StepName {
    /// All of them, in the order that they run in.
    pub const ALL: &'static [Self] = &[
        Self::CreateOrder,
        Self::CreateCharge,
        Self::AllocateInventory,
        Self::CreateRefund,
        Self::CancelOrder,
    ];

    /// What every checkout sets out to do.
    pub const PLAN: &'static [Self] = &[
        Self::CreateOrder,
        Self::CreateCharge,
        Self::AllocateInventory,
    ];

    /// Its name, in replies and in the table.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::CreateOrder => "create_order",
            Self::CreateCharge => "create_charge",
            Self::AllocateInventory => "allocate_inventory",
            Self::CreateRefund => "create_refund",
            Self::CancelOrder => "cancel_order",
        }
    }

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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
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

impl StepState {
    /// Its name, in replies and in the table.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Done => "done",
            Self::Refused => "refused",
            Self::Skipped => "skipped",
        }
    }
}

/// One step, as clients see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Step {
    /// What it does.
    #[schema(example = "create_charge")]
    pub name: StepName,
    /// How far it is.
    #[schema(example = "done")]
    pub state: StepState,
    /// The id of what it made or changed, once it ended.
    #[schema(required = true, example = "ch_01kar2w7n9e4xt8f5mq0v3z6yd")]
    pub resource: Option<String>,
    /// How often it was somebody's to run: once when it is next, and once more whenever somebody goes
    /// on with the checkout after a crash or a failure.
    #[schema(example = 1)]
    pub attempts: i32,
}

/// Where a checkout stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CheckoutStatus {
    /// It has steps to run, forwards or undoing, or its end is to be written.
    InProgress,
    /// The order is paid and its items are allocated.
    Completed,
    /// Nothing is left of it: no money, no items, a canceled order.
    Canceled,
}

impl CheckoutStatus {
    /// All of them.
    pub const ALL: &'static [Self] = &[Self::InProgress, Self::Completed, Self::Canceled];

    /// Its name, in replies and in the table.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InProgress => "in_progress",
            Self::Completed => "completed",
            Self::Canceled => "canceled",
        }
    }

    /// The status with this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|status| status.as_str() == name)
    }
}

/// A checkout, as clients see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct Checkout {
    /// `co_…`
    #[schema(example = "co_01kar2w7n9e4xt8f5mq0v3z6yd")]
    pub id: String,
    /// Always `checkout`.
    #[schema(example = "checkout")]
    pub object: &'static str,
    /// The sum of the items, in minor units.
    #[schema(example = 2400)]
    pub amount: i64,
    /// The charge, a declined one too, once the processor has answered.
    #[schema(required = true)]
    pub charge: Option<String>,
    /// Unix seconds.
    #[schema(example = 1_795_000_000)]
    pub created: i64,
    /// ISO 4217, lower case.
    #[schema(example = "eur")]
    pub currency: String,
    /// Your own reference.
    #[schema(required = true)]
    pub customer: Option<String>,
    /// Why it was or is being canceled: the code of the error that is answered.
    #[schema(required = true, example = "out_of_stock")]
    pub failure_code: Option<String>,
    /// The same, for people.
    #[schema(required = true)]
    pub failure_message: Option<String>,
    /// The lines.
    pub items: Vec<Item>,
    /// Always false.
    #[schema(example = false)]
    pub livemode: bool,
    /// Your own names; the order has them too.
    #[schema(value_type = BTreeMap<String, String>)]
    pub metadata: Metadata,
    /// The order, once there is one.
    #[schema(required = true)]
    pub order: Option<String>,
    /// The refund of a charge that was given back.
    #[schema(required = true)]
    pub refund: Option<String>,
    /// Where it stands.
    #[schema(example = "completed")]
    pub status: CheckoutStatus,
    /// What was run, and what is to be.
    pub steps: Vec<Step>,
}

/// A checkout with all that it takes to go on with it, whoever does.
#[derive(Debug, Clone)]
pub struct CheckoutRun {
    /// Which one.
    pub id: CheckoutId,
    /// Whose it is.
    pub account: AccountId,
    /// As clients see it.
    pub checkout: Checkout,
    /// The order, once there is one.
    pub order: Option<OrderId>,
    /// The card that pays.
    pub card: Card,
    /// Why a step was refused for good, if one was.
    pub refusal: Option<ApiError>,
    /// How many refunds the processor refused to make; the next one is another operation.
    pub refused_refunds: i32,
    /// Whether the last of them is so fresh that another one would be refused as well.
    pub refund_waits: bool,
    /// Decides what paths in the reply start with.
    pub dialect: Dialect,
    /// The `req_…` that began it.
    pub request_id: String,
    /// The client's key.
    pub idempotency_key: String,
}

impl CheckoutRun {
    /// The step that is to be run now; `None` once all has been done that ever will be.
    pub fn next(&self) -> Option<StepName> {
        let steps = &self.checkout.steps;
        let pending = steps.iter().find(|step| step.state == StepState::Pending);
        pending.map(|step| step.name)
    }

    /// How it ends, once there is no step left.
    pub fn ending(&self) -> CheckoutStatus {
        match self.refusal {
            None => CheckoutStatus::Completed,
            Some(_) => CheckoutStatus::Canceled,
        }
    }

    /// The charge, if one succeeded or failed.
    pub fn charge(&self) -> Option<ChargeId> {
        self.checkout.charge.as_deref().and_then(ChargeId::parse)
    }
}

impl Checkout {
    /// The order that its first step creates; `None` if its currency isn't one.
    pub fn new_order(&self) -> Option<NewOrder> {
        Some(NewOrder {
            amount: self.amount,
            currency: Currency::parse(&self.currency)?,
            items: self.items.clone(),
            customer: self.customer.clone(),
            client_order_id: None,
            metadata: self.metadata.clone(),
            expand_charge: false,
        })
    }

    /// The id of what a step made.
    pub fn resource(steps: &[Step], name: StepName) -> Option<String> {
        let step = steps.iter().find(|step| step.name == name)?;
        step.resource.clone()
    }
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
