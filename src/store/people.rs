//! The columns that say who and where a person is: `address`, `shipping` and `billing_details`.
//!
//! Every replica reads what any other wrote, so members are only ever added.

use serde::{Deserialize, Serialize};

use crate::domain::customer::{Address, BillingDetails, Shipping};

/// An address as a column holds it.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct StoredAddress {
    city: Option<String>,
    country: Option<String>,
    line1: Option<String>,
    line2: Option<String>,
    postal_code: Option<String>,
    state: Option<String>,
}

impl From<Address> for StoredAddress {
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

impl From<StoredAddress> for Address {
    fn from(address: StoredAddress) -> Self {
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
pub(super) struct StoredShipping {
    address: StoredAddress,
    carrier: Option<String>,
    name: Option<String>,
    phone: Option<String>,
    tracking_number: Option<String>,
}

impl From<Shipping> for StoredShipping {
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

impl From<StoredShipping> for Shipping {
    fn from(shipping: StoredShipping) -> Self {
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
pub(super) struct StoredBillingDetails {
    address: StoredAddress,
    email: Option<String>,
    name: Option<String>,
    phone: Option<String>,
}

impl From<BillingDetails> for StoredBillingDetails {
    fn from(billing: BillingDetails) -> Self {
        Self {
            address: billing.address.into(),
            email: billing.email,
            name: billing.name,
            phone: billing.phone,
        }
    }
}

impl From<StoredBillingDetails> for BillingDetails {
    fn from(billing: StoredBillingDetails) -> Self {
        Self {
            address: billing.address.into(),
            email: billing.email,
            name: billing.name,
            phone: billing.phone,
        }
    }
}
