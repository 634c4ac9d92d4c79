//! `/orders`

use actix_web::{HttpRequest, HttpResponse, web};

use super::{
    App,
    error::EdgeError,
    list,
    reply::run,
    request::{Caller, Mutation, no_query, query_params},
};
use crate::{
    commands::CreateOrder,
    domain::{charge::REFERENCE_MAX_CHARS, ids::OrderId, order::Order},
    store::{self, orders::Filter},
};

/// Create an order
#[utoipa::path(
    post, path = "/orders", tag = "Orders", operation_id = "createOrder",
    params(super::openapi::IdempotencyKeyHeader, super::openapi::PreferHeader),
    request_body(
        content(
            (super::openapi::CreateOrderBody = "application/json"),
            (super::openapi::CreateOrderBody = "application/x-www-form-urlencoded"),
        ),
        description = "The total is computed here. In a form: `items[0][quantity]=2`.",
    ),
    responses(
        (status = 201, description = "The order.", body = Order),
        (
            status = 200,
            description = "The order that has this client_order_id and this content already, as \
                           it is now.",
            body = Order,
        ),
    ),
)]
pub async fn create(app: web::Data<App>, mutation: Mutation) -> Result<HttpResponse, EdgeError> {
    let command = |mutation: &Mutation| CreateOrder {
        account: mutation.account,
        dialect: mutation.dialect,
        params: mutation.params.clone(),
    };
    run(&app, mutation, command).await
}

/// Retrieve an order
#[utoipa::path(
    get, path = "/orders/{id}", tag = "Orders", operation_id = "retrieveOrder",
    params((
        "id" = String, Path, description = "The order's id: or_…",
        pattern = "^or_[0-7][0-9a-hjkmnp-tv-z]{25}$",
    )),
    responses((status = 200, description = "The order.", body = Order)),
)]
pub async fn retrieve(
    app: web::Data<App>,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, EdgeError> {
    no_query(&request)?;
    let id =
        OrderId::parse(request.match_info().query("id")).ok_or_else(|| EdgeError::missing("id"))?;
    let order = app
        .database
        .read(move |connection| Box::pin(store::orders::find(connection, caller.account, id)))
        .await
        .map_err(EdgeError::failed_read)?
        .ok_or_else(|| EdgeError::missing("id"))?;
    Ok(HttpResponse::Ok().json(order))
}

/// List orders
#[utoipa::path(
    get, path = "/orders", tag = "Orders", operation_id = "listOrders",
    params(
        super::openapi::PageQuery,
        (
            "customer" = Option<String>, Query, description = "Only orders with this reference.",
            max_length = 255,
        ),
        (
            "client_order_id" = Option<String>, Query,
            description = "Only the order with this id of your own.", max_length = 255,
        ),
    ),
    responses((status = 200, description = "A page, newest first.", body = list::List<Order>)),
)]
pub async fn list(
    app: web::Data<App>,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, EdgeError> {
    let params = query_params(&request)?;
    let mut fields = params.fields()?;
    let asked = list::page(&mut fields, |text| OrderId::parse(text).map(|id| id.0))?;
    let filter = Filter {
        customer: fields.text("customer", REFERENCE_MAX_CHARS)?,
        client_order_id: fields.text("client_order_id", REFERENCE_MAX_CHARS)?,
    };
    let unknown_cursor = asked
        .cursor
        .map(|(name, id)| (OrderId(id), list::unknown_cursor(&fields, name)));
    fields.finish()?;
    let account = caller.account;
    let listed = app
        .database
        .read(move |connection| {
            Box::pin(async move {
                if let Some((id, error)) = unknown_cursor
                    && store::orders::find(&mut *connection, account, id)
                        .await?
                        .is_none()
                {
                    return Ok(Err(error));
                }
                store::orders::list(connection, account, &asked.page, &filter)
                    .await
                    .map(Ok)
            })
        })
        .await
        .map_err(EdgeError::failed_read)??;
    Ok(list::reply(caller.dialect, "orders", listed))
}
