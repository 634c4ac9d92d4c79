//! Payment methods as clients send and see them.

use charge_once_strict_params::ID_MAX_CHARS;
use utoipa::openapi::OneOfBuilder;

pub use super::views::payment_methods::PaymentMethodView;
use super::{
    card::{ExpiryMonth, ExpiryYear},
    prelude::*,
    source::CardParams,
};
use crate::domain::{
    charge::Card,
    payment_method::{AllowRedisplay, NewPaymentMethod, PaymentMethod, PaymentMethodRefusal},
    people::BillingDetails,
    test_cards::{self, TestCard},
};

/// What a template's name begins with: a test card that each use makes a new method of.
const TEMPLATE_PREFIX: &str = "pm_card_";
/// What a test token's name begins with.
const TOKEN_PREFIX: &str = "tok_";

parameters! {
    /// A payment method that is made on the way.
    pub struct PaymentMethodDataParams as "PaymentMethodData" {
        r#type: MethodType,
        card: MethodCard,
        /// Who the bill goes to.
        billing_details: Option<Nested<BillingDetailsParams>>,
        /// Whether a shop may show it to its customer again: unspecified, limited or always.
        /// Default: unspecified.
        allow_redisplay: Option<AllowRedisplay>,
        metadata: MetadataParam,
        /// For Radar, which isn't here. Without effect.
        radar_options: Option<Nested<RadarOptionsParams>>,
    }

    /// What Stripe's Radar would judge a payment by. It has no effect: there is no Radar.
    pub struct RadarOptionsParams as "RadarOptionsInput" {
        /// rse_…, made by Stripe.js.
        session: Option<Text<ID_MAX_CHARS>>,
    }

    /// The parameters of a new payment method.
    pub struct CreatePaymentMethodParams as "CreatePaymentMethod" {
        method: Include<PaymentMethodDataParams>,
        expand: Expand<ExpandPaymentMethod>,
    }
    example {"type": "card", "card": {"token": "tok_visa"}}

    /// What may change of a payment method.
    pub struct UpdatePaymentMethodParams as "UpdatePaymentMethod" {
        /// Who the bill goes to.
        billing_details: Kept<Nested<BillingDetailsParams>>,
        /// The card's new expiry date.
        card: Kept<Nested<CardChangeParams>>,
        /// Whether a shop may show it to its customer again: unspecified, limited or always.
        allow_redisplay: Kept<AllowRedisplay>,
        metadata: MetadataChange,
        expand: Expand<ExpandPaymentMethod>,
    }
    example {"card": {"exp_month": 11, "exp_year": 2098}}

    /// What may change of a card: a new one has the number of the old.
    pub struct CardChangeParams as "CardChange" {
        /// 1 to 12.
        exp_month: Kept<ExpiryMonth>,
        /// Four digits, or the last two. A date that has passed is refused.
        exp_year: Kept<ExpiryYear>,
    }

    /// Whose a payment method becomes.
    pub struct AttachPaymentMethodParams as "AttachPaymentMethod" {
        /// The customer: cus_…
        customer: IdOf<CustomerId>,
        expand: Expand<ExpandPaymentMethod>,
    }
    example {"customer": "cus_01kar2w7n9e4xt8f5mq0v3z6yd"}

    /// No parameters but how the reply is shown.
    pub struct DetachPaymentMethodParams as "DetachPaymentMethod" {
        expand: Expand<ExpandPaymentMethod>,
    }
    example {}

    /// A test card by its token.
    pub struct CardByTokenParams as "CardByToken" {
        token: CardToken,
    }
}

/// The parameter `payment_method_data`: a method that is made on the way.
pub type PaymentMethodData = Nested<PaymentMethodDataParams>;

impl From<PaymentMethodDataParams> for NewPaymentMethod {
    fn from(params: PaymentMethodDataParams) -> Self {
        let billing = params.billing_details;
        let billing = billing.map(|given| given.apply(BillingDetails::default()));
        Self {
            card: params.card.card,
            has_cvc: params.card.has_cvc,
            billing: billing.unwrap_or_default(),
            allow_redisplay: params.allow_redisplay.unwrap_or_default(),
            metadata: params.metadata,
        }
    }
}

impl UpdatePaymentMethodParams {
    /// The method with what it changes, but for metadata.
    pub fn apply(&self, mut method: PaymentMethod) -> PaymentMethod {
        if let Some(billing) = self.billing_details.clone() {
            method.billing = billing.apply(method.billing);
        }
        let kept = &mut method.card;
        if let Some(card) = &self.card {
            kept.exp_month = card.exp_month.unwrap_or(kept.exp_month);
            kept.exp_year = card.exp_year.unwrap_or(kept.exp_year);
        }
        method.allow_redisplay = self.allow_redisplay.unwrap_or(method.allow_redisplay);
        method
    }
}

/// The word `card`: nothing else is simulated here.
pub struct MethodType;

impl TextKind for MethodType {
    type Value = ();
    const MUST_BE: &'static str = "Must be card: only cards are simulated here.";

    fn parse(text: &str) -> Option<()> {
        (text == "card").then_some(())
    }

    fn schema() -> ObjectBuilder {
        with_example(text().pattern(Some("^card$")), "card")
    }
}

/// The card of a new method: a test card by its number, or by a test token.
pub struct MethodCard;

/// A card as it was given.
#[derive(Debug, Clone, Copy)]
pub struct GivenCard {
    card: Card,
    has_cvc: bool,
}

impl ValueKind for MethodCard {
    type Value = GivenCard;

    fn read(field: &mut Field<'_, '_>) -> Result<Option<GivenCard>, Error> {
        let Some(mut fields) = field.fields.object(field.name)? else {
            return Ok(None);
        };
        let token = CardToken::read(&mut Field::new(&mut fields, "token"))?;
        let given = match token {
            Some(test_card) => GivenCard {
                card: test_card.into(),
                has_cvc: false,
            },
            None => {
                let params = CardParams::read(&mut fields)?;
                let has_cvc = params.cvc.is_some();
                GivenCard {
                    card: params.into(),
                    has_cvc,
                }
            }
        };
        fields.finish()?;
        Ok(Some(given))
    }

    fn schema() -> RefOr<Schema> {
        reference::<Self>()
    }
}

impl PartialSchema for MethodCard {
    fn schema() -> RefOr<Schema> {
        OneOfBuilder::new()
            .description(Some("A test card."))
            .item(reference::<CardParams>())
            .item(reference::<CardByTokenParams>())
            .into()
    }
}

impl ToSchema for MethodCard {
    fn name() -> std::borrow::Cow<'static, str> {
        "PaymentMethodCardInput".into()
    }
}

/// A test token, such as `tok_visa`.
pub struct CardToken;

impl TextKind for CardToken {
    type Value = &'static TestCard;
    const MAX_CHARS: usize = ID_MAX_CHARS;
    const MUST_BE: &'static str = "Must be a test token such as tok_visa.";

    fn parse(text: &str) -> Option<&'static TestCard> {
        test_cards::by_token(text).filter(|_| text.starts_with(TOKEN_PREFIX))
    }

    fn schema() -> ObjectBuilder {
        let tokens = test_cards::TEST_CARDS
            .iter()
            .flat_map(|card| card.tokens)
            .copied();
        // Templates are none.
        let tokens = tokens.filter(|token| token.starts_with(TOKEN_PREFIX));
        with_example(text().enum_values(Some(tokens)), "tok_visa")
    }
}

/// Text that names a payment method: its id, or a template such as `pm_card_visa`, of which each
/// use makes a new method.
pub struct MethodReference;

/// What a request names.
#[derive(Debug, Clone, Copy)]
pub enum NamedMethod {
    /// A method that exists, perhaps.
    Id(PaymentMethodId),
    /// A test card.
    Template(&'static TestCard),
    /// Nothing: no method has such an id.
    Nothing,
}

impl NamedMethod {
    /// The method that exists already, if it names one.
    pub fn id(self) -> Option<PaymentMethodId> {
        match self {
            Self::Id(id) => Some(id),
            Self::Template(_) | Self::Nothing => None,
        }
    }

    /// What this text names.
    pub fn of(text: &str) -> Self {
        let template = test_cards::by_token(text).filter(|_| text.starts_with(TEMPLATE_PREFIX));
        match (template, PaymentMethodId::parse(text)) {
            (Some(card), _) => Self::Template(card),
            (None, Some(id)) => Self::Id(id),
            (None, None) => Self::Nothing,
        }
    }
}

impl ValueKind for MethodReference {
    type Value = NamedMethod;

    fn read(field: &mut Field<'_, '_>) -> Result<Option<NamedMethod>, Error> {
        let is_nothing = |text: &str| matches!(NamedMethod::of(text), NamedMethod::Nothing);
        let text = id_text::<PaymentMethodId>(field, is_nothing)?;
        Ok(text.map(|text| NamedMethod::of(&text)))
    }

    fn schema() -> RefOr<Schema> {
        let named = text().pattern(Some("^pm_\\w+$")).description(Some(
            "The id of a payment method; or a test card such as pm_card_visa, of which each use makes a \
             new payment method.",
        ));
        with_example(named, "pm_card_visa").into()
    }
}

/// The method that a request gives, in one of two ways.
#[derive(Debug, Clone)]
pub enum GivenMethod {
    /// A method that exists, if there is one.
    Existing(Option<PaymentMethodId>),
    /// One that is made on the way.
    New(Box<NewPaymentMethod>),
}

impl From<&'static TestCard> for NewPaymentMethod {
    fn from(card: &'static TestCard) -> Self {
        Self {
            card: card.into(),
            has_cvc: false,
            billing: BillingDetails::default(),
            allow_redisplay: AllowRedisplay::default(),
            metadata: Metadata::new(),
        }
    }
}

impl From<NamedMethod> for GivenMethod {
    fn from(named: NamedMethod) -> Self {
        match named {
            NamedMethod::Id(id) => Self::Existing(Some(id)),
            NamedMethod::Nothing => Self::Existing(None),
            NamedMethod::Template(card) => Self::New(Box::new(card.into())),
        }
    }
}

impl GivenMethod {
    /// What the parameters `payment_method` and `payment_method_data` give. They exclude each
    /// other.
    pub fn of(
        reference: Option<NamedMethod>,
        data: Option<PaymentMethodDataParams>,
    ) -> Result<Option<Self>, ApiError> {
        match (reference, data) {
            (None, None) => Ok(None),
            (Some(named), None) => Ok(Some(named.into())),
            (None, Some(data)) => Ok(Some(Self::New(Box::new(data.into())))),
            (Some(_), Some(_)) => {
                let message = "Send either payment_method or payment_method_data.";
                Err(ApiError::invalid("payment_method_data", message))
            }
        }
    }
}

/// The error of a method that can't be used so. It is about the parameter `payment_method`, unless
/// the request names the method in its path.
pub fn refused(refusal: PaymentMethodRefusal) -> ApiError {
    let state = ErrorCode::PaymentMethodUnexpectedState;
    let (code, message) = match refusal {
        PaymentMethodRefusal::UsedUp | PaymentMethodRefusal::Detached => (
            state,
            "The provided PaymentMethod was previously used with a PaymentIntent without Customer attachment, or \
             was detached from a Customer. It may not be used again. To use a PaymentMethod multiple times, you \
             must attach it to a Customer first.",
        ),
        PaymentMethodRefusal::NotAttached => (
            state,
            "The payment method you provided is not attached to a customer so detachment or a change is \
             impossible.",
        ),
        PaymentMethodRefusal::CustomerMissing => (
            ErrorCode::ParameterInvalid,
            "The payment method belongs to a customer: the request must also provide the customer.",
        ),
        PaymentMethodRefusal::OtherCustomer => (
            ErrorCode::ParameterInvalid,
            "The payment method belongs to another customer.",
        ),
    };
    ApiError::new(code, message).with_param("payment_method".to_owned())
}
