//! A customer: who pays, with the cards that were kept for later.

use super::{
    people::{Address, Shipping},
    prelude::*,
};

/// What a client says of a customer, and no rule reads.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CustomerDetails {
    /// Where they live.
    pub address: Option<Address>,
    /// For people.
    pub description: Option<String>,
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
    #[serde(flatten, with = "columns::details")]
    pub details: CustomerDetails,
    /// As it was sent. Several customers may have one.
    pub email: Option<String>,
    /// The client's own names.
    pub metadata: Metadata,
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

/// A search for customers by their whole e-mail address and, if one is given, their whole name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CustomersWith {
    /// The address, in this case.
    pub email: String,
    /// The name, in this case. `None`: customers of any name.
    pub name: Option<String>,
}

impl CustomersWith {
    /// All customers with this e-mail address.
    pub fn email(email: String) -> Self {
        Self { email, name: None }
    }
}
