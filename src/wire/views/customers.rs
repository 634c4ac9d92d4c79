//! The views of customers.

use serde::Serialize;

use super::{
    payment_methods::PaymentMethodView,
    people::{AddressView, ShippingView},
};
use crate::{
    domain::{customer::Customer, ids::CustomerId, metadata::Metadata},
    wire::list::Expandable,
};

/// A customer, as clients see it. The members and their order are Stripe's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[schema(as = Customer)]
pub struct CustomerView {
    /// `cus_…`
    #[schema(example = "cus_01kar2w7n9e4xt8f5mq0v3z6yd")]
    pub id: String,
    /// Always `customer`.
    #[schema(example = "customer")]
    pub object: &'static str,
    /// Where they live.
    #[schema(required = true)]
    pub address: Option<AddressView>,
    /// Always 0: there is no ledger of balances here.
    #[schema(example = 0)]
    pub balance: i64,
    /// Unix seconds.
    #[schema(example = 1_795_000_000)]
    pub created: i64,
    /// Always null.
    #[schema(required = true, value_type = Option<String>)]
    pub currency: (),
    /// Always null.
    #[schema(required = true, value_type = Option<String>)]
    pub default_source: (),
    /// Always false.
    #[schema(example = false)]
    pub delinquent: bool,
    /// For people.
    #[schema(required = true)]
    pub description: Option<String>,
    /// Always null.
    #[schema(required = true, value_type = Option<String>)]
    pub discount: (),
    /// As it was sent.
    #[schema(required = true, example = "jenny@example.com")]
    pub email: Option<String>,
    /// Always null.
    #[schema(required = true, value_type = Option<String>)]
    pub invoice_prefix: (),
    /// What invoices would be paid with.
    pub invoice_settings: InvoiceSettings,
    /// Always false: no real card is ever charged.
    #[schema(example = false)]
    pub livemode: bool,
    /// Your own names.
    #[schema(value_type = BTreeMap<String, String>)]
    pub metadata: Metadata,
    /// A person's or a company's.
    #[schema(required = true)]
    pub name: Option<String>,
    /// As it was sent.
    #[schema(required = true)]
    pub phone: Option<String>,
    /// IETF language tags.
    pub preferred_locales: Vec<String>,
    /// Where goods go.
    #[schema(required = true)]
    pub shipping: Option<ShippingView>,
    /// Always `none`.
    #[schema(example = "none")]
    pub tax_exempt: &'static str,
    /// Always null.
    #[schema(required = true, value_type = Option<String>)]
    pub test_clock: (),
}

/// What invoices would be paid with. There are no invoices here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct InvoiceSettings {
    /// Always null.
    #[schema(required = true, value_type = Option<String>)]
    pub custom_fields: (),
    /// An attached method; whole with `expand[]=invoice_settings.default_payment_method`.
    #[schema(required = true, no_recursion)]
    pub default_payment_method: Option<Expandable<PaymentMethodView>>,
    /// Always null.
    #[schema(required = true, value_type = Option<String>)]
    pub footer: (),
    /// Always null.
    #[schema(required = true, value_type = Option<String>)]
    pub rendering_options: (),
}

impl From<&Customer> for CustomerView {
    fn from(customer: &Customer) -> Self {
        let details = &customer.details;
        let default = customer.default_payment_method;
        Self {
            id: customer.id.to_string(),
            object: "customer",
            address: details.address.as_ref().map(AddressView::from),
            balance: 0,
            created: customer.created_at.timestamp(),
            currency: (),
            default_source: (),
            delinquent: false,
            description: details.description.clone(),
            discount: (),
            email: details.email.clone(),
            invoice_prefix: (),
            invoice_settings: InvoiceSettings {
                custom_fields: (),
                default_payment_method: default.map(|method| Expandable::Id(method.to_string())),
                footer: (),
                rendering_options: (),
            },
            livemode: false,
            metadata: details.metadata.clone(),
            name: details.name.clone(),
            phone: details.phone.clone(),
            preferred_locales: details.preferred_locales.clone(),
            shipping: details.shipping.as_ref().map(ShippingView::from),
            tax_exempt: "none",
            test_clock: (),
        }
    }
}

/// All that is shown of a customer who was deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[schema(as = DeletedCustomer)]
pub struct DeletedCustomerView {
    /// `cus_…`
    #[schema(example = "cus_01kar2w7n9e4xt8f5mq0v3z6yd")]
    pub id: String,
    /// Always `customer`.
    #[schema(example = "customer")]
    pub object: &'static str,
    /// Always true.
    #[schema(example = true)]
    pub deleted: bool,
}

impl DeletedCustomerView {
    /// The rest of this customer.
    pub fn of(id: CustomerId) -> Self {
        Self {
            id: id.to_string(),
            object: "customer",
            deleted: true,
        }
    }
}

/// A customer, or what is left of one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
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
