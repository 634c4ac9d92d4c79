//! The views of who and where a person is.

use serde::Serialize;

use crate::domain::customer::{Address, BillingDetails, Shipping};

/// An address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[schema(as = Address)]
pub struct AddressView {
    /// A city, town or village.
    #[schema(required = true, example = "Bonn")]
    pub city: Option<String>,
    /// Two letters, as they were sent.
    #[schema(required = true, example = "DE")]
    pub country: Option<String>,
    /// Street and number.
    #[schema(required = true)]
    pub line1: Option<String>,
    /// Apartment, floor.
    #[schema(required = true)]
    pub line2: Option<String>,
    /// Also called a ZIP code.
    #[schema(required = true)]
    pub postal_code: Option<String>,
    /// A state, province or region.
    #[schema(required = true)]
    pub state: Option<String>,
}

impl From<&Address> for AddressView {
    fn from(address: &Address) -> Self {
        Self {
            city: address.city.clone(),
            country: address.country.clone(),
            line1: address.line1.clone(),
            line2: address.line2.clone(),
            postal_code: address.postal_code.clone(),
            state: address.state.clone(),
        }
    }
}

/// Where goods go, and to whom.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[schema(as = Shipping)]
pub struct ShippingView {
    /// Where they go.
    pub address: AddressView,
    /// Who brings them.
    #[schema(required = true)]
    pub carrier: Option<String>,
    /// Who gets them.
    #[schema(required = true)]
    pub name: Option<String>,
    /// For the carrier.
    #[schema(required = true)]
    pub phone: Option<String>,
    /// The carrier's number of the parcel.
    #[schema(required = true)]
    pub tracking_number: Option<String>,
}

impl From<&Shipping> for ShippingView {
    fn from(shipping: &Shipping) -> Self {
        Self {
            address: (&shipping.address).into(),
            carrier: shipping.carrier.clone(),
            name: shipping.name.clone(),
            phone: shipping.phone.clone(),
            tracking_number: shipping.tracking_number.clone(),
        }
    }
}

/// Who the bill goes to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[schema(as = BillingDetails)]
pub struct BillingDetailsView {
    /// Where they live.
    pub address: AddressView,
    /// As it was sent.
    #[schema(required = true)]
    pub email: Option<String>,
    /// As it was sent.
    #[schema(required = true)]
    pub name: Option<String>,
    /// As it was sent.
    #[schema(required = true)]
    pub phone: Option<String>,
    /// Always null.
    #[schema(required = true, value_type = Option<String>)]
    pub tax_id: (),
}

impl From<&BillingDetails> for BillingDetailsView {
    fn from(billing: &BillingDetails) -> Self {
        Self {
            address: (&billing.address).into(),
            email: billing.email.clone(),
            name: billing.name.clone(),
            phone: billing.phone.clone(),
            tax_id: (),
        }
    }
}
