//! Counts what the idempotency crate tells.

use std::time::Duration;

use charge_once_service::prometheus::value;

use super::metrics::Metrics;
use crate::idempotency::{
    AdmissionObserver, BatchObserver, CallAnswer, InProgressLimit, Observer, PhasesObserver,
    RanAlone, ReplayCacheObserver,
};

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
        self.fallbacks(because).increment(1);
    }
}

impl ReplayCacheObserver for Metrics {
    fn looked_up(&self, found: bool) {
        let lookups = if found {
            &self.cache_hits
        } else {
            &self.cache_misses
        };
        lookups.increment(1);
    }
}

impl PhasesObserver for Metrics {
    fn called(&self, kind: &'static str, took: Duration, answer: CallAnswer) {
        if let Some(phases) = self.phases_of(kind) {
            phases.calls(answer).increment(1);
            phases.seconds.record(took);
        }
    }
}

/// Counts what the phases of checkouts tell, and how checkouts end.
#[derive(Debug)]
pub struct CheckoutsObserver(pub Metrics);

impl PhasesObserver for CheckoutsObserver {
    fn called(&self, kind: &'static str, took: Duration, answer: CallAnswer) {
        self.0.called(kind, took, answer);
    }

    fn completed(&self, _: &'static str, status: u16) {
        let ended = if status < 300 {
            &self.0.checkouts_completed
        } else {
            &self.0.checkouts_canceled
        };
        ended.increment(1);
    }
}
