//! Who and where a person is, as clients send and see it.

use charge_once_strict_params::{
    Change, Nested, Text, TextKind, parameters,
    schema::{text, with_example},
};
use utoipa::openapi::ObjectBuilder;

use crate::domain::people::{Address, BillingDetails, Shipping};

/// The name of a person or a company.
pub type PersonName = Text<256>;
/// As [`PersonName`], where one must be there.
pub type RequiredName = Text<256, 1>;
/// A telephone number, in any notation.
pub type Phone = Text<50>;
/// RFC 5321, section 4.5.3.1: a path of 256 octets, less its angle brackets.
const EMAIL_MAX_CHARS: usize = 254;
/// The longest e-mail address of a person, in characters: as in Stripe's API.
pub const PERSON_EMAIL_MAX_CHARS: usize = 512;
/// An e-mail address of a person. It is kept as it was sent.
pub type PersonEmail = Email<PERSON_EMAIL_MAX_CHARS>;
/// One part of an address.
pub type AddressPart = Text<500>;

/// An address that a mail system could take: something, one `@`, something. Whether it exists is
/// for the receipt to find out.
pub struct Email<const MAX: usize = EMAIL_MAX_CHARS>;

impl<const MAX: usize> TextKind for Email<MAX> {
    type Value = String;
    const MAX_CHARS: usize = MAX;
    const MUST_BE: &'static str = "Must be an e-mail address.";

    fn parse(text: &str) -> Option<String> {
        let (name, host) = text.split_once('@')?;
        let plausible = !name.is_empty()
            && !host.is_empty()
            && !host.contains('@')
            && !text.chars().any(|c| c.is_whitespace() || c.is_control());
        plausible.then(|| text.to_owned())
    }

    fn schema() -> ObjectBuilder {
        const PART: &str = r"[^@\s\u0000-\u001f\u007f-\u009f]+";
        let email = text()
            .max_length(Some(MAX))
            .pattern(Some(format!("^{PART}@{PART}$")));
        with_example(email, "jenny@example.com")
    }
}

parameters! {
    /// An address. One that is given replaces the whole one before.
    pub struct AddressParams as "AddressInput" {
        /// A city, town or village.
        city: Option<AddressPart>,
        country: Option<Country>,
        /// Street and number.
        line1: Option<AddressPart>,
        /// Apartment, floor.
        line2: Option<AddressPart>,
        /// Also called a ZIP code.
        postal_code: Option<AddressPart>,
        /// A state, province or region.
        state: Option<AddressPart>,
    }
    into Address

    /// Where goods go, and to whom.
    pub struct ShippingParams as "ShippingInput" {
        /// Where they go.
        address: Nested<AddressParams>,
        /// Who gets them.
        name: RequiredName,
        /// For the carrier.
        phone: Option<Phone>,
    }

    /// Who the bill goes to. On an update, what isn't mentioned stays.
    pub struct BillingDetailsParams as "BillingDetailsInput" {
        /// Where they live.
        address: Change<Nested<AddressParams>>,
        /// As a person writes it.
        email: Change<PersonEmail>,
        /// A person's or a company's.
        name: Change<PersonName>,
        /// In any notation.
        phone: Change<Phone>,
    }
}

/// A country by two letters. Whether there is such a country isn't checked.
pub struct Country;

impl TextKind for Country {
    type Value = String;
    const MUST_BE: &'static str = "Must be a country's code of two letters, such as DE.";

    fn parse(text: &str) -> Option<String> {
        let is_code = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_alphabetic());
        is_code.then(|| text.to_owned())
    }

    fn schema() -> ObjectBuilder {
        let code = text()
            .pattern(Some("^[A-Za-z]{2}$"))
            .description(Some("Two letters, in any case (ISO 3166-1)."));
        with_example(code, "DE")
    }
}

impl From<ShippingParams> for Shipping {
    fn from(params: ShippingParams) -> Self {
        Self {
            address: params.address.into(),
            carrier: None,
            name: Some(params.name),
            phone: params.phone,
            tracking_number: None,
        }
    }
}

impl BillingDetailsParams {
    /// The details with what it changes of them.
    pub fn apply(self, billing: BillingDetails) -> BillingDetails {
        let address = self.address.map(Address::from).apply(Some(billing.address));
        BillingDetails {
            address: address.unwrap_or_default(),
            email: self.email.apply(billing.email),
            name: self.name.apply(billing.name),
            phone: self.phone.apply(billing.phone),
        }
    }
}
