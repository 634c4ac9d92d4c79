//! The views of payment methods.

use serde::Serialize;

use super::{customers::AnyCustomerView, people::BillingDetailsView};
use crate::{
    domain::{metadata::Metadata, payment_method::PaymentMethod},
    wire::list::Expandable,
};

/// A payment method, as clients see it. The members and their order are Stripe's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[schema(as = PaymentMethod)]
pub struct PaymentMethodView {
    /// `pm_…`
    #[schema(example = "pm_01kar2w7n9e4xt8f5mq0v3z6yd")]
    pub id: String,
    /// Always `payment_method`.
    #[schema(example = "payment_method")]
    pub object: &'static str,
    /// `unspecified`, `limited` or `always`.
    #[schema(example = "unspecified")]
    pub allow_redisplay: &'static str,
    /// Who the bill goes to.
    pub billing_details: BillingDetailsView,
    /// The card.
    pub card: MethodCardView,
    /// Unix seconds.
    #[schema(example = 1_795_000_000)]
    pub created: i64,
    /// The customer that it is attached to; whole with `expand[]=customer`.
    #[schema(required = true, no_recursion)]
    pub customer: Option<Expandable<AnyCustomerView>>,
    /// Always null.
    #[schema(required = true, value_type = Option<String>)]
    pub customer_account: (),
    /// Always false: no real card is ever charged.
    #[schema(example = false)]
    pub livemode: bool,
    /// Your own names.
    #[schema(value_type = BTreeMap<String, String>)]
    pub metadata: Metadata,
    /// Always `card`.
    #[serde(rename = "type")]
    #[schema(example = "card")]
    pub method_type: &'static str,
}

/// All that is shown of a card that is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[schema(as = PaymentMethodCard)]
pub struct MethodCardView {
    /// `visa`, `mastercard` or `amex`.
    #[schema(example = "visa")]
    pub brand: String,
    /// What was compared with the bank's records.
    pub checks: CardChecks,
    /// Always `US`, as the test cards are.
    #[schema(example = "US")]
    pub country: &'static str,
    /// As `brand`.
    #[schema(example = "visa")]
    pub display_brand: String,
    /// 1 to 12.
    #[schema(example = 12)]
    pub exp_month: i16,
    /// Four digits.
    #[schema(example = 2099)]
    pub exp_year: i16,
    /// Equal for two methods of the same card.
    pub fingerprint: String,
    /// Always `credit`, as the test cards are.
    #[schema(example = "credit")]
    pub funding: &'static str,
    /// Always null.
    #[schema(required = true, value_type = Option<String>)]
    pub generated_from: (),
    /// The last four digits of the number.
    #[schema(example = "4242")]
    pub last4: String,
    /// Which networks could charge it.
    pub networks: CardNetworks,
    /// Always `unregulated`.
    #[schema(example = "unregulated")]
    pub regulated_status: &'static str,
    /// Whether its holder can authenticate.
    pub three_d_secure_usage: ThreeDSecureUsage,
    /// Always null.
    #[schema(required = true, value_type = Option<String>)]
    pub wallet: (),
}

/// What was compared with the bank's records.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct CardChecks {
    /// Always null.
    #[schema(required = true, value_type = Option<String>)]
    pub address_line1_check: (),
    /// Always null.
    #[schema(required = true, value_type = Option<String>)]
    pub address_postal_code_check: (),
    /// `pass`, or null where no security code was sent.
    #[schema(required = true)]
    pub cvc_check: Option<&'static str>,
}

impl CardChecks {
    /// Of a card whose security code was sent, or was not.
    pub fn of(has_cvc: bool) -> Self {
        Self {
            address_line1_check: (),
            address_postal_code_check: (),
            cvc_check: has_cvc.then_some("pass"),
        }
    }
}

/// Which networks could charge a card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct CardNetworks {
    /// The card's brand.
    pub available: Vec<String>,
    /// Always null.
    #[schema(required = true, value_type = Option<String>)]
    pub preferred: (),
}

/// Whether a card's holder can authenticate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct ThreeDSecureUsage {
    /// Always true.
    #[schema(example = true)]
    pub supported: bool,
}

impl From<&PaymentMethod> for PaymentMethodView {
    fn from(method: &PaymentMethod) -> Self {
        let customer = method.customer();
        Self {
            id: method.id.to_string(),
            object: "payment_method",
            allow_redisplay: method.allow_redisplay.as_str(),
            billing_details: (&method.billing).into(),
            card: method.into(),
            created: method.created_at.timestamp(),
            customer: customer.map(|customer| Expandable::Id(customer.to_string())),
            customer_account: (),
            livemode: false,
            metadata: method.metadata.clone(),
            method_type: "card",
        }
    }
}

impl From<&PaymentMethod> for MethodCardView {
    fn from(method: &PaymentMethod) -> Self {
        let card = &method.card;
        Self {
            brand: card.brand.clone(),
            checks: CardChecks::of(method.has_cvc),
            country: "US",
            display_brand: card.brand.clone(),
            exp_month: card.exp_month,
            exp_year: card.exp_year,
            fingerprint: method.fingerprint.clone(),
            funding: "credit",
            generated_from: (),
            last4: card.last4.clone(),
            networks: CardNetworks {
                available: vec![card.brand.clone()],
                preferred: (),
            },
            regulated_status: "unregulated",
            three_d_secure_usage: ThreeDSecureUsage { supported: true },
            wallet: (),
        }
    }
}
