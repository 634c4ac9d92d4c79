//! The columns that say who and where a person is: `address`, `shipping` and `billing_details`.
//!
//! Every replica reads what any other wrote, so members are only ever added.

use serde::{Deserialize, Serialize};

use crate::domain::{customer, payment_method};

/// An address as a column holds it.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Address {
    city: Option<String>,
    country: Option<String>,
    line1: Option<String>,
    line2: Option<String>,
    postal_code: Option<String>,
    state: Option<String>,
}

impl From<customer::Address> for Address {
    fn from(address: customer::Address) -> Self {
        Self {
            city: address.city,
            country: address.country,
            line1: address.line1,
            line2: address.line2,
            postal_code: address.postal_code,
            state: address.state,
        }
    }
}

impl From<Address> for customer::Address {
    fn from(address: Address) -> Self {
        Self {
            city: address.city,
            country: address.country,
            line1: address.line1,
            line2: address.line2,
            postal_code: address.postal_code,
            state: address.state,
        }
    }
}

/// Where goods go, as a column holds it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Shipping {
    address: Address,
    carrier: Option<String>,
    name: Option<String>,
    phone: Option<String>,
    tracking_number: Option<String>,
}

impl From<customer::Shipping> for Shipping {
    fn from(shipping: customer::Shipping) -> Self {
        Self {
            address: shipping.address.into(),
            carrier: shipping.carrier,
            name: shipping.name,
            phone: shipping.phone,
            tracking_number: shipping.tracking_number,
        }
    }
}

impl From<Shipping> for customer::Shipping {
    fn from(shipping: Shipping) -> Self {
        Self {
            address: shipping.address.into(),
            carrier: shipping.carrier,
            name: shipping.name,
            phone: shipping.phone,
            tracking_number: shipping.tracking_number,
        }
    }
}

/// Who a bill goes to, as a column holds it.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct BillingDetails {
    address: Address,
    email: Option<String>,
    name: Option<String>,
    phone: Option<String>,
}

impl From<payment_method::BillingDetails> for BillingDetails {
    fn from(billing: payment_method::BillingDetails) -> Self {
        Self {
            address: billing.address.into(),
            email: billing.email,
            name: billing.name,
            phone: billing.phone,
        }
    }
}

impl From<BillingDetails> for payment_method::BillingDetails {
    fn from(billing: BillingDetails) -> Self {
        Self {
            address: billing.address.into(),
            email: billing.email,
            name: billing.name,
            phone: billing.phone,
        }
    }
}
