//! The answer of a card where the processor is simulated in this process.
//!
//! Promise: nothing is awaited but SQL. The decision is a pure function of the test card
//! (`Authorization::at_once`), and the slow card waits in the database. A real processor must never
//! be called here: a rollback doesn't undo its effect, and locks are held meanwhile. That takes
//! phases.

use std::sync::Arc;

use sqlx::PgConnection;
use tokio::sync::Semaphore;

use crate::{
    domain::{
        charge::Authorization,
        operation::{Answer, Ask},
        test_cards::{Decision, by_stored_token},
    },
    idempotency::{Failure, Rejection},
    store,
};

/// Bounds how many requests wait for `tok_slow` at a time. Cheap to clone.
#[derive(Debug, Clone)]
pub struct SlowLane(Arc<Semaphore>);

impl SlowLane {
    /// At most a quarter of the pool's connections, and at least one: a demonstration must not take
    /// the service down.
    pub fn new(pool_connections: u32) -> Self {
        let lanes = usize::try_from(pool_connections / 4).unwrap_or(1).max(1);
        Self(Arc::new(Semaphore::new(lanes)))
    }
}

/// What the simulated processor answers at once. `None`: it takes its time, or is down.
pub(super) fn at_once(ask: &Ask) -> Option<Answer> {
    let card = match ask {
        Ask::Authorize(authorization) => by_stored_token(&authorization.card_token)?,
        Ask::Capture(_) | Ask::Refund(_) => return Some(Answer::Done),
    };
    Some(match Authorization::at_once(card)? {
        Authorization::Approved => Answer::Done,
        Authorization::Declined(decline) => Answer::Declined(decline),
    })
}

/// What the simulated processor answers. Fails, and decides nothing, where it is down or the slow
/// lane is full.
pub(super) async fn authorize(
    tx: &mut PgConnection,
    ask: &Ask,
    slow_lane: &SlowLane,
) -> Result<Answer, Rejection> {
    if is_slow(ask) {
        let Ok(_lane) = slow_lane.0.try_acquire() else {
            let full = "a quarter of the pool waits for tok_slow already";
            return Err(Rejection::Failed(Failure::unavailable(full)));
        };
        store::slow_card::wait(tx).await?;
        return Ok(Answer::Done);
    }
    let down = || Rejection::Failed(Failure::unavailable("tok_outage: the processor is down"));
    at_once(ask).ok_or_else(down)
}

fn is_slow(ask: &Ask) -> bool {
    match ask {
        Ask::Authorize(authorization) => by_stored_token(&authorization.card_token)
            .is_some_and(|card| card.decision == Decision::ApproveSlowly),
        Ask::Capture(_) | Ask::Refund(_) => false,
    }
}
