//! The view of payment intents.

use serde::Serialize;
use serde_json::value::RawValue;

use super::{
    charges::{ChargeView, Empty},
    customers::AnyCustomerView,
    payment_methods::PaymentMethodView,
    people::ShippingView,
};
use crate::{
    domain::{
        metadata::Metadata,
        payment_intent::{
            AllowRedirects, CancellationReason, FutureUsage, HolderPage, IntentStatus,
            PaymentIntent, ThreeDSecure,
        },
    },
    wire::list::Expandable,
};

/// A payment intent, as clients see it. The members and their order are Stripe's.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[schema(as = PaymentIntent)]
pub struct PaymentIntentView {
    /// `pi_…`
    #[schema(example = "pi_01kar2w7n9e4xt8f5mq0v3z6yd")]
    pub id: String,
    /// Always `payment_intent`.
    #[schema(example = "payment_intent")]
    pub object: &'static str,
    /// Minor units.
    #[schema(example = 2000)]
    pub amount: i64,
    /// Minor units that are promised and not taken.
    #[schema(example = 0)]
    pub amount_capturable: i64,
    /// Always an empty tip.
    pub amount_details: AmountDetails,
    /// Minor units taken.
    #[schema(example = 2000)]
    pub amount_received: i64,
    /// Always null.
    #[schema(required = true, value_type = Option<String>)]
    pub application: (),
    /// Always null.
    #[schema(required = true, value_type = Option<String>)]
    pub application_fee_amount: (),
    /// How methods are chosen; null where the request named their types.
    #[schema(required = true)]
    pub automatic_payment_methods: Option<AutomaticPaymentMethods>,
    /// Unix seconds.
    #[schema(required = true)]
    pub canceled_at: Option<i64>,
    /// `duplicate`, `fraudulent`, `requested_by_customer`, `abandoned` or null.
    #[schema(required = true)]
    pub cancellation_reason: Option<&'static str>,
    /// `automatic_async`, `automatic` or `manual`.
    #[schema(example = "automatic_async")]
    pub capture_method: &'static str,
    /// What a shop's pages know it by.
    pub client_secret: String,
    /// `automatic` or `manual`.
    #[schema(example = "automatic")]
    pub confirmation_method: &'static str,
    /// Unix seconds.
    #[schema(example = 1_795_000_000)]
    pub created: i64,
    /// ISO 4217, lower case.
    #[schema(example = "usd")]
    pub currency: String,
    /// Who pays; whole with `expand[]=customer`.
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
    /// Why the last attempt failed, with the method that failed.
    #[schema(required = true, value_type = Option<Object>)]
    pub last_payment_error: Option<Box<RawValue>>,
    /// The newest charge; whole with `expand[]=latest_charge`.
    #[schema(required = true, no_recursion)]
    pub latest_charge: Option<Expandable<ChargeView>>,
    /// Always false: no real card is ever charged.
    #[schema(example = false)]
    pub livemode: bool,
    /// Your own names.
    #[schema(value_type = BTreeMap<String, String>)]
    pub metadata: Metadata,
    /// What the card's holder has to do.
    #[schema(required = true)]
    pub next_action: Option<NextAction>,
    /// Always null.
    #[schema(required = true, value_type = Option<String>)]
    pub on_behalf_of: (),
    /// What is charged; whole with `expand[]=payment_method`.
    #[schema(required = true, no_recursion)]
    pub payment_method: Option<Expandable<PaymentMethodView>>,
    /// Always null.
    #[schema(required = true, value_type = Option<String>)]
    pub payment_method_configuration_details: (),
    /// How cards are charged.
    pub payment_method_options: PaymentMethodOptions,
    /// Always `card` alone.
    pub payment_method_types: [&'static str; 1],
    /// Always null.
    #[schema(required = true, value_type = Option<String>)]
    pub processing: (),
    /// Where the receipt goes.
    #[schema(required = true)]
    pub receipt_email: Option<String>,
    /// Always null.
    #[schema(required = true, value_type = Option<String>)]
    pub review: (),
    /// `off_session`, `on_session` or null.
    #[schema(required = true)]
    pub setup_future_usage: Option<&'static str>,
    /// Where the goods go.
    #[schema(required = true)]
    pub shipping: Option<ShippingView>,
    /// Always null.
    #[schema(required = true, value_type = Option<String>)]
    pub source: (),
    /// Always null.
    #[schema(required = true, value_type = Option<String>)]
    pub statement_descriptor: (),
    /// Behind the seller's name on the card statement.
    #[schema(required = true)]
    pub statement_descriptor_suffix: Option<String>,
    /// `requires_payment_method`, `requires_confirmation`, `requires_action`, `processing`,
    /// `requires_capture`, `succeeded` or `canceled`.
    #[schema(example = "succeeded")]
    pub status: &'static str,
    /// Always null.
    #[schema(required = true, value_type = Option<String>)]
    pub transfer_data: (),
    /// Always null.
    #[schema(required = true, value_type = Option<String>)]
    pub transfer_group: (),
}

/// Parts of an amount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct AmountDetails {
    /// Always empty.
    pub tip: Empty,
}

/// How methods are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct AutomaticPaymentMethods {
    /// `always` or `never`.
    #[schema(example = "always")]
    pub allow_redirects: &'static str,
    /// Always true.
    #[schema(example = true)]
    pub enabled: bool,
}

impl From<AllowRedirects> for AutomaticPaymentMethods {
    fn from(redirects: AllowRedirects) -> Self {
        Self {
            allow_redirects: redirects.as_str(),
            enabled: true,
        }
    }
}

/// What the card's holder has to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct NextAction {
    /// The page to open.
    pub redirect_to_url: RedirectToUrl,
    /// Always `redirect_to_url`.
    #[serde(rename = "type")]
    #[schema(example = "redirect_to_url")]
    pub action_type: &'static str,
}

/// A page that the card's holder opens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct RedirectToUrl {
    /// Where the page sends the holder afterwards.
    #[schema(required = true)]
    pub return_url: Option<String>,
    /// The page.
    pub url: String,
}

impl From<&HolderPage> for NextAction {
    fn from(page: &HolderPage) -> Self {
        Self {
            redirect_to_url: RedirectToUrl {
                return_url: page.return_url.clone(),
                url: page.url.clone(),
            },
            action_type: "redirect_to_url",
        }
    }
}

/// How methods are charged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct PaymentMethodOptions {
    /// How cards are.
    pub card: CardOptions,
}

/// How cards are charged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct CardOptions {
    /// Always null.
    #[schema(required = true, value_type = Option<String>)]
    pub installments: (),
    /// Always null.
    #[schema(required = true, value_type = Option<String>)]
    pub mandate_options: (),
    /// Always null.
    #[schema(required = true, value_type = Option<String>)]
    pub network: (),
    /// `automatic`, `any` or `challenge`.
    #[schema(example = "automatic")]
    pub request_three_d_secure: &'static str,
}

impl PaymentMethodOptions {
    /// With what a client says about authentication.
    pub fn asking(three_d_secure: ThreeDSecure) -> Self {
        Self {
            card: CardOptions {
                installments: (),
                mandate_options: (),
                network: (),
                request_three_d_secure: three_d_secure.as_str(),
            },
        }
    }
}

/// Ids are in the place of the objects that it refers to.
impl From<&PaymentIntent> for PaymentIntentView {
    fn from(intent: &PaymentIntent) -> Self {
        let terms = &intent.terms;
        // While the processor is asked, the page is kept for the case that it never was.
        let is_awaited = intent.status == IntentStatus::RequiresAction;
        let page = intent.holder_page.as_ref().filter(|_| is_awaited);
        let error = intent.last_payment_error.clone();
        Self {
            id: intent.id.to_string(),
            object: "payment_intent",
            amount: terms.amount.minor_units,
            amount_capturable: intent.amount_capturable,
            amount_details: AmountDetails { tip: Empty {} },
            amount_received: intent.amount_received,
            application: (),
            application_fee_amount: (),
            automatic_payment_methods: terms.automatic_payment_methods.map(Into::into),
            canceled_at: intent.canceled_at.map(|at| at.timestamp()),
            // While a processor is asked to release the money, the intent isn't canceled yet.
            cancellation_reason: intent
                .canceled_at
                .and(intent.cancellation_reason)
                .map(CancellationReason::as_str),
            capture_method: terms.capture_method.as_str(),
            client_secret: intent.client_secret.clone(),
            confirmation_method: terms.confirmation_method.as_str(),
            created: intent.created_at.timestamp(),
            currency: terms.amount.currency.to_string(),
            customer: terms
                .customer
                .map(|customer| Expandable::Id(customer.to_string())),
            customer_account: (),
            description: terms.description.clone(),
            excluded_payment_method_types: (),
            // The command made it of a view, so it is JSON.
            last_payment_error: error.and_then(|error| RawValue::from_string(error).ok()),
            latest_charge: intent
                .latest_charge
                .map(|charge| Expandable::Id(charge.to_string())),
            livemode: false,
            metadata: terms.metadata.clone(),
            next_action: page.map(NextAction::from),
            on_behalf_of: (),
            payment_method: terms
                .payment_method
                .map(|method| Expandable::Id(method.to_string())),
            payment_method_configuration_details: (),
            payment_method_options: PaymentMethodOptions::asking(terms.request_three_d_secure),
            payment_method_types: ["card"],
            processing: (),
            receipt_email: terms.receipt_email.clone(),
            review: (),
            setup_future_usage: terms.setup_future_usage.map(FutureUsage::as_str),
            shipping: terms.shipping.as_ref().map(ShippingView::from),
            source: (),
            statement_descriptor: (),
            statement_descriptor_suffix: terms.statement_descriptor_suffix.clone(),
            status: intent.status.as_str(),
            transfer_data: (),
            transfer_group: (),
        }
    }
}
