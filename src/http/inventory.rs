//! `/inventory`

use actix_web::{HttpRequest, HttpResponse, web};

use super::{
    App,
    error::EdgeError,
    reply::run,
    request::{Caller, Mutation, last_segment, no_query},
};
use crate::{api::inventory::InventoryView, commands::SetInventory, domain::inventory::sku, store};

/// Set a level of inventory
///
/// To what is there, not by what came or went. It needs a key like every other change: without one,
/// a late retry would undo what was set or sold since.
#[utoipa::path(
    put, path = "/inventory/{sku}", tag = "Inventory", operation_id = "setInventory",
    params(
        (
            "sku" = String, Path,
            description = "Your stock-keeping unit, as in the items of an order; percent-encoded.",
            min_length = 1, max_length = 255, example = "mug",
        ),
        super::openapi::IdempotencyHeaders, super::openapi::PreferHeader,
    ),
    request_body(content(
        (super::openapi::SetInventoryBody = "application/json"),
        (super::openapi::SetInventoryBody = "application/x-www-form-urlencoded"),
    )),
    responses((status = 200, description = "The level, new or changed.", body = InventoryView)),
)]
pub async fn set(
    app: web::Data<App>,
    request: HttpRequest,
    mutation: Mutation,
) -> Result<HttpResponse, EdgeError> {
    let sku = last_segment(&request);
    run(&app, mutation, |origin, params| SetInventory {
        origin,
        sku,
        params,
    })
    .await
}

/// Retrieve a level of inventory
#[utoipa::path(
    get, path = "/inventory/{sku}", tag = "Inventory", operation_id = "retrieveInventory",
    params((
        "sku" = String, Path,
        description = "Your stock-keeping unit, as in the items of an order; percent-encoded.",
        min_length = 1, max_length = 255, example = "mug",
    )),
    responses((status = 200, description = "The level.", body = InventoryView)),
)]
pub async fn retrieve(
    app: web::Data<App>,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, EdgeError> {
    no_query(&request)?;
    let segment = last_segment(&request);
    let sku = sku(&segment).ok_or_else(|| EdgeError::missing("sku"))?;
    let (account, sku) = (caller.account, sku.to_owned());
    let inventory = app
        .read(move |connection| {
            Box::pin(async move { store::inventory::find(connection, account, &sku).await })
        })
        .await?
        .ok_or_else(|| EdgeError::missing("sku"))?;
    Ok(HttpResponse::Ok().json(InventoryView::from(&inventory)))
}
