//! `/customers`

use actix_web::{HttpRequest, HttpResponse, web};
use charge_once_pages::{AN_OBJECT, Listed, PageQuery};
use charge_once_strict_params::{Expand, Text, parameters};

use super::{
    app::App,
    error::HttpError,
    error_responses::errors,
    list,
    parameters::MutatingHeaders,
    reply::run,
    request::{Caller, MutatingRequest, no_query, path_id, query_params},
};
use crate::{
    commands::{
        CreateCustomer, UpdateCustomer, delete_customer,
        expansions::{Shown, view},
    },
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
};

errors! {
    CreateCustomerErrors: Mutating [
        ParameterMissing, PaymentMethodUnexpectedState, CardDeclined, ExpiredCard, IncorrectCvc,
        ProcessingError, ResourceMissing
    ]
}

/// Create a customer
///
/// Several customers may have the same e-mail address.
#[utoipa::path(
    post, path = "/customers", tag = "Customers", operation_id = "createCustomer",
    params(MutatingHeaders),
    request_body = CreateCustomerParams,
    responses(
        (status = 201, description = "The customer.", body = CustomerView),
        CreateCustomerErrors,
    ),
)]
pub async fn create(
    app: web::Data<App>,
    request: MutatingRequest,
) -> Result<HttpResponse, HttpError> {
    run(&app, request, |request, origin, params| {
        app.idempotency
            .run(request, CreateCustomer { origin, params })
    })
    .await
}

errors! {
    UpdateCustomerErrors: Mutating [ParameterMissing, ResourceMissing]
}

/// Update a customer
///
/// What the request doesn't mention stays; an empty value unsets.
#[utoipa::path(
    post, path = "/customers/{id}", tag = "Customers", operation_id = "updateCustomer",
    params(
        ("id" = String, Path, description = "The customer's id: cus_…"),
        MutatingHeaders,
    ),
    request_body = UpdateCustomerParams,
    responses(
        (status = 200, description = "The customer.", body = CustomerView),
        UpdateCustomerErrors,
    ),
)]
pub async fn update(
    app: web::Data<App>,
    id: web::Path<String>,
    request: MutatingRequest,
) -> Result<HttpResponse, HttpError> {
    let id = id.into_inner();
    run(&app, request, |request, origin, params| {
        app.idempotency
            .run(request, UpdateCustomer { origin, id, params })
    })
    .await
}

errors! {
    DeleteCustomerErrors: Reading [ResourceMissing]
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
        DeleteCustomerErrors,
    ),
)]
pub async fn delete(
    app: web::Data<App>,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, HttpError> {
    no_query(&request)?;
    let id = customer_id(&request)?;
    let origin = caller.origin_without_key(&request)?;
    let deleted = app
        .write(caller.account, move |tx| {
            Box::pin(async move { delete_customer(&origin, tx, id).await })
        })
        .await?;
    if !deleted {
        return Err(HttpError::missing_id(CustomerId::PREFIX));
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

errors! {
    RetrieveCustomerErrors: Reading [ResourceMissing]
}

/// Retrieve a customer
///
/// Of one who was deleted, only the id is left.
#[utoipa::path(
    get, path = "/customers/{id}", tag = "Customers", operation_id = "retrieveCustomer",
    params(
        ("id" = String, Path, description = "The customer's id: cus_…"),
        ExpandCustomerQuery,
    ),
    responses(
        (status = 200, description = "The customer, or what is left.", body = AnyCustomerView),
        RetrieveCustomerErrors,
    ),
)]
pub async fn retrieve(
    app: web::Data<App>,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, HttpError> {
    let expand = query_params::<ExpandCustomerQuery>(&request)?.expand;
    let id = customer_id(&request)?;
    let (account, audience) = (caller.account, caller.audience());
    let customer = app
        .snapshot(account, move |connection| {
            Box::pin(async move {
                let found = store::customers::find(&mut *connection, account, id).await?;
                let Some(customer) = found else {
                    return Ok(None);
                };
                view(connection, audience, &customer, &expand)
                    .await
                    .map(Some)
            })
        })
        .await?
        .ok_or_else(|| HttpError::missing_id(CustomerId::PREFIX))?;
    Ok(HttpResponse::Ok().json(customer))
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

errors! {
    ListCustomersErrors: Reading []
}

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
pub async fn list(
    app: web::Data<App>,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, HttpError> {
    let (page, query) =
        list::query::<ListCustomersQuery>(&request, |text| CustomerId::parse(text).map(|id| id.0))?;
    let ListCustomersQuery { email, expand } = query;
    let (account, audience, cursor) = (caller.account, caller.audience(), page.cursor);
    let listed = app
        .snapshot(account, move |connection| {
            Box::pin(async move {
                let email = email.as_deref();
                let found = store::customers::list(&mut *connection, account, &page, email).await?;
                let Some(Listed { data, has_more }) = found else {
                    return Ok(None);
                };
                let data = Customer::views(connection, audience, &data, &expand).await?;
                Ok(Some(Listed { data, has_more }))
            })
        })
        .await?;
    list::reply(caller.dialect, "/customers", &cursor, AN_OBJECT, listed)
}

fn customer_id(request: &HttpRequest) -> Result<CustomerId, HttpError> {
    path_id(request, CustomerId::parse, CustomerId::PREFIX)
}
