//! `POST /charges`: ask the processor for the money and write down its answer.
//!
//! Locks    nothing but the account, shared, through the foreign key
//! Writes   one charge, succeeded or failed
//! Refuses  parameters that are missing, unknown or wrong
//! Fails    when the processor is down or its slow lane is full

use std::sync::Arc;

use sqlx::PgConnection;
use uuid::Uuid;

use super::{created, error_reply};
use crate::{
    domain::{
        charge::{Authorisation, NewCharge},
        dialect::Dialect,
        error::ApiError,
        ids::{AccountId, ChargeId},
        params::Params,
    },
    idempotency::{Command, Rejection, Reply},
    processor::SimulatedProcessor,
    store,
};

/// Creates a charge.
pub struct CreateCharge {
    /// Who charges.
    pub account: AccountId,
    /// Decides what `Location` starts with.
    pub dialect: Dialect,
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
        let charge = store::charges::insert(tx, self.account, id, &new, authorisation).await?;
        match authorisation {
            Authorisation::Approved => created(self.dialect, "charges", charge.id.clone(), &charge),
            // A decline is an outcome to keep, not a refusal to undo: `Ok`, with its failed charge.
            Authorisation::Declined(decline) => {
                let mut reply = error_reply(&ApiError {
                    code: decline.code,
                    message: decline.message.to_owned(),
                    param: None,
                    decline_code: decline.decline_code.map(str::to_owned),
                    charge: Some(charge.id.clone()),
                })?;
                reply.resource_id = Some(charge.id);
                Ok(reply)
            }
        }
    }
}
