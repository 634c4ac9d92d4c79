//! `POST /refunds`: give money back, or release what was only promised.
//!
//! Locks    the charge, and then the order that it paid if all of it is given back
//! Writes   one refund, the charge's refunded amount, the order's status
//! Emits    refund.created, charge.refunded, order.refunded
//! Refuses  a charge that failed or has nothing left; more than is left; a part of what was only
//!          promised

use sqlx::PgConnection;
use uuid::Uuid;

use super::{CREATED, Origin, missing};
use crate::{
    domain::{
        charge::ChargeRefusal, event::EventType, ids::RefundId, params::Params, refund::NewRefund,
    },
    idempotency::{Command, Failure, Rejection, Reply},
    store,
};

/// Creates a refund.
pub struct CreateRefund {
    /// Who gives back.
    pub origin: Origin,
    /// As decoded; checked here, so that a wrong one is a stored refusal.
    pub params: Params,
}

impl Command for CreateRefund {
    async fn execute(&self, tx: &mut PgConnection) -> Result<Reply, Rejection> {
        let new = NewRefund::parse(&self.params)?;
        let (origin, account) = (&self.origin, self.origin.account);
        let charge_id = new.charge.ok_or_else(|| missing("charge"))?;
        let charge = store::charges::lock(tx, account, charge_id)
            .await?
            .ok_or_else(|| missing("charge"))?;
        let amount = charge
            .refund(new.amount)
            .map_err(|refusal: ChargeRefusal| refusal.explained("charge"))?;
        let id = RefundId(Uuid::now_v7());
        let refund = store::refunds::insert(tx, account, id, charge_id, amount, &new).await?;
        let charge = store::charges::find(tx, account, charge_id)
            .await?
            .ok_or_else(|| Failure::internal("a locked charge is gone"))
            .map_err(Rejection::Failed)?;
        origin.emit(tx, EventType::RefundCreated, &refund).await?;
        origin.emit(tx, EventType::ChargeRefunded, &charge).await?;
        if charge.refunded
            && let Some(order) = store::orders::refund(tx, account, charge_id).await?
        {
            origin.emit(tx, EventType::OrderRefunded, &order).await?;
        }
        origin.refund(tx, CREATED, refund, new.expand_charge).await
    }
}
