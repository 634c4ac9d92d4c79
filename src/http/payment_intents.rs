//! `/payment_intents`

use actix_web::{
    HttpRequest, HttpResponse,
    web::{Data, Path},
};
use charge_once_pages::PageQuery;
use charge_once_strict_params::{Expand, Text, parameters};

use super::{
    app::App,
    error::HttpResult,
    error_responses::errors,
    list,
    parameters::MutatingHeaders,
    reply::run_verb,
    request::{Caller, MutatingRequest, query_params},
};
use crate::{
    commands::{CancelIntent, CaptureIntent, ConfirmIntent, CreateIntent, UpdateIntent},
    domain::ids::{CustomerId, PaymentIntentId},
    store,
    wire::{
        error::ApiError,
        intent_parameters::wrong_client_secret,
        list::List,
        parameter::{ExpandPaymentIntent, ExpandPaymentIntents},
        payment_intents::{
            CancelPaymentIntentParams, CapturePaymentIntentParams, ConfirmPaymentIntentParams,
            CreatePaymentIntentParams, PaymentIntentView, UpdatePaymentIntentParams,
        },
    },
};

/// The longest `client_secret` that is worth comparing, in characters.
const SECRET_MAX_CHARS: usize = 255;

errors! {
    CreatePaymentIntentErrors: Charging [
        ParameterMissing, AmountTooLarge, PaymentMethodUnexpectedState, ResourceMissing
    ]
}

/// Create a payment intent
///
/// One payment, through as many cards as it takes. With `confirm=true` the card is charged at once;
/// if it declines, the intent stays, and the error holds all of it.
#[utoipa::path(
    post, path = "/payment_intents", tag = "Payment intents",
    operation_id = "createPaymentIntent",
    params(MutatingHeaders),
    request_body = CreatePaymentIntentParams,
    responses(
        (status = 201, description = "The payment intent.", body = PaymentIntentView),
        CreatePaymentIntentErrors,
    ),
)]
pub async fn create(app: Data<App>, request: MutatingRequest) -> HttpResult {
    run_verb(&app, request, |params| {
        CreateIntent::new(params, app.public_url.clone())
    })
    .await
}

errors! {
    UpdatePaymentIntentErrors: Charging [
        AmountTooLarge, PaymentIntentUnexpectedState, PaymentMethodUnexpectedState, ResourceMissing
    ]
}

/// Update a payment intent
///
/// What the request doesn't mention stays; an empty value unsets. What is to be paid changes only
/// until money is promised, and voids an authentication that its holder has begun.
#[utoipa::path(
    post, path = "/payment_intents/{id}", tag = "Payment intents",
    operation_id = "updatePaymentIntent",
    params(("id" = String, Path, description = "The payment intent's id: pi_…"), MutatingHeaders),
    request_body = UpdatePaymentIntentParams,
    responses(
        (status = 200, description = "The payment intent.", body = PaymentIntentView),
        UpdatePaymentIntentErrors,
    ),
)]
pub async fn update(app: Data<App>, id: Path<String>, request: MutatingRequest) -> HttpResult {
    run_verb(&app, request, |params| UpdateIntent::new(&id, params)).await
}

errors! {
    ConfirmPaymentIntentErrors: Charging [
        ParameterMissing, PaymentIntentUnexpectedState, PaymentMethodUnexpectedState,
        ResourceMissing
    ]
}

/// Confirm a payment intent
///
/// Charges the card. If its holder must authenticate first, `next_action` says where. After a
/// decline another attempt needs a new idempotency key, as the stored decline answers this one.
#[utoipa::path(
    post, path = "/payment_intents/{id}/confirm", tag = "Payment intents",
    operation_id = "confirmPaymentIntent",
    params(("id" = String, Path, description = "The payment intent's id: pi_…"), MutatingHeaders),
    request_body = ConfirmPaymentIntentParams,
    responses(
        (status = 200, description = "The payment intent.", body = PaymentIntentView),
        ConfirmPaymentIntentErrors,
    ),
)]
pub async fn confirm(app: Data<App>, id: Path<String>, request: MutatingRequest) -> HttpResult {
    run_verb(&app, request, |params| {
        ConfirmIntent::new(&id, params, app.public_url.clone())
    })
    .await
}

errors! {
    CapturePaymentIntentErrors: Mutating [
        AmountTooLarge, CaptureAmountTooLarge, PaymentIntentUnexpectedState, ResourceMissing
    ]
}

/// Capture a payment intent
///
/// Takes money that was promised with `capture_method=manual`: all of it, or a part; the rest is
/// released. Once only: the error of a second capture holds the intent, which has succeeded.
#[utoipa::path(
    post, path = "/payment_intents/{id}/capture", tag = "Payment intents",
    operation_id = "capturePaymentIntent",
    params(("id" = String, Path, description = "The payment intent's id: pi_…"), MutatingHeaders),
    request_body = CapturePaymentIntentParams,
    responses(
        (status = 200, description = "The payment intent.", body = PaymentIntentView),
        CapturePaymentIntentErrors,
    ),
)]
pub async fn capture(app: Data<App>, id: Path<String>, request: MutatingRequest) -> HttpResult {
    let id = PaymentIntentId::parse(&id);
    run_verb(&app, request, |params| CaptureIntent { id, params }).await
}

errors! { CancelPaymentIntentErrors: Mutating [PaymentIntentUnexpectedState, ResourceMissing] }

/// Cancel a payment intent
///
/// Closes it for good; money that was promised is released. The error of a second cancellation
/// holds the intent, which is canceled.
#[utoipa::path(
    post, path = "/payment_intents/{id}/cancel", tag = "Payment intents",
    operation_id = "cancelPaymentIntent",
    params(("id" = String, Path, description = "The payment intent's id: pi_…"), MutatingHeaders),
    request_body = CancelPaymentIntentParams,
    responses(
        (status = 200, description = "The payment intent.", body = PaymentIntentView),
        CancelPaymentIntentErrors,
    ),
)]
pub async fn cancel(app: Data<App>, id: Path<String>, request: MutatingRequest) -> HttpResult {
    let id = PaymentIntentId::parse(&id);
    run_verb(&app, request, |params| CancelIntent { id, params }).await
}

parameters! {
    /// How a payment intent is shown.
    struct RetrievePaymentIntentQuery {
        /// The intent's own. It is compared, and not needed.
        client_secret: Option<Text<SECRET_MAX_CHARS>>,
        /// `latest_charge` shows the whole charge, and so on.
        expand: Expand<ExpandPaymentIntent>,
    }
}

errors! { RetrievePaymentIntentErrors: Reading [ResourceMissing] }

/// Retrieve a payment intent
#[utoipa::path(
    get, path = "/payment_intents/{id}", tag = "Payment intents",
    operation_id = "retrievePaymentIntent",
    params(
        ("id" = String, Path, description = "The payment intent's id: pi_…"),
        RetrievePaymentIntentQuery,
    ),
    responses(
        (status = 200, description = "The payment intent.", body = PaymentIntentView),
        RetrievePaymentIntentErrors,
    ),
)]
pub async fn retrieve(app: Data<App>, caller: Caller, request: HttpRequest) -> HttpResult {
    let query = query_params::<RetrievePaymentIntentQuery>(&request)?;
    let missing = || ApiError::missing("intent", PaymentIntentId::PREFIX);
    let id = PaymentIntentId::parse(request.match_info().query("id")).ok_or_else(missing)?;
    let found = list::shown(&app, caller, query.expand, move |connection| {
        Box::pin(store::payment_intents::find(connection, caller.account, id))
    });
    let shown = found.await?.ok_or_else(missing)?;
    if query
        .client_secret
        .is_some_and(|secret| secret != shown.client_secret)
    {
        return Err(wrong_client_secret().into());
    }
    Ok(HttpResponse::Ok().json(shown))
}

parameters! {
    /// Which payment intents are listed, and how.
    struct ListPaymentIntentsQuery {
        /// Only those that this customer pays: cus_…
        customer: Option<CustomerId>,
        /// `data.latest_charge` shows the whole charge in each, and so on.
        expand: Expand<ExpandPaymentIntents>,
    }
}

errors! { ListPaymentIntentsErrors: Reading [] }

/// List payment intents
#[utoipa::path(
    get, path = "/payment_intents", tag = "Payment intents",
    operation_id = "listPaymentIntents",
    params(PageQuery, ListPaymentIntentsQuery),
    responses(
        (status = 200, description = "A page, newest first.", body = List<PaymentIntentView>),
        ListPaymentIntentsErrors,
    ),
)]
pub async fn list(app: Data<App>, caller: Caller, request: HttpRequest) -> HttpResult {
    let (page, ListPaymentIntentsQuery { customer, expand }) =
        list::query::<PaymentIntentId, _>(&request)?;
    let account = caller.account;
    let listed = list::shown_page(&app, caller, page, expand, move |connection, page| {
        Box::pin(store::payment_intents::list(
            connection, account, page, customer,
        ))
    });
    list::reply(caller.dialect, "/payment_intents", listed.await?)
}
