//! What `expand` asks for: the views of objects with whole objects in the place of references.
//!
//! For the replies of commands and for reads alike. Takes no lock.

use charge_once_pages::Listed;
use sqlx::PgConnection;

use crate::{
    domain::{
        charge::Charge,
        ids::{AccountId, ChargeId},
        order::Order,
        refund::Refund,
    },
    store,
    wire::{charges::ChargeView, dialect::Dialect, orders::OrderView, refunds::RefundView},
};

/// How many refunds an expanded charge shows; the list at its `url` has the rest.
const EXPANDED_REFUNDS_MAX: i64 = 10;

/// Views of charges, each with its newest refunds where they are asked for.
pub async fn charge_views(
    connection: &mut PgConnection,
    account: AccountId,
    dialect: Dialect,
    charges: &[Charge],
    expand_refunds: bool,
) -> Result<Vec<ChargeView>, sqlx::Error> {
    if !expand_refunds {
        return Ok(charges.iter().map(ChargeView::from).collect());
    }
    let ids: Vec<ChargeId> = charges.iter().map(|charge| charge.id).collect();
    let refunds =
        store::refunds::newest_of_each(connection, account, &ids, EXPANDED_REFUNDS_MAX).await?;
    let view = |charge: &Charge| {
        let view = ChargeView::from(charge);
        match refunds.get(&charge.id) {
            None => view.with_refunds(&[], false, dialect),
            Some(Listed { data, has_more }) => view.with_refunds(data, *has_more, dialect),
        }
    };
    Ok(charges.iter().map(view).collect())
}

/// Views of refunds, each with its whole charge where that is asked for.
pub async fn refund_views(
    connection: &mut PgConnection,
    account: AccountId,
    refunds: &[Refund],
    expand_charge: bool,
) -> Result<Vec<RefundView>, sqlx::Error> {
    if !expand_charge {
        return Ok(refunds.iter().map(RefundView::from).collect());
    }
    let ids: Vec<ChargeId> = refunds.iter().map(|refund| refund.charge).collect();
    let charges = store::charges::find_all(connection, account, &ids).await?;
    let view = |refund: &Refund| match charges.get(&refund.charge) {
        None => RefundView::from(refund),
        Some(charge) => RefundView::from(refund).with_charge(charge),
    };
    Ok(refunds.iter().map(view).collect())
}

/// Views of orders, each with the whole charge that paid it where that is asked for.
pub async fn order_views(
    connection: &mut PgConnection,
    account: AccountId,
    orders: &[Order],
    expand_charge: bool,
) -> Result<Vec<OrderView>, sqlx::Error> {
    if !expand_charge {
        return Ok(orders.iter().map(OrderView::from).collect());
    }
    let ids: Vec<ChargeId> = orders.iter().filter_map(|order| order.charge).collect();
    let charges = store::charges::find_all(connection, account, &ids).await?;
    let view = |order: &Order| match order.charge.and_then(|id| charges.get(&id)) {
        None => OrderView::from(order),
        Some(charge) => OrderView::from(order).with_charge(charge),
    };
    Ok(orders.iter().map(view).collect())
}

/// The view of one charge, as in [`charge_views`].
pub async fn charge_view(
    connection: &mut PgConnection,
    account: AccountId,
    dialect: Dialect,
    charge: &Charge,
    expand_refunds: bool,
) -> Result<ChargeView, sqlx::Error> {
    let one = std::slice::from_ref(charge);
    let mut views = charge_views(connection, account, dialect, one, expand_refunds).await?;
    Ok(views.pop().unwrap_or_else(|| ChargeView::from(charge)))
}

/// The view of one refund, as in [`refund_views`].
pub async fn refund_view(
    connection: &mut PgConnection,
    account: AccountId,
    refund: &Refund,
    expand_charge: bool,
) -> Result<RefundView, sqlx::Error> {
    let one = std::slice::from_ref(refund);
    let mut views = refund_views(connection, account, one, expand_charge).await?;
    Ok(views.pop().unwrap_or_else(|| RefundView::from(refund)))
}

/// The view of one order, as in [`order_views`].
pub async fn order_view(
    connection: &mut PgConnection,
    account: AccountId,
    order: &Order,
    expand_charge: bool,
) -> Result<OrderView, sqlx::Error> {
    let one = std::slice::from_ref(order);
    let mut views = order_views(connection, account, one, expand_charge).await?;
    Ok(views.pop().unwrap_or_else(|| OrderView::from(order)))
}
