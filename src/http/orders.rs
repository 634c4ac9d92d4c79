//! `/orders`

use actix_web::{HttpRequest, HttpResponse, web::Data};
use charge_once_pages::PageQuery;
use charge_once_strict_params::{Expand, parameters};

use super::{
    app::App,
    error::{HttpError, HttpResult},
    error_responses::errors,
    list,
    parameters::MutatingHeaders,
    reply::run_verb,
    request::{Caller, MutatingRequest, path_id, query_params},
    verbs::verbs,
};
use crate::{
    commands::{CancelOrder, CreateOrder, PayOrder, Update},
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

errors! { CreateOrderErrors: Mutating [ParameterMissing, AmountTooLarge] }

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
pub async fn create(app: Data<App>, request: MutatingRequest) -> HttpResult {
    run_verb(&app, request, CreateOrder).await
}

verbs! { "Orders", OrderView;
    /// Update an order
    ///
    /// Names of metadata that the request doesn't mention stay; an empty value unsets.
    update "updateOrder": post "/orders/{id}" of id "The order's id: or_…" (UpdateOrderParams)
        => 200 "The order.", Mutating [ResourceMissing],
        |params| Update::<Order> { id, params };

    /// Pay an order
    ///
    /// Makes the one charge for it. A decline leaves the order open; another attempt needs a new
    /// key.
    pay "payOrder": post "/orders/{id}/pay" of id "The order's id: or_…" (PayOrderParams)
        => 200 "The order, paid.",
        Charging [ParameterMissing, ResourceMissing, OrderAlreadyPaid, OrderCanceled],
        |params| PayOrder::of(&id, params);

    /// Cancel an order
    ///
    /// Closes an open order for good.
    cancel "cancelOrder": post "/orders/{id}/cancel" of id "The order's id: or_…"
        (CancelOrderParams) => 200 "The order, canceled.",
        Mutating [ParameterMissing, ResourceMissing, OrderAlreadyPaid, OrderCanceled],
        |params| CancelOrder::of(&id, params);
}

parameters! {
    /// How an order is shown.
    struct ExpandOrderQuery {
        /// `charge` shows the whole charge.
        expand: Expand<ExpandOrder>,
    }
}

errors! { RetrieveOrderErrors: Reading [ResourceMissing] }

/// Retrieve an order
#[utoipa::path(
    get, path = "/orders/{id}", tag = "Orders", operation_id = "retrieveOrder",
    params(("id" = String, Path, description = "The order's id: or_…"), ExpandOrderQuery),
    responses(
        (status = 200, description = "The order.", body = OrderView),
        RetrieveOrderErrors,
    ),
)]
pub async fn retrieve(app: Data<App>, caller: Caller, request: HttpRequest) -> HttpResult {
    let expand = query_params::<ExpandOrderQuery>(&request)?.expand;
    let id = path_id::<OrderId>(&request)?;
    let found = list::shown(&app, caller, expand, move |connection| {
        Box::pin(store::orders::find(connection, caller.account, id))
    });
    let shown = found.await?.ok_or_else(HttpError::missing_id::<OrderId>)?;
    Ok(HttpResponse::Ok().json(shown))
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

errors! { ListOrdersErrors: Reading [] }

/// List orders
#[utoipa::path(
    get, path = "/orders", tag = "Orders", operation_id = "listOrders",
    params(PageQuery, ListOrdersQuery),
    responses(
        (status = 200, description = "A page, newest first.", body = List<OrderView>),
        ListOrdersErrors,
    ),
)]
pub async fn list(app: Data<App>, caller: Caller, request: HttpRequest) -> HttpResult {
    let (page, query) = list::query::<OrderId, ListOrdersQuery>(&request)?;
    let filter = OrderFilter {
        customer: query.customer,
        client_order_id: query.client_order_id,
    };
    let account = caller.account;
    let listed = list::shown_page(&app, caller, page, query.expand, move |connection, page| {
        Box::pin(store::orders::list(connection, account, page, filter))
    });
    list::reply(caller.dialect, "/orders", listed.await?)
}
