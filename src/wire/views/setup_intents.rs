//! The view of setup intents.

use serde_json::value::RawValue;

use super::{
    customers::AnyCustomerView,
    payment_intents::{AutomaticPaymentMethods, NextAction},
    payment_methods::PaymentMethodView,
};
use crate::{
    domain::{
        metadata::Metadata,
        setup_intent::{SetupCancellationReason, SetupIntent},
    },
    wire::{list::Expandable, view::views},
};

views! {
    /// A setup intent, as clients see it. The members and their order are Stripe's.
    pub struct SetupIntentView as SetupIntent from setup: &SetupIntent where {
        let terms = &setup.terms;
        let error = setup.last_setup_error.clone();
    } {
        /// `seti_…`
        id: String [example = "seti_01kar2w7n9e4xt8f5mq0v3z6yd"] = setup.id.to_string();
        /// Always `setup_intent`.
        always object: &'static str = "setup_intent";
        null application;
        /// Always false.
        always attach_to_self: bool = false;
        /// How methods are chosen; null where the request named their types.
        maybe automatic_payment_methods: AutomaticPaymentMethods =
            terms.automatic_payment_methods.map(Into::into);
        /// `abandoned`, `requested_by_customer`, `duplicate` or null.
        maybe cancellation_reason: &'static str = setup
            .cancellation_reason
            .map(SetupCancellationReason::as_str);
        /// What a shop's pages know it by.
        client_secret: String = setup.client_secret.clone();
        created = setup.created_at.timestamp();
        /// Who gets the method; whole with `expand[]=customer`.
        expandable customer: AnyCustomerView = terms.customer;
        null customer_account;
        /// For people.
        maybe description: String = terms.description.clone();
        null excluded_payment_method_types, flow_directions;
        /// Why the last attempt failed, with the method that failed.
        // The command made it of a view, so it is JSON.
        maybe last_setup_error: Box<RawValue> [value_type = Option<Object>] =
            error.and_then(|error| RawValue::from_string(error).ok());
        null latest_attempt;
        livemode;
        null mandate;
        metadata = terms.metadata.clone();
        /// What the card's holder has to do.
        maybe next_action: NextAction = setup.holder_page.as_ref().map(NextAction::from);
        null on_behalf_of;
        /// What is set up; whole with `expand[]=payment_method`.
        expandable payment_method: PaymentMethodView = terms.payment_method;
        null payment_method_configuration_details;
        /// How cards are set up.
        payment_method_options: SetupMethodOptions = SetupMethodOptions::of();
        /// Always `card` alone.
        payment_method_types: [&'static str; 1] = ["card"];
        null single_use_mandate;
        /// `requires_payment_method`, `requires_confirmation`, `requires_action`, `succeeded` or
        /// `canceled`.
        status: &'static str [example = "succeeded"] = setup.status.as_str();
        /// `off_session` or `on_session`.
        usage: &'static str [example = "off_session"] = terms.usage.as_str();
    }

    /// How methods are set up.
    pub struct SetupMethodOptions as SetupMethodOptions of() {
        /// How cards are.
        card: SetupCardOptions = SetupCardOptions::of();
    }

    /// How cards are set up.
    pub struct SetupCardOptions as SetupCardOptions of() {
        null mandate_options, network;
        /// Always `automatic`.
        always request_three_d_secure: &'static str = "automatic";
    }
}
