//! The views of customers.

use serde::Serialize;

use super::{
    payment_methods::PaymentMethodView,
    people::{AddressView, ShippingView},
};
use crate::{
    domain::{customer::Customer, ids::CustomerId, metadata::Metadata},
    wire::{list::Expandable, view::views},
};

views! {
    /// A customer, as clients see it. The members and their order are Stripe's.
    pub struct CustomerView as Customer from customer: &Customer where {
        let details = &customer.details;
    } {
        /// `cus_…`
        id: String [example = "cus_01kar2w7n9e4xt8f5mq0v3z6yd"] = customer.id.to_string();
        /// Always `customer`.
        always object: &'static str = "customer";
        /// Where they live.
        maybe address: AddressView = details.address.as_ref().map(AddressView::from);
        /// Always 0: there is no ledger of balances here.
        always balance: i64 = 0;
        created = customer.created_at.timestamp();
        null currency, default_source;
        /// Always false.
        always delinquent: bool = false;
        /// For people.
        maybe description: String = details.description.clone();
        null discount;
        /// As it was sent.
        maybe email: String [example = "jenny@example.com"] = customer.email.clone();
        null invoice_prefix;
        /// What invoices would be paid with.
        invoice_settings: InvoiceSettings = customer.into();
        livemode;
        metadata = customer.metadata.clone();
        /// A person's or a company's.
        maybe name: String = details.name.clone();
        /// As it was sent.
        maybe phone: String = details.phone.clone();
        /// IETF language tags.
        preferred_locales: Vec<String> = details.preferred_locales.clone();
        /// Where goods go.
        maybe shipping: ShippingView = details.shipping.as_ref().map(ShippingView::from);
        /// Always `none`.
        always tax_exempt: &'static str = "none";
        null test_clock;
    }

    /// What invoices would be paid with. There are no invoices here.
    pub struct InvoiceSettings as InvoiceSettings from customer: &Customer {
        null custom_fields;
        /// An attached method; whole with `expand[]=invoice_settings.default_payment_method`.
        expandable default_payment_method: PaymentMethodView = customer.default_payment_method;
        null footer, rendering_options;
    }

    /// All that is shown of a customer who was deleted.
    pub struct DeletedCustomerView as DeletedCustomer of(id: CustomerId) {
        /// `cus_…`
        id: String [example = "cus_01kar2w7n9e4xt8f5mq0v3z6yd"] = id.to_string();
        /// Always `customer`.
        always object: &'static str = "customer";
        /// Always true.
        always deleted: bool = true;
    }
}

/// A customer, or what is left of one.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[serde(untagged)]
#[schema(as = CustomerOrDeleted)]
pub enum AnyCustomerView {
    /// It exists.
    Customer(Box<CustomerView>),
    /// It was deleted.
    Deleted(DeletedCustomerView),
}

impl From<&Customer> for AnyCustomerView {
    fn from(customer: &Customer) -> Self {
        match customer.deleted {
            true => Self::Deleted(DeletedCustomerView::of(customer.id)),
            false => Self::Customer(Box::new(customer.into())),
        }
    }
}
