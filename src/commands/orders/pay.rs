//! `POST /orders/{id}/pay`: make the one charge for an order.
//!
//! Locks    the order
//! Writes   one charge that names the order; where it succeeded, the order's status; across a
//!          network the charge is pending meanwhile
//! Emits    charge.succeeded and order.paid, or charge.failed
//! Refuses  an order that was paid or canceled
//! Fails    when the processor is down or its slow lane is full; while a payment or the checkout
//!          that made it is unfinished

use charge_once_strict_params::{Expansion, Params};
use sqlx::PgConnection;
use uuid::Uuid;

use super::open::lock_open;
use crate::commands::{
    Origin, SlowLane,
    card_answers::authorize,
    charges::create::record_answer,
    mode::Mode,
    replies::{OK, checked, declined},
};
use crate::{
    domain::{
        charge::{Authorization, Charge, NewCharge},
        event::EventType,
        ids::{ChargeId, OrderId},
        operation::{Answer, Ask, CardAuthorization, Effect, Operation, Verb},
    },
    idempotency::{Begin, BeginOutcome, Command, Rejection, Reply},
    store,
    wire::{
        charges::ChargeView,
        orders::{OrderView, PayOrderParams},
    },
};

/// Pays an order.
pub struct PayOrder {
    /// The request's origin.
    pub origin: Origin,
    /// The order, as the path names it.
    pub id: String,
    /// As decoded; checked here, so that a wrong one is a stored refusal.
    pub params: Params,
    /// For `tok_slow`, where the processor is simulated.
    pub slow_lane: SlowLane,
}

/// A payment that may be made, of an order that this transaction has locked.
struct DecidedPayment {
    order: OrderId,
    charge: ChargeId,
    new: NewCharge,
    expand: Expansion,
}

impl PayOrder {
    async fn decide(&self, tx: &mut PgConnection, mode: Mode) -> Result<DecidedPayment, Rejection> {
        let params: PayOrderParams = checked(&self.params)?;
        let account = self.origin.account;
        let order = lock_open(tx, account, &self.id, mode).await?;
        Ok(DecidedPayment {
            order: order.id,
            charge: ChargeId(Uuid::now_v7()),
            new: order.charge_for(params.source),
            expand: params.expand,
        })
    }
}

impl Command for PayOrder {
    async fn execute(&self, tx: &mut PgConnection) -> Result<Reply, Rejection> {
        let DecidedPayment {
            order,
            charge,
            new,
            expand,
        } = self.decide(tx, Mode::OneTransaction).await?;
        let said = authorize(tx, new.card.card, &self.slow_lane).await?;
        let account = self.origin.account;
        let charge =
            store::charges::insert(tx, account, charge, &new, Some(order), Some(said)).await?;
        paid(&self.origin, tx, order, &charge, said, &expand).await
    }
}

impl Begin for PayOrder {
    async fn begin(
        &self,
        tx: &mut PgConnection,
        operation: Uuid,
    ) -> Result<BeginOutcome, Rejection> {
        let DecidedPayment {
            order,
            charge,
            new,
            expand,
        } = self.decide(tx, Mode::Phases).await?;
        let account = self.origin.account;
        store::charges::insert(tx, account, charge, &new, Some(order), None).await?;
        let ask = Ask::Authorize(CardAuthorization::of(charge, &new));
        let effect = Effect {
            order: Some(order),
            expand,
            ..Effect::of(Verb::PayOrder, ask)
        };
        self.origin.begin_effect(tx, operation, effect).await
    }
}

/// Writes down the processor's answer for the pending charge of an order. Where it was never
/// executed, the release is that of any other charge.
pub(in crate::commands) async fn complete(
    origin: &Origin,
    tx: &mut PgConnection,
    operation: &Operation,
    order: OrderId,
    authorization: &CardAuthorization,
    answer: Answer,
    expand: &Expansion,
) -> Result<Reply, Rejection> {
    // The same order of locks as when an order is paid in one transaction: the order first.
    store::orders::lock(tx, origin.account, order).await?;
    let (charge, said) = record_answer(tx, operation, authorization, answer).await?;
    paid(origin, tx, order, &charge, said, expand).await
}

/// Reports the processor's answer. A decline leaves the order open: another card may pay it, under
/// another key.
async fn paid(
    origin: &Origin,
    tx: &mut PgConnection,
    order: OrderId,
    charge: &Charge,
    said: Authorization,
    expand: &Expansion,
) -> Result<Reply, Rejection> {
    let view = ChargeView::from(charge);
    match said {
        Authorization::Approved => {
            let order = store::orders::pay(tx, origin.account, order, charge.id).await?;
            origin.emit(tx, EventType::ChargeSucceeded, &view).await?;
            let paid = OrderView::from(&order);
            origin.emit(tx, EventType::OrderPaid, &paid).await?;
            origin.show(tx, OK, paid.id, &order, expand).await
        }
        Authorization::Declined(decline) => {
            origin.emit(tx, EventType::ChargeFailed, &view).await?;
            declined(decline, charge)
        }
    }
}
