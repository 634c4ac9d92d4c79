//! `POST /idempotency-keys/{key}/abandon`: give a key up.
//!
//! Locks    the record of the key, if there is one
//! Writes   a record of the key that answers each request with it, unless there is one
//! Emits    nothing
//! Refuses  any parameter, and the key of its own request

use std::time::Duration;

use charge_once_strict_params::Params;
use sqlx::PgConnection;

use crate::{
    commands::{
        Origin,
        replies::{OK, checked},
    },
    idempotency::{Abandoned, Command, Failure, Rejection, Reply, Request, abandon},
    wire::{
        error::{ApiError, ErrorCode},
        idempotency_keys::KeyObject,
    },
};

/// Gives a key up.
pub struct AbandonKey {
    /// Who gives it up.
    pub origin: Origin,
    /// As decoded; there is none to be given.
    pub params: Params,
    /// The request, with the key that it gives up.
    pub given_up: Request,
    /// How long the key is remembered.
    pub retention: Duration,
}

impl Command for AbandonKey {
    async fn execute(&self, tx: &mut PgConnection) -> Result<Reply, Rejection> {
        let () = checked(&self.params)?;
        let key = self.given_up.key.as_str();
        if key == self.origin.asked_by.idempotency_key {
            let message = "The Idempotency-Key is that of this request. It gives another one up.";
            return Err(ApiError::invalid("key", message).into());
        }
        let answer = ApiError::explained(ErrorCode::IdempotencyKeyAbandoned);
        let answer = Reply::json(answer.status(), &answer.envelope())?;
        match abandon(tx, &self.given_up, answer, self.retention).await? {
            Abandoned::Now(record) | Abandoned::Completed(record) => {
                let shown = KeyObject::of(key.to_owned(), Some((&*record).into()));
                Ok(Reply::json(OK, &shown)?)
            }
            Abandoned::Unfinished { continued_in, .. } => {
                let cause = "a request with the key that is to be given up is at work";
                let busy = Failure {
                    retry_after: continued_in,
                    ..Failure::busy(cause)
                };
                Err(busy.into())
            }
        }
    }
}
