//! Payment intents as clients send and see them.

use serde_json::Value;
use utoipa::openapi::Type;

pub use super::views::payment_intents::PaymentIntentView;
use super::{
    intent_parameters::{
        AutomaticMethodsParams, MandateDataParams, MethodTypes, ReturnUrl, UseStripeSdk,
        chosen_methods, must_have_return_url, without_confirm,
    },
    payment_methods::{GivenMethod, MethodReference, PaymentMethodData, RadarOptionsParams},
    prelude::*,
};
use crate::domain::{
    payment_intent::{
        CancellationReason, CaptureMethod, Confirmation, ConfirmationMethod, FutureUsage,
        IntentDetails, IntentTerms, ThreeDSecure,
    },
    people::Shipping,
};

parameters! {
    /// What a request says of a payment, and no rule reads.
    pub struct IntentDetailsParams {
        /// For people.
        description: Change<Description>,
        /// Where the receipt goes.
        receipt_email: Change<Email>,
        /// Where the goods go.
        shipping: Change<Nested<ParcelParams>>,
        /// Behind the seller's name on the card statement.
        statement_descriptor_suffix: Change<StatementDescriptor>,
    }

    /// The parameters of a new payment intent.
    pub struct CreatePaymentIntentParams as "CreatePaymentIntent" {
        /// Minor units.
        amount: Amount,
        currency: Currency,
        /// How methods are chosen. Default: automatically, redirects included.
        automatic_payment_methods: Option<Nested<AutomaticMethodsParams>>,
        /// When the money is taken: automatic_async or automatic, which is at once; or manual, by a
        /// capture. Default: automatic_async.
        capture_method: Option<CaptureMethod>,
        /// Whether to confirm it at once. Default: false.
        confirm: Option<bool>,
        /// What follows an authentication: automatic, the charge; or manual, another confirmation.
        /// Default: automatic.
        confirmation_method: Option<ConfirmationMethod>,
        /// Who pays: cus_…
        customer: Option<IdOf<CustomerId>>,
        details: Include<IntentDetailsParams>,
        /// With confirm: answer 402 where the card's holder would have to authenticate.
        error_on_requires_action: Option<bool>,
        /// With confirm: how the card's holder agreed to later payments. Without effect.
        mandate_data: Option<Nested<MandateDataParams>>,
        metadata: MetadataParam,
        /// With confirm: the card's holder isn't there.
        off_session: Option<OffSession>,
        /// What is charged: pm_…
        payment_method: Kept<MethodReference>,
        /// What is charged, made on the way.
        payment_method_data: Option<PaymentMethodData>,
        /// How it is charged.
        payment_method_options: Option<Nested<PaymentMethodOptionsParams>>,
        payment_method_types: Option<MethodTypes>,
        /// For Radar, which isn't here. Without effect.
        radar_options: Option<Nested<RadarOptionsParams>>,
        /// With confirm: where the card's holder returns to after an authentication.
        return_url: Option<ReturnUrl>,
        /// What the method is used for afterwards: off_session or on_session. With a customer, it
        /// is attached to them.
        setup_future_usage: Option<FutureUsage>,
        statement_descriptor: Option<NoStatementDescriptor>,
        use_stripe_sdk: Option<OnlyFalse<UseStripeSdk>>,
        expand: Expand<ExpandPaymentIntent>,
    }
    example {"amount": 2000, "currency": "usd", "metadata": {"order_id": "6735"}}

    /// What may change of a payment intent.
    pub struct UpdatePaymentIntentParams as "UpdatePaymentIntent" {
        /// Minor units.
        amount: Kept<Amount>,
        currency: Kept<Currency>,
        /// When the money is taken: automatic_async, automatic or manual.
        capture_method: Kept<CaptureMethod>,
        /// Who pays: cus_…
        customer: Change<IdOf<CustomerId>>,
        details: Include<IntentDetailsParams>,
        metadata: MetadataChange,
        /// What is charged: pm_…
        payment_method: Kept<MethodReference>,
        /// What is charged, made on the way.
        payment_method_data: Kept<PaymentMethodData>,
        /// How it is charged.
        payment_method_options: Kept<Nested<PaymentMethodOptionsParams>>,
        payment_method_types: Kept<MethodTypes>,
        /// What the method is used for afterwards: off_session or on_session.
        setup_future_usage: Change<FutureUsage>,
        expand: Expand<ExpandPaymentIntent>,
    }
    example {"amount": 2150}

    /// How a payment intent is confirmed.
    pub struct ConfirmPaymentIntentParams as "ConfirmPaymentIntent" {
        /// When the money is taken: automatic_async, automatic or manual.
        capture_method: Option<CaptureMethod>,
        /// Answer 402 where the card's holder would have to authenticate.
        error_on_requires_action: Option<bool>,
        /// How the card's holder agreed to later payments. Without effect.
        mandate_data: Option<Nested<MandateDataParams>>,
        /// The card's holder isn't there.
        off_session: Option<OffSession>,
        /// What is charged: pm_… Default: what the intent has.
        payment_method: Kept<MethodReference>,
        /// What is charged, made on the way.
        payment_method_data: Kept<PaymentMethodData>,
        /// How it is charged.
        payment_method_options: Kept<Nested<PaymentMethodOptionsParams>>,
        /// For Radar, which isn't here. Without effect.
        radar_options: Option<Nested<RadarOptionsParams>>,
        /// Where the receipt goes.
        receipt_email: Change<Email>,
        /// Where the card's holder returns to after an authentication. Required where methods are
        /// chosen automatically, redirects included.
        return_url: Option<ReturnUrl>,
        /// What the method is used for afterwards: off_session or on_session.
        setup_future_usage: Change<FutureUsage>,
        /// Where the goods go.
        shipping: Change<Nested<ParcelParams>>,
        use_stripe_sdk: Option<OnlyFalse<UseStripeSdk>>,
        expand: Expand<ExpandPaymentIntent>,
    }
    example {"payment_method": "pm_card_visa", "return_url": "https://example.com/done"}

    /// How much of a payment intent is captured.
    pub struct CapturePaymentIntentParams as "CapturePaymentIntent" {
        /// Minor units. Default: all of it. What is not taken is released.
        amount_to_capture: Option<Amount>,
        final_capture: Option<FinalCapture>,
        metadata: MetadataChange,
        /// Behind the seller's name on the card statement.
        statement_descriptor_suffix: Change<StatementDescriptor>,
        expand: Expand<ExpandPaymentIntent>,
    }
    example {"amount_to_capture": 1500}

    /// Why a payment intent is canceled.
    pub struct CancelPaymentIntentParams as "CancelPaymentIntent" {
        /// duplicate, fraudulent, requested_by_customer or abandoned.
        cancellation_reason: Option<CancellationReason>,
        expand: Expand<ExpandPaymentIntent>,
    }
    example {"cancellation_reason": "abandoned"}

    /// How methods are charged.
    pub struct PaymentMethodOptionsParams as "PaymentMethodOptionsInput" {
        /// How cards are.
        card: Kept<Nested<CardOptionsParams>>,
    }

    /// How cards are charged.
    pub struct CardOptionsParams as "CardOptionsInput" {
        /// manual: the intent's capture_method becomes manual, also where the request says another.
        capture_method: Kept<ManualCapture>,
        /// Which cards' holders authenticate: automatic, those that must; any or challenge, all of
        /// them. Default: automatic.
        request_three_d_secure: Kept<ThreeDSecure>,
    }

    /// Where goods go, to whom, and with whom.
    pub struct ParcelParams as "ParcelInput" {
        /// Where they go.
        address: Nested<AddressParams>,
        /// Who brings them.
        carrier: Option<PersonName>,
        /// Who gets them.
        name: Option<PersonName>,
        /// For the carrier.
        phone: Option<Phone>,
        /// The carrier's number of the parcel.
        tracking_number: Option<Text<500>>,
    }
    into Shipping
}

impl IntentDetailsParams {
    /// The details with what it changes of them.
    fn apply(self, details: IntentDetails) -> IntentDetails {
        let suffix = details.statement_descriptor_suffix;
        IntentDetails {
            description: self.description.apply(details.description),
            receipt_email: self.receipt_email.apply(details.receipt_email),
            shipping: self.shipping.map(Into::into).apply(details.shipping),
            statement_descriptor_suffix: self.statement_descriptor_suffix.apply(suffix),
        }
    }
}

/// The terms with what a request says of cards. No empty value does: one by mistake must neither
/// take the money at once nor charge without the holder.
fn with_options(terms: IntentTerms, options: Option<PaymentMethodOptionsParams>) -> IntentTerms {
    let Some(card) = options.and_then(|options| options.card) else {
        return terms;
    };
    let asked = card.request_three_d_secure;
    IntentTerms {
        capture_method: card.capture_method.unwrap_or(terms.capture_method),
        request_three_d_secure: asked.unwrap_or(terms.request_three_d_secure),
        ..terms
    }
}

impl CreatePaymentIntentParams {
    /// What the confirmation that comes with it allows; `None` if none does. Refuses what belongs
    /// to a confirmation without one.
    pub fn confirmation(&self) -> Result<Option<Confirmation>, ApiError> {
        if self.confirm == Some(true) {
            return Ok(Some(Confirmation {
                off_session: self.off_session.unwrap_or(false),
                error_on_requires_action: self.error_on_requires_action.unwrap_or(false),
            }));
        }
        let given = [
            ("off_session", self.off_session.is_some()),
            (
                "error_on_requires_action",
                self.error_on_requires_action.is_some(),
            ),
            ("mandate_data", self.mandate_data.is_some()),
            ("return_url", self.return_url.is_some()),
        ];
        match given.into_iter().find(|(_, is_given)| *is_given) {
            None => Ok(None),
            Some((param, _)) => Err(without_confirm(param)),
        }
    }

    /// The method that it gives.
    pub fn given(&self) -> Result<Option<GivenMethod>, ApiError> {
        GivenMethod::of(self.payment_method, self.payment_method_data.clone())
    }

    /// What is to be paid, by `customer`; a method comes later. Refuses two ways to choose methods.
    pub fn terms(self, customer: Option<CustomerId>) -> Result<IntentTerms, ApiError> {
        let automatic_payment_methods =
            chosen_methods(self.automatic_payment_methods, self.payment_method_types)?;
        let terms = IntentTerms {
            amount: Money {
                minor_units: self.amount,
                currency: self.currency,
            },
            automatic_payment_methods,
            capture_method: self.capture_method.unwrap_or_default(),
            confirmation_method: self.confirmation_method.unwrap_or_default(),
            customer,
            details: self.details.apply(IntentDetails::default()),
            metadata: self.metadata,
            payment_method: None,
            request_three_d_secure: ThreeDSecure::default(),
            setup_future_usage: self.setup_future_usage,
        };
        Ok(with_options(terms, self.payment_method_options))
    }
}

impl UpdatePaymentIntentParams {
    /// Whether it changes what would be charged; a method that it gives does so too.
    pub fn touches_the_payment(&self) -> bool {
        self.amount.is_some()
            || self.currency.is_some()
            || self.capture_method.is_some()
            || self.customer != Change::Keep
            || self.payment_method_options.is_some()
            || self.payment_method_types.is_some()
            || self.setup_future_usage != Change::Keep
    }

    /// The method that it gives.
    pub fn given(&self) -> Result<Option<GivenMethod>, ApiError> {
        GivenMethod::of(self.payment_method, self.payment_method_data.clone())
    }

    /// The terms with what it changes of them, but for metadata: of a `customer` and a method that
    /// were found.
    pub fn apply(
        self,
        terms: IntentTerms,
        customer: Change<CustomerId>,
        method: Option<PaymentMethodId>,
    ) -> IntentTerms {
        let automatic = terms.automatic_payment_methods;
        let terms = IntentTerms {
            amount: Money {
                minor_units: self.amount.unwrap_or(terms.amount.minor_units),
                currency: self.currency.unwrap_or(terms.amount.currency),
            },
            // It may name `card` as the only type of method.
            automatic_payment_methods: automatic.filter(|_| self.payment_method_types.is_none()),
            capture_method: self.capture_method.unwrap_or(terms.capture_method),
            customer: customer.apply(terms.customer),
            details: self.details.apply(terms.details),
            payment_method: method.or(terms.payment_method),
            setup_future_usage: self.setup_future_usage.apply(terms.setup_future_usage),
            ..terms
        };
        with_options(terms, self.payment_method_options)
    }
}

impl ConfirmPaymentIntentParams {
    /// What it allows.
    pub fn confirmation(&self) -> Confirmation {
        Confirmation {
            off_session: self.off_session.unwrap_or(false),
            error_on_requires_action: self.error_on_requires_action.unwrap_or(false),
        }
    }

    /// The method that it gives.
    pub fn given(&self) -> Result<Option<GivenMethod>, ApiError> {
        GivenMethod::of(self.payment_method, self.payment_method_data.clone())
    }

    /// The terms with what it changes of them.
    pub fn apply(self, terms: IntentTerms) -> IntentTerms {
        let details = IntentDetails {
            receipt_email: self.receipt_email.apply(terms.details.receipt_email),
            shipping: self.shipping.map(Into::into).apply(terms.details.shipping),
            ..terms.details
        };
        let terms = IntentTerms {
            capture_method: self.capture_method.unwrap_or(terms.capture_method),
            details,
            setup_future_usage: self.setup_future_usage.apply(terms.setup_future_usage),
            ..terms
        };
        with_options(terms, self.payment_method_options)
    }
}

/// Refuses a confirmation that could send the holder away and not back, and one that is to set up
/// payments without the holder while the holder isn't there.
pub fn must_be_possible(
    confirmation: Confirmation,
    terms: &IntentTerms,
    is_authenticated: bool,
    return_url: Option<&str>,
) -> Result<(), ApiError> {
    if confirmation.off_session && terms.setup_future_usage.is_some() {
        let message = "A payment without the card's holder can't set up future ones: off_session=true and \
                       setup_future_usage exclude each other.";
        return Err(ApiError::invalid("setup_future_usage", message));
    }
    // A holder who has authenticated is sent nowhere any more.
    match is_authenticated {
        true => Ok(()),
        false => must_have_return_url(terms.automatic_payment_methods, return_url),
    }
}

/// What cards have of their own: the word `manual`.
pub struct ManualCapture;

impl TextKind for ManualCapture {
    type Value = CaptureMethod;
    const EMPTY_IS_NONE: bool = false;
    const MUST_BE: &'static str = "Must be manual.";

    fn parse(text: &str) -> Option<CaptureMethod> {
        (text == "manual").then_some(CaptureMethod::Manual)
    }

    fn schema() -> ObjectBuilder {
        with_example(text().pattern(Some("^manual$")), "manual")
    }
}

/// Stripe refuses it for cards.
pub struct NoStatementDescriptor;

impl TextKind for NoStatementDescriptor {
    type Value = ();
    const MUST_BE: &'static str = "Cards take a statement_descriptor_suffix instead.";

    fn parse(_: &str) -> Option<()> {
        None
    }

    fn schema() -> ObjectBuilder {
        let none = text().max_length(Some(0));
        none.description(Some(Self::MUST_BE))
    }
}

/// Whether the card's holder isn't there.
pub struct OffSession;

impl ValueKind for OffSession {
    type Value = bool;
    const EMPTY_IS_NONE: bool = false;

    fn read(field: &mut Field<'_, '_>) -> Result<Option<bool>, Error> {
        let given = field.fields.given(field.name).and_then(Value::as_str);
        if let Some("one_off" | "recurring") = given {
            return Err(field.invalid("one_off and recurring aren't offered: send true."));
        }
        <bool as ValueKind>::read(field)
    }

    fn schema() -> RefOr<Schema> {
        <bool as ValueKind>::schema()
    }
}

/// What a capture leaves is released at once.
pub struct FinalCapture;

impl ValueKind for FinalCapture {
    type Value = ();
    const EMPTY_IS_NONE: bool = false;

    fn read(field: &mut Field<'_, '_>) -> Result<Option<()>, Error> {
        match field.fields.boolean(field.name)? {
            Some(false) => {
                Err(field.invalid("An intent is captured once here: what isn't taken is released."))
            }
            given => Ok(given.map(|_| ())),
        }
    }

    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::Boolean)
            .description(Some("What isn't taken is released."))
            .into()
    }
}
