//! `POST /idempotency-keys/{key}/abandon`: give a key up.
//!
//! Locks    the record of the key, if it has expired
//! Writes   a record of the key that answers each request with it, unless there is one
//! Emits    nothing
//! Refuses  any parameter, and the key of its own request

use charge_once_strict_params::Params;
use sqlx::PgConnection;

use crate::{
    commands::{
        Origin,
        replies::{checked, error_reply},
    },
    idempotency::{
        Abandoned, Command, Failure, Idempotency, KnownRequest, Rejection, Remembered, Reply,
        Request,
    },
    wire::error::{ApiError, ErrorCode},
};

/// Gives a key up.
pub struct AbandonKey {
    /// Who gives it up.
    pub origin: Origin,
    /// As decoded; there is none to be given.
    pub params: Params,
    /// The request, with the key that it gives up.
    pub given_up: Request,
    /// Whose keys they are.
    pub idempotency: Idempotency,
    /// How the edge shows what became of the key.
    pub show: fn(&str, KnownRequest) -> Result<Reply, Failure>,
}

impl Command for AbandonKey {
    async fn execute(&self, tx: &mut PgConnection) -> Result<Reply, Rejection> {
        let () = checked(&self.params)?;
        let key = self.given_up.key.as_str();
        if self.given_up.stored_key() == self.origin.asked_by.idempotency_key {
            let message = "The Idempotency-Key is that of this request. It gives another one up.";
            return Err(ApiError::invalid("key", message).into());
        }
        let answer = error_reply(&ApiError::explained(ErrorCode::IdempotencyKeyAbandoned))?;
        match self.idempotency.abandon(tx, &self.given_up, answer).await? {
            Abandoned::Now(record) | Abandoned::Completed(record) => {
                Ok((self.show)(key, (&*record).into())?)
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

/// The answer to a request whose key has expired, and is remembered.
pub fn expired_key(remembered: &Remembered) -> Reply {
    let mut error = ApiError::explained(ErrorCode::IdempotencyKeyExpired);
    if remembered.is_same_request == Some(false) {
        error.about.advice = Some("The key was used for another request than this one.");
    }
    error.about.resource.clone_from(&remembered.resource_id);
    error_reply(&error).unwrap_or_else(|_| Reply::raw_json(error.status(), Vec::new()))
}
