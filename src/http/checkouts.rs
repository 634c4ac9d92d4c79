//! `/checkouts`

use actix_web::{HttpRequest, HttpResponse, web};

use super::{
    App,
    error::EdgeError,
    list,
    reply::run_in_phases,
    request::{Caller, Mutation, no_query, query_params},
};
use crate::{
    api::{checkouts::CheckoutView, list::List, params::REFERENCE_MAX_CHARS},
    commands::CreateCheckout,
    domain::ids::CheckoutId,
    store,
};

/// Create a checkout
///
/// Opens an order, charges the card, and takes the items from the inventory, step by step. A declined
/// card cancels the order; items that are out of stock give the charge back and cancel the order.
/// After a 5xx the same key goes on where the checkout stopped; nothing before it runs twice.
#[utoipa::path(
    post, path = "/checkouts", tag = "Checkouts", operation_id = "createCheckout",
    params(super::openapi::IdempotencyHeaders, super::openapi::PreferHeader),
    request_body(content(
        (super::openapi::CreateCheckoutBody = "application/json"),
        (super::openapi::CreateCheckoutBody = "application/x-www-form-urlencoded"),
    )),
    responses((status = 201, description = "The checkout, completed.", body = CheckoutView)),
)]
pub async fn create(app: web::Data<App>, mutation: Mutation) -> Result<HttpResponse, EdgeError> {
    run_in_phases(&app, &app.checkouts, mutation, |origin, params| {
        CreateCheckout { origin, params }
    })
    .await
}

/// Retrieve a checkout
///
/// With its steps: which have run, what they made, and how often somebody set out to run them.
#[utoipa::path(
    get, path = "/checkouts/{id}", tag = "Checkouts", operation_id = "retrieveCheckout",
    params(("id" = String, Path, description = "The checkout's id: co_…")),
    responses((status = 200, description = "The checkout.", body = CheckoutView)),
)]
pub async fn retrieve(
    app: web::Data<App>,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, EdgeError> {
    no_query(&request)?;
    let id = CheckoutId::parse(request.match_info().query("id"))
        .ok_or_else(|| EdgeError::missing("id"))?;
    let account = caller.account;
    let run = app
        .read(move |connection| Box::pin(store::checkouts::find(connection, account, id)))
        .await?
        .ok_or_else(|| EdgeError::missing("id"))?;
    Ok(HttpResponse::Ok().json(CheckoutView::from(&run.checkout)))
}

/// List checkouts
#[utoipa::path(
    get, path = "/checkouts", tag = "Checkouts", operation_id = "listCheckouts",
    params(
        super::openapi::PageQuery,
        (
            "customer" = Option<String>, Query, description = "Only checkouts with this reference.",
            max_length = 255,
        ),
    ),
    responses((status = 200, description = "A page, newest first.", body = List<CheckoutView>)),
)]
pub async fn list(
    app: web::Data<App>,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, EdgeError> {
    let params = query_params(&request)?;
    let mut fields = params.fields()?;
    let page = list::page(&mut fields, |text| CheckoutId::parse(text).map(|id| id.0))?;
    let customer = fields.text("customer", REFERENCE_MAX_CHARS)?;
    fields.finish()?;
    let (account, cursor) = (caller.account, page.cursor);
    let listed = app
        .snapshot(move |connection| {
            Box::pin(async move {
                store::checkouts::list(connection, account, &page, customer.as_deref()).await
            })
        })
        .await?;
    let views = listed.map(|page| page.map(|checkout| CheckoutView::from(&checkout)));
    list::reply(caller.dialect, "/checkouts", cursor, views)
}
