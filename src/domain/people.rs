//! Who and where a person is, as customers, payment methods and intents have it.

use super::prelude::*;

/// Where a person lives, or where goods go. Nothing of it is checked but its length, and the
/// country, which has two letters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// A city, town or village.
    pub city: Option<String>,
    /// ISO 3166-1, two letters, as the client wrote them.
    pub country: Option<String>,
    /// Street and number.
    pub line1: Option<String>,
    /// Apartment, floor.
    pub line2: Option<String>,
    /// Also called a ZIP code.
    pub postal_code: Option<String>,
    /// A state, province or region.
    pub state: Option<String>,
}

/// Where goods go, and to whom.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shipping {
    /// Where they go.
    pub address: Address,
    /// Who brings them. Only of an intent.
    pub carrier: Option<String>,
    /// Who gets them.
    pub name: Option<String>,
    /// For the carrier.
    pub phone: Option<String>,
    /// The carrier's number of the parcel. Only of an intent.
    pub tracking_number: Option<String>,
}

/// Who the bill goes to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BillingDetails {
    /// Where they live.
    pub address: Address,
    /// As it was sent.
    pub email: Option<String>,
    /// As it was sent.
    pub name: Option<String>,
    /// As it was sent.
    pub phone: Option<String>,
}
