//! Checkouts as clients send and see them.

use charge_once_strict_params::{Integer, Text, parameters};
use serde::Serialize;

use super::{
    error::{ApiError, ErrorCode, ErrorType},
    metadata::MetadataParam,
    names::{CheckoutStatusView, StepNameView, StepStateView},
    orders::{ItemView, Lines},
    parameter::{Amount, Reference},
    source::SourceParam,
};
use crate::domain::{
    checkout::{Checkout, NewCheckout, Step, StepName, StepRefusal},
    metadata::Metadata,
    money::{Currency, Money},
    order::{ITEM_TEXT_MAX_CHARS, Item, OrderTerms, QUANTITY_MAX},
};

parameters! {
    /// The parameters of a new checkout.
    pub struct CreateCheckoutParams as "CreateCheckout" {
        currency: Currency,
        items: Lines<ItemWithSkuParams>,
        source: SourceParam,
        /// Your own reference.
        customer: Option<Reference>,
        metadata: MetadataParam,
    }
    example {
        "currency": "usd", "source": "tok_visa",
        "items": [{"sku": "mug", "quantity": 2, "unit_amount": 1200}],
    }
}

impl From<CreateCheckoutParams> for NewCheckout {
    fn from(params: CreateCheckoutParams) -> Self {
        Self {
            terms: OrderTerms {
                amount: Money {
                    minor_units: params.items.total,
                    currency: params.currency,
                },
                client_order_id: None,
                customer: params.customer,
                items: params.items.items,
                metadata: params.metadata,
            },
            card: params.source,
        }
    }
}

parameters! {
    /// One line.
    pub struct ItemWithSkuParams as "CreateCheckoutItem" {
        /// Your stock-keeping unit: its level in the inventory is what there is to sell.
        sku: Text<ITEM_TEXT_MAX_CHARS, 1>,
        /// For people.
        description: Option<Text<ITEM_TEXT_MAX_CHARS>>,
        /// How many.
        quantity: Integer<1, QUANTITY_MAX>,
        /// Minor units.
        unit_amount: Amount<0>,
    }
}

impl From<ItemWithSkuParams> for Item {
    fn from(params: ItemWithSkuParams) -> Self {
        Self {
            sku: Some(params.sku),
            description: params.description,
            quantity: params.quantity,
            unit_amount: params.unit_amount,
        }
    }
}

impl From<ApiError> for StepRefusal {
    fn from(error: ApiError) -> Self {
        Self {
            code: error.code.as_str().to_owned(),
            message: error.message,
            param: error.param,
            decline_code: error.decline_code,
        }
    }
}

/// The error that a canceled checkout is answered with; `None` if nothing was refused, or if this
/// release doesn't know the code.
pub fn refusal_of(checkout: &Checkout) -> Option<ApiError> {
    let refusal = checkout.refusal.as_ref()?;
    let code = ErrorCode::parse(&refusal.code)?;
    let is_decline = code.error_type() == ErrorType::Card;
    let charge = checkout.resource(StepName::CreateCharge);
    Some(ApiError {
        param: refusal.param.clone(),
        decline_code: refusal.decline_code.clone(),
        charge: charge.filter(|_| is_decline).map(str::to_owned),
        ..ApiError::new(code, refusal.message.clone())
    })
}

/// One step, as clients see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[schema(as = Step)]
pub struct StepView {
    /// What it does.
    #[schema(example = "create_charge")]
    pub name: StepNameView,
    /// How far it is.
    #[schema(example = "done")]
    pub state: StepStateView,
    /// The id of what it made or changed, once it ended.
    #[schema(required = true, example = "ch_01kar2w7n9e4xt8f5mq0v3z6yd")]
    pub resource: Option<String>,
    /// Number of attempts: one when the step becomes the next one, and one more whenever the
    /// checkout is continued after a crash or a failure.
    #[schema(example = 1)]
    pub attempts: i32,
}

impl From<&Step> for StepView {
    fn from(step: &Step) -> Self {
        Self {
            name: StepNameView(step.name),
            state: StepStateView(step.state),
            resource: step.resource.clone(),
            attempts: step.attempts,
        }
    }
}

/// A checkout, as clients see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[schema(as = Checkout)]
pub struct CheckoutView {
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
    /// The failure in words, for people.
    #[schema(required = true)]
    pub failure_message: Option<String>,
    /// The lines.
    pub items: Vec<ItemView>,
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
    pub status: CheckoutStatusView,
    /// What was run, and what is to be.
    pub steps: Vec<StepView>,
}

impl From<&Checkout> for CheckoutView {
    fn from(checkout: &Checkout) -> Self {
        let resource = |step| checkout.resource(step).map(str::to_owned);
        let (terms, refusal) = (&checkout.terms, checkout.refusal.as_ref());
        Self {
            id: checkout.id.to_string(),
            object: "checkout",
            amount: terms.amount.minor_units,
            charge: resource(StepName::CreateCharge),
            created: checkout.created_at.timestamp(),
            currency: terms.amount.currency.to_string(),
            customer: terms.customer.clone(),
            failure_code: refusal.map(|refusal| refusal.code.clone()),
            failure_message: refusal.map(|refusal| refusal.message.clone()),
            items: terms.items.iter().map(ItemView::from).collect(),
            livemode: false,
            metadata: terms.metadata.clone(),
            order: checkout.order.map(|order| order.to_string()),
            refund: resource(StepName::CreateRefund),
            status: CheckoutStatusView(checkout.status),
            steps: checkout.steps.iter().map(StepView::from).collect(),
        }
    }
}
