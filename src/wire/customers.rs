//! Customers as clients send and see them.

use charge_once_strict_params::{
    Change, Error, Expand, Field, Nested, ValueKind, parameters,
    schema::{list_of, text},
};
use serde::Serialize;
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{RefOr, Schema},
};

use super::{
    error::{ApiError, ErrorCode},
    list::Expandable,
    metadata::MetadataParam,
    parameter::{Description, ExpandCustomer},
    payment_methods::{MethodReference, PaymentMethodView},
    people::{
        AddressParams, AddressView, PersonEmail, PersonName, Phone, ShippingParams, ShippingView,
    },
};
use crate::domain::{
    customer::{Customer, CustomerChange, CustomerDetails},
    ids::{CustomerId, PaymentMethodId},
    metadata::{Metadata, MetadataChange},
};

/// More languages than people have.
const LOCALES_MAX: usize = 20;
/// The longest tag that RFC 5646, section 4.4.1, expects anyone to need.
const LOCALE_MAX_CHARS: usize = 35;

parameters! {
    /// The parameters of a new customer.
    pub struct CreateCustomerParams as "CreateCustomer" {
        /// Where they live.
        address: Option<Nested<AddressParams>>,
        /// For people.
        description: Option<Description>,
        /// Kept as it was sent. Several customers may have one.
        email: Option<PersonEmail>,
        /// What invoices would be paid with.
        invoice_settings: Option<Nested<InvoiceSettingsParams>>,
        metadata: MetadataParam,
        /// A person's or a company's.
        name: Option<PersonName>,
        /// Is attached to the customer, and doesn't become the default by that.
        payment_method: Option<MethodReference>,
        /// In any notation.
        phone: Option<Phone>,
        /// IETF language tags, the preferred one first.
        preferred_locales: Option<Locales>,
        /// Where goods go.
        shipping: Option<Nested<ShippingParams>>,
        expand: Expand<ExpandCustomer>,
    }
    example {"email": "jenny@example.com", "name": "Jenny Rosen"}
}

impl From<CreateCustomerParams> for CustomerDetails {
    fn from(params: CreateCustomerParams) -> Self {
        Self {
            address: params.address.map(Into::into),
            description: params.description,
            email: params.email,
            metadata: params.metadata,
            name: params.name,
            phone: params.phone,
            preferred_locales: params.preferred_locales.unwrap_or_default(),
            shipping: params.shipping.map(Into::into),
        }
    }
}

parameters! {
    /// What may change of a customer. An address that is given replaces the whole one before.
    pub struct UpdateCustomerParams as "UpdateCustomer" {
        /// Where they live.
        address: Change<Nested<AddressParams>>,
        /// For people.
        description: Change<Description>,
        /// Kept as it was sent. Several customers may have one.
        email: Change<PersonEmail>,
        /// What invoices would be paid with.
        invoice_settings: Option<Nested<InvoiceSettingsParams>>,
        metadata: MetadataChange,
        /// A person's or a company's.
        name: Change<PersonName>,
        /// In any notation.
        phone: Change<Phone>,
        /// IETF language tags, the preferred one first.
        preferred_locales: Change<Locales>,
        /// Where goods go.
        shipping: Change<Nested<ShippingParams>>,
        expand: Expand<ExpandCustomer>,
    }
    example {"description": "Likes blue mugs"}
}

impl UpdateCustomerParams {
    /// What it changes, but for metadata and the default payment method.
    pub fn change(&self) -> CustomerChange {
        CustomerChange {
            address: self.address.clone().map(Into::into),
            description: self.description.clone(),
            email: self.email.clone(),
            name: self.name.clone(),
            phone: self.phone.clone(),
            preferred_locales: self.preferred_locales.clone(),
            shipping: self.shipping.clone().map(Into::into),
        }
    }
}

parameters! {
    /// What invoices would be paid with. There are no invoices here.
    pub struct InvoiceSettingsParams as "InvoiceSettingsInput" {
        /// A payment method that is attached to the customer: pm_…
        default_payment_method: Change<PaymentMethodId>,
    }
}

/// The default payment method that a request asks for.
pub fn default_of(settings: Option<&InvoiceSettingsParams>) -> Change<PaymentMethodId> {
    settings.map_or(Change::Keep, |settings| {
        settings.default_payment_method.clone()
    })
}

/// The refusal of a default payment method that isn't the customer's.
pub fn not_their_method() -> ApiError {
    let message = "Must be a payment method that is attached to this customer.";
    ApiError::new(ErrorCode::ParameterInvalid, message)
        .with_param("invoice_settings[default_payment_method]".to_owned())
}

/// Tags of languages.
pub struct Locales;

impl ValueKind for Locales {
    type Value = Vec<String>;

    fn read(field: &mut Field<'_, '_>) -> Result<Option<Vec<String>>, Error> {
        if field.fields.given(field.name).is_none() {
            return Ok(None);
        }
        let locales = field
            .fields
            .texts(field.name, 0..=LOCALES_MAX, LOCALE_MAX_CHARS)?;
        let is_tag = |text: &String| {
            let is_part = |c: u8| c.is_ascii_alphanumeric() || c == b'-';
            !text.is_empty() && text.bytes().all(is_part)
        };
        match locales.iter().position(|text| !is_tag(text)) {
            None => Ok(Some(locales)),
            Some(index) => {
                let message = "Must be a language tag, such as en-GB.";
                Err(field.fields.invalid_element(field.name, index, message))
            }
        }
    }

    fn schema() -> RefOr<Schema> {
        list_of::<Locale>().max_items(Some(LOCALES_MAX)).into()
    }
}

/// A tag of a language.
pub struct Locale;

impl PartialSchema for Locale {
    fn schema() -> RefOr<Schema> {
        text()
            .max_length(Some(LOCALE_MAX_CHARS))
            .pattern(Some("^[A-Za-z0-9-]+$"))
            .description(Some("An IETF language tag, such as en-GB."))
            .into()
    }
}

impl ToSchema for Locale {}

/// A customer, as clients see it. The members and their order are Stripe's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[schema(as = Customer)]
pub struct CustomerView {
    /// `cus_…`
    #[schema(example = "cus_01kar2w7n9e4xt8f5mq0v3z6yd")]
    pub id: String,
    /// Always `customer`.
    #[schema(example = "customer")]
    pub object: &'static str,
    /// Where they live.
    #[schema(required = true)]
    pub address: Option<AddressView>,
    /// Always 0: there is no ledger of balances here.
    #[schema(example = 0)]
    pub balance: i64,
    /// Unix seconds.
    #[schema(example = 1_795_000_000)]
    pub created: i64,
    /// Always null.
    #[schema(required = true, value_type = Option<String>)]
    pub currency: (),
    /// Always null.
    #[schema(required = true, value_type = Option<String>)]
    pub default_source: (),
    /// Always false.
    #[schema(example = false)]
    pub delinquent: bool,
    /// For people.
    #[schema(required = true)]
    pub description: Option<String>,
    /// Always null.
    #[schema(required = true, value_type = Option<String>)]
    pub discount: (),
    /// As it was sent.
    #[schema(required = true, example = "jenny@example.com")]
    pub email: Option<String>,
    /// Always null.
    #[schema(required = true, value_type = Option<String>)]
    pub invoice_prefix: (),
    /// What invoices would be paid with.
    pub invoice_settings: InvoiceSettings,
    /// Always false: no real card is ever charged.
    #[schema(example = false)]
    pub livemode: bool,
    /// Your own names.
    #[schema(value_type = BTreeMap<String, String>)]
    pub metadata: Metadata,
    /// A person's or a company's.
    #[schema(required = true)]
    pub name: Option<String>,
    /// As it was sent.
    #[schema(required = true)]
    pub phone: Option<String>,
    /// IETF language tags.
    pub preferred_locales: Vec<String>,
    /// Where goods go.
    #[schema(required = true)]
    pub shipping: Option<ShippingView>,
    /// Always `none`.
    #[schema(example = "none")]
    pub tax_exempt: &'static str,
    /// Always null.
    #[schema(required = true, value_type = Option<String>)]
    pub test_clock: (),
}

/// What invoices would be paid with. There are no invoices here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct InvoiceSettings {
    /// Always null.
    #[schema(required = true, value_type = Option<String>)]
    pub custom_fields: (),
    /// An attached method; whole with `expand[]=invoice_settings.default_payment_method`.
    #[schema(required = true, no_recursion)]
    pub default_payment_method: Option<Expandable<PaymentMethodView>>,
    /// Always null.
    #[schema(required = true, value_type = Option<String>)]
    pub footer: (),
    /// Always null.
    #[schema(required = true, value_type = Option<String>)]
    pub rendering_options: (),
}

impl From<&Customer> for CustomerView {
    fn from(customer: &Customer) -> Self {
        let details = &customer.details;
        let default = customer.default_payment_method;
        Self {
            id: customer.id.to_string(),
            object: "customer",
            address: details.address.as_ref().map(AddressView::from),
            balance: 0,
            created: customer.created_at.timestamp(),
            currency: (),
            default_source: (),
            delinquent: false,
            description: details.description.clone(),
            discount: (),
            email: details.email.clone(),
            invoice_prefix: (),
            invoice_settings: InvoiceSettings {
                custom_fields: (),
                default_payment_method: default.map(|method| Expandable::Id(method.to_string())),
                footer: (),
                rendering_options: (),
            },
            livemode: false,
            metadata: details.metadata.clone(),
            name: details.name.clone(),
            phone: details.phone.clone(),
            preferred_locales: details.preferred_locales.clone(),
            shipping: details.shipping.as_ref().map(ShippingView::from),
            tax_exempt: "none",
            test_clock: (),
        }
    }
}

/// All that is shown of a customer who was deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[schema(as = DeletedCustomer)]
pub struct DeletedCustomerView {
    /// `cus_…`
    #[schema(example = "cus_01kar2w7n9e4xt8f5mq0v3z6yd")]
    pub id: String,
    /// Always `customer`.
    #[schema(example = "customer")]
    pub object: &'static str,
    /// Always true.
    #[schema(example = true)]
    pub deleted: bool,
}

impl DeletedCustomerView {
    /// The rest of this customer.
    pub fn of(id: CustomerId) -> Self {
        Self {
            id: id.to_string(),
            object: "customer",
            deleted: true,
        }
    }
}

/// A customer, or what is left of one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(untagged)]
#[schema(as = CustomerOrDeleted)]
pub enum AnyCustomerView {
    /// It exists.
    Customer(Box<CustomerView>),
    /// It was deleted.
    Deleted(DeletedCustomerView),
}

impl From<&Customer> for AnyCustomerView {
    fn from(customer: &Customer) -> Self {
        match customer.deleted {
            true => Self::Deleted(DeletedCustomerView::of(customer.id)),
            false => Self::Customer(Box::new(customer.into())),
        }
    }
}
