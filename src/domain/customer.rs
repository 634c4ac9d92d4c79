//! A customer: who pays, with the cards that were kept for later.

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

/// What a client says of a customer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CustomerDetails {
    /// Where they live.
    pub address: Option<Address>,
    /// For people.
    pub description: Option<String>,
    /// As it was sent. Several customers may have one.
    pub email: Option<String>,
    /// The client's own names.
    pub metadata: Metadata,
    /// A person's or a company's.
    pub name: Option<String>,
    /// As it was sent.
    pub phone: Option<String>,
    /// IETF language tags, the preferred one first.
    pub preferred_locales: Vec<String>,
    /// Where goods go.
    pub shipping: Option<Shipping>,
}

/// A customer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Customer {
    /// Which one.
    pub id: CustomerId,
    /// What the client said.
    #[serde(flatten)]
    pub details: CustomerDetails,
    /// The attached method that invoices would be paid with.
    #[serde(rename = "default_payment_method_id")]
    pub default_payment_method: Option<PaymentMethodId>,
    /// 1 when it is written, and one more with each change.
    pub version: i64,
    /// When it was written, by the database's clock.
    pub created_at: DateTime<Utc>,
    /// Whether it was deleted: its id stays, and nothing else of it is shown.
    #[serde(rename = "deleted_at", with = "columns::happened")]
    pub deleted: bool,
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
