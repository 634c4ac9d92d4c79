//! The rows of the in-flight table that need a command that fails, panics or lies, and a duplicate
//! that is surely there before the first one ends: through the library, without HTTP.

use std::{future::Future, pin::Pin};

use charge_once::idempotency::{FailureKind, Idempotency, Outcome, Request};
use futures_util::FutureExt;

use crate::support::{
    effects::{EFFECTS, End, LONG, Work, database_for_effects, failure, replica, request, stored},
    prelude::*,
};

type Running<'a> = Pin<Box<dyn Future<Output = Outcome> + Send + 'a>>;

/// Starts a call and takes it to the first point where it waits: it has its place by then, as the
/// leader or as a follower.
fn start<'a>(replica: &'a Idempotency, request: Request, work: &Work) -> Running<'a> {
    let mut call: Running<'a> = Box::pin(replica.run(request, work.clone()));
    let outcome = (&mut call).now_or_never();
    assert!(outcome.is_none(), "it didn't wait: {outcome:?}");
    call
}

/// A leader that is executing.
async fn start_leader<'a>(replica: &'a Idempotency, work: &Work) -> Running<'a> {
    let leader = start(replica, request("A", Duration::ZERO), work);
    eventually("the work starts", || async { work.executions() == 1 }).await;
    leader
}

/// As many as may follow.
fn start_followers<'a>(replica: &'a Idempotency, work: &Work) -> Vec<Running<'a>> {
    let follow = |_| start(replica, request("A", LONG), work);
    (0..1_000).map(follow).collect()
}

/// The followers get the leader's record.
async fn all_share(leader: Running<'_>, followers: Vec<Running<'_>>) {
    let (first, _) = stored(leader.await);
    for follower in followers {
        assert_eq!(stored(follower.await), (Arc::clone(&first), true));
    }
}

async fn effects_and_records(database: &TestDatabase) -> (i64, i64) {
    (database.count(EFFECTS).await, database.records().await)
}

async fn pool(database: &TestDatabase) -> PgPool {
    database.connect(PATIENT).await.pool().clone()
}

#[tokio::test]
async fn followers_share_what_the_leader_stored_and_other_requests_learn_of_the_reuse() {
    for (end, status, effects) in [(End::Store, 201, 1), (End::Refuse, 400, 0)] {
        let database = database_for_effects().await;
        let replica = replica(&pool(&database).await);
        let work = Work::that_lasts_and_then(end);
        let leader = start_leader(&replica, &work).await;
        let same = start(&replica, request("A", LONG), &work);
        let other = start(&replica, request("B", LONG), &work);
        work.finish();
        let (first, replayed) = stored(leader.await);
        assert_eq!((first.reply.status, replayed), (status, false));
        let (shared, replayed) = stored(same.await);
        assert!(replayed);
        assert_eq!(shared, first);
        assert!(matches!(other.await, Outcome::Reused));
        assert_eq!(work.executions(), 1);
        assert_eq!(effects_and_records(&database).await, (effects, 1));
    }
}

#[tokio::test]
async fn a_leaders_failure_or_panic_is_its_followers_too_and_other_requests_start_over() {
    for (end, kind) in [
        (End::Fail, FailureKind::Unavailable),
        (End::Panic, FailureKind::Internal),
        (End::SwallowAnError, FailureKind::Internal),
    ] {
        let database = database_for_effects().await;
        let replica = replica(&pool(&database).await);
        let work = Work::that_lasts_and_then(end);
        let other_work = Work::that_ends(End::Store);
        let leader = start_leader(&replica, &work).await;
        let same = start(&replica, request("A", LONG), &work);
        let other = start(&replica, request("B", LONG), &other_work);
        work.finish();
        for outcome in [leader.await, same.await] {
            assert_eq!(failure(outcome).kind, kind, "{end:?}");
        }
        // No request asked for a second run, and the key was free.
        assert_eq!(work.executions(), 1, "{end:?}");
        let (record, replayed) = stored(other.await);
        assert_eq!((record.reply.status, replayed), (201, false), "{end:?}");
        assert_eq!(effects_and_records(&database).await, (1, 1), "{end:?}");
    }
}

#[tokio::test]
async fn a_commit_that_postgres_refuses_is_a_failure_and_frees_the_key() {
    let database = database_for_effects().await;
    let sql = "ALTER TABLE effects ADD COLUMN allowed boolean NOT NULL DEFAULT false;
         CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN RAISE EXCEPTION 'refused at COMMIT' USING ERRCODE = 'check_violation'; END $$;
         CREATE CONSTRAINT TRIGGER late_check AFTER INSERT ON effects
             DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse();";
    database.execute(sql).await;
    let replica = replica(&pool(&database).await);
    let work = Work::that_lasts_and_then(End::Store);
    let leader = start_leader(&replica, &work).await;
    let same = start(&replica, request("A", LONG), &work);
    work.finish();
    // Anything else would be acknowledged, but rolled back.
    for outcome in [leader.await, same.await] {
        failure(outcome);
    }
    assert_eq!(work.executions(), 1);
    assert_eq!(effects_and_records(&database).await, (0, 0));
    database.execute("DROP TRIGGER late_check ON effects").await;
    stored(replica.run(request("A", LONG), work.clone()).await);
    assert_eq!(effects_and_records(&database).await, (1, 1));
}

#[tokio::test]
async fn a_leaders_reuse_error_is_shared_by_the_same_request_only() {
    let database = database_for_effects().await;
    let pool = pool(&database).await;
    let replica = replica(&pool);
    let work = Work::that_ends(End::Store);
    let (first, _) = stored(replica.run(request("A", LONG), work.clone()).await);
    let reuse = start(&replica, request("B", Duration::ZERO), &work);
    let same = start(&replica, request("B", Duration::ZERO), &work);
    let owner = start(&replica, request("A", LONG), &work);
    assert!(matches!(reuse.await, Outcome::Reused));
    // It waits for the claim though it asked not to.
    assert!(matches!(same.await, Outcome::Reused));
    assert_eq!(stored(owner.await), (first, true));
    assert_eq!(work.executions(), 1);
    assert_eq!(effects_and_records(&database).await, (1, 1));
}

#[tokio::test]
async fn a_follower_with_time_left_starts_over_when_its_leader_met_another_replica() {
    let database = database_for_effects().await;
    let pool = pool(&database).await;
    let (here, elsewhere) = (replica(&pool), replica(&pool));
    let work = Work::that_lasts_and_then(End::Fail);
    let owner = start_leader(&elsewhere, &work).await;
    let retried = Work::that_ends(End::Store);
    let leader = start(&here, request("A", Duration::ZERO), &retried);
    let hasty = start(&here, request("A", Duration::ZERO), &retried);
    let mut patient = start(&here, request("A", LONG), &retried);
    assert!(matches!(leader.await, Outcome::InUse { .. }));
    assert!(matches!(hasty.await, Outcome::InUse { .. }));
    let has_answered = (&mut patient).now_or_never();
    assert!(has_answered.is_none(), "it shared its leader's 409");
    work.finish();
    failure(owner.await);
    let (record, replayed) = stored(patient.await);
    assert_eq!((record.reply.status, replayed), (201, false));
    assert_eq!(retried.executions(), 1);
    assert_eq!(effects_and_records(&database).await, (1, 1));
}

#[tokio::test]
async fn a_caller_that_goes_away_cancels_nothing() {
    let database = database_for_effects().await;
    let replica = replica(&pool(&database).await);
    let work = Work::that_lasts_and_then(End::Store);
    let leader = start_leader(&replica, &work).await;
    let follower = start(&replica, request("A", LONG), &work);
    drop(leader);
    work.finish();
    let (_, replayed) = stored(follower.await);
    assert!(replayed);
    replica.drained().await;
    assert_eq!(effects_and_records(&database).await, (1, 1));
}

#[tokio::test]
async fn a_thousand_may_follow_and_one_more_is_told_at_once_that_the_key_is_in_use() {
    let database = database_for_effects().await;
    let replica = replica(&pool(&database).await);
    let work = Work::that_lasts_and_then(End::Store);
    let leader = start_leader(&replica, &work).await;
    let followers = start_followers(&replica, &work);
    let one_more = replica.run(request("A", LONG), work.clone());
    assert!(matches!(
        one_more.now_or_never(),
        Some(Outcome::InUse { .. })
    ));
    work.finish();
    all_share(leader, followers).await;
    assert_eq!(effects_and_records(&database).await, (1, 1));
}

#[tokio::test]
async fn duplicates_of_a_completed_key_are_replayed_however_many_come_together() {
    let database = database_for_effects().await;
    let replica = replica(&pool(&database).await);
    let work = Work::that_ends(End::Store);
    let (first, _) = stored(replica.run(request("A", LONG), work.clone()).await);
    let duplicates: Vec<_> = (0..1_200)
        .map(|_| start(&replica, request("A", Duration::ZERO), &work))
        .collect();
    for duplicate in duplicates {
        assert_eq!(stored(duplicate.await), (Arc::clone(&first), true));
    }
    assert_eq!(effects_and_records(&database).await, (1, 1));
}

#[tokio::test]
async fn beyond_a_thousand_a_duplicate_waits_for_the_claim_and_not_for_the_work() {
    let database = database_for_effects().await;
    let replica = replica(&pool(&database).await);
    let work = Work::that_lasts_and_then(End::Store);
    let leader = start(&replica, request("A", Duration::ZERO), &work);
    let followers = start_followers(&replica, &work);
    let one_more = start(&replica, request("A", LONG), &work);
    let one_more = tokio::time::timeout(PATIENCE, one_more).await;
    assert!(
        matches!(one_more, Ok(Outcome::InUse { .. })),
        "{one_more:?}"
    );
    assert_eq!(work.executions(), 1);
    work.finish();
    all_share(leader, followers).await;
    assert_eq!(effects_and_records(&database).await, (1, 1));
}

#[tokio::test]
async fn a_refusal_never_frees_its_key_for_another_replica_that_waits_for_it() {
    for expired in [false, true] {
        let database = database_for_effects().await;
        let pool = pool(&database).await;
        let (here, elsewhere) = (replica(&pool), replica(&pool));
        if expired {
            let before = Work::that_ends(End::Store);
            stored(here.run(request("C", LONG), before).await);
            database.expire_records().await;
        }
        let refused = Work::that_lasts_and_then(End::Refuse);
        let refusal = start_leader(&here, &refused).await;
        let other_work = Work::that_ends(End::Store);
        let other = start(&elsewhere, request("B", LONG), &other_work);
        let waiting = "SELECT count(*) FROM pg_stat_activity
                        WHERE datname = current_database() AND wait_event_type = 'Lock'";
        // The other one waits for the key's row.
        database.comes_to(waiting, 1).await;
        refused.finish();
        let (record, _) = stored(refusal.await);
        assert_eq!(record.reply.status, 400);
        assert!(matches!(other.await, Outcome::Reused));
        assert_eq!(other_work.executions(), 0, "the key was free for a moment");
        let kept = (i64::from(expired), 1);
        assert_eq!(effects_and_records(&database).await, kept);
    }
}
