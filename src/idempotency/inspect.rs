//! What is known about a key, for a person or a program that asks.
//!
//! Promise: looking changes nothing. And its answers are news, not permissions: "nothing finished
//! now" never means that the operation may be sent under a new key; only a retry is safe.

use std::sync::Arc;

use sqlx::Connection;
use uuid::Uuid;

use super::{
    Failure, Fingerprint, Fingerprinted, GuardedConnection, Idempotency, IdempotencyKey,
    InFlightRequest, Parameters, Record, Request,
    claim::{self, Claim},
};

/// What a look at a key found.
#[derive(Debug)]
pub enum Inspected {
    /// A stored outcome.
    Completed(Arc<Record>),
    /// A request is in flight: `Some` if it is in this process or has an effect outside the
    /// database, so that more is known of it.
    InFlight(Option<InFlightRequest>),
    /// No finished record, and nobody at work, at this moment.
    Nothing,
}

impl Idempotency {
    /// Looks a key up: first among the requests in flight here, then in the database.
    ///
    /// A key in flight on another replica shows itself only by its lock, so the look is a claim
    /// with a short lock wait that is always rolled back.
    pub async fn inspect(
        &self,
        account_id: Uuid,
        key: IdempotencyKey,
    ) -> Result<Inspected, Failure> {
        let in_flight = self.in_flight.look_up(account_id, &key);
        let probe = Request {
            account_id,
            key,
            fingerprint: Fingerprint::of(&Fingerprinted {
                method: "",
                path: "",
                query: Parameters::Raw(b""),
                media_type: "",
                parameters: Parameters::Raw(b""),
            }),
            method: String::new(),
            path: String::new(),
            request_id: String::new(),
            wait: std::time::Duration::ZERO,
        };
        let this = self.clone();
        // In a task of its own, like every use of a connection that a disconnect must not cut.
        let probing = self.runtime.spawn(async move {
            tokio::time::timeout(this.settings.database_deadline, this.probe(&probe)).await
        });
        match probing.await {
            Ok(Ok(Ok(Claim::Completed(record)))) => Ok(Inspected::Completed(record)),
            Ok(Ok(Ok(Claim::HeldElsewhere))) => Ok(Inspected::InFlight(in_flight)),
            Ok(Ok(Ok(Claim::InFlight(leased)))) => Ok(Inspected::InFlight(Some(leased.request))),
            Ok(Ok(Ok(Claim::Mine | Claim::Vanished))) => Ok(match in_flight {
                Some(in_flight) => Inspected::InFlight(Some(in_flight)),
                None => Inspected::Nothing,
            }),
            Ok(Ok(Err(failure))) => Err(failure),
            Ok(Err(_)) => Err(Failure::unavailable("the database deadline is over")),
            Err(panicked) => Err(Failure::internal(panicked)),
        }
    }

    async fn probe(&self, probe: &Request) -> Result<Claim, Failure> {
        let mut connection = GuardedConnection::acquire(&self.pool).await?;
        let mut tx = connection.begin_with(claim::BEGIN_BRIEFLY).await?;
        let found = claim::claim(&mut tx, probe, self.retention).await?;
        tx.rollback().await?;
        connection.release();
        Ok(found)
    }
}
