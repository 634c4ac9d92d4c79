//! The timeout ladder, and other times that depend on each other.

use std::{iter, time::Duration};

use charge_once_service::settings::Source;

use super::{
    Values,
    values::RouteTimes,
    variables::{
        ALLOW_SHORT_TTL, DATABASE_DEADLINE, IDEMPOTENCY_LEASE, IDEMPOTENCY_TTL,
        IDEMPOTENCY_TTL_BY_ROUTE, IDLE_IN_TRANSACTION_TIMEOUT, POOL_WAIT, PROCESSOR_TIMEOUT,
        REQUEST_TIMEOUT, STATEMENT_TIMEOUT, WEBHOOK_RETRY_MAX, WEBHOOK_RETRY_MIN,
    },
};
use crate::idempotency::{CLAIM_WAIT, COMPLETION_RESERVE, ROW_LOCK_WAIT};

/// The retention below which retries of ordinary clients would meet a key that is dead already, and
/// the least that a client can ask for.
pub const TTL_MIN: Duration = Duration::from_secs(60);

/// With longer pauses, an event would arrive after its receiver has given up.
const WEBHOOK_PAUSE_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

impl Values {
    /// What is left of a request's time until its work begins: for looking its API key up and for
    /// reading its body.
    pub fn before_work(&self) -> Duration {
        self.request_timeout
            .saturating_sub(self.pool_wait + self.database_deadline)
    }

    /// Records each time that does not fit the others.
    pub(super) fn check_times(&self, source: &Source<'_>) {
        self.check_ladder(source);
        // Longer than one call of the processor and the transaction after it, so that the holder of
        // a lease can use it.
        let least = self.processor_timeout + self.database_deadline + COMPLETION_RESERVE;
        let compared = [
            PROCESSOR_TIMEOUT.name,
            IDEMPOTENCY_LEASE.name,
            DATABASE_DEADLINE.name,
        ];
        if self.lease <= least && source.are_good(&compared) {
            let least = humantime::format_duration(least);
            let expected = format!(
                "longer than PROCESSOR_TIMEOUT, DATABASE_DEADLINE and 5s together: {least}"
            );
            source.bad(IDEMPOTENCY_LEASE.name, expected);
        }
        let by_route = self.ttl_by_route.iter().flat_map(RouteTimes::iter);
        let by_route = by_route.map(|(_, ttl)| (IDEMPOTENCY_TTL_BY_ROUTE.name, ttl));
        let too_short = iter::once((IDEMPOTENCY_TTL.name, self.idempotency_ttl))
            .chain(by_route)
            .find(|(_, ttl)| *ttl < TTL_MIN);
        if let Some((name, _)) = too_short
            && !self.allow_short_ttl
            && source.are_good(&[ALLOW_SHORT_TTL.name])
        {
            let expected = "at least 60s; for a test or a demonstration set ALLOW_SHORT_TTL=true";
            source.bad(name, expected);
        }
        let (min, max) = (self.webhook_retry_min, self.webhook_retry_max);
        let are_good = source.are_good(&[WEBHOOK_RETRY_MIN.name, WEBHOOK_RETRY_MAX.name]);
        if are_good && (max > WEBHOOK_PAUSE_MAX || max / 2 < min) {
            let expected = "at least twice WEBHOOK_RETRY_MIN and at most 7d";
            source.bad(WEBHOOK_RETRY_MAX.name, expected);
        }
    }

    /// Records every step that isn't longer than the one below it, so that the innermost limit
    /// fires first and is identified.
    fn check_ladder(&self, source: &Source<'_>) {
        let idle = IDLE_IN_TRANSACTION_TIMEOUT.name;
        let ladder = [
            ("the claim's lock wait", CLAIM_WAIT),
            ("a row's lock wait", ROW_LOCK_WAIT),
            (STATEMENT_TIMEOUT.name, self.statement_timeout),
            (DATABASE_DEADLINE.name, self.database_deadline),
            (idle, self.idle_in_transaction_timeout),
            (REQUEST_TIMEOUT.name, self.request_timeout),
        ];
        let pool_wait_is_good = source.are_good(&[POOL_WAIT.name]);
        if pool_wait_is_good && source.ascends(&ladder) && self.before_work().is_zero() {
            let expected = "longer than POOL_WAIT and DATABASE_DEADLINE together";
            source.bad(REQUEST_TIMEOUT.name, expected);
        }
    }
}
