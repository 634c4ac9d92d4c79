//! `/payment_methods`, and `/customers/{id}/payment_methods`

use actix_web::{HttpRequest, HttpResponse, web};
use charge_once_pages::{AN_OBJECT, Listed, Page, PageQuery};
use charge_once_strict_params::{Expand, Expansion, parameters};
use uuid::Uuid;

use super::{
    app::App,
    error::HttpError,
    error_responses::errors,
    list,
    parameters::MutatingHeaders,
    reply::run,
    request::{Caller, MutatingRequest, path_id, query_params},
};
use crate::{
    commands::{
        AttachPaymentMethod, CreatePaymentMethod, DetachPaymentMethod, UpdatePaymentMethod,
        expansions::{Shown, view},
    },
    domain::{
        ids::{CustomerId, PaymentMethodId},
        payment_method::PaymentMethod,
    },
    store,
    wire::{
        list::List,
        parameter::{ExpandPaymentMethod, ExpandPaymentMethods},
        payment_methods::{
            AttachPaymentMethodParams, CreatePaymentMethodParams, DetachPaymentMethodParams,
            MethodType, PaymentMethodView, UpdatePaymentMethodParams,
        },
    },
};

errors! {
    CreatePaymentMethodErrors: Charging [ParameterMissing]
}

/// Create a payment method
///
/// It pays once, or belongs to a customer and pays as often as they like: attach it. A card's number
/// is not kept.
#[utoipa::path(
    post, path = "/payment_methods", tag = "Payment methods",
    operation_id = "createPaymentMethod",
    params(MutatingHeaders),
    request_body = CreatePaymentMethodParams,
    responses(
        (status = 201, description = "The payment method.", body = PaymentMethodView),
        CreatePaymentMethodErrors,
    ),
)]
pub async fn create(
    app: web::Data<App>,
    request: MutatingRequest,
) -> Result<HttpResponse, HttpError> {
    run(&app, request, |request, origin, params| {
        app.idempotency
            .run(request, CreatePaymentMethod { origin, params })
    })
    .await
}

errors! {
    UpdatePaymentMethodErrors: Charging [PaymentMethodUnexpectedState, ResourceMissing]
}

/// Update a payment method
///
/// While it is attached to a customer. What the request doesn't mention stays.
#[utoipa::path(
    post, path = "/payment_methods/{id}", tag = "Payment methods",
    operation_id = "updatePaymentMethod",
    params(
        ("id" = String, Path, description = "The payment method's id: pm_…"),
        MutatingHeaders,
    ),
    request_body = UpdatePaymentMethodParams,
    responses(
        (status = 200, description = "The payment method.", body = PaymentMethodView),
        UpdatePaymentMethodErrors,
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
            .run(request, UpdatePaymentMethod { origin, id, params })
    })
    .await
}

errors! {
    AttachPaymentMethodErrors: Mutating [
        ParameterMissing, PaymentMethodUnexpectedState, CardDeclined, ExpiredCard, IncorrectCvc,
        ProcessingError, ResourceMissing
    ]
}

/// Attach a payment method to a customer
///
/// From then on it pays for this customer alone. A card that its issuer is known to decline is not
/// attached. With a test card such as `pm_card_visa` in the path, a new payment method is made.
#[utoipa::path(
    post, path = "/payment_methods/{id}/attach", tag = "Payment methods",
    operation_id = "attachPaymentMethod",
    params(
        ("id" = String, Path, description = "The payment method's id: pm_…"),
        MutatingHeaders,
    ),
    request_body = AttachPaymentMethodParams,
    responses(
        (status = 200, description = "The payment method.", body = PaymentMethodView),
        AttachPaymentMethodErrors,
    ),
)]
pub async fn attach(
    app: web::Data<App>,
    id: web::Path<String>,
    request: MutatingRequest,
) -> Result<HttpResponse, HttpError> {
    let id = id.into_inner();
    run(&app, request, |request, origin, params| {
        app.idempotency
            .run(request, AttachPaymentMethod { origin, id, params })
    })
    .await
}

errors! {
    DetachPaymentMethodErrors: Mutating [PaymentMethodUnexpectedState, ResourceMissing]
}

/// Detach a payment method from its customer
///
/// For good: it neither pays nor is attached again.
#[utoipa::path(
    post, path = "/payment_methods/{id}/detach", tag = "Payment methods",
    operation_id = "detachPaymentMethod",
    params(
        ("id" = String, Path, description = "The payment method's id: pm_…"),
        MutatingHeaders,
    ),
    request_body = DetachPaymentMethodParams,
    responses(
        (status = 200, description = "The payment method.", body = PaymentMethodView),
        DetachPaymentMethodErrors,
    ),
)]
pub async fn detach(
    app: web::Data<App>,
    id: web::Path<String>,
    request: MutatingRequest,
) -> Result<HttpResponse, HttpError> {
    let id = id.into_inner();
    run(&app, request, |request, origin, params| {
        app.idempotency
            .run(request, DetachPaymentMethod { origin, id, params })
    })
    .await
}

parameters! {
    /// How a payment method is shown.
    struct ExpandPaymentMethodQuery {
        /// `customer` shows the whole customer.
        expand: Expand<ExpandPaymentMethod>,
    }
}

errors! {
    RetrievePaymentMethodErrors: Reading [ResourceMissing]
}

/// Retrieve a payment method
#[utoipa::path(
    get, path = "/payment_methods/{id}", tag = "Payment methods",
    operation_id = "retrievePaymentMethod",
    params(
        ("id" = String, Path, description = "The payment method's id: pm_…"),
        ExpandPaymentMethodQuery,
    ),
    responses(
        (status = 200, description = "The payment method.", body = PaymentMethodView),
        RetrievePaymentMethodErrors,
    ),
)]
pub async fn retrieve(
    app: web::Data<App>,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, HttpError> {
    let expand = query_params::<ExpandPaymentMethodQuery>(&request)?.expand;
    let id = path_id(&request, PaymentMethodId::parse, PaymentMethodId::PREFIX)?;
    one(&app, caller, id, None, expand).await
}

errors! {
    RetrievePaymentMethodOfCustomerErrors: Reading [ResourceMissing]
}

/// Retrieve a payment method of a customer
#[utoipa::path(
    get, path = "/customers/{id}/payment_methods/{payment_method}", tag = "Payment methods",
    operation_id = "retrievePaymentMethodOfCustomer",
    params(
        ("id" = String, Path, description = "The customer's id: cus_…"),
        ("payment_method" = String, Path, description = "The payment method's id: pm_…"),
        ExpandPaymentMethodQuery,
    ),
    responses(
        (status = 200, description = "The payment method.", body = PaymentMethodView),
        RetrievePaymentMethodOfCustomerErrors,
    ),
)]
pub async fn retrieve_of_customer(
    app: web::Data<App>,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, HttpError> {
    let expand = query_params::<ExpandPaymentMethodQuery>(&request)?.expand;
    let customer = path_id(&request, CustomerId::parse, CustomerId::PREFIX)?;
    let id = PaymentMethodId::parse(request.match_info().query("payment_method"));
    let id = id.ok_or_else(|| HttpError::missing_id(PaymentMethodId::PREFIX))?;
    one(&app, caller, id, Some(customer), expand).await
}

/// The reply with one method, if it is `of` this customer.
async fn one(
    app: &App,
    caller: Caller,
    id: PaymentMethodId,
    of: Option<CustomerId>,
    expand: Expansion,
) -> Result<HttpResponse, HttpError> {
    let (account, audience) = (caller.account, caller.audience());
    let method = app
        .snapshot(account, move |connection| {
            Box::pin(async move {
                let found = store::payment_methods::find(&mut *connection, account, id).await?;
                let found = found.filter(|method| of.is_none() || method.customer() == of);
                let Some(method) = found else { return Ok(None) };
                view(connection, audience, &method, &expand).await.map(Some)
            })
        })
        .await?
        .ok_or_else(|| HttpError::missing_id(PaymentMethodId::PREFIX))?;
    Ok(HttpResponse::Ok().json(method))
}

parameters! {
    /// Which payment methods are listed, and how.
    struct ListPaymentMethodsQuery {
        /// Whose: cus_…
        customer: CustomerId,
        /// Only of this type. All are cards.
        r#type: Option<MethodType>,
        /// `data.customer` shows the whole customer in each.
        expand: Expand<ExpandPaymentMethods>,
    }
}

errors! {
    ListPaymentMethodsErrors: Reading [ParameterMissing]
}

/// List payment methods
///
/// Those of one customer.
#[utoipa::path(
    get, path = "/payment_methods", tag = "Payment methods", operation_id = "listPaymentMethods",
    params(PageQuery, ListPaymentMethodsQuery),
    responses(
        (status = 200, description = "A page, newest first.", body = List<PaymentMethodView>),
        ListPaymentMethodsErrors,
    ),
)]
pub async fn list(
    app: web::Data<App>,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, HttpError> {
    let (page, query) = list::query::<ListPaymentMethodsQuery>(&request, method_id)?;
    reply(
        &app,
        caller,
        page,
        query.customer,
        query.expand,
        "/payment_methods",
    )
    .await
}

parameters! {
    /// Which payment methods of a customer are listed, and how.
    struct ListPaymentMethodsOfCustomerQuery {
        /// Only of this type. All are cards.
        r#type: Option<MethodType>,
        /// `data.customer` shows the whole customer in each.
        expand: Expand<ExpandPaymentMethods>,
    }
}

errors! {
    ListPaymentMethodsOfCustomerErrors: Reading [ResourceMissing]
}

/// List the payment methods of a customer
#[utoipa::path(
    get, path = "/customers/{id}/payment_methods", tag = "Payment methods",
    operation_id = "listPaymentMethodsOfCustomer",
    params(
        ("id" = String, Path, description = "The customer's id: cus_…"),
        PageQuery,
        ListPaymentMethodsOfCustomerQuery,
    ),
    responses(
        (status = 200, description = "A page, newest first.", body = List<PaymentMethodView>),
        ListPaymentMethodsOfCustomerErrors,
    ),
)]
pub async fn list_of_customer(
    app: web::Data<App>,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, HttpError> {
    let id = path_id(&request, CustomerId::parse, CustomerId::PREFIX)?;
    let account = caller.account;
    app.read(account, move |connection| {
        Box::pin(store::customers::find(connection, account, id))
    })
    .await?
    .filter(|customer| !customer.deleted)
    .ok_or_else(|| HttpError::missing_id(CustomerId::PREFIX))?;
    let (page, query) = list::query::<ListPaymentMethodsOfCustomerQuery>(&request, method_id)?;
    let path = format!("/customers/{id}/payment_methods");
    reply(&app, caller, page, id, query.expand, &path).await
}

fn method_id(text: &str) -> Option<Uuid> {
    PaymentMethodId::parse(text).map(|id| id.0)
}

/// One page of the list at `path`.
async fn reply(
    app: &App,
    caller: Caller,
    page: Page,
    customer: CustomerId,
    expand: Expansion,
    path: &str,
) -> Result<HttpResponse, HttpError> {
    let (account, audience, cursor) = (caller.account, caller.audience(), page.cursor);
    let listed = app
        .snapshot(account, move |connection| {
            Box::pin(async move {
                let found =
                    store::payment_methods::list(&mut *connection, account, &page, customer)
                        .await?;
                let Some(Listed { data, has_more }) = found else {
                    return Ok(None);
                };
                let data = PaymentMethod::views(connection, audience, &data, &expand).await?;
                Ok(Some(Listed { data, has_more }))
            })
        })
        .await?;
    list::reply(caller.dialect, path, &cursor, AN_OBJECT, listed)
}
