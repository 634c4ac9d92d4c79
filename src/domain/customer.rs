//! A customer: who pays, with the cards that were kept for later.

use charge_once_strict_params::Change;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::{
    columns,
    ids::{CustomerId, PaymentMethodId},
    metadata::Metadata,
};

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

/// What an update does to a customer. An address or a shipping address that is given replaces the
/// whole one.
#[derive(Debug, Clone)]
pub struct CustomerChange {
    /// See [`CustomerDetails::address`].
    pub address: Change<Address>,
    /// See [`CustomerDetails::description`].
    pub description: Change<String>,
    /// See [`CustomerDetails::email`].
    pub email: Change<String>,
    /// See [`CustomerDetails::name`].
    pub name: Change<String>,
    /// See [`CustomerDetails::phone`].
    pub phone: Change<String>,
    /// See [`CustomerDetails::preferred_locales`].
    pub preferred_locales: Change<Vec<String>>,
    /// See [`CustomerDetails::shipping`].
    pub shipping: Change<Shipping>,
}

impl CustomerDetails {
    /// The details after the change. Metadata has rules of its own.
    #[must_use]
    pub fn changed(self, change: CustomerChange) -> Self {
        Self {
            address: change.address.apply(self.address),
            description: change.description.apply(self.description),
            email: change.email.apply(self.email),
            metadata: self.metadata,
            name: change.name.apply(self.name),
            phone: change.phone.apply(self.phone),
            preferred_locales: change
                .preferred_locales
                .apply(Some(self.preferred_locales))
                .unwrap_or_default(),
            shipping: change.shipping.apply(self.shipping),
        }
    }
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

/// What an update does to billing details.
#[derive(Debug, Clone)]
pub struct BillingChange {
    /// See [`BillingDetails::address`].
    pub address: Change<Address>,
    /// See [`BillingDetails::email`].
    pub email: Change<String>,
    /// See [`BillingDetails::name`].
    pub name: Change<String>,
    /// See [`BillingDetails::phone`].
    pub phone: Change<String>,
}

impl BillingDetails {
    /// The details after the change.
    #[must_use]
    pub fn changed(self, change: BillingChange) -> Self {
        Self {
            address: change.address.apply(Some(self.address)).unwrap_or_default(),
            email: change.email.apply(self.email),
            name: change.name.apply(self.name),
            phone: change.phone.apply(self.phone),
        }
    }
}
