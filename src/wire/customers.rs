//! Customers as clients send and see them.

pub use super::views::customers::{AnyCustomerView, CustomerView, DeletedCustomerView};
use super::{payment_methods::MethodReference, prelude::*};
use crate::domain::customer::{CustomerDetails, CustomersWith};

/// More languages than people have.
const LOCALES_MAX: usize = 20;
/// The longest tag that RFC 5646, section 4.4.1, expects anyone to need.
const LOCALE_MAX_CHARS: usize = 35;

parameters! {
    /// What a request says of a customer, and no rule reads. An address that is given replaces the
    /// whole one before.
    pub struct CustomerDetailsParams {
        /// Where they live.
        address: Change<Nested<AddressParams>>,
        /// For people.
        description: Change<Description>,
        /// A person's or a company's.
        name: Change<PersonName>,
        /// In any notation.
        phone: Change<Phone>,
        /// IETF language tags, the preferred one first.
        preferred_locales: Change<ListOf<Locale, LOCALES_MAX>>,
        /// Where goods go.
        shipping: Change<Nested<ShippingParams>>,
    }

    /// The parameters of a new customer.
    pub struct CreateCustomerParams as "CreateCustomer" {
        details: Include<CustomerDetailsParams>,
        /// Kept as it was sent. Several customers may have one.
        email: Option<PersonEmail>,
        /// What invoices would be paid with.
        invoice_settings: Option<Nested<InvoiceSettingsParams>>,
        metadata: MetadataParam,
        /// Is attached to the customer, and doesn't become the default by that.
        payment_method: Option<MethodReference>,
        expand: Expand<ExpandCustomer>,
    }
    example {"email": "jenny@example.com", "name": "Jenny Rosen"}

    /// What may change of a customer. An address that is given replaces the whole one before.
    pub struct UpdateCustomerParams as "UpdateCustomer" {
        details: Include<CustomerDetailsParams>,
        /// Kept as it was sent. Several customers may have one.
        email: Change<PersonEmail>,
        /// What invoices would be paid with.
        invoice_settings: Kept<Nested<InvoiceSettingsParams>>,
        metadata: MetadataChange,
        expand: Expand<ExpandCustomer>,
    }
    example {"description": "Likes blue mugs"}

    /// What invoices would be paid with. There are no invoices here.
    pub struct InvoiceSettingsParams as "InvoiceSettingsInput" {
        /// A payment method that is attached to the customer: pm_…
        default_payment_method: Change<PaymentMethodId>,
    }
}

impl CustomerDetailsParams {
    /// The details with what it changes of them.
    pub fn apply(self, details: CustomerDetails) -> CustomerDetails {
        let locales = Some(details.preferred_locales);
        CustomerDetails {
            address: self.address.map(Into::into).apply(details.address),
            description: self.description.apply(details.description),
            name: self.name.apply(details.name),
            phone: self.phone.apply(details.phone),
            preferred_locales: self.preferred_locales.apply(locales).unwrap_or_default(),
            shipping: self.shipping.map(Into::into).apply(details.shipping),
        }
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
    ApiError::invalid("invoice_settings[default_payment_method]", message)
}

/// What customers are searched by: their whole e-mail address and perhaps name, in one of two kinds
/// of quotes.
pub struct CustomerQuery;

impl TextKind for CustomerQuery {
    type Value = CustomersWith;
    /// With as much room for blanks as for the words.
    const MAX_CHARS: usize = PERSON_EMAIL_MAX_CHARS + PersonName::MAX_CHARS + 48;
    const MUST_BE: &'static str = "Must be email:'jenny@example.com', alone or with AND name:'Jenny Rosen': customers are searched by their whole e-mail address and name.";

    fn parse(text: &str) -> Option<CustomersWith> {
        let (mut email, mut name) = (None, None);
        let mut rest = Some(text);
        while let Some(clause) = rest {
            let (field, quoted) = clause.split_once(':')?;
            let asked = match field.trim() {
                "email" => &mut email,
                "name" => &mut name,
                _ => return None,
            };
            let quoted = quoted.trim_start();
            let quote = quoted.chars().next().filter(|c| ['\'', '"'].contains(c))?;
            let (value, after) = quoted.strip_prefix(quote)?.split_once(quote)?;
            let is_whole = !value.is_empty() && !value.contains('\\');
            if !is_whole || asked.replace(value.to_owned()).is_some() {
                return None;
            }
            rest = match after.trim() {
                "" => None,
                more => {
                    let more = more.strip_prefix("AND")?;
                    Some(more.strip_prefix(char::is_whitespace)?)
                }
            };
        }
        let email = email?;
        Some(CustomersWith { email, name })
    }

    fn schema() -> ObjectBuilder {
        const QUERY: &str = r#"^(email:('[^'\\]+'|"[^"\\]+")( AND name:('[^'\\]+'|"[^"\\]+"))?|name:('[^'\\]+'|"[^"\\]+") AND email:('[^'\\]+'|"[^"\\]+"))$"#;
        let query = text()
            .max_length(Some(Self::MAX_CHARS))
            .pattern(Some(QUERY));
        with_example(query, "email:'jenny@example.com'")
    }
}

/// A tag of a language.
pub struct Locale;

impl TextKind for Locale {
    type Value = String;
    const MAX_CHARS: usize = LOCALE_MAX_CHARS;
    const MUST_BE: &'static str = "Must be a language tag, such as en-GB.";

    fn parse(text: &str) -> Option<String> {
        let is_part = |c: u8| c.is_ascii_alphanumeric() || c == b'-';
        let is_tag = !text.is_empty() && text.bytes().all(is_part);
        is_tag.then(|| text.to_owned())
    }

    fn schema() -> ObjectBuilder {
        text()
            .max_length(Some(LOCALE_MAX_CHARS))
            .pattern(Some("^[A-Za-z0-9-]+$"))
            .description(Some("An IETF language tag, such as en-GB."))
    }
}

impl PartialSchema for Locale {
    fn schema() -> RefOr<Schema> {
        <Self as TextKind>::schema().into()
    }
}

impl ToSchema for Locale {}
