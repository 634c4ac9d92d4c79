//! `/orders`

use actix_web::{HttpRequest, HttpResponse, web};

use super::{
    App,
    error::EdgeError,
    list,
    reply::{run, run_with_processor},
    request::{Caller, Mutation, expands, query_params},
};
use crate::{
    api::{list::List, orders::OrderView, params::REFERENCE_MAX_CHARS},
    commands::{
        CancelOrder, CreateOrder, PayOrder, UpdateOrder,
        expansions::{order_view, order_views},
    },
    domain::ids::OrderId,
    store::{self, orders::Filter, page::Listed},
};

/// Create an order
#[utoipa::path(
    post, path = "/orders", tag = "Orders", operation_id = "createOrder",
    params(super::openapi::IdempotencyHeaders, super::openapi::PreferHeader),
    request_body(
        content(
            (super::openapi::CreateOrderBody = "application/json"),
            (super::openapi::CreateOrderBody = "application/x-www-form-urlencoded"),
        ),
        description = "The total is computed here. In a form: `items[0][quantity]=2`.",
    ),
    responses(
        (status = 201, description = "The order.", body = OrderView),
        (
            status = 200,
            description = "The order that has this client_order_id and this content already, as \
                           it is now.",
            body = OrderView,
        ),
    ),
)]
pub async fn create(app: web::Data<App>, mutation: Mutation) -> Result<HttpResponse, EdgeError> {
    run(&app, mutation, |origin, params| CreateOrder {
        origin,
        params,
    })
    .await
}

/// Update an order
///
/// Names of metadata that the request doesn't mention stay; an empty value unsets.
#[utoipa::path(
    post, path = "/orders/{id}", tag = "Orders", operation_id = "updateOrder",
    params(
        ("id" = String, Path, description = "The order's id: or_…"),
        super::openapi::IdempotencyHeaders, super::openapi::PreferHeader,
    ),
    request_body(content(
        (super::openapi::UpdateMetadataBody = "application/json"),
        (super::openapi::UpdateMetadataBody = "application/x-www-form-urlencoded"),
    )),
    responses((status = 200, description = "The order.", body = OrderView)),
)]
pub async fn update(
    app: web::Data<App>,
    id: web::Path<String>,
    mutation: Mutation,
) -> Result<HttpResponse, EdgeError> {
    let id = id.into_inner();
    run(&app, mutation, |origin, params| UpdateOrder {
        origin,
        id,
        params,
    })
    .await
}

/// Pay an order
///
/// Makes the one charge for it. A decline leaves the order open; another attempt needs a new key.
#[utoipa::path(
    post, path = "/orders/{id}/pay", tag = "Orders", operation_id = "payOrder",
    params(
        ("id" = String, Path, description = "The order's id: or_…"),
        super::openapi::IdempotencyHeaders, super::openapi::PreferHeader,
    ),
    request_body(content(
        (super::openapi::PayOrderBody = "application/json"),
        (super::openapi::PayOrderBody = "application/x-www-form-urlencoded"),
    )),
    responses((status = 200, description = "The order, paid.", body = OrderView)),
)]
pub async fn pay(
    app: web::Data<App>,
    id: web::Path<String>,
    mutation: Mutation,
) -> Result<HttpResponse, EdgeError> {
    let (id, processor) = (id.into_inner(), app.processor.clone());
    run_with_processor(&app, mutation, |origin, params| PayOrder {
        origin,
        id,
        params,
        processor,
    })
    .await
}

/// Cancel an order
///
/// Closes an open order for good.
#[utoipa::path(
    post, path = "/orders/{id}/cancel", tag = "Orders", operation_id = "cancelOrder",
    params(
        ("id" = String, Path, description = "The order's id: or_…"),
        super::openapi::IdempotencyHeaders, super::openapi::PreferHeader,
    ),
    request_body(content(
        (super::openapi::ExpandBody = "application/json"),
        (super::openapi::ExpandBody = "application/x-www-form-urlencoded"),
    )),
    responses((status = 200, description = "The order, canceled.", body = OrderView)),
)]
pub async fn cancel(
    app: web::Data<App>,
    id: web::Path<String>,
    mutation: Mutation,
) -> Result<HttpResponse, EdgeError> {
    let id = id.into_inner();
    run(&app, mutation, |origin, params| CancelOrder {
        origin,
        id,
        params,
    })
    .await
}

/// Retrieve an order
#[utoipa::path(
    get, path = "/orders/{id}", tag = "Orders", operation_id = "retrieveOrder",
    params(
        ("id" = String, Path, description = "The order's id: or_…"),
        (
            "expand[]" = Option<Vec<super::openapi::ExpandCharge>>, Query,
            description = "`charge` shows the whole charge.", max_items = 20,
        ),
    ),
    responses((status = 200, description = "The order.", body = OrderView)),
)]
pub async fn retrieve(
    app: web::Data<App>,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, EdgeError> {
    let expand_charge = expands(&request, "charge")?;
    let id =
        OrderId::parse(request.match_info().query("id")).ok_or_else(|| EdgeError::missing("id"))?;
    let account = caller.account;
    let order = app
        .snapshot(move |connection| {
            Box::pin(async move {
                let found = store::orders::find(&mut *connection, account, id).await?;
                let Some(order) = found else { return Ok(None) };
                let view = order_view(connection, account, &order, expand_charge);
                view.await.map(Some)
            })
        })
        .await?
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
        (
            "expand[]" = Option<Vec<super::openapi::ExpandDataCharge>>, Query,
            description = "`data.charge` shows the whole charge in each.", max_items = 20,
        ),
    ),
    responses((status = 200, description = "A page, newest first.", body = List<OrderView>)),
)]
pub async fn list(
    app: web::Data<App>,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, EdgeError> {
    let params = query_params(&request)?;
    let mut fields = params.fields()?;
    let page = list::page(&mut fields, |text| OrderId::parse(text).map(|id| id.0))?;
    let filter = Filter {
        customer: fields.text("customer", REFERENCE_MAX_CHARS)?,
        client_order_id: fields.text("client_order_id", REFERENCE_MAX_CHARS)?,
    };
    let expand_charge = fields.expands("data.charge")?;
    fields.finish()?;
    let (account, cursor) = (caller.account, page.cursor);
    let listed = app
        .snapshot(move |connection| {
            Box::pin(async move {
                let found = store::orders::list(&mut *connection, account, &page, &filter).await?;
                let Some(Listed { data, has_more }) = found else {
                    return Ok(None);
                };
                let data = order_views(connection, account, &data, expand_charge).await?;
                Ok(Some(Listed { data, has_more }))
            })
        })
        .await?;
    list::reply(caller.dialect, "/orders", cursor, listed)
}
