//! `/inventory`

use charge_once_service::edge::last_segment;
use charge_once_strict_params::pages::{Cursor, LIMIT_DEFAULT, Limit, NamePage};

use super::prelude::*;
use crate::{
    commands::SetInventory,
    domain::{inventory::sku, order::ITEM_TEXT_MAX_CHARS},
    wire::inventory::{InventoryView, SetInventoryParams},
};

errors! { SetInventoryErrors: Mutating [ParameterMissing, ResourceMissing] }

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
        MutatingHeaders,
    ),
    request_body = SetInventoryParams,
    responses(
        (status = 200, description = "The level, new or changed.", body = InventoryView),
        SetInventoryErrors,
    ),
)]
pub async fn set(app: Data<App>, head: HttpRequest, request: MutatingRequest) -> HttpResult {
    let sku = last_segment(&head);
    run_verb(&app, request, |params| SetInventory { sku, params }).await
}

/// Retrieve a level of inventory
#[utoipa::path(
    get, path = "/inventory/{sku}", tag = "Inventory", operation_id = "retrieveInventory",
    params((
        "sku" = String, Path,
        description = "Your stock-keeping unit, as in the items of an order; percent-encoded.",
        min_length = 1, max_length = 255, example = "mug",
    )),
    responses((status = 200, description = "The level.", body = InventoryView), ObjectErrors),
)]
pub async fn retrieve(app: Data<App>, caller: Caller, request: HttpRequest) -> HttpResult {
    no_query(&request)?;
    let segment = last_segment(&request);
    let sku = sku(&segment).ok_or_else(|| HttpError::missing("sku"))?;
    let (account, sku) = (caller.account, sku.to_owned());
    let found = app.read(account, move |connection| {
        Box::pin(async move { store::inventory::find(connection, account, &sku).await })
    });
    let inventory = found.await?.ok_or_else(|| HttpError::missing("sku"))?;
    Ok(HttpResponse::Ok().json(InventoryView::from(&inventory)))
}

parameters! {
    /// Which part of the inventory.
    struct LevelsQuery {
        /// Levels on a page.
        limit: Limit<LIMIT_DEFAULT>,
        /// The page after this sku.
        starting_after: Option<Text<ITEM_TEXT_MAX_CHARS>>,
        /// The page before this sku. Not together with starting_after.
        ending_before: Option<Text<ITEM_TEXT_MAX_CHARS>>,
    }
}

/// List the inventory
///
/// In the order of the bytes of the stock-keeping units, which for ASCII is that of its characters.
#[utoipa::path(
    get, path = "/inventory", tag = "Inventory", operation_id = "listInventory",
    params(LevelsQuery),
    responses(
        (status = 200, description = "A page, in the order of the skus.", body = List<InventoryView>),
        ReadErrors,
    ),
)]
pub async fn list(app: Data<App>, caller: Caller, request: HttpRequest) -> HttpResult {
    let query = query_params::<LevelsQuery>(&request)?;
    let page = NamePage {
        limit: query.limit,
        cursor: Cursor::of(query.starting_after, query.ending_before)?,
    };
    let account = caller.account;
    let listed = app.read(account, move |connection| {
        Box::pin(async move { store::inventory::list(connection, account, &page).await })
    });
    let views = listed.await?.map(|one| InventoryView::from(&one));
    reads::reply(caller.dialect, "/inventory", views)
}
