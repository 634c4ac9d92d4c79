//! The views of who and where a person is.

use crate::domain::people::{Address, BillingDetails, Shipping};
use crate::wire::view::views;

views! {
    /// An address.
    pub struct AddressView as Address from address: &Address {
        /// A city, town or village.
        maybe city: String [example = "Bonn"] = address.city.clone();
        /// Two letters, as they were sent.
        maybe country: String [example = "DE"] = address.country.clone();
        /// Street and number.
        maybe line1: String = address.line1.clone();
        /// Apartment, floor.
        maybe line2: String = address.line2.clone();
        /// Also called a ZIP code.
        maybe postal_code: String = address.postal_code.clone();
        /// A state, province or region.
        maybe state: String = address.state.clone();
    }

    /// Where goods go, and to whom.
    pub struct ShippingView as Shipping from shipping: &Shipping {
        /// Where they go.
        address: AddressView = (&shipping.address).into();
        /// Who brings them.
        maybe carrier: String = shipping.carrier.clone();
        /// Who gets them.
        maybe name: String = shipping.name.clone();
        /// For the carrier.
        maybe phone: String = shipping.phone.clone();
        /// The carrier's number of the parcel.
        maybe tracking_number: String = shipping.tracking_number.clone();
    }

    /// Who the bill goes to.
    pub struct BillingDetailsView as BillingDetails from billing: &BillingDetails {
        /// Where they live.
        address: AddressView = (&billing.address).into();
        /// As it was sent.
        maybe email: String = billing.email.clone();
        /// As it was sent.
        maybe name: String = billing.name.clone();
        /// As it was sent.
        maybe phone: String = billing.phone.clone();
        null tax_id;
    }
}
