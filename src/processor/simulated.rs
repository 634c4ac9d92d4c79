//! The simulated card processor, in the place where a real one would be.
//!
//! Promise: it decides by the test card alone (`domain/test_cards.rs`). Because it lives in this
//! process and has no effect of its own, asking it inside the transaction is sound. A processor
//! across a network is not: it must never be called while a transaction is open.

use std::time::Duration;

use tokio::sync::Semaphore;
use uuid::Uuid;

use super::{Answer, Asked, CardProcessor, Instruction};
use crate::{
    domain::{
        charge::Authorization,
        test_cards::{self, Decision, TestCard},
    },
    idempotency::{Failure, Rejection},
};

/// In this process every instruction is answered at once, and there is nothing to be in doubt about:
/// an operator's tools and tests need no network.
impl CardProcessor for SimulatedProcessor {
    async fn execute(&self, _: Uuid, instruction: &Instruction) -> Asked {
        let Instruction::Authorise { card, .. } = instruction else {
            return Asked::Answered(Answer::Done);
        };
        match test_cards::by_token(card).map(|card| card.decision) {
            Some(Decision::Approve | Decision::ApproveSlowly) => Asked::Answered(Answer::Done),
            Some(Decision::Decline(decline)) => Asked::Answered(Answer::Declined(decline)),
            Some(Decision::Outage) | None => Asked::NotExecuted("the processor is down".into()),
        }
    }

    async fn look_up(&self, _: Uuid) -> Asked {
        Asked::Unknown("nothing is remembered here".into())
    }
}

/// How long `tok_slow` takes: long enough to type a second request, and well inside the database
/// deadline.
const SLOW_CARD_DELAY: Duration = Duration::from_secs(2);

/// Authorizes test cards.
#[derive(Debug)]
pub struct SimulatedProcessor {
    slow_lane: Semaphore,
}

impl SimulatedProcessor {
    /// At most a quarter of the pool's connections, and at least one, may wait for `tok_slow` at a
    /// time: a demonstration must not take the service down.
    pub fn new(pool_connections: u32) -> Self {
        let lanes = usize::try_from(pool_connections / 4).unwrap_or(1).max(1);
        Self {
            slow_lane: Semaphore::new(lanes),
        }
    }

    /// Asks for the money. Fails, and decides nothing, where the processor is down or too busy.
    pub async fn authorise(&self, card: &TestCard) -> Result<Authorization, Rejection> {
        match card.decision {
            Decision::Approve => Ok(Authorization::Approved),
            Decision::Decline(decline) => Ok(Authorization::Declined(decline)),
            Decision::ApproveSlowly => {
                let Ok(_lane) = self.slow_lane.try_acquire() else {
                    let full = "a quarter of the pool waits for tok_slow already";
                    return Err(Rejection::Failed(Failure::unavailable(full)));
                };
                tokio::time::sleep(SLOW_CARD_DELAY).await;
                Ok(Authorization::Approved)
            }
            Decision::Outage => Err(Rejection::Failed(Failure::unavailable(
                "tok_outage: the processor is down",
            ))),
        }
    }
}
