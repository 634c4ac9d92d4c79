//! `/checkouts`

use std::collections::BTreeMap;

use actix_web::{HttpRequest, HttpResponse, web};
use serde::Deserialize;
use utoipa::ToSchema;

use super::{
    app::App,
    error::HttpError,
    error_responses::errors,
    list,
    parameters::{MutatingHeaders, PageQuery, SourceParam},
    reply::run,
    request::{Caller, MutatingRequest, no_query, path_id, query_params},
};
use crate::{
    api::{checkouts::CheckoutView, list::List, params::REFERENCE_MAX_CHARS},
    commands::CreateCheckout,
    domain::ids::CheckoutId,
    store,
};

/// The parameters of a new checkout.
#[derive(Deserialize, ToSchema)]
#[schema(as = CreateCheckout, example = json!({
    "currency": "usd", "source": "tok_visa",
    "items": [{"sku": "mug", "quantity": 2, "unit_amount": 1200}],
}))]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "describes the body; `parse` reads it")]
struct CreateCheckoutBody {
    /// The ISO 4217 code of a currency in use, in any case.
    #[schema(format = "iso-4217", pattern = "^[A-Za-z]{3}$", example = "usd")]
    currency: String,
    /// The lines.
    #[schema(min_items = 1, max_items = 100)]
    items: Vec<CheckoutItemParam>,
    /// A test token, or a test card. Default: tok_visa.
    source: Option<SourceParam>,
    /// Your own reference.
    #[schema(max_length = 255)]
    customer: Option<String>,
    /// Your own names: at most 50 keys of 40 characters with values of 500. The order gets them
    /// too.
    metadata: Option<BTreeMap<String, String>>,
}

/// One line.
#[derive(Deserialize, ToSchema)]
#[schema(as = CreateCheckoutItem)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "describes the body; `parse` reads it")]
struct CheckoutItemParam {
    /// Your stock-keeping unit: its level in the inventory is what there is to sell.
    #[schema(min_length = 1, max_length = 255)]
    sku: String,
    /// For people.
    #[schema(max_length = 255)]
    description: Option<String>,
    /// How many.
    #[schema(minimum = 1, maximum = 10_000)]
    quantity: i64,
    /// Minor units.
    #[schema(minimum = 0, maximum = 99_999_999)]
    unit_amount: i64,
}

errors! {
    CreateCheckoutErrors: Charging [ParameterMissing, AmountTooLarge, OutOfStock]
}

/// Create a checkout
///
/// Opens an order, charges the card, and takes the items from the inventory, step by step. A
/// declined card cancels the order; items that are out of stock give the charge back and cancel the
/// order. After a 5xx the same key goes on where the checkout stopped; nothing before it runs
/// twice.
#[utoipa::path(
    post, path = "/checkouts", tag = "Checkouts", operation_id = "createCheckout",
    params(MutatingHeaders),
    request_body = CreateCheckoutBody,
    responses(
        (status = 201, description = "The checkout, completed.", body = CheckoutView),
        CreateCheckoutErrors,
    ),
)]
pub async fn create(
    app: web::Data<App>,
    request: MutatingRequest,
) -> Result<HttpResponse, HttpError> {
    run(&app, request, |request, origin, params| {
        app.checkouts
            .run(request, CreateCheckout { origin, params })
    })
    .await
}

errors! {
    RetrieveCheckoutErrors: Reading [ResourceMissing]
}

/// Retrieve a checkout
///
/// With its steps: which have run, what they made, and the number of attempts of each.
#[utoipa::path(
    get, path = "/checkouts/{id}", tag = "Checkouts", operation_id = "retrieveCheckout",
    params(("id" = String, Path, description = "The checkout's id: co_…")),
    responses(
        (status = 200, description = "The checkout.", body = CheckoutView),
        RetrieveCheckoutErrors,
    ),
)]
pub async fn retrieve(
    app: web::Data<App>,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, HttpError> {
    no_query(&request)?;
    let id = path_id(&request, CheckoutId::parse, CheckoutId::PREFIX)?;
    let account = caller.account;
    let run = app
        .read(account, move |connection| {
            Box::pin(store::checkouts::find(connection, account, id))
        })
        .await?
        .ok_or_else(|| HttpError::missing_id(CheckoutId::PREFIX))?;
    Ok(HttpResponse::Ok().json(CheckoutView::from(&run.checkout)))
}

errors! {
    ListCheckoutsErrors: Reading []
}

/// List checkouts
#[utoipa::path(
    get, path = "/checkouts", tag = "Checkouts", operation_id = "listCheckouts",
    params(
        PageQuery,
        (
            "customer" = Option<String>, Query, description = "Only checkouts with this reference.",
            max_length = 255,
        ),
    ),
    responses(
        (status = 200, description = "A page, newest first.", body = List<CheckoutView>),
        ListCheckoutsErrors,
    ),
)]
pub async fn list(
    app: web::Data<App>,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, HttpError> {
    let params = query_params(&request)?;
    let mut fields = params.fields()?;
    let page = list::page(&mut fields, |text| CheckoutId::parse(text).map(|id| id.0))?;
    let customer = fields.text("customer", REFERENCE_MAX_CHARS)?;
    fields.finish()?;
    let (account, cursor) = (caller.account, page.cursor);
    let listed = app
        .snapshot(account, move |connection| {
            Box::pin(async move {
                store::checkouts::list(connection, account, &page, customer.as_deref()).await
            })
        })
        .await?;
    let views = listed.map(|page| page.map(|checkout| CheckoutView::from(&checkout)));
    list::reply(
        caller.dialect,
        "/checkouts",
        &cursor,
        list::AN_OBJECT,
        views,
    )
}
