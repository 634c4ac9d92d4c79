//! Payment methods as clients send and see them.

use charge_once_strict_params::{
    Error, Expand, Field, ID_MAX_CHARS, Kept, Nested, ParameterSet, TextKind, ValueKind,
    parameters,
    schema::{reference, text, with_example},
};
use serde::Serialize;
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{ObjectBuilder, OneOfBuilder, RefOr, Schema},
};

use super::{
    card::{ExpiryMonth, ExpiryYear},
    customers::AnyCustomerView,
    error::{ApiError, ErrorCode},
    list::Expandable,
    metadata::MetadataParam,
    parameter::{ExpandPaymentMethod, IdOf},
    people::{BillingDetailsParams, BillingDetailsView},
    source::CardParams,
};
use crate::domain::{
    charge::Card,
    ids::{CustomerId, PaymentMethodId},
    metadata::{Metadata, MetadataChange},
    payment_method::{
        AllowRedisplay, BillingDetails, NewPaymentMethod, PaymentMethod, PaymentMethodChange,
        PaymentMethodRefusal,
    },
    test_cards::{self, TOKEN_EXPIRY, TestCard},
};

/// What a template's name begins with: a test card that each use makes a new method of.
const TEMPLATE_PREFIX: &str = "pm_card_";
/// What a test token's name begins with.
const TOKEN_PREFIX: &str = "tok_";

parameters! {
    /// The parameters of a new payment method.
    pub struct CreatePaymentMethodParams as "CreatePaymentMethod" {
        r#type: MethodType,
        card: MethodCard,
        /// Who the bill goes to.
        billing_details: Option<Nested<BillingDetailsParams>>,
        /// Whether a shop may show it to its customer again: unspecified, limited or always.
        /// Default: unspecified.
        allow_redisplay: Option<AllowRedisplay>,
        metadata: MetadataParam,
        expand: Expand<ExpandPaymentMethod>,
    }
    example {"type": "card", "card": {"token": "tok_visa"}}
}

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
    }
}

/// The parameter `payment_method_data`: a method that is made on the way.
pub type PaymentMethodData = Nested<PaymentMethodDataParams>;

impl From<PaymentMethodDataParams> for NewPaymentMethod {
    fn from(params: PaymentMethodDataParams) -> Self {
        let billing = params.billing_details.map(Into::into);
        Self {
            card: params.card.card,
            has_cvc: params.card.has_cvc,
            billing: billing.map_or_else(BillingDetails::default, |given| {
                BillingDetails::default().changed(given)
            }),
            allow_redisplay: params.allow_redisplay.unwrap_or_default(),
            metadata: params.metadata,
        }
    }
}

impl From<CreatePaymentMethodParams> for NewPaymentMethod {
    fn from(params: CreatePaymentMethodParams) -> Self {
        PaymentMethodDataParams {
            r#type: params.r#type,
            card: params.card,
            billing_details: params.billing_details,
            allow_redisplay: params.allow_redisplay,
            metadata: params.metadata,
        }
        .into()
    }
}

parameters! {
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
}

parameters! {
    /// What may change of a card: a new one has the number of the old.
    pub struct CardChangeParams as "CardChange" {
        /// 1 to 12.
        exp_month: Kept<ExpiryMonth>,
        /// Four digits, or the last two. A date that has passed is refused.
        exp_year: Kept<ExpiryYear>,
    }
}

impl UpdatePaymentMethodParams {
    /// What it changes, but for metadata.
    pub fn change(&self) -> PaymentMethodChange {
        let card = self.card.as_ref();
        PaymentMethodChange {
            billing: self.billing_details.clone().map(Into::into),
            exp_month: card.and_then(|card| card.exp_month),
            exp_year: card.and_then(|card| card.exp_year),
            allow_redisplay: self.allow_redisplay,
        }
    }
}

parameters! {
    /// Whose a payment method becomes.
    pub struct AttachPaymentMethodParams as "AttachPaymentMethod" {
        /// The customer: cus_…
        customer: IdOf<CustomerId>,
        expand: Expand<ExpandPaymentMethod>,
    }
    example {"customer": "cus_01kar2w7n9e4xt8f5mq0v3z6yd"}
}

parameters! {
    /// No parameters but how the reply is shown.
    pub struct DetachPaymentMethodParams as "DetachPaymentMethod" {
        expand: Expand<ExpandPaymentMethod>,
    }
    example {}
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

impl GivenCard {
    /// A test card that was named instead of being written out.
    fn named(card: &'static TestCard) -> Self {
        let (exp_month, exp_year) = TOKEN_EXPIRY;
        let has_cvc = false;
        Self {
            card: Card {
                card,
                exp_month,
                exp_year,
            },
            has_cvc,
        }
    }
}

impl ValueKind for MethodCard {
    type Value = GivenCard;

    fn read(field: &mut Field<'_, '_>) -> Result<Option<GivenCard>, Error> {
        let Some(mut fields) = field.fields.object(field.name)? else {
            return Ok(None);
        };
        let token = CardToken::read(&mut Field::new(&mut fields, "token"))?;
        let given = match token {
            Some(card) => GivenCard::named(card),
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

parameters! {
    /// A test card by its token.
    pub struct CardByTokenParams as "CardByToken" {
        token: CardToken,
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
        with_example(
            text().pattern(Some(format!("^{TOKEN_PREFIX}\\w+$"))),
            "tok_visa",
        )
    }
}

/// Text that names a payment method: its id, or a template such as `pm_card_visa`, of which each use
/// makes a new method.
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

impl TextKind for MethodReference {
    type Value = NamedMethod;
    const MAX_CHARS: usize = ID_MAX_CHARS;
    const MUST_BE: &'static str = "Must be a payment method.";

    fn parse(text: &str) -> Option<NamedMethod> {
        Some(NamedMethod::of(text))
    }

    fn schema() -> ObjectBuilder {
        let named = text().pattern(Some("^pm_\\w+$")).description(Some(
            "The id of a payment method; or a test card such as pm_card_visa, of which each use makes a \
             new payment method.",
        ));
        with_example(named, "pm_card_visa")
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

impl From<NamedMethod> for GivenMethod {
    fn from(named: NamedMethod) -> Self {
        match named {
            NamedMethod::Id(id) => Self::Existing(Some(id)),
            NamedMethod::Nothing => Self::Existing(None),
            NamedMethod::Template(card) => {
                let GivenCard { card, has_cvc } = GivenCard::named(card);
                Self::New(Box::new(NewPaymentMethod {
                    card,
                    has_cvc,
                    billing: BillingDetails::default(),
                    allow_redisplay: AllowRedisplay::default(),
                    metadata: Metadata::new(),
                }))
            }
        }
    }
}

impl GivenMethod {
    /// What the parameters `payment_method` and `payment_method_data` give. They exclude each other.
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
                Err(ApiError::new(ErrorCode::ParameterInvalid, message)
                    .with_param("payment_method_data".to_owned()))
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
    /// `visa`, `mastercard`, `amex` or `discover`.
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
