//! Setup intents as clients send and see them.

pub use super::views::setup_intents::SetupIntentView;
use super::{
    intent_parameters::{
        AutomaticMethodsParams, MandateDataParams, MethodTypes, ReturnUrl, UseStripeSdk,
    },
    payment_methods::{GivenMethod, MethodReference, PaymentMethodData},
    prelude::*,
};
use crate::domain::{payment_intent::FutureUsage, setup_intent::SetupCancellationReason};

parameters! {
    /// The parameters of a new setup intent.
    pub struct CreateSetupIntentParams as "CreateSetupIntent" {
        /// How methods are chosen. Default: automatically, and a card's holder may be sent to
        /// another page.
        automatic_payment_methods: Option<Nested<AutomaticMethodsParams>>,
        /// Whether the method is tried at once.
        confirm: Option<bool>,
        /// Who gets the method: cus_…
        customer: Option<IdOf<CustomerId>>,
        /// For people.
        description: Option<Description>,
        /// How the card's holder agreed to later payments, with confirm=true. Without effect.
        mandate_data: Option<Nested<MandateDataParams>>,
        metadata: MetadataParam,
        /// What is set up.
        payment_method: Option<MethodReference>,
        /// What is set up, where it is no payment method yet.
        payment_method_data: Option<PaymentMethodData>,
        /// Types of methods, in the place of automatic_payment_methods. Only card is simulated
        /// here: other types of Stripe's beside it are left out.
        payment_method_types: Option<MethodTypes>,
        /// Where the card's holder returns to, with confirm=true: an http or https URL, or the URL
        /// of an app.
        return_url: Option<ReturnUrl>,
        /// What the method is for: off_session or on_session. Default: off_session.
        usage: Option<FutureUsage>,
        /// Always false.
        use_stripe_sdk: Option<OnlyFalse<UseStripeSdk>>,
        expand: Expand<ExpandSetupIntent>,
    }
    example {
        "payment_method": "pm_card_visa", "confirm": true, "usage": "off_session",
        "return_url": "https://example.com/return",
    }

    /// What may change of a setup intent.
    pub struct UpdateSetupIntentParams as "UpdateSetupIntent" {
        /// Who gets the method: cus_…
        customer: Change<IdOf<CustomerId>>,
        /// For people.
        description: Change<Description>,
        metadata: MetadataChange,
        /// What is set up.
        payment_method: Change<MethodReference>,
        expand: Expand<ExpandSetupIntent>,
    }
    example {"payment_method": "pm_card_mastercard"}

    /// How a setup intent is confirmed.
    pub struct ConfirmSetupIntentParams as "ConfirmSetupIntent" {
        /// How the card's holder agreed to later payments. Without effect.
        mandate_data: Option<Nested<MandateDataParams>>,
        /// What is set up. Default: what the setup intent has.
        payment_method: Kept<MethodReference>,
        /// What is set up, where it is no payment method yet.
        payment_method_data: Kept<PaymentMethodData>,
        /// Where the card's holder returns to: an http or https URL, or the URL of an app.
        return_url: Option<ReturnUrl>,
        /// Always false.
        use_stripe_sdk: Option<OnlyFalse<UseStripeSdk>>,
        expand: Expand<ExpandSetupIntent>,
    }
    example {"payment_method": "pm_card_visa", "return_url": "https://example.com/return"}

    /// Why a setup intent is canceled.
    pub struct CancelSetupIntentParams as "CancelSetupIntent" {
        /// abandoned, requested_by_customer or duplicate.
        cancellation_reason: Option<SetupCancellationReason>,
        expand: Expand<ExpandSetupIntent>,
    }
    example {"cancellation_reason": "requested_by_customer"}
}

impl CreateSetupIntentParams {
    /// The method that it gives.
    pub fn given(&self) -> Result<Option<GivenMethod>, ApiError> {
        GivenMethod::of(self.payment_method, self.payment_method_data.clone())
    }
}

impl ConfirmSetupIntentParams {
    /// The method that it gives.
    pub fn given(&self) -> Result<Option<GivenMethod>, ApiError> {
        GivenMethod::of(self.payment_method, self.payment_method_data.clone())
    }
}
