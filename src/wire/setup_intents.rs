//! Setup intents as clients see them; `setup_intent_params.rs` has what they send.

use serde::Serialize;
use serde_json::value::RawValue;

use super::{
    customers::AnyCustomerView,
    list::Expandable,
    payment_intents::{AutomaticPaymentMethods, NextAction},
    payment_methods::PaymentMethodView,
};
use crate::domain::{
    metadata::Metadata,
    payment_intent::ThreeDSecure,
    setup_intent::{SetupCancellationReason, SetupIntent},
};

/// A setup intent, as clients see it. The members and their order are Stripe's.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[schema(as = SetupIntent)]
pub struct SetupIntentView {
    /// `seti_…`
    #[schema(example = "seti_01kar2w7n9e4xt8f5mq0v3z6yd")]
    pub id: String,
    /// Always `setup_intent`.
    #[schema(example = "setup_intent")]
    pub object: &'static str,
    /// Always null.
    #[schema(required = true, value_type = Option<String>)]
    pub application: (),
    /// Always false.
    #[schema(example = false)]
    pub attach_to_self: bool,
    /// How methods are chosen; null where the request named their types.
    #[schema(required = true)]
    pub automatic_payment_methods: Option<AutomaticPaymentMethods>,
    /// `abandoned`, `requested_by_customer`, `duplicate` or null.
    #[schema(required = true)]
    pub cancellation_reason: Option<&'static str>,
    /// What a shop's pages know it by.
    pub client_secret: String,
    /// Unix seconds.
    #[schema(example = 1_795_000_000)]
    pub created: i64,
    /// Who gets the method; whole with `expand[]=customer`.
    #[schema(required = true, no_recursion)]
    pub customer: Option<Expandable<AnyCustomerView>>,
    /// Always null.
    #[schema(required = true, value_type = Option<String>)]
    pub customer_account: (),
    /// For people.
    #[schema(required = true)]
    pub description: Option<String>,
    /// Always null.
    #[schema(required = true, value_type = Option<String>)]
    pub excluded_payment_method_types: (),
    /// Always null.
    #[schema(required = true, value_type = Option<String>)]
    pub flow_directions: (),
    /// Why the last attempt failed, with the method that failed.
    #[schema(required = true, value_type = Option<Object>)]
    pub last_setup_error: Option<Box<RawValue>>,
    /// Always null.
    #[schema(required = true, value_type = Option<String>)]
    pub latest_attempt: (),
    /// Always false: no real card is ever charged.
    #[schema(example = false)]
    pub livemode: bool,
    /// Always null.
    #[schema(required = true, value_type = Option<String>)]
    pub mandate: (),
    /// Your own names.
    #[schema(value_type = BTreeMap<String, String>)]
    pub metadata: Metadata,
    /// What the card's holder has to do.
    #[schema(required = true)]
    pub next_action: Option<NextAction>,
    /// Always null.
    #[schema(required = true, value_type = Option<String>)]
    pub on_behalf_of: (),
    /// What is set up; whole with `expand[]=payment_method`.
    #[schema(required = true, no_recursion)]
    pub payment_method: Option<Expandable<PaymentMethodView>>,
    /// Always null.
    #[schema(required = true, value_type = Option<String>)]
    pub payment_method_configuration_details: (),
    /// How cards are set up.
    pub payment_method_options: SetupMethodOptions,
    /// Always `card` alone.
    pub payment_method_types: [&'static str; 1],
    /// Always null.
    #[schema(required = true, value_type = Option<String>)]
    pub single_use_mandate: (),
    /// `requires_payment_method`, `requires_confirmation`, `requires_action`, `succeeded` or
    /// `canceled`.
    #[schema(example = "succeeded")]
    pub status: &'static str,
    /// `off_session` or `on_session`.
    #[schema(example = "off_session")]
    pub usage: &'static str,
}

/// How methods are set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct SetupMethodOptions {
    /// How cards are.
    pub card: SetupCardOptions,
}

/// How cards are set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct SetupCardOptions {
    /// Always null.
    #[schema(required = true, value_type = Option<String>)]
    pub mandate_options: (),
    /// Always null.
    #[schema(required = true, value_type = Option<String>)]
    pub network: (),
    /// Always `automatic`.
    #[schema(example = "automatic")]
    pub request_three_d_secure: &'static str,
}

/// Ids are in the place of the objects that it refers to.
impl From<&SetupIntent> for SetupIntentView {
    fn from(setup: &SetupIntent) -> Self {
        let terms = &setup.terms;
        let error = setup.last_setup_error.clone();
        Self {
            id: setup.id.to_string(),
            object: "setup_intent",
            application: (),
            attach_to_self: false,
            automatic_payment_methods: terms.automatic_payment_methods.map(Into::into),
            cancellation_reason: setup
                .cancellation_reason
                .map(SetupCancellationReason::as_str),
            client_secret: setup.client_secret.clone(),
            created: setup.created_at.timestamp(),
            customer: terms
                .customer
                .map(|customer| Expandable::Id(customer.to_string())),
            customer_account: (),
            description: terms.description.clone(),
            excluded_payment_method_types: (),
            flow_directions: (),
            // The command made it of a view, so it is JSON.
            last_setup_error: error.and_then(|error| RawValue::from_string(error).ok()),
            latest_attempt: (),
            livemode: false,
            mandate: (),
            metadata: terms.metadata.clone(),
            next_action: setup.holder_page.as_ref().map(NextAction::from),
            on_behalf_of: (),
            payment_method: terms
                .payment_method
                .map(|method| Expandable::Id(method.to_string())),
            payment_method_configuration_details: (),
            payment_method_options: SetupMethodOptions {
                card: SetupCardOptions {
                    mandate_options: (),
                    network: (),
                    request_three_d_secure: ThreeDSecure::Automatic.as_str(),
                },
            },
            payment_method_types: ["card"],
            single_use_mandate: (),
            status: setup.status.as_str(),
            usage: terms.usage.as_str(),
        }
    }
}
