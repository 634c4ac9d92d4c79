//! Checkouts as clients send and see them.

use super::{
    error::ErrorType,
    names::{CheckoutStatusView, StepNameView, StepStateView},
    orders::{ItemView, Lines},
    prelude::*,
    source::SourceParam,
};
use crate::domain::{
    checkout::{Checkout, NewCheckout, Step, StepName, StepRefusal},
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
    into Item
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

views! {
    /// One step, as clients see it.
    pub struct StepView as Step from step: &Step {
        /// What it does.
        name: StepNameView [example = "create_charge"] = StepNameView(step.name);
        /// How far it is.
        state: StepStateView [example = "done"] = StepStateView(step.state);
        /// The id of what it made or changed, once it ended.
        maybe resource: String [example = "ch_01kar2w7n9e4xt8f5mq0v3z6yd"] = step.resource.clone();
        /// Number of attempts: one when the step becomes the next one, and one more whenever the
        /// checkout is continued after a crash or a failure.
        attempts: i32 [example = 1] = step.attempts;
    }

    /// A checkout, as clients see it.
    pub struct CheckoutView as Checkout from checkout: &Checkout where {
        let resource = |step| checkout.resource(step).map(str::to_owned);
        let (terms, refusal) = (&checkout.terms, checkout.refusal.as_ref());
    } {
        /// `co_…`
        id: String [example = "co_01kar2w7n9e4xt8f5mq0v3z6yd"] = checkout.id.to_string();
        /// Always `checkout`.
        always object: &'static str = "checkout";
        /// The sum of the items, in minor units.
        amount: i64 [example = 2400] = terms.amount.minor_units;
        /// The charge, a declined one too, once the processor has answered.
        maybe charge: String = resource(StepName::CreateCharge);
        created = checkout.created_at.timestamp();
        /// ISO 4217, lower case.
        currency: String [example = "eur"] = terms.amount.currency.to_string();
        /// Your own reference.
        maybe customer: String = terms.customer.clone();
        /// Why it was or is being canceled: the code of the error that is answered.
        maybe failure_code: String [example = "out_of_stock"] =
            refusal.map(|refusal| refusal.code.clone());
        /// The failure in words, for people.
        maybe failure_message: String = refusal.map(|refusal| refusal.message.clone());
        /// The lines.
        items: Vec<ItemView> = terms.items.iter().map(ItemView::from).collect();
        /// Always false.
        always livemode: bool = false;
        /// Your own names; the order has them too.
        metadata: Metadata [value_type = BTreeMap<String, String>] = terms.metadata.clone();
        /// The order, once there is one.
        maybe order: String = checkout.order.map(|order| order.to_string());
        /// The refund of a charge that was given back.
        maybe refund: String = resource(StepName::CreateRefund);
        /// Where it stands.
        status: CheckoutStatusView [example = "completed"] = CheckoutStatusView(checkout.status);
        /// What was run, and what is to be.
        steps: Vec<StepView> = checkout.steps.iter().map(StepView::from).collect();
    }
}
