//! `/payment_methods`, and `/customers/{id}/payment_methods`

use chrono::Utc;

use super::prelude::*;
use crate::{
    commands::{
        AttachPaymentMethod, CreatePaymentMethod, DetachPaymentMethod, Update, unwritten_method,
    },
    domain::payment_method::PaymentMethod,
    wire::payment_methods::{
        AttachPaymentMethodParams, CreatePaymentMethodParams, DetachPaymentMethodParams,
        MethodType, NamedMethod, PaymentMethodView, UpdatePaymentMethodParams,
    },
};

endpoints! { "Payment methods", PaymentMethodView;
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

    /// List payment methods
    ///
    /// Those of one customer.
    page list "listPaymentMethods": "/payment_methods" of PaymentMethodId (ListPaymentMethodsQuery)
        [ParameterMissing], query => query.customer, store::payment_methods::list;

    /// Retrieve a payment method
    ///
    /// With a test card such as `pm_card_visa` in the path, the method that a use of it makes is
    /// shown, with this id. It is stored nowhere.
    one retrieve "retrievePaymentMethod": "/payment_methods/{id}" of PaymentMethodId
        "The payment method's id: pm_…" (ExpandPaymentMethod "`customer` shows the whole customer.")
        => PaymentMethodView "The payment method.", store::payment_methods::find;
}

/// [`retrieve`], or what a test card makes.
pub async fn retrieve_any(app: Data<App>, caller: Caller, request: HttpRequest) -> HttpResult {
    let id = request.match_info().query("id");
    let NamedMethod::Template(card) = NamedMethod::of(id) else {
        return retrieve(app, caller, request).await;
    };
    query_params::<retrieve::Query>(&request)?;
    let method = unwritten_method(caller.account, card.into(), Utc::now());
    let view = PaymentMethodView {
        id: id.to_owned(),
        ..(&method).into()
    };
    Ok(HttpResponse::Ok().json(view))
}

/// Retrieve a payment method of a customer
#[utoipa::path(
    get, path = "/customers/{id}/payment_methods/{payment_method}", tag = "Payment methods",
    operation_id = "retrievePaymentMethodOfCustomer",
    params(
        ("id" = String, Path, description = "The customer's id: cus_…"),
        ("payment_method" = String, Path, description = "The payment method's id: pm_…"),
        retrieve::Query,
    ),
    responses(
        (status = 200, description = "The payment method.", body = PaymentMethodView),
        ObjectErrors,
    ),
)]
pub async fn retrieve_of_customer(
    app: Data<App>,
    caller: Caller,
    request: HttpRequest,
) -> HttpResult {
    let expand = query_params::<retrieve::Query>(&request)?.expand;
    let customer = path_id::<CustomerId>(&request)?;
    let text = request.match_info().query("payment_method");
    let missing = || HttpError::missing_id::<PaymentMethodId>(caller.dialect, text);
    let id = PaymentMethodId::parse(text).ok_or_else(missing)?;
    reads::one::<PaymentMethodId, _>(&app, caller, expand, id, move |connection| {
        Box::pin(async move {
            let found = store::payment_methods::find(connection, caller.account, id).await?;
            Ok(found.filter(|method| method.customer() == Some(customer)))
        })
    })
    .await
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

parameters! {
    /// Which payment methods of a customer are listed, and how.
    struct ListPaymentMethodsOfCustomerQuery {
        /// Only of this type. All are cards.
        r#type: Option<MethodType>,
        /// `data.customer` shows the whole customer in each.
        expand: Expand<ExpandPaymentMethods>,
    }
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
        ObjectErrors,
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
    .ok_or_else(|| reads::missing_id(caller, id))?;
    let (page, query) =
        reads::query::<PaymentMethodId, ListPaymentMethodsOfCustomerQuery>(&request)?;
    let path = format!("/customers/{id}/payment_methods");
    reads::listed(
        &app,
        caller,
        &path,
        page,
        query.expand,
        move |connection, page| {
            Box::pin(store::payment_methods::list(connection, account, page, id))
        },
    )
    .await
}
