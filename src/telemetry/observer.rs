//! Counts what the idempotency crate tells.

use std::time::Duration;

use charge_once_service::prometheus::value;

use super::metrics::Metrics;
use crate::idempotency::{
    AdmissionObserver, BatchObserver, CallAnswer, InProgressLimit, Observer, PhasesObserver,
    RanAlone, ReplayCacheObserver,
};

/// The kind of a checkout's phases: that of `CheckoutSteps`.
const CHECKOUT: &str = "checkout";

impl Observer for Metrics {
    fn waited_for_connection(&self, waited: Duration, timed_out: bool) {
        self.pool_wait.record(waited);
        if timed_out {
            self.pool_timeouts.increment(1);
        }
    }

    fn discarded_connection(&self) {
        self.pool_discarded.increment(1);
    }

    fn claimed(&self, took: Duration, held_elsewhere: bool) {
        self.claim_seconds.record(took);
        if held_elsewhere {
            self.claim_timeouts.increment(1);
        }
    }

    fn gave_up_a_row(&self) {
        self.row_timeouts.increment(1);
    }
}

impl AdmissionObserver for Metrics {
    fn shed(&self, limit: InProgressLimit) {
        let shed = match limit {
            InProgressLimit::Account => &self.shed_of_account,
            InProgressLimit::All => &self.shed_in_all,
        };
        shed.increment(1);
    }
}

impl BatchObserver for Metrics {
    fn claimed_batch(&self, requests: usize, took: Duration) {
        self.claim_seconds.record_many(took, requests);
    }

    fn ended_batch(&self, requests: usize, took: Duration, committed: bool) {
        self.batch_size.record(value(requests));
        self.batch_seconds.record(took);
        if !committed {
            self.batch_failures.increment(1);
        }
    }

    fn ran_alone(&self, because: RanAlone) {
        let ran_alone = match because {
            RanAlone::Undecided => &self.batch_undecided,
            RanAlone::BatchFailed => &self.batch_failed,
            RanAlone::AccountHeldUp => &self.account_held_up,
        };
        ran_alone.increment(1);
    }
}

impl ReplayCacheObserver for Metrics {
    fn looked_up(&self, found: bool) {
        let lookups = match found {
            true => &self.cache_hits,
            false => &self.cache_misses,
        };
        lookups.increment(1);
    }
}

impl PhasesObserver for Metrics {
    fn called(&self, kind: &'static str, took: Duration, answer: CallAnswer) {
        if let Some((_, phases)) = self.phases.iter().find(|(known, _)| *known == kind) {
            let calls = match answer {
                CallAnswer::Answered => &phases.answered,
                CallAnswer::NotExecuted => &phases.not_executed,
                CallAnswer::Unknown => &phases.unknown,
            };
            calls.increment(1);
            phases.seconds.record(took);
        }
    }

    fn completed(&self, kind: &'static str, status: u16) {
        let ended = match status {
            ..300 => &self.checkouts_completed,
            300.. => &self.checkouts_canceled,
        };
        if kind == CHECKOUT {
            ended.increment(1);
        }
    }
}
