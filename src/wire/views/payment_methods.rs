//! The views of payment methods.

use super::{customers::AnyCustomerView, people::BillingDetailsView};
use crate::{
    domain::{metadata::Metadata, payment_method::PaymentMethod},
    wire::{list::Expandable, view::views},
};

views! {
    /// A payment method, as clients see it. The members and their order are Stripe's.
    pub struct PaymentMethodView as PaymentMethod from method: &PaymentMethod {
        /// `pm_…`
        id: String [example = "pm_01kar2w7n9e4xt8f5mq0v3z6yd"] = method.id.to_string();
        /// Always `payment_method`.
        always object: &'static str = "payment_method";
        /// `unspecified`, `limited` or `always`.
        allow_redisplay: &'static str [example = "unspecified"] = method.allow_redisplay.as_str();
        /// Who the bill goes to.
        billing_details: BillingDetailsView = (&method.billing).into();
        /// The card.
        card: MethodCardView = method.into();
        created = method.created_at.timestamp();
        /// The customer that it is attached to; whole with `expand[]=customer`.
        expandable customer: AnyCustomerView = method.customer();
        null customer_account;
        livemode;
        metadata = method.metadata.clone();
        /// Always `card`.
        #[serde(rename = "type")]
        always method_type: &'static str = "card";
    }

    /// All that is shown of a card that is kept.
    pub struct MethodCardView as PaymentMethodCard from method: &PaymentMethod where {
        let card = &method.card;
    } {
        /// `visa`, `mastercard` or `amex`.
        brand: String [example = "visa"] = card.brand.clone();
        /// What was compared with the bank's records.
        checks: CardChecks = CardChecks::of(method.has_cvc);
        /// Always `US`, as the test cards are.
        always country: &'static str = "US";
        /// As `brand`.
        display_brand: String [example = "visa"] = card.brand.clone();
        /// 1 to 12.
        exp_month: i16 [example = 12] = card.exp_month;
        /// Four digits.
        exp_year: i16 [example = 2099] = card.exp_year;
        /// Equal for two methods of the same card.
        fingerprint: String = method.fingerprint.clone();
        /// Always `credit`, as the test cards are.
        always funding: &'static str = "credit";
        null generated_from;
        /// The last four digits of the number.
        last4: String [example = "4242"] = card.last4.clone();
        /// Which networks could charge it.
        networks: CardNetworks = CardNetworks::of(&card.brand);
        /// Always `unregulated`.
        always regulated_status: &'static str = "unregulated";
        /// Whether its holder can authenticate.
        three_d_secure_usage: ThreeDSecureUsage = ThreeDSecureUsage::of();
        null wallet;
    }

    /// What was compared with the bank's records.
    pub struct CardChecks as CardChecks of(has_cvc: bool) {
        null address_line1_check, address_postal_code_check;
        /// `pass`, or null where no security code was sent.
        maybe cvc_check: &'static str = has_cvc.then_some("pass");
    }

    /// Which networks could charge a card.
    pub struct CardNetworks as CardNetworks of(brand: &str) {
        /// The card's brand.
        available: Vec<String> = vec![brand.to_owned()];
        null preferred;
    }

    /// Whether a card's holder can authenticate.
    pub struct ThreeDSecureUsage as ThreeDSecureUsage of() {
        /// Always true.
        always supported: bool = true;
    }
}
