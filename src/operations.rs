//! What an operator can do about operations whose outcome is unknown.
//!
//! Promise: settling by hand goes the same way as settling by the processor's answer, under a lease
//! of its own, so it can't cross with somebody who is still at work.

use std::time::Duration;

use uuid::Uuid;

use crate::{
    commands::ProcessorOperations,
    config::Config,
    database::Database,
    domain::{error::ErrorCode, operation::Answer, test_cards::Decline},
    idempotency::{Called, Failure, Idempotency, LeaseSettings, Phases, Settings},
    processor::SimulatedProcessor,
    store::{self, operations::Unsettled},
};

/// An operator knows that it was declined, not why.
const DECLINED: Decline = Decline {
    code: ErrorCode::CardDeclined,
    decline_code: Some("generic_decline"),
    message: "Your card was declined.",
};

/// What the processor did, by the word of a person who asked it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    /// It executed.
    Done,
    /// It refused for good.
    Declined,
    /// It never executed and never will.
    NotExecuted,
}

/// Why nothing came of it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operations can't be read.
    #[error(transparent)]
    Read(#[from] crate::database::ReadError),
    /// The retention or the lease can't be used.
    #[error("IDEMPOTENCY_TTL or IDEMPOTENCY_LEASE can't be used: {0}")]
    Settings(#[from] sqlx::error::BoxDynError),
    /// The outcome can't be written.
    #[error("{0}")]
    Failed(std::sync::Arc<str>),
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure.cause)
    }
}

/// The operations that wait for an answer, oldest first, at most 1000.
pub async fn list(database: &Database) -> Result<Vec<Unsettled>, Error> {
    let unsettled = database
        .read(|connection| Box::pin(store::operations::list_unsettled(connection)))
        .await?;
    Ok(unsettled)
}

/// Settles one. `false`: it isn't in flight, or somebody is at work on it.
pub async fn settle(
    database: &Database,
    config: &Config,
    id: Uuid,
    word: Word,
) -> Result<bool, Error> {
    let settings = Settings {
        retention: config.idempotency_ttl,
        pool_wait: config.timeouts.pool_wait,
        database_deadline: config.timeouts.database_deadline,
        pool_connections: config.pool_connections,
    };
    let idempotency = Idempotency::new(database.pool().clone(), settings)?;
    // Nobody is asked: the word is all that this needs.
    let operations = ProcessorOperations {
        processor: SimulatedProcessor::new(config.pool_connections),
        name: "an operator's word".to_owned(),
        send_again_within: Duration::ZERO,
    };
    let lease = LeaseSettings {
        lease: config.timeouts.idle_in_transaction * 2,
        call_limit: config.timeouts.database_deadline,
    };
    let phases = Phases::new(idempotency, operations, lease)?;
    let word = match word {
        Word::Done => Called::Answered(Answer::Done),
        Word::Declined => Called::Answered(Answer::Declined(DECLINED)),
        Word::NotExecuted => Called::NotExecuted(Failure::unavailable("by an operator's word")),
    };
    Ok(phases.settle_by_hand(id, word).await?.is_some())
}
