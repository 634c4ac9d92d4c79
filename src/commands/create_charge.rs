//! `POST /charges`: ask the processor for the money and write down its answer.
//!
//! Locks    nothing but the account, shared, through the foreign key
//! Writes   one charge, succeeded or failed
//! Emits    charge.succeeded or charge.failed
//! Refuses  parameters that are missing, unknown or wrong
//! Fails    when the processor is down or its slow lane is full

use std::sync::Arc;

use sqlx::PgConnection;
use uuid::Uuid;

use super::{CREATED, Origin, declined};
use crate::{
    domain::{
        charge::{Authorisation, NewCharge},
        event::EventType,
        ids::ChargeId,
        params::Params,
    },
    idempotency::{Command, Rejection, Reply},
    processor::SimulatedProcessor,
    store,
};

/// Creates a charge.
pub struct CreateCharge {
    /// Who charges.
    pub origin: Origin,
    /// As decoded; checked here, so that a wrong one is a stored refusal.
    pub params: Params,
    /// Where cards are authorised.
    pub processor: Arc<SimulatedProcessor>,
}

impl Command for CreateCharge {
    async fn execute(&self, tx: &mut PgConnection) -> Result<Reply, Rejection> {
        let new = NewCharge::parse(&self.params)?;
        let id = ChargeId(Uuid::now_v7());
        let authorisation = self.processor.authorise(new.card.card).await?;
        let account = self.origin.account;
        let charge = store::charges::insert(tx, account, id, &new, None, authorisation).await?;
        match authorisation {
            Authorisation::Approved => {
                self.origin
                    .emit(tx, EventType::ChargeSucceeded, &charge)
                    .await?;
                self.origin
                    .charge(tx, CREATED, charge, new.expand_refunds)
                    .await
            }
            Authorisation::Declined(decline) => {
                self.origin
                    .emit(tx, EventType::ChargeFailed, &charge)
                    .await?;
                declined(decline, &charge)
            }
        }
    }
}
