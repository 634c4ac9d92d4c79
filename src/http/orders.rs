//! `/orders`

use std::collections::BTreeMap;

use actix_web::{HttpRequest, HttpResponse, web};
use serde::Deserialize;
use utoipa::ToSchema;

use super::{
    app::App,
    error::HttpError,
    error_responses::errors,
    list,
    parameters::{
        ExpandCharge, ExpandDataCharge, MutatingHeaders, PageQuery, SourceParam, UpdateMetadataBody,
    },
    reply::run,
    request::{Caller, MutatingRequest, expands, path_id, query_params},
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

/// The parameters of a new order.
#[derive(Deserialize, ToSchema)]
#[schema(as = CreateOrder, example = json!({
    "currency": "eur", "items": [{"sku": "mug", "quantity": 2, "unit_amount": 1200}],
    "metadata": {"channel": "web"},
}))]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "describes the body; `parse` reads it")]
struct CreateOrderBody {
    /// The ISO 4217 code of a currency in use, in any case.
    #[schema(format = "iso-4217", pattern = "^[A-Za-z]{3}$", example = "usd")]
    currency: String,
    /// The lines.
    #[schema(min_items = 1, max_items = 100)]
    items: Vec<ItemParam>,
    /// Your own reference.
    #[schema(max_length = 255)]
    customer: Option<String>,
    /// Your own id of the order, unique in the account: a second create with it and the same
    /// content answers 200 with the order as it is then.
    #[schema(max_length = 255)]
    client_order_id: Option<String>,
    /// Your own names: at most 50 keys of 40 characters with values of 500.
    metadata: Option<BTreeMap<String, String>>,
    /// References to expand in the reply.
    #[schema(max_items = 20)]
    expand: Option<Vec<ExpandCharge>>,
}

/// One line.
#[derive(Deserialize, ToSchema)]
#[schema(as = CreateOrderItem)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "describes the body; `parse` reads it")]
struct ItemParam {
    /// Your stock-keeping unit.
    #[schema(max_length = 255)]
    sku: Option<String>,
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
    CreateOrderErrors: Mutating [ParameterMissing, AmountTooLarge]
}

/// Create an order
#[utoipa::path(
    post, path = "/orders", tag = "Orders", operation_id = "createOrder",
    params(MutatingHeaders),
    request_body(
        content = CreateOrderBody,
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
        CreateOrderErrors,
    ),
)]
pub async fn create(
    app: web::Data<App>,
    request: MutatingRequest,
) -> Result<HttpResponse, HttpError> {
    run(&app, request, |request, origin, params| {
        app.batches.run(request, CreateOrder { origin, params })
    })
    .await
}

errors! {
    UpdateOrderErrors: Mutating [ResourceMissing]
}

/// Update an order
///
/// Names of metadata that the request doesn't mention stay; an empty value unsets.
#[utoipa::path(
    post, path = "/orders/{id}", tag = "Orders", operation_id = "updateOrder",
    params(
        ("id" = String, Path, description = "The order's id: or_…"),
        MutatingHeaders,
    ),
    request_body = UpdateMetadataBody,
    responses(
        (status = 200, description = "The order.", body = OrderView),
        UpdateOrderErrors,
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
            .run(request, UpdateOrder { origin, id, params })
    })
    .await
}

/// How an order is paid.
#[derive(Deserialize, ToSchema)]
#[schema(as = PayOrder, example = json!({"source": "tok_visa"}))]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "describes the body; `parse` reads it")]
struct PayOrderBody {
    /// A test token, or a test card. Default: tok_visa.
    source: Option<SourceParam>,
    /// References to expand in the reply.
    #[schema(max_items = 20)]
    expand: Option<Vec<ExpandCharge>>,
}

errors! {
    PayOrderErrors: Charging [ParameterMissing, ResourceMissing, OrderAlreadyPaid, OrderCanceled]
}

/// Pay an order
///
/// Makes the one charge for it. A decline leaves the order open; another attempt needs a new key.
#[utoipa::path(
    post, path = "/orders/{id}/pay", tag = "Orders", operation_id = "payOrder",
    params(
        ("id" = String, Path, description = "The order's id: or_…"),
        MutatingHeaders,
    ),
    request_body = PayOrderBody,
    responses(
        (status = 200, description = "The order, paid.", body = OrderView),
        PayOrderErrors,
    ),
)]
pub async fn pay(
    app: web::Data<App>,
    id: web::Path<String>,
    request: MutatingRequest,
) -> Result<HttpResponse, HttpError> {
    let (id, slow_lane) = (id.into_inner(), app.slow_lane.clone());
    run(&app, request, |request, origin, params| {
        app.run_with_processor(
            request,
            PayOrder {
                origin,
                id,
                params,
                slow_lane,
            },
        )
    })
    .await
}

/// No parameters but how the reply is shown.
#[derive(Deserialize, ToSchema)]
#[schema(as = Expand, example = json!({}))]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "describes the body; `parse` reads it")]
struct ExpandBody {
    /// References to expand in the reply.
    #[schema(max_items = 20)]
    expand: Option<Vec<ExpandCharge>>,
}

errors! {
    CancelOrderErrors: Mutating [ParameterMissing, ResourceMissing, OrderAlreadyPaid, OrderCanceled]
}

/// Cancel an order
///
/// Closes an open order for good.
#[utoipa::path(
    post, path = "/orders/{id}/cancel", tag = "Orders", operation_id = "cancelOrder",
    params(
        ("id" = String, Path, description = "The order's id: or_…"),
        MutatingHeaders,
    ),
    request_body = ExpandBody,
    responses(
        (status = 200, description = "The order, canceled.", body = OrderView),
        CancelOrderErrors,
    ),
)]
pub async fn cancel(
    app: web::Data<App>,
    id: web::Path<String>,
    request: MutatingRequest,
) -> Result<HttpResponse, HttpError> {
    let id = id.into_inner();
    run(&app, request, |request, origin, params| {
        app.run_with_processor(request, CancelOrder { origin, id, params })
    })
    .await
}

errors! {
    RetrieveOrderErrors: Reading [ResourceMissing]
}

/// Retrieve an order
#[utoipa::path(
    get, path = "/orders/{id}", tag = "Orders", operation_id = "retrieveOrder",
    params(
        ("id" = String, Path, description = "The order's id: or_…"),
        (
            "expand[]" = Option<Vec<ExpandCharge>>, Query,
            description = "`charge` shows the whole charge.", max_items = 20,
        ),
    ),
    responses(
        (status = 200, description = "The order.", body = OrderView),
        RetrieveOrderErrors,
    ),
)]
pub async fn retrieve(
    app: web::Data<App>,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, HttpError> {
    let expand_charge = expands(&request, "charge")?;
    let id = path_id(&request, OrderId::parse, OrderId::PREFIX)?;
    let account = caller.account;
    let order = app
        .snapshot(account, move |connection| {
            Box::pin(async move {
                let found = store::orders::find(&mut *connection, account, id).await?;
                let Some(order) = found else { return Ok(None) };
                let view = order_view(connection, account, &order, expand_charge);
                view.await.map(Some)
            })
        })
        .await?
        .ok_or_else(|| HttpError::missing_id(OrderId::PREFIX))?;
    Ok(HttpResponse::Ok().json(order))
}

errors! {
    ListOrdersErrors: Reading []
}

/// List orders
#[utoipa::path(
    get, path = "/orders", tag = "Orders", operation_id = "listOrders",
    params(
        PageQuery,
        (
            "customer" = Option<String>, Query, description = "Only orders with this reference.",
            max_length = 255,
        ),
        (
            "client_order_id" = Option<String>, Query,
            description = "Only the order with this id of your own.", max_length = 255,
        ),
        (
            "expand[]" = Option<Vec<ExpandDataCharge>>, Query,
            description = "`data.charge` shows the whole charge in each.", max_items = 20,
        ),
    ),
    responses(
        (status = 200, description = "A page, newest first.", body = List<OrderView>),
        ListOrdersErrors,
    ),
)]
pub async fn list(
    app: web::Data<App>,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, HttpError> {
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
        .snapshot(account, move |connection| {
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
    list::reply(caller.dialect, "/orders", &cursor, list::AN_OBJECT, listed)
}
