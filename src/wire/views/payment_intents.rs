//! The view of payment intents.

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
    wire::{list::Expandable, view::views},
};

views! {
    /// A payment intent, as clients see it. The members and their order are Stripe's.
    pub struct PaymentIntentView as PaymentIntent from intent: &PaymentIntent where {
        let terms = &intent.terms;
        let details = &terms.details;
        // While the processor is asked, the page is kept for the case that it never was.
        let is_awaited = intent.status == IntentStatus::RequiresAction;
        let page = intent.holder_page.as_ref().filter(|_| is_awaited);
        let error = intent.last_payment_error.clone();
    } {
        /// `pi_…`
        id: String [example = "pi_01kar2w7n9e4xt8f5mq0v3z6yd"] = intent.id.to_string();
        /// Always `payment_intent`.
        always object: &'static str = "payment_intent";
        /// Minor units.
        amount: i64 [example = 2000] = terms.amount.minor_units;
        /// Minor units that are promised and not taken.
        amount_capturable: i64 [example = 0] = intent.amount_capturable;
        /// Always an empty tip.
        amount_details: AmountDetails = AmountDetails::of();
        /// Minor units taken.
        amount_received: i64 [example = 2000] = intent.amount_received;
        null application, application_fee_amount;
        /// How methods are chosen; null where the request named their types.
        maybe automatic_payment_methods: AutomaticPaymentMethods =
            terms.automatic_payment_methods.map(Into::into);
        /// Unix seconds.
        maybe canceled_at: i64 = intent.canceled_at.map(|at| at.timestamp());
        /// `duplicate`, `fraudulent`, `requested_by_customer`, `abandoned` or null.
        // While a processor is asked to release the money, the intent isn't canceled yet.
        maybe cancellation_reason: &'static str = intent
            .canceled_at
            .and(intent.cancellation_reason)
            .map(CancellationReason::as_str);
        /// `automatic_async`, `automatic` or `manual`.
        capture_method: &'static str [example = "automatic_async"] = terms.capture_method.as_str();
        /// What a shop's pages know it by.
        client_secret: String = intent.client_secret.clone();
        /// `automatic` or `manual`.
        confirmation_method: &'static str [example = "automatic"] =
            terms.confirmation_method.as_str();
        created = intent.created_at.timestamp();
        /// ISO 4217, lower case.
        currency: String [example = "usd"] = terms.amount.currency.to_string();
        /// Who pays; whole with `expand[]=customer`.
        expandable customer: AnyCustomerView = terms.customer;
        null customer_account;
        /// For people.
        maybe description: String = details.description.clone();
        null excluded_payment_method_types;
        /// Why the last attempt failed, with the method that failed.
        // The command made it of a view, so it is JSON.
        maybe last_payment_error: Box<RawValue> [value_type = Option<Object>] =
            error.and_then(|error| RawValue::from_string(error).ok());
        /// The newest charge; whole with `expand[]=latest_charge`.
        expandable latest_charge: ChargeView = intent.latest_charge;
        livemode;
        metadata = terms.metadata.clone();
        /// What the card's holder has to do.
        maybe next_action: NextAction = page.map(NextAction::from);
        null on_behalf_of;
        /// What is charged; whole with `expand[]=payment_method`.
        expandable payment_method: PaymentMethodView = terms.payment_method;
        null payment_method_configuration_details;
        /// How cards are charged.
        payment_method_options: PaymentMethodOptions = terms.request_three_d_secure.into();
        /// Always `card` alone.
        payment_method_types: [&'static str; 1] = ["card"];
        null processing;
        /// Where the receipt goes.
        maybe receipt_email: String = details.receipt_email.clone();
        null review;
        /// `off_session`, `on_session` or null.
        maybe setup_future_usage: &'static str = terms.setup_future_usage.map(FutureUsage::as_str);
        /// Where the goods go.
        maybe shipping: ShippingView = details.shipping.as_ref().map(ShippingView::from);
        null source, statement_descriptor;
        /// Behind the seller's name on the card statement.
        maybe statement_descriptor_suffix: String = details.statement_descriptor_suffix.clone();
        /// `requires_payment_method`, `requires_confirmation`, `requires_action`, `processing`,
        /// `requires_capture`, `succeeded` or `canceled`.
        status: &'static str [example = "succeeded"] = intent.status.as_str();
        null transfer_data, transfer_group;
    }

    /// Parts of an amount.
    pub struct AmountDetails as AmountDetails of() {
        /// Always empty.
        tip: Empty = Empty {};
    }

    /// How methods are chosen.
    pub struct AutomaticPaymentMethods as AutomaticPaymentMethods from redirects: AllowRedirects {
        /// `always` or `never`.
        allow_redirects: &'static str [example = "always"] = redirects.as_str();
        /// Always true.
        always enabled: bool = true;
    }

    /// What the card's holder has to do.
    pub struct NextAction as NextAction from page: &HolderPage {
        /// The page to open.
        redirect_to_url: RedirectToUrl = page.into();
        /// Always `redirect_to_url`.
        #[serde(rename = "type")]
        always action_type: &'static str = "redirect_to_url";
    }

    /// A page that the card's holder opens.
    pub struct RedirectToUrl as RedirectToUrl from page: &HolderPage {
        /// Where the page sends the holder afterwards.
        maybe return_url: String = page.return_url.clone();
        /// The page.
        url: String = page.url.clone();
    }

    /// How methods are charged.
    pub struct PaymentMethodOptions as PaymentMethodOptions from asked: ThreeDSecure {
        /// How cards are.
        card: CardOptions = asked.into();
    }

    /// How cards are charged.
    pub struct CardOptions as CardOptions from asked: ThreeDSecure {
        null installments, mandate_options, network;
        /// `automatic`, `any` or `challenge`.
        request_three_d_secure: &'static str [example = "automatic"] = asked.as_str();
    }
}
