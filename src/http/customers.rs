//! `/customers`

use actix_web::{HttpRequest, HttpResponse, web::Data};
use charge_once_pages::PageQuery;
use charge_once_strict_params::{Expand, Text, parameters};

use super::{
    app::App,
    error::{HttpError, HttpResult},
    error_responses::errors,
    list,
    request::{Caller, no_query, path_id, query_params},
    verbs::verbs,
};
use crate::{
    commands::{CreateCustomer, Update},
    domain::{customer::Customer, ids::CustomerId},
    store,
    wire::{
        customers::{
            AnyCustomerView, CreateCustomerParams, CustomerView, DeletedCustomerView,
            UpdateCustomerParams,
        },
        list::List,
        parameter::{ExpandCustomer, ExpandCustomers},
        people::PERSON_EMAIL_MAX_CHARS,
    },
    work::delete_customer,
};

verbs! { "Customers", CustomerView;
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
}

errors! { DeleteCustomerErrors: Reading [ResourceMissing] }

/// Delete a customer
///
/// Detaches all payment methods, for good. Charges and intents stay, and keep the id. Needs no
/// idempotency key: deleting twice does nothing more, and 404 on a retry says that it is done.
#[utoipa::path(
    delete, path = "/customers/{id}", tag = "Customers", operation_id = "deleteCustomer",
    params(("id" = String, Path, description = "The customer's id: cus_…")),
    responses(
        (status = 200, description = "The customer is gone.", body = DeletedCustomerView),
        DeleteCustomerErrors,
    ),
)]
pub async fn delete(app: Data<App>, caller: Caller, request: HttpRequest) -> HttpResult {
    no_query(&request)?;
    let id = path_id::<CustomerId>(&request)?;
    let origin = caller.origin_without_key(&request)?;
    let deleted = app
        .write(caller.account, move |tx| {
            Box::pin(async move { delete_customer(&origin, tx, id).await })
        })
        .await?;
    if !deleted {
        return Err(HttpError::missing_id::<CustomerId>());
    }
    app.wake_webhooks.notify_one();
    Ok(HttpResponse::Ok().json(DeletedCustomerView::of(id)))
}

parameters! {
    /// How a customer is shown.
    struct ExpandCustomerQuery {
        /// `invoice_settings.default_payment_method` shows the whole payment method.
        expand: Expand<ExpandCustomer>,
    }
}

errors! { RetrieveCustomerErrors: Reading [ResourceMissing] }

/// Retrieve a customer
///
/// Of one who was deleted, only the id is left.
#[utoipa::path(
    get, path = "/customers/{id}", tag = "Customers", operation_id = "retrieveCustomer",
    params(("id" = String, Path, description = "The customer's id: cus_…"), ExpandCustomerQuery),
    responses(
        (status = 200, description = "The customer, or what is left.", body = AnyCustomerView),
        RetrieveCustomerErrors,
    ),
)]
pub async fn retrieve(app: Data<App>, caller: Caller, request: HttpRequest) -> HttpResult {
    let expand = query_params::<ExpandCustomerQuery>(&request)?.expand;
    let id = path_id::<CustomerId>(&request)?;
    let found = list::shown(&app, caller, expand, move |connection| {
        Box::pin(store::customers::find(connection, caller.account, id))
    });
    let shown = found
        .await?
        .ok_or_else(HttpError::missing_id::<CustomerId>)?;
    Ok(HttpResponse::Ok().json(shown))
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

errors! { ListCustomersErrors: Reading [] }

/// List customers
///
/// Without those who were deleted.
#[utoipa::path(
    get, path = "/customers", tag = "Customers", operation_id = "listCustomers",
    params(PageQuery, ListCustomersQuery),
    responses(
        (status = 200, description = "A page, newest first.", body = List<CustomerView>),
        ListCustomersErrors,
    ),
)]
pub async fn list(app: Data<App>, caller: Caller, request: HttpRequest) -> HttpResult {
    let (page, ListCustomersQuery { email, expand }) = list::query::<CustomerId, _>(&request)?;
    let account = caller.account;
    let listed = list::shown_page(&app, caller, page, expand, move |connection, page| {
        Box::pin(store::customers::list(connection, account, page, email))
    });
    list::reply(caller.dialect, "/customers", listed.await?)
}
