//! Writing the far side's answer down, through the library, when the database fails meanwhile.

use charge_once::idempotency::{CallOutcome, LeaseSettings, Phases};

use crate::support::{
    effects::{replica, replica_with_deadline, request, stored},
    far_side::{Far, LEASE, Start, World, is_failed},
    postgres_proxy::{NetworkFault, PostgresProxy},
    prelude::*,
};

/// Lets the first transaction that would complete fail with each of these, one after the other.
async fn settling_fails_with(world: &World, codes: &[&str]) {
    let codes = codes.join(",");
    let sql = format!(
        "CREATE SEQUENCE completions;
         CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
         DECLARE code text := split_part('{codes}', ',', nextval('completions')::integer);
         BEGIN
             IF code <> '' THEN RAISE EXCEPTION 'no' USING ERRCODE = code; END IF;
             RETURN NEW;
         END $$;
         CREATE TRIGGER refuse BEFORE UPDATE ON far_operations
             FOR EACH ROW EXECUTE FUNCTION refuse();"
    );
    world.database.execute(sql).await;
}

#[tokio::test]
async fn an_answer_in_hand_is_written_again_before_anybody_asks_a_second_time() {
    let world = World::new().await;
    // A row that stays locked, a statement that takes too long, a server that goes and is not back
    // yet, too many clients, a deadlock, a plan that no longer fits, and a server that became a
    // standby.
    let codes = [
        "55P03", "57014", "57P01", "57P03", "53300", "40P01", "0A000", "25006",
    ];
    settling_fails_with(&world, &codes).await;
    world.answers(201, false).await;
    assert_eq!(world.counts().await, (1, 1, 0));
    let attempts = "SELECT last_value FROM completions";
    assert_eq!(world.database.count(attempts).await, 9);
    assert_eq!(world.network.calls().len(), 1);

    // The reconciler and an operator write their answers again, too.
    let world = World::new().await;
    world.network.will(&[Far::CallerDies]);
    assert!(is_failed(&world.ask().await));
    world.the_lease_runs_out().await;
    settling_fails_with(&world, &["55P03"]).await;
    assert!(world.replica().recover_one().await.unwrap());
    assert_eq!(world.counts().await, (1, 1, 0));
    let world = World::new().await;
    world.network.will(&[Far::DropsBefore]);
    assert!(is_failed(&world.ask().await));
    settling_fails_with(&world, &["55P03"]).await;
    let operation = world.network.calls()[0];
    let word = async |_: &Uuid| CallOutcome::Answered(true);
    let completed = world.replica().resolve(operation, word).await;
    assert!(completed.unwrap());
    assert_eq!(world.counts().await, (1, 1, 0));
}

#[tokio::test]
async fn a_session_that_ends_while_the_answer_is_written_costs_no_second_question() {
    let world = World::new().await;
    let mut pause = PausePoint::at(Stage::Saving, &world.database, "key-1").await;
    let asking = world.asking(Duration::ZERO);
    pause.is_reached().await;
    pause.break_the_paused().await;
    pause.release().await;
    let (record, replayed) = stored(asking.await.unwrap());
    assert_eq!((record.reply.status, replayed), (201, false));
    assert_eq!(world.network.calls().len(), 1);
    assert_eq!(world.counts().await, (1, 1, 0));
}

#[tokio::test]
async fn a_defect_is_not_tried_again() {
    let world = World::new().await;
    settling_fails_with(&world, &["23514", "23514"]).await;
    assert!(is_failed(&world.ask().await));
    let attempts = "SELECT last_value FROM completions";
    assert_eq!(world.database.count(attempts).await, 1);
    assert_eq!(world.counts().await, (1, 0, 1));
}

#[tokio::test]
async fn a_completion_whose_commit_is_not_acknowledged_is_found_or_made_again() {
    for fault in [
        NetworkFault::LosesAnswersToCommit,
        NetworkFault::LosesCommits,
    ] {
        let world = World::new().await;
        let proxy = PostgresProxy::in_front_of(&world.database.url).await;
        let pool = PgPool::connect(&proxy.url).await.unwrap();
        let replica = Phases::new(replica(&pool), world.network.clone(), LEASE).unwrap();
        world.network.will(&[Far::ExecutesLater]);
        let asking = tokio::spawn(async move {
            let begin = Start { refuses: false };
            replica.run(request("A", Duration::ZERO), begin).await
        });
        world.network.is_asked(1).await;
        proxy.inject(fault);
        world.network.answer_now();
        eventually("a COMMIT is lost", || async { proxy.lost_commits() >= 1 }).await;
        // The completion is tried again after a pause. What it then finds is answered after a
        // COMMIT.
        proxy.inject(NetworkFault::None);
        let went_through = fault == NetworkFault::LosesAnswersToCommit;
        let (record, replayed) = stored(asking.await.unwrap());
        assert_eq!((record.reply.status, replayed), (201, went_through));
        assert_eq!(world.network.calls().len(), 1);
        assert_eq!(world.counts().await, (1, 1, 0));
    }
}

#[tokio::test]
async fn an_answer_that_can_not_be_written_in_time_is_asked_for_again_by_a_retry_at_once() {
    let world = World::new().await;
    let sql = "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '23514'; END $$;
         CREATE CONSTRAINT TRIGGER refuse AFTER UPDATE ON far_operations
             DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse();";
    world.database.execute(sql).await;
    let hasty = replica_with_deadline(&world.database.pool, Duration::from_secs(3));
    let hasty = Phases::new(hasty, world.network.clone(), LEASE).unwrap();
    let begin = Start { refuses: false };
    let failed = hasty.run(request("A", Duration::ZERO), begin).await;
    assert!(is_failed(&failed));
    assert_eq!(world.counts().await, (1, 0, 1));
    let sql = "DROP TRIGGER refuse ON far_operations";
    world.database.execute(sql).await;
    assert_eq!(stored(world.ask().await).0.reply.status, 201);
    assert_eq!(world.network.executed(), 1);
    world.was_asked_under_one_key(2);
}

#[tokio::test]
async fn nothing_is_sent_when_too_little_of_the_lease_is_left() {
    let world = World::new().await;
    let short = LeaseSettings {
        lease: Duration::from_secs(10),
        // To begin takes longer than a microsecond.
        call_limit: Duration::from_micros(4_999_999),
    };
    let replica = Phases::new(world.idempotency(), world.network.clone(), short).unwrap();
    let outcome = replica.run(request("A", Duration::ZERO), Start { refuses: false });
    assert!(is_failed(&outcome.await));
    assert_eq!(world.network.calls().len(), 0);
    assert_eq!(world.counts().await, (0, 0, 0));
}
