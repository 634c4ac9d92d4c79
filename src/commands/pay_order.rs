//! `POST /orders/{id}/pay`: make the one charge for an order.
//!
//! Locks    the order, for as long as a processor in this process takes
//! Writes   one charge that names the order; where it succeeded, the order's status; across a
//!          network the charge is pending meanwhile
//! Emits    charge.succeeded and order.paid, or charge.failed
//! Refuses  an order that was paid or canceled
//! Fails    when the processor is down or its slow lane is full; while a payment or the checkout
//!          that made it is unsettled

use std::sync::Arc;

use sqlx::PgConnection;
use uuid::Uuid;

use super::{OK, Origin, create_charge::authorise, declined, missing, unsettled};
use crate::{
    api::{
        charges::ChargeView,
        error::ApiError,
        orders::{OrderView, PayOrderParams},
        params::Params,
    },
    domain::{
        charge::{Authorization, Charge, NewCharge},
        event::EventType,
        ids::{ChargeId, OrderId},
        operation::Verb,
    },
    idempotency::{Begin, BeginOutcome, Command, Rejection, Reply},
    processor::SimulatedProcessor,
    store,
};

/// Pays an order.
pub struct PayOrder {
    /// Who sells.
    pub origin: Origin,
    /// The order, as the path names it.
    pub id: String,
    /// As decoded; checked here, so that a wrong one is a stored refusal.
    pub params: Params,
    /// Where cards are authorized without a network.
    pub processor: Arc<SimulatedProcessor>,
}

/// A payment that may be made, of an order that this transaction has locked.
struct Decided {
    order: OrderId,
    charge: ChargeId,
    new: NewCharge,
    expand_charge: bool,
}

impl PayOrder {
    async fn decide(&self, tx: &mut PgConnection) -> Result<Decided, Rejection> {
        let params = PayOrderParams::parse(&self.params)?;
        let account = self.origin.account;
        let id = OrderId::parse(&self.id).ok_or_else(|| missing("id"))?;
        let order = store::orders::lock(tx, account, id)
            .await?
            .ok_or_else(|| missing("id"))?;
        if store::orders::is_unsettled(tx, account, id).await? {
            return Err(unsettled());
        }
        order.status.must_be_open().map_err(ApiError::from)?;
        Ok(Decided {
            order: id,
            charge: ChargeId(Uuid::now_v7()),
            new: order.charge_for(params.card),
            expand_charge: params.expand_charge,
        })
    }
}

impl Command for PayOrder {
    async fn execute(&self, tx: &mut PgConnection) -> Result<Reply, Rejection> {
        let Decided {
            order,
            charge,
            new,
            expand_charge,
        } = self.decide(tx).await?;
        let said = self.processor.authorise(new.card.card).await?;
        let account = self.origin.account;
        let charge =
            store::charges::insert(tx, account, charge, &new, Some(order), Some(said)).await?;
        paid(&self.origin, tx, order, &charge, said, expand_charge).await
    }
}

impl Begin for PayOrder {
    async fn begin(
        &self,
        tx: &mut PgConnection,
        operation: Uuid,
    ) -> Result<BeginOutcome, Rejection> {
        let Decided {
            order,
            charge,
            new,
            expand_charge,
        } = self.decide(tx).await?;
        let account = self.origin.account;
        store::charges::insert(tx, account, charge, &new, Some(order), None).await?;
        let instruction = authorise(charge, &new);
        let verb = Verb::PayOrder;
        self.origin
            .write_down(tx, operation, verb, charge, instruction, |operation| {
                operation.order = Some(order);
                operation.expand = expand_charge;
            })
            .await
    }
}

/// Says what the processor said. A decline leaves the order open: another card may pay it, under
/// another key.
pub(super) async fn paid(
    origin: &Origin,
    tx: &mut PgConnection,
    order: OrderId,
    charge: &Charge,
    said: Authorization,
    expand_charge: bool,
) -> Result<Reply, Rejection> {
    let view = ChargeView::from(charge);
    match said {
        Authorization::Approved => {
            let order = store::orders::pay(tx, origin.account, order, charge.id).await?;
            origin.emit(tx, EventType::ChargeSucceeded, &view).await?;
            let paid = OrderView::from(&order);
            origin.emit(tx, EventType::OrderPaid, &paid).await?;
            origin.order(tx, OK, &order, expand_charge).await
        }
        Authorization::Declined(decline) => {
            origin.emit(tx, EventType::ChargeFailed, &view).await?;
            declined(decline, charge)
        }
    }
}
