//! `/customers`

use super::prelude::*;
use crate::{
    commands::{CreateCustomer, Update},
    domain::customer::Customer,
    wire::{
        customers::{
            AnyCustomerView, CreateCustomerParams, CustomerView, DeletedCustomerView,
            UpdateCustomerParams,
        },
        people::PERSON_EMAIL_MAX_CHARS,
    },
    work::delete_customer,
};

endpoints! { "Customers", CustomerView;
    /// Create a customer
    ///
    /// Several customers may have the same e-mail address.
    create "createCustomer": post "/customers" (CreateCustomerParams) => 201 "The customer.",
        Mutating [
            ParameterMissing, PaymentMethodUnexpectedState, CardDeclined, ExpiredCard,
            IncorrectCvc, ProcessingError, ResourceMissing,
        ],
        CreateCustomer;

    /// Update a customer
    ///
    /// What the request doesn't mention stays; an empty value unsets.
    update "updateCustomer": post "/customers/{id}" of id "The customer's id: cus_…"
        (UpdateCustomerParams) => 200 "The customer.", Mutating [ParameterMissing, ResourceMissing],
        |params| Update::<Customer> { id, params };

    /// Retrieve a customer
    ///
    /// Of one who was deleted, only the id is left.
    one retrieve "retrieveCustomer": "/customers/{id}" of CustomerId "The customer's id: cus_…"
        (ExpandCustomer "`invoice_settings.default_payment_method` shows the whole payment method.") => AnyCustomerView "The customer, or what is left.",
        store::customers::find;

    /// List customers
    ///
    /// Without those who were deleted.
    page list "listCustomers": "/customers" of CustomerId (ListCustomersQuery) [],
        query => query.email,
        store::customers::list;
}

/// Delete a customer
///
/// Detaches all payment methods, for good. Charges and intents stay, and keep the id. Needs no
/// idempotency key: deleting twice does nothing more, and 404 on a retry says that it is done.
#[utoipa::path(
    delete, path = "/customers/{id}", tag = "Customers", operation_id = "deleteCustomer",
    params(("id" = String, Path, description = "The customer's id: cus_…")),
    responses(
        (status = 200, description = "The customer is gone.", body = DeletedCustomerView),
        ObjectErrors,
    ),
)]
pub async fn delete(app: Data<App>, caller: Caller, request: HttpRequest) -> HttpResult {
    no_query(&request)?;
    let id = path_id::<CustomerId>(&request)?;
    let origin = caller.origin_without_key(&request)?;
    let deleted = app.write(caller.account, move |tx| {
        Box::pin(async move { delete_customer(&origin, tx, id).await })
    });
    if !deleted.await? {
        return Err(reads::missing_id(caller, id));
    }
    app.wake_webhooks.notify_one();
    Ok(HttpResponse::Ok().json(DeletedCustomerView::of(id)))
}

parameters! {
    /// Which customers are listed, and how.
    struct ListCustomersQuery {
        /// Only customers with exactly this e-mail address, in this case.
        email: Option<Text<PERSON_EMAIL_MAX_CHARS>>,
        /// `data.invoice_settings.default_payment_method` shows the whole payment method in each.
        expand: Expand<ExpandCustomers>,
    }
}
