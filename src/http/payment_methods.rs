//! `/payment_methods`, and `/customers/{id}/payment_methods`

use actix_web::{HttpRequest, HttpResponse, web::Data};
use charge_once_pages::{Page, PageQuery};
use charge_once_strict_params::{Expand, Expansion, parameters};

use super::{
    app::App,
    error::{HttpError, HttpResult},
    error_responses::errors,
    list,
    request::{Caller, path_id, query_params},
    verbs::verbs,
};
use crate::{
    commands::{AttachPaymentMethod, CreatePaymentMethod, DetachPaymentMethod, Update},
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

verbs! { "Payment methods", PaymentMethodView;
    /// Create a payment method
    ///
    /// It pays once, or belongs to a customer and pays as often as they like: attach it. A card's
    /// number is not kept.
    create "createPaymentMethod": post "/payment_methods" (CreatePaymentMethodParams)
        => 201 "The payment method.", Charging [ParameterMissing],
        CreatePaymentMethod;

    /// Update a payment method
    ///
    /// While it is attached to a customer. What the request doesn't mention stays.
    update "updatePaymentMethod": post "/payment_methods/{id}" of id "The payment method's id: pm_…"
        (UpdatePaymentMethodParams) => 200 "The payment method.",
        Charging [PaymentMethodUnexpectedState, ResourceMissing],
        |params| Update::<PaymentMethod> { id, params };

    /// Attach a payment method to a customer
    ///
    /// From then on it pays for this customer alone. A card that its issuer is known to decline is
    /// not attached. With a test card such as `pm_card_visa` in the path, a new payment method is
    /// made.
    attach "attachPaymentMethod": post "/payment_methods/{id}/attach"
        of id "The payment method's id: pm_…" (AttachPaymentMethodParams)
        => 200 "The payment method.",
        Mutating [
            ParameterMissing, PaymentMethodUnexpectedState, CardDeclined, ExpiredCard,
            IncorrectCvc, ProcessingError, ResourceMissing,
        ],
        |params| AttachPaymentMethod { id, params };

    /// Detach a payment method from its customer
    ///
    /// For good: it neither pays nor is attached again.
    detach "detachPaymentMethod": post "/payment_methods/{id}/detach"
        of id "The payment method's id: pm_…" (DetachPaymentMethodParams)
        => 200 "The payment method.", Mutating [PaymentMethodUnexpectedState, ResourceMissing],
        |params| DetachPaymentMethod::of(&id, params);
}

parameters! {
    /// How a payment method is shown.
    struct ExpandPaymentMethodQuery {
        /// `customer` shows the whole customer.
        expand: Expand<ExpandPaymentMethod>,
    }
}

errors! { RetrievePaymentMethodErrors: Reading [ResourceMissing] }

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
pub async fn retrieve(app: Data<App>, caller: Caller, request: HttpRequest) -> HttpResult {
    let expand = query_params::<ExpandPaymentMethodQuery>(&request)?.expand;
    let id = path_id::<PaymentMethodId>(&request)?;
    one(&app, caller, id, None, expand).await
}

errors! { RetrievePaymentMethodOfCustomerErrors: Reading [ResourceMissing] }

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
    app: Data<App>,
    caller: Caller,
    request: HttpRequest,
) -> HttpResult {
    let expand = query_params::<ExpandPaymentMethodQuery>(&request)?.expand;
    let customer = path_id::<CustomerId>(&request)?;
    let id = PaymentMethodId::parse(request.match_info().query("payment_method"));
    let id = id.ok_or_else(HttpError::missing_id::<PaymentMethodId>)?;
    one(&app, caller, id, Some(customer), expand).await
}

/// The reply with one method, if it is `of` this customer.
async fn one(
    app: &App,
    caller: Caller,
    id: PaymentMethodId,
    of: Option<CustomerId>,
    expand: Expansion,
) -> HttpResult {
    let found = list::shown(app, caller, expand, move |connection| {
        Box::pin(async move {
            let found = store::payment_methods::find(connection, caller.account, id).await?;
            Ok(found.filter(|method| of.is_none() || method.customer() == of))
        })
    });
    let shown = found
        .await?
        .ok_or_else(HttpError::missing_id::<PaymentMethodId>)?;
    Ok(HttpResponse::Ok().json(shown))
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

errors! { ListPaymentMethodsErrors: Reading [ParameterMissing] }

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
pub async fn list(app: Data<App>, caller: Caller, request: HttpRequest) -> HttpResult {
    let (page, query) = list::query::<PaymentMethodId, ListPaymentMethodsQuery>(&request)?;
    reply(
        &app,
        caller,
        "/payment_methods",
        page,
        query.customer,
        query.expand,
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

errors! { ListPaymentMethodsOfCustomerErrors: Reading [ResourceMissing] }

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
pub async fn list_of_customer(app: Data<App>, caller: Caller, request: HttpRequest) -> HttpResult {
    let id = path_id::<CustomerId>(&request)?;
    let account = caller.account;
    app.read(account, move |connection| {
        Box::pin(store::customers::find(connection, account, id))
    })
    .await?
    .filter(|customer| !customer.deleted)
    .ok_or_else(HttpError::missing_id::<CustomerId>)?;
    let (page, query) =
        list::query::<PaymentMethodId, ListPaymentMethodsOfCustomerQuery>(&request)?;
    let path = format!("/customers/{id}/payment_methods");
    reply(&app, caller, &path, page, id, query.expand).await
}

/// One page of the list at `path`.
async fn reply(
    app: &App,
    caller: Caller,
    path: &str,
    page: Page,
    customer: CustomerId,
    expand: Expansion,
) -> HttpResult {
    let account = caller.account;
    let listed = list::shown_page(app, caller, page, expand, move |connection, page| {
        Box::pin(store::payment_methods::list(
            connection, account, page, customer,
        ))
    });
    list::reply(caller.dialect, path, listed.await?)
}
