//! `POST /charges/{id}/capture`: take what was promised, once; the rest is released.
//!
//! Locks    the charge
//! Writes   the captured amount
//! Emits    charge.captured
//! Refuses  a charge that failed, was captured or was released; more than was promised

use sqlx::PgConnection;

use super::{OK, Origin, missing};
use crate::{
    domain::{
        charge::{Capture, ChargeRefusal},
        event::EventType,
        ids::ChargeId,
        params::Params,
    },
    idempotency::{Command, Rejection, Reply},
    store,
};

/// Captures a charge.
pub struct CaptureCharge {
    /// Who captures.
    pub origin: Origin,
    /// The charge, as the path names it.
    pub id: String,
    /// As decoded; checked here, so that a wrong one is a stored refusal.
    pub params: Params,
}

impl Command for CaptureCharge {
    async fn execute(&self, tx: &mut PgConnection) -> Result<Reply, Rejection> {
        let capture = Capture::parse(&self.params)?;
        let account = self.origin.account;
        let id = ChargeId::parse(&self.id).ok_or_else(|| missing("id"))?;
        let charge = store::charges::lock(tx, account, id)
            .await?
            .ok_or_else(|| missing("id"))?;
        let refused = |refusal: ChargeRefusal| Rejection::from(refusal.explained("id"));
        let amount = charge.capture(capture.amount).map_err(refused)?;
        let charge = store::charges::capture(tx, account, id, amount)
            .await?
            .ok_or_else(|| refused(ChargeRefusal::AlreadyCaptured))?;
        self.origin
            .emit(tx, EventType::ChargeCaptured, &charge)
            .await?;
        self.origin
            .charge(tx, OK, charge, capture.expand_refunds)
            .await
    }
}
