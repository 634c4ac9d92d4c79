//! The timeout ladder, and how long keys are kept.

use std::time::Duration;

use super::source::Source;
use crate::idempotency::{CLAIM_WAIT, ROW_LOCK_WAIT};

/// The retention below which retries of ordinary clients would meet a key that is dead already.
const TTL_MIN: Duration = Duration::from_secs(60);
/// Longer retention is possible but a mistake: the table holds every key of the window.
const TTL_MAX: Duration = Duration::from_secs(400 * 24 * 3600);

const IN_FLIGHT_WAIT_MAX: Duration = Duration::from_secs(30);

/// The longest that a transaction may take. A list looks for objects by time among the ids of that time, and
/// `created_at` is when the transaction began: `store::page` allows the two to be this far apart.
const DATABASE_DEADLINE_MAX: Duration = Duration::from_secs(30);

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

    pub(super) fn read(source: &Source<'_>) -> Option<Self> {
        let pool_wait = source.duration("POOL_WAIT");
        let statement = source.duration("STATEMENT_TIMEOUT");
        let database_deadline = source.duration("DATABASE_DEADLINE");
        let idle_in_transaction = source.duration("IDLE_IN_TRANSACTION_TIMEOUT");
        let request = source.duration("REQUEST_TIMEOUT");
        let timeouts = Self {
            pool_wait: pool_wait?,
            statement: statement?,
            database_deadline: database_deadline?,
            idle_in_transaction: idle_in_transaction?,
            request: request?,
        };
        timeouts.is_a_ladder(source).then_some(timeouts)
    }

    /// Records every step that isn't longer than the one below it, and a transaction that may last too long.
    fn is_a_ladder(&self, source: &Source<'_>) -> bool {
        let ladder = [
            ("the claim's lock wait", CLAIM_WAIT),
            ("a row's lock wait", ROW_LOCK_WAIT),
            ("STATEMENT_TIMEOUT", self.statement),
            ("DATABASE_DEADLINE", self.database_deadline),
            ("IDLE_IN_TRANSACTION_TIMEOUT", self.idle_in_transaction),
            ("REQUEST_TIMEOUT", self.request),
        ];
        if self.database_deadline > DATABASE_DEADLINE_MAX {
            source.bad::<()>("DATABASE_DEADLINE", "at most 30s");
            return false;
        }
        let mut holds = true;
        for pair in ladder.windows(2) {
            if let [(below, lower), (variable, higher)] = pair
                && higher <= lower
            {
                let lower = humantime::format_duration(*lower);
                let expected = format!("longer than {below}, which is {lower}");
                source.bad::<()>(variable, expected);
                holds = false;
            }
        }
        if holds && self.before_work().is_zero() {
            let expected = "longer than POOL_WAIT and DATABASE_DEADLINE together";
            source.bad::<()>("REQUEST_TIMEOUT", expected);
            return false;
        }
        holds
    }
}

/// `IDEMPOTENCY_TTL`
pub(super) fn idempotency_ttl(source: &Source<'_>) -> Option<Duration> {
    let short_allowed = source.truth("ALLOW_SHORT_TTL");
    let ttl = source.duration("IDEMPOTENCY_TTL")?;
    if ttl < TTL_MIN && !short_allowed? {
        let expected = "at least 60s; for a test or a demonstration set ALLOW_SHORT_TTL=true";
        return source.bad("IDEMPOTENCY_TTL", expected);
    }
    at_most_400_days(source, "IDEMPOTENCY_TTL", ttl)
}

/// PostgreSQL counts in microseconds.
pub(super) fn at_most_400_days(
    source: &Source<'_>,
    variable: &'static str,
    duration: Duration,
) -> Option<Duration> {
    if duration > TTL_MAX || !duration.subsec_nanos().is_multiple_of(1_000) {
        return source.bad(variable, "at most 400d, in whole microseconds");
    }
    Some(duration)
}

/// `IN_FLIGHT_WAIT_V1`, which alone may be zero.
pub(super) fn in_flight_wait(source: &Source<'_>) -> Option<Duration> {
    match humantime::parse_duration(source.value("IN_FLIGHT_WAIT_V1").trim()) {
        Ok(wait) if wait <= IN_FLIGHT_WAIT_MAX => Some(wait),
        Ok(_) | Err(_) => source.bad("IN_FLIGHT_WAIT_V1", "a duration from 0s to 30s"),
    }
}
