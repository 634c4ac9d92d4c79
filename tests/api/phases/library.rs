//! The phases of a request with an effect outside the database, through the library: the far side
//! is a ledger of the test's own, and time passes when the test says so.

use charge_once::idempotency::{
    CallOutcome, Failure, Inspected, Outcome, Phases, SweepPace, sweep,
};
use tokio::sync::watch;

use crate::support::{
    effects::{LONG, request, stored},
    far_side::{Far, LEASE, Start, World, is_failed},
    prelude::*,
};

#[tokio::test]
async fn an_effect_happens_once_and_its_answer_is_replayed() {
    let world = World::new().await;
    let (first, replayed) = stored(world.ask().await);
    assert_eq!((first.reply.status, replayed), (201, false));
    for _ in 0..3 {
        let (record, replayed) = stored(world.ask().await);
        assert_eq!((&record, replayed), (&first, true));
    }
    assert_eq!(world.network.calls().len(), 1);
    assert_eq!(world.counts().await, (1, 1, 0));
}

#[tokio::test]
async fn a_definite_no_is_stored_and_a_refusal_at_the_start_asks_nobody() {
    let world = World::new().await;
    world.network.will(&[Far::Declines]);
    let (declined, _) = stored(world.ask().await);
    assert_eq!(declined.reply.status, 402);
    assert_eq!(stored(world.ask().await).0, declined);
    assert_eq!(world.network.calls().len(), 1);
    let world = World::new().await;
    let replica = world.replica();
    for replay in [false, true] {
        let refuse = Start { refuses: true };
        let outcome = replica.run(request("A", Duration::ZERO), refuse).await;
        let (refused, replayed) = stored(outcome);
        assert_eq!((refused.reply.status, replayed), (400, replay));
    }
    assert_eq!(world.network.calls().len(), 0);
    assert_eq!(world.counts().await, (0, 0, 0));
}

#[tokio::test]
async fn what_was_certainly_not_executed_frees_the_key_and_the_next_try_is_another_operation() {
    let world = World::new().await;
    world.network.will(&[Far::NotExecuted]);
    assert!(is_failed(&world.ask().await));
    assert_eq!(world.counts().await, (0, 0, 0));
    assert_eq!(world.database.records().await, 0);
    world.answers(201, false).await;
    let calls = world.network.calls();
    assert_ne!(calls[0], calls[1], "a new execution has a new key");
    assert_eq!(world.network.executed(), 1);
}

#[tokio::test]
async fn an_unknown_outcome_keeps_the_key_in_flight_and_a_retry_asks_under_the_same_key() {
    for silence in [Far::DropsBefore, Far::DropsAfter] {
        let world = World::new().await;
        world.network.will(&[silence, Far::DropsBefore]);
        for _ in 0..2 {
            assert!(is_failed(&world.ask().await));
            assert_eq!(world.counts().await, (1, 0, 1));
        }
        world.answers(201, true).await;
        world.was_asked_under_one_key(3);
        assert_eq!(world.network.executed(), 1);
        assert_eq!(world.counts().await, (1, 1, 0));
    }
}

#[tokio::test]
async fn once_in_doubt_only_a_definite_answer_completes() {
    let world = World::new().await;
    // "Not executed" is true of the second attempt, and says nothing about the first one.
    world.network.will(&[Far::DropsAfter, Far::NotExecuted]);
    assert!(is_failed(&world.ask().await));
    assert!(is_failed(&world.ask().await));
    assert_eq!(world.counts().await, (1, 0, 1));
    assert_eq!(stored(world.ask().await).0.reply.status, 201);
    assert_eq!(world.network.executed(), 1);
    assert_eq!(world.network.calls().len(), 3);
}

#[tokio::test]
async fn a_key_in_flight_is_reused_by_another_request_and_in_use_for_the_same() {
    let world = World::new().await;
    world.network.will(&[Far::ExecutesLater]);
    let first = world.asking(Duration::ZERO);
    world.network.is_asked(1).await;
    // No transaction is open meanwhile, and no connection is held.
    let open = "SELECT count(*) FROM pg_stat_activity
                 WHERE datname = current_database() AND state LIKE 'idle in transaction%'";
    assert_eq!(world.database.count(open).await, 0);
    let another = request("B", Duration::ZERO);
    let other = world.replica();
    let other = other.run(another, Start { refuses: false }).await;
    assert!(matches!(other, Outcome::Reused));
    assert!(matches!(world.ask().await, Outcome::InUse { .. }));
    let key = request("A", Duration::ZERO).key;
    let inspected = world.idempotency().inspect(Uuid::nil(), key).await.unwrap();
    assert!(matches!(inspected, Inspected::InFlight(Some(_))));
    let waiting = world.asking(LONG);
    world.network.answer_now();
    let (record, _) = stored(first.await.unwrap());
    let (waited, replayed) = stored(waiting.await.unwrap());
    assert_eq!((waited, replayed), (record, true));
    assert_eq!(world.network.calls().len(), 1);
}

/// As another process would tell it, and this one after a crash.
#[tokio::test]
async fn once_the_claim_is_committed_the_same_process_tells_another_request_of_the_reuse() {
    let world = World::new().await;
    let mut pause = PausePoint::at(Stage::Leasing, &world.database, "key-1").await;
    world.network.will(&[Far::ExecutesLater]);
    let replica = world.replica();
    let ask = |content: &'static str, wait: Duration| {
        let replica = replica.clone();
        tokio::spawn(async move {
            let begin = Start { refuses: false };
            replica.run(request(content, wait), begin).await
        })
    };
    let first = ask("A", Duration::ZERO);
    pause.is_reached().await;
    // The first one may still roll back.
    let early = ask("B", Duration::ZERO).await.unwrap();
    assert!(matches!(early, Outcome::InUse { .. }));
    let patient = ask("B", LONG);
    pause.release().await;
    world.network.is_asked(1).await;
    assert!(matches!(patient.await.unwrap(), Outcome::Reused));
    let late = ask("B", Duration::ZERO).await.unwrap();
    assert!(matches!(late, Outcome::Reused));
    let same = ask("A", Duration::ZERO).await.unwrap();
    assert!(matches!(same, Outcome::InUse { .. }));
    assert_eq!(world.counts().await, (1, 0, 1), "the first is still out");
    let waiting = ask("A", LONG);
    world.network.answer_now();
    let (record, _) = stored(first.await.unwrap());
    assert_eq!(stored(waiting.await.unwrap()), (record, true));
    assert_eq!(world.network.calls().len(), 1);
}

#[tokio::test]
async fn after_a_crash_the_key_waits_for_the_lease_and_then_goes_on() {
    let world = World::new().await;
    world.network.will(&[Far::CallerDies]);
    assert!(is_failed(&world.ask().await));
    let Outcome::InUse { retry_after } = world.ask().await else {
        panic!("nothing holds the key");
    };
    // Less than what is left: its holder could be alive, and end soon.
    assert_eq!(retry_after, Some(Duration::from_secs(2)));
    world.the_lease_runs_out().await;
    world.answers(201, true).await;
    world.was_asked_under_one_key(2);
}

#[tokio::test]
async fn the_far_side_is_told_when_another_process_may_take_over() {
    let world = Arc::new(World::new().await);
    world.network.will(&[Far::DropsBefore, Far::ExecutesLater]);
    assert!(is_failed(&world.ask().await));
    let asking = Arc::clone(&world);
    // The second attempt is a takeover, with a lease of its own.
    let asked = tokio::spawn(async move { asking.ask().await });
    world.network.is_asked(2).await;
    let leased_until = "SELECT leased_until FROM idempotency_leases";
    let leased_until = world.database.value(leased_until).await;
    let not_after = *world.network.ledger.not_after.lock().unwrap();
    assert_eq!(not_after, Some(leased_until));
    world.network.answer_now();
    stored(asked.await.unwrap());
}

#[tokio::test]
async fn of_many_who_find_the_lease_over_one_goes_on() {
    let world = World::new().await;
    world.network.will(&[Far::CallerDies]);
    assert!(is_failed(&world.ask().await));
    world.the_lease_runs_out().await;
    let racers: Vec<_> = (0..10).map(|_| world.asking(LONG)).collect();
    let mut records = Vec::new();
    for racer in racers {
        records.push(stored(racer.await.unwrap()).0);
    }
    assert!(records.iter().all(|record| record == &records[0]));
    assert_eq!(world.network.calls().len(), 2, "the dead one and one more");
}

#[tokio::test]
async fn a_late_holder_completes_nothing_and_answers_what_the_other_one_wrote() {
    let world = World::new().await;
    world.network.will(&[Far::ExecutesLater]);
    let late = world.asking(Duration::ZERO);
    world.network.is_asked(1).await;
    let gate = world.network.may_answer.lock().unwrap().clone().unwrap();
    world.the_lease_runs_out().await;
    let (record, _) = stored(world.ask().await);
    // A second completion would show.
    let sql = "UPDATE far_operations SET executed = NULL";
    world.database.execute(sql).await;
    gate.add_permits(1);
    let (answered, replayed) = stored(late.await.unwrap());
    assert_eq!((answered, replayed), (record, true));
    assert_eq!(world.counts().await, (1, 0, 0));
    assert_eq!(world.network.executed(), 1);
}

#[tokio::test]
async fn a_holder_of_a_released_key_can_not_complete_what_was_begun_after_it() {
    let world = World::new().await;
    world.network.will(&[Far::ExecutesLater; 2]);
    let late = world.asking(Duration::ZERO);
    world.network.is_asked(1).await;
    let first = world.network.may_answer.lock().unwrap().clone().unwrap();
    // As an operator would, who knows that nothing was executed.
    world.the_operation_is_forgotten().await;
    let second = world.asking(Duration::ZERO);
    world.network.is_asked(2).await;
    first.add_permits(1);
    assert!(matches!(late.await.unwrap(), Outcome::InUse { .. }));
    assert_eq!(world.counts().await, (1, 0, 1));
    world.network.answer_now();
    assert_eq!(stored(second.await.unwrap()).0.reply.status, 201);
    let calls = world.network.calls();
    assert_ne!(calls[0], calls[1]);
}

#[tokio::test]
async fn a_late_holder_with_an_answer_begins_nothing_new() {
    let world = World::new().await;
    world.network.will(&[Far::ExecutesLater]);
    let late = world.asking(Duration::ZERO);
    world.network.is_asked(1).await;
    world.the_lease_runs_out().await;
    // An operator who is wrong: the call is still on its way.
    let operation = world.network.calls()[0];
    let word =
        async |_: &Uuid| CallOutcome::NotExecuted(Failure::unavailable("an operator's word"));
    let completed = world.replica().resolve(operation, word).await;
    assert!(completed.unwrap());
    world.network.answer_now();
    assert!(is_failed(&late.await.unwrap()));
    assert_eq!(world.network.calls(), [operation]);
    assert_eq!(world.network.executed(), 1);
}

/// The late holder waits for the process that took over. Its request is the same one afterwards.
#[tokio::test]
async fn a_late_holder_that_waited_begins_nothing_new() {
    let world = World::new().await;
    world.network.will(&[Far::ExecutesLater; 2]);
    let idempotency = world.idempotency();
    let replica = Phases::new(idempotency.clone(), world.network.clone(), LEASE).unwrap();
    let patient = request("A", PATIENCE);
    let account_id = patient.account_id;
    let late = tokio::spawn(async move { replica.run(patient, Start { refuses: false }).await });
    world.network.is_asked(1).await;
    let answer = world.network.may_answer.lock().unwrap().clone().unwrap();
    world.the_lease_runs_out().await;
    let _second = world.asking(Duration::ZERO);
    world.network.is_asked(2).await;
    answer.add_permits(1);
    // It works on the key no more, and waits for the second holder.
    let holds = || async { idempotency.requests_in_flight(account_id).is_empty() };
    eventually("the late holder waits", holds).await;
    // As an operator would, who is told that nothing was executed.
    world.the_operation_is_forgotten().await;
    let answered = late.await.unwrap();
    assert!(is_failed(&answered), "{answered:?}");
    assert_eq!(world.network.calls().len(), 2);
    assert_eq!(world.counts().await, (0, 0, 0));
}

#[tokio::test]
async fn an_operation_that_can_not_be_read_keeps_no_other_from_its_turn() {
    let world = World::new().await;
    world.network.will(&[Far::DropsBefore, Far::DropsBefore]);
    for key in ["unreadable", "readable"] {
        assert!(is_failed(&world.ask_with_key(key).await));
    }
    let unreadable = sqlx::query("DELETE FROM far_operations WHERE id = $1");
    let unreadable = unreadable.bind(world.network.calls()[0]);
    unreadable.execute(&world.database.pool).await.unwrap();
    let sql = "UPDATE idempotency_leases SET leased_until = now() - interval '2 s', recover_after =
           now() - CASE key WHEN 'unreadable' THEN interval '2 s' ELSE interval '1 s' END";
    world.database.execute(sql).await;
    while world.replica().recover_one().await.unwrap() {}
    let left = "SELECT count(*) FROM idempotency_leases
                 WHERE key = 'unreadable' AND recover_after > now() AND in_doubt";
    assert_eq!(world.database.count(left).await, 1);
    assert_eq!(world.counts().await, (1, 1, 1));
}

#[tokio::test]
async fn the_reconciler_goes_on_for_a_client_that_never_comes_back() {
    let world = World::new().await;
    world.network.will(&[Far::CallerDies]);
    assert!(is_failed(&world.ask().await));
    assert!(!world.replica().recover_one().await.unwrap(), "too early");
    world.the_lease_runs_out().await;
    let (one, two) = (world.replica(), world.replica());
    let (one, two) = tokio::join!(one.recover_one(), two.recover_one());
    assert!(one.unwrap() ^ two.unwrap(), "one of two replicas goes on");
    assert_eq!(world.counts().await, (1, 1, 0));
    world.answers(201, true).await;
    world.was_asked_under_one_key(2);
}

/// A far side that is silent about one operation.
#[tokio::test]
async fn the_reconciler_waits_for_no_operation_before_it_takes_over_the_next() {
    let world = World::new().await;
    let leave_in_doubt = async |key: &str| {
        world.network.will(&[Far::DropsBefore]);
        assert!(is_failed(&world.ask_with_key(key).await));
        let over = "UPDATE idempotency_leases SET leased_until = now(), recover_after = now()
                     WHERE key = $1";
        let over = sqlx::query(over).bind(key).execute(&world.database.pool);
        assert_eq!(over.await.unwrap().rows_affected(), 1);
    };
    leave_in_doubt("silent").await;
    world.network.will(&[Far::ExecutesLater]);
    let (stop, stopping) = watch::channel(false);
    let reconciler = tokio::spawn(world.replica().reconcile(|| {}, stopping));
    world.network.is_asked(2).await;
    leave_in_doubt("answered").await;
    let holds = || async { world.counts().await == (2, 1, 1) };
    eventually("the second operation is completed", holds).await;
    stop.send(true).unwrap();
    reconciler.await.unwrap();
}

#[tokio::test]
async fn the_reconciler_pauses_after_an_unknown_outcome_and_a_client_need_not() {
    let world = World::new().await;
    world.network.will(&[Far::DropsBefore, Far::DropsBefore]);
    assert!(is_failed(&world.ask().await));
    assert!(!world.replica().recover_one().await.unwrap());
    world.the_lease_runs_out().await;
    assert!(world.replica().recover_one().await.unwrap());
    assert!(!world.replica().recover_one().await.unwrap());
    let pause =
        "SELECT extract(epoch FROM recover_after - leased_until)::bigint FROM idempotency_leases";
    assert_eq!(world.database.count(pause).await, 10);
    // However often clients have tried, the reconciler is back soon after the fault.
    world.network.will(&[Far::DropsBefore; 4]);
    for _ in 0..4 {
        assert!(is_failed(&world.ask().await));
    }
    assert_eq!(world.database.count(pause).await, 15);
    assert_eq!(stored(world.ask().await).0.reply.status, 201);
}

#[tokio::test]
async fn a_key_in_flight_never_expires_and_its_outcome_lives_as_long_as_any() {
    let world = World::new().await;
    world.network.will(&[Far::DropsAfter]);
    assert!(is_failed(&world.ask().await));
    world.database.expire_records().await;
    let mut connection = world.database.pool.acquire().await.unwrap();
    let swept = sweep(&mut connection, SweepPace::default()).await;
    assert_eq!(swept.unwrap(), 0);
    assert_eq!(stored(world.ask().await).0.reply.status, 201);
    let left = "SELECT extract(epoch FROM expires_at - now())::bigint FROM idempotency_keys";
    assert!(world.database.count(left).await > 3_500);
    world.was_asked_under_one_key(2);
}
