//! The timeout ladder, and how long keys are kept.

use std::time::Duration;

use charge_once_service::settings::Source;

use super::variables::{
    ALLOW_SHORT_TTL, DATABASE_DEADLINE, IDEMPOTENCY_TTL, IDLE_IN_TRANSACTION_TIMEOUT, POOL_WAIT,
    REQUEST_TIMEOUT, STATEMENT_TIMEOUT,
};
use crate::idempotency::{CLAIM_WAIT, ROW_LOCK_WAIT};

/// The retention below which retries of ordinary clients would meet a key that is dead already.
const TTL_MIN: Duration = Duration::from_secs(60);

/// Each is longer than the one before, so that the innermost limit fires first and is identified.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// `POOL_WAIT`
    pub pool_wait: Duration,
    /// `STATEMENT_TIMEOUT`
    pub statement: Duration,
    /// `DATABASE_DEADLINE`
    pub database_deadline: Duration,
    /// `IDLE_IN_TRANSACTION_TIMEOUT`
    pub idle_in_transaction: Duration,
    /// `REQUEST_TIMEOUT`
    pub request: Duration,
}

impl Timeouts {
    /// What is left of a request's time until its work begins: for looking its API key up and for
    /// reading its body.
    pub fn before_work(&self) -> Duration {
        self.request
            .saturating_sub(self.pool_wait + self.database_deadline)
    }

    pub(super) fn read(source: &Source<'_>) -> Self {
        let timeouts = Self {
            pool_wait: source.read(&POOL_WAIT),
            statement: source.read(&STATEMENT_TIMEOUT),
            database_deadline: source.read(&DATABASE_DEADLINE),
            idle_in_transaction: source.read(&IDLE_IN_TRANSACTION_TIMEOUT),
            request: source.read(&REQUEST_TIMEOUT),
        };
        timeouts.check_ladder(source);
        timeouts
    }

    /// Records every step that isn't longer than the one below it.
    fn check_ladder(&self, source: &Source<'_>) {
        let ladder = [
            ("the claim's lock wait", CLAIM_WAIT),
            ("a row's lock wait", ROW_LOCK_WAIT),
            (STATEMENT_TIMEOUT.name, self.statement),
            (DATABASE_DEADLINE.name, self.database_deadline),
            (IDLE_IN_TRANSACTION_TIMEOUT.name, self.idle_in_transaction),
            (REQUEST_TIMEOUT.name, self.request),
        ];
        let pool_wait_is_good = source.are_good(&[POOL_WAIT.name]);
        if pool_wait_is_good && source.ascends(&ladder) && self.before_work().is_zero() {
            let expected = "longer than POOL_WAIT and DATABASE_DEADLINE together";
            source.bad(REQUEST_TIMEOUT.name, expected);
        }
    }
}

/// `IDEMPOTENCY_TTL`
pub(super) fn idempotency_ttl(source: &Source<'_>) -> Duration {
    let short_allowed = source.read(&ALLOW_SHORT_TTL);
    let ttl = source.read(&IDEMPOTENCY_TTL);
    if ttl < TTL_MIN && !short_allowed && source.are_good(&[ALLOW_SHORT_TTL.name]) {
        let expected = "at least 60s; for a test or a demonstration set ALLOW_SHORT_TTL=true";
        source.bad(IDEMPOTENCY_TTL.name, expected);
    }
    ttl
}
