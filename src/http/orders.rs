//! `/orders`

use actix_web::{HttpRequest, HttpResponse, web};
use charge_once_pages::{AN_OBJECT, Listed, PageQuery};
use charge_once_strict_params::{Expand, parameters};

use super::{
    app::App,
    error::HttpError,
    error_responses::errors,
    list,
    parameters::MutatingHeaders,
    reply::run,
    request::{Caller, MutatingRequest, path_id, query_params},
};
use crate::{
    commands::{
        CancelOrder, CreateOrder, PayOrder, UpdateOrder,
        expansions::{Shown, view},
    },
    domain::{ids::OrderId, order::Order},
    store::{self, orders::OrderFilter},
    wire::{
        list::List,
        orders::{
            CancelOrderParams, CreateOrderParams, OrderView, PayOrderParams, UpdateOrderParams,
        },
        parameter::{ExpandOrder, ExpandOrders, Reference},
    },
};

errors! {
    CreateOrderErrors: Mutating [ParameterMissing, AmountTooLarge]
}

/// Create an order
#[utoipa::path(
    post, path = "/orders", tag = "Orders", operation_id = "createOrder",
    params(MutatingHeaders),
    request_body(
        content = CreateOrderParams,
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
    request_body = UpdateOrderParams,
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
    request_body = PayOrderParams,
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
    request_body = CancelOrderParams,
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

parameters! {
    /// How an order is shown.
    struct ExpandOrderQuery {
        /// `charge` shows the whole charge.
        expand: Expand<ExpandOrder>,
    }
}

errors! {
    RetrieveOrderErrors: Reading [ResourceMissing]
}

/// Retrieve an order
#[utoipa::path(
    get, path = "/orders/{id}", tag = "Orders", operation_id = "retrieveOrder",
    params(
        ("id" = String, Path, description = "The order's id: or_…"),
        ExpandOrderQuery,
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
    let expand = query_params::<ExpandOrderQuery>(&request)?.expand;
    let id = path_id(&request, OrderId::parse, OrderId::PREFIX)?;
    let (account, audience) = (caller.account, caller.audience());
    let order = app
        .snapshot(account, move |connection| {
            Box::pin(async move {
                let found = store::orders::find(&mut *connection, account, id).await?;
                let Some(order) = found else { return Ok(None) };
                view(connection, audience, &order, &expand).await.map(Some)
            })
        })
        .await?
        .ok_or_else(|| HttpError::missing_id(OrderId::PREFIX))?;
    Ok(HttpResponse::Ok().json(order))
}

parameters! {
    /// Which orders are listed, and how.
    struct ListOrdersQuery {
        /// Only orders with this reference.
        customer: Option<Reference>,
        /// Only the order with this id of your own.
        client_order_id: Option<Reference>,
        /// `data.charge` shows the whole charge in each.
        expand: Expand<ExpandOrders>,
    }
}

errors! {
    ListOrdersErrors: Reading []
}

/// List orders
#[utoipa::path(
    get, path = "/orders", tag = "Orders", operation_id = "listOrders",
    params(PageQuery, ListOrdersQuery),
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
    let (page, query) =
        list::query::<ListOrdersQuery>(&request, |text| OrderId::parse(text).map(|id| id.0))?;
    let expand = query.expand;
    let filter = OrderFilter {
        customer: query.customer,
        client_order_id: query.client_order_id,
    };
    let (account, audience, cursor) = (caller.account, caller.audience(), page.cursor);
    let listed = app
        .snapshot(account, move |connection| {
            Box::pin(async move {
                let found = store::orders::list(&mut *connection, account, &page, &filter).await?;
                let Some(Listed { data, has_more }) = found else {
                    return Ok(None);
                };
                let data = Order::views(connection, audience, &data, &expand).await?;
                Ok(Some(Listed { data, has_more }))
            })
        })
        .await?;
    list::reply(caller.dialect, "/orders", &cursor, AN_OBJECT, listed)
}
