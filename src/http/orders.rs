//! `/orders`

use super::prelude::*;
use crate::{
    commands::{CancelOrder, CreateOrder, PayOrder, Update},
    domain::order::Order,
    store::orders::OrderFilter,
    wire::orders::{
        CancelOrderParams, CreateOrderParams, OrderView, PayOrderParams, UpdateOrderParams,
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

endpoints! { "Orders", OrderView;
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

    /// Retrieve an order
    one retrieve "retrieveOrder": "/orders/{id}" of OrderId "The order's id: or_…"
        (ExpandOrder "`charge` shows the whole charge.") => OrderView "The order.",
        store::orders::find;

    /// List orders
    page list "listOrders": "/orders" of OrderId (ListOrdersQuery) [],
        query => OrderFilter { customer: query.customer, client_order_id: query.client_order_id },
        store::orders::list;
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
