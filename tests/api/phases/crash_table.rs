//! The crash table: charge-once is killed at every point between the phases, or the processor and
//! the network misbehave, and the client retries at once, after the lease, or never. Whatever
//! happens, the processor's ledger and ours agree: one effect, one answer.

use reqwest::StatusCode;

use crate::support::{
    harness::{KEYS_IN_FLIGHT, report},
    prelude::*,
    world::{Retry, Verb},
};

/// Where charge-once is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Crash {
    /// The first phase is written and not committed.
    BeforeBeginCommits,
    /// The instruction is on its way, and the processor doesn't know of it yet.
    OnTheWayThere,
    /// The processor works on it.
    BeforeTheEffect,
    /// The processor has executed it, and its answer has not arrived.
    AfterTheEffect,
    /// The answer is here, and the last phase is not committed.
    BeforeSettleCommits,
}

const CRASHES: &[Crash] = &[
    Crash::BeforeBeginCommits,
    Crash::OnTheWayThere,
    Crash::BeforeTheEffect,
    Crash::AfterTheEffect,
    Crash::BeforeSettleCommits,
];

impl World {
    /// Sends a request, kills charge-once at `crash`, and starts it again.
    async fn crash(&mut self, crash: Crash, path: &str, body: &Value) {
        let pause = match crash {
            // In the last statement of the first phase.
            Crash::BeforeBeginCommits => self.stop_at(Stage::Leasing).await,
            Crash::BeforeSettleCommits => self.stop_at(Stage::Saving).await,
            Crash::OnTheWayThere => self.delay("delay_arrival").await,
            Crash::BeforeTheEffect => self.delay("delay_before").await,
            Crash::AfterTheEffect => self.delay("delay_after").await,
        };
        let sending = self.client().sending_in_vain(path, "key-1", body);
        match pause {
            Some(mut pause) => {
                pause.is_reached().await;
                self.kill_and_start();
                pause.release().await;
            }
            None => {
                self.processor.delays(1).await;
                self.kill_and_start();
                // Now what was on its way arrives, and what was being done is done.
                self.processor.reset_faults().await;
            }
        }
        sending.await.unwrap();
    }

    async fn stop_at(&self, stage: Stage) -> Option<PausePoint> {
        Some(PausePoint::at(stage, &self.database, "key-1").await)
    }

    async fn delay(&self, fault: &str) -> Option<PausePoint> {
        self.set_delay(fault).await;
        None
    }
}

/// One line of the table. Returns whether the request had its effect.
async fn line(verb: Verb, crash: Crash, retry: Retry) -> bool {
    let case = format!("{verb:?}, killed {crash:?}, retried {retry:?}");
    let mut world = World::new().await;
    let (path, body, _) = world.prepare(verb).await;
    let before = world.processor.lines().await;
    world.crash(crash, &path, &body).await;
    match retry {
        Retry::AtOnce => {
            let first = world.client().post(&path, "key-1", &body).await;
            let is_definite = first.status.is_success();
            let is_honest =
                [StatusCode::CONFLICT, StatusCode::SERVICE_UNAVAILABLE].contains(&first.status);
            assert!(is_definite || is_honest, "{case}: {first:?}");
        }
        Retry::AfterTheLease => world.the_lease_runs_out().await,
        Retry::Never => {
            world.the_lease_runs_out().await;
            // The reconciler goes on.
            world.database.comes_to(KEYS_IN_FLIGHT, 0).await;
        }
    }
    let mut effects = 1;
    if retry == Retry::Never {
        // What was never committed can't be recovered.
        effects = usize::from(crash != Crash::BeforeBeginCommits);
    } else {
        let answer = world.until_definite(&path, &body).await;
        assert!(answer.status.is_success(), "{case}: {answer:?}");
        let again = world.client().post(&path, "key-1", &body).await;
        assert_eq!(again.status, answer.status, "{case}");
        assert_eq!(again.body, answer.body, "{case}");
        assert!(again.is_replay(), "{case}");
    }
    assert_eq!(world.processor.lines().await - before, effects, "{case}");
    world.assert_the_ledgers_agree(&case).await;
    effects == 1
}

async fn table(verbs: &[Verb], crashes: &[Crash], retries: &[Retry]) {
    let (mut lines, mut effects) = (0, 0);
    for verb in verbs {
        for crash in crashes {
            for retry in retries {
                lines += 1;
                effects += usize::from(line(*verb, *crash, *retry).await);
            }
        }
    }
    report(&format!(
        "{lines} crashes of {verbs:?} retried {retries:?}: {effects} effects, none twice"
    ));
}

#[tokio::test]
async fn a_crashed_charge_that_is_retried_at_once_charges_once() {
    table(&[Verb::Charge], CRASHES, &[Retry::AtOnce]).await;
}

#[tokio::test]
async fn a_crashed_charge_that_is_retried_after_the_lease_charges_once() {
    table(&[Verb::Charge], CRASHES, &[Retry::AfterTheLease]).await;
}

#[tokio::test]
async fn a_crashed_charge_that_is_never_retried_is_completed_or_never_was() {
    table(&[Verb::Charge], CRASHES, &[Retry::Never]).await;
}

#[tokio::test]
async fn a_crashed_capture_refund_or_payment_happens_once() {
    let verbs = [Verb::Capture, Verb::Refund, Verb::Pay];
    let crashes = [Crash::AfterTheEffect, Crash::BeforeSettleCommits];
    table(&verbs, &crashes, &[Retry::AfterTheLease]).await;
}

#[tokio::test]
async fn a_crashed_capture_refund_or_payment_that_is_never_retried_is_completed() {
    let verbs = [Verb::Capture, Verb::Refund, Verb::Pay];
    table(&verbs, &[Crash::BeforeTheEffect], &[Retry::Never]).await;
}

/// Trouble without a crash: what the first reply is, and how many keys the processor is asked
/// under.
#[tokio::test]
async fn whatever_the_processor_does_a_retry_has_one_effect() {
    let world = World::new().await;
    let cases = [
        ("refuse", true),
        ("error_before", false),
        ("error_after", false),
        ("drop_before", false),
        ("drop_after", false),
    ];
    for verb in [Verb::Charge, Verb::Capture, Verb::Refund, Verb::Pay] {
        for (fault, frees_the_key) in cases {
            let case = format!("{verb:?}, {fault}");
            let (path, body, _) = world.prepare(verb).await;
            let before = world.processor.lines().await;
            // A refusal is certain, so it is tried again within one call: all of its sends fail.
            let count = if frees_the_key { 3 } else { 1 };
            let rule = json!({"fault": fault, "count": count});
            world.set_fault(rule).await;
            let key = format!("{fault}-{verb:?}");
            let failed = world.client().post(&path, &key, &body).await;
            assert_eq!(failed.status, 503, "{case}");
            assert_eq!(failed.header("retry-after"), Some("1"), "{case}");
            let in_flight = i64::from(!frees_the_key);
            assert_eq!(world.in_flight().await, in_flight, "{case}");
            if !frees_the_key {
                let path_of_key = format!("/idempotency-keys/{key}");
                let inspected = world.client().get(&path_of_key).await;
                assert_eq!(inspected.json()["status"], "in_doubt", "{case}");
                let other = world.client().post(&path, &key, &json!({"x": 1})).await;
                assert_eq!(other.code(), "idempotency_key_reused", "{case}");
            }
            world.processor.reset_faults().await;
            let answer = world.client().post(&path, &key, &body).await;
            assert!(answer.status.is_success(), "{case}: {answer:?}");
            assert_eq!(world.processor.lines().await - before, 1, "{case}");
            world.assert_the_ledgers_agree(&case).await;
        }
    }
}
