//! Many requests in one transaction, which read rows before they are decided.
#![cfg(feature = "batch")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test may stop at the first surprise"
)]

mod support;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use charge_once_idempotency::{
    BatchSettings, Decide, Decision, Failure, FailureKind, Idempotency, Outcome, RanAlone, Record,
    Rejection, Reply, Rows, Settings,
};
use chrono::{DateTime, Utc};
use sqlx::{PgConnection, PgPool};
use support::{
    ACCOUNT, BookSeat,
    batching::{
        self, BEFORE_WRITING, IN_COMMIT, IN_READ, arrives_at, close, gathered, pass, patient,
    },
    count, execute, failed, request, stored, within_reason,
};
use tokio::task::JoinHandle;

/// Trains with free seats. A train that is full may have a relief train. `slow` is a train whose
/// changes wait at a gate in COMMIT.
const TRAINS: &str = "
    CREATE TABLE trains (
        name   text PRIMARY KEY,
        free   integer NOT NULL CHECK (free >= 0),
        relief text
    );
    INSERT INTO trains
    VALUES ('local', 10, NULL), ('full', 0, 'relief'), ('relief', 5, NULL), ('last', 1, NULL),
           ('1', 0, '2'), ('2', 0, '3'), ('3', 0, '4'), ('4', 1, NULL), ('hot', 64, NULL),
           ('slow', 10, NULL);
    CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM set_config('lock_timeout', '0', true), pg_advisory_xact_lock_shared(3);
        RETURN NULL;
    END $$;
    CREATE CONSTRAINT TRIGGER slow AFTER UPDATE ON trains DEFERRABLE INITIALLY DEFERRED
       FOR EACH ROW WHEN (NEW.name = 'slow') EXECUTE FUNCTION wait()";

const LOCAL: &str = "SELECT free::bigint FROM trains WHERE name = 'local'";

/// `POST /trains`: takes a seat on a train, or on its relief train if it is full.
#[derive(Clone, Copy)]
enum Take {
    Seat(&'static str),
    /// Waits in the read, too.
    Paused(&'static str),
    /// Takes a seat, and gives the train a relief train.
    WithRelief(&'static str, &'static str),
    /// Takes a seat alone.
    NotShared(&'static str),
    /// Reads nothing, and waits before it writes.
    Waits,
}

impl Take {
    fn train(&self) -> Option<&'static str> {
        match self {
            Self::Seat(train)
            | Self::Paused(train)
            | Self::WithRelief(train, _)
            | Self::NotShared(train) => Some(train),
            Self::Waits => None,
        }
    }
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum Name {
    Train(String),
    Pause,
}

#[derive(Clone)]
struct Train {
    free: i32,
    relief: Option<String>,
}

#[derive(Default)]
struct Trains {
    named: HashSet<Name>,
    read: HashMap<String, Train>,
    changed: HashMap<String, Train>,
    waits: bool,
}

impl Trains {
    fn get(&self, name: &str) -> Option<&Train> {
        self.changed.get(name).or_else(|| self.read.get(name))
    }
}

/// `None`: it waits before it writes.
type Change = Option<(String, Train)>;

impl Rows for Trains {
    type Name = Name;
    type Changes = Change;

    async fn read(&mut self, tx: &mut PgConnection, names: Vec<Name>) -> Result<(), sqlx::Error> {
        let mut trains = Vec::new();
        for name in names {
            assert!(self.named.insert(name.clone()), "it is read already");
            match name {
                Name::Train(name) => trains.push(name),
                Name::Pause => pass(tx, IN_READ).await?,
            }
        }
        trains.sort_unstable();
        let read: Vec<(String, i32, Option<String>)> = sqlx::query_as(
            "SELECT name, free, relief FROM trains WHERE name = ANY ($1)
              ORDER BY name FOR NO KEY UPDATE",
        )
        .bind(trains)
        .fetch_all(tx)
        .await?;
        let train = |(name, free, relief)| (name, Train { free, relief });
        self.read.extend(read.into_iter().map(train));
        Ok(())
    }

    fn apply(&mut self, change: Change) {
        match change {
            Some((name, train)) => drop(self.changed.insert(name, train)),
            None => self.waits = true,
        }
    }

    async fn write(self, tx: &mut PgConnection) -> Result<(), sqlx::Error> {
        if self.waits {
            pass(tx, BEFORE_WRITING).await?;
        }
        for (name, train) in self.changed {
            sqlx::query("UPDATE trains SET free = $2, relief = $3 WHERE name = $1")
                .bind(name)
                .bind(train.free)
                .bind(train.relief)
                .execute(&mut *tx)
                .await?;
        }
        Ok(())
    }
}

impl Decide for Take {
    type Rows = Trains;

    fn reads(&self, trains: &Trains) -> Vec<Name> {
        let mut names = match self {
            Self::Paused(_) => vec![Name::Pause],
            Self::Seat(_) | Self::WithRelief(..) | Self::NotShared(_) | Self::Waits => vec![],
        };
        let mut next = self.train().map(str::to_owned);
        while let Some(name) = next {
            let train = trains.get(&name).filter(|train| train.free == 0);
            next = train.and_then(|train| train.relief.clone());
            names.push(Name::Train(name));
        }
        names
    }

    fn is_shared(&self) -> bool {
        !matches!(self, Self::NotShared(_))
    }

    fn decide(&self, trains: &Trains, _: DateTime<Utc>) -> Result<Decision<Change>, Rejection> {
        let mut next = self.train().map(str::to_owned);
        if next.as_ref().is_some_and(|name| trains.get(name).is_none()) {
            return Err(Failure::internal("there is no such train").into());
        }
        while let Some(name) = next {
            // A train that was not read is none.
            let Some(Train { free, mut relief }) = trains.get(&name).cloned() else {
                break;
            };
            if free == 0 {
                next = relief;
                continue;
            }
            if let Self::WithRelief(_, another) = self {
                relief = Some((*another).to_owned());
            }
            let free = free - 1;
            let reply = Reply::raw_json(201, format!("{name}: {free}"));
            let changes = Some(Some((name, Train { free, relief })));
            return Ok(Decision { reply, changes });
        }
        let (status, body, changes) = match self {
            Self::Waits => (201, "waited", Some(None)),
            Self::Seat(_) | Self::Paused(_) | Self::WithRelief(..) | Self::NotShared(_) => {
                (400, "full", None)
            }
        };
        let reply = Reply::raw_json(status, body);
        Ok(Decision { reply, changes })
    }

    fn weight(&self) -> usize {
        1
    }
}

type World = batching::World<Trains>;

impl World {
    /// For the next world in the same database.
    async fn tear_down(self) {
        let tables =
            "DROP TABLE trains, bookings; DROP FUNCTION wait; DELETE FROM idempotency_keys";
        execute(&self.pool, tables).await;
    }

    fn send(&self, key: &str, take: Take) -> JoinHandle<Outcome> {
        let request = request(ACCOUNT, key, "/trains", "{}");
        let batches = self.batches.clone();
        tokio::spawn(async move { batches.run(request, take).await })
    }

    /// Sends requests that share a transaction: they gather while another one waits.
    async fn send_together(&self, requests: &[(&str, Take)]) -> Vec<JoinHandle<Outcome>> {
        let gate = close(&self.pool, BEFORE_WRITING).await;
        let first = self.send("first", Take::Waits);
        arrives_at(&self.pool, BEFORE_WRITING).await;
        let mut sent = Vec::new();
        for (number, (key, take)) in requests.iter().enumerate() {
            sent.push(self.send(key, *take));
            gathered(&self.batches, number + 1).await;
        }
        gate.rollback().await.unwrap();
        answer(first).await;
        sent
    }

    /// Another replica takes a seat in a table of its own, by the same key.
    async fn take_elsewhere(&self, key: &str) -> Arc<Record> {
        let another = Idempotency::new(self.pool.clone(), Settings::default()).unwrap();
        let request = request(ACCOUNT, key, "/trains", "{}");
        let booking = BookSeat::new(ACCOUNT, key);
        stored(another.run(request, booking).await).0
    }

    /// Returns when so many requests run alone.
    async fn run_alone(&self, requests: usize) {
        let alone = async {
            while self.seen.alone().len() < requests {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        within_reason("requests run alone", alone).await;
    }
}

async fn ended(sent: JoinHandle<Outcome>) -> Outcome {
    within_reason("a request ends", sent).await.unwrap()
}

/// The status and the body of an outcome that is definite.
async fn answer(sent: JoinHandle<Outcome>) -> (u16, String) {
    let (record, _) = stored(ended(sent).await);
    let body = String::from_utf8(record.reply.body.clone()).unwrap();
    (record.reply.status, body)
}

async fn answers(sent: Vec<JoinHandle<Outcome>>) -> Vec<String> {
    let mut answers = Vec::new();
    for sent in sent {
        answers.push(answer(sent).await.1);
    }
    answers
}

#[sqlx::test(migrations = false)]
async fn each_member_sees_what_those_before_it_have_changed(pool: PgPool) {
    let world = World::set_up(TRAINS, patient(1), pool).await;
    // The order is that of the keys.
    let sent = [
        ("c", Take::Seat("last")),
        ("b", Take::Seat("last")),
        ("a", Take::Seat("last")),
    ];
    let sent = world.send_together(&sent).await;
    assert_eq!(answers(sent).await, ["full", "full", "last: 0"]);
    assert_eq!(world.seen.batches(), [(1, true), (3, true)]);
    assert_eq!(world.seen.alone(), []);
    let last = "SELECT free::bigint FROM trains WHERE name = 'last'";
    assert_eq!(count(&world.pool, last).await, 0);
    // A refusal is stored: it stays when there is a seat again.
    let more = "UPDATE trains SET free = 5 WHERE name = 'last'";
    execute(&world.pool, more).await;
    let (refused, replayed) = stored(ended(world.send("b", Take::Seat("last"))).await);
    assert_eq!((refused.reply.status, replayed), (400, true));
    assert_eq!(count(&world.pool, last).await, 5);
}

#[sqlx::test(migrations = false)]
async fn a_crowd_at_one_row_is_counted_to_the_last_seat(pool: PgPool) {
    let world = World::set_up(TRAINS, patient(2), pool).await;
    let keys = (0..80).map(|key| key.to_string());
    let sent: Vec<_> = keys
        .map(|key| world.send(&key, Take::Seat("hot")))
        .collect();
    let mut answers = answers(sent).await;
    answers.sort_unstable();
    let mut expected: Vec<_> = (0..64).map(|free| format!("hot: {free}")).collect();
    expected.extend((0..16).map(|_| "full".to_owned()));
    expected.sort_unstable();
    assert_eq!(answers, expected);
    let hot = "SELECT free::bigint FROM trains WHERE name = 'hot'";
    assert_eq!(count(&world.pool, hot).await, 0);
    // No batch waited for a row of another one.
    assert_eq!(world.seen.alone(), []);
}

#[sqlx::test(migrations = false)]
async fn a_claim_that_is_lost_after_its_changes_were_seen_throws_the_batch_away(pool: PgPool) {
    let world = World::set_up(TRAINS, patient(1), pool).await;
    let gate = close(&world.pool, IN_READ).await;
    let sent = [("a", Take::Paused("local")), ("b", Take::Seat("local"))];
    let sent = world.send_together(&sent).await;
    arrives_at(&world.pool, IN_READ).await;
    // The batch has looked for the key already.
    let first = world.take_elsewhere("a").await;
    gate.rollback().await.unwrap();
    let [of_a, of_b] = <[_; 2]>::try_from(sent).unwrap();
    assert_eq!(stored(ended(of_a).await), (first, true));
    assert_eq!(answer(of_b).await, (201, "local: 9".to_owned()));
    assert_eq!(count(&world.pool, LOCAL).await, 9);
    assert_eq!(world.seen.batches(), [(1, true), (2, false)]);
    assert_eq!(world.seen.alone(), [RanAlone::BatchFailed; 2]);
}

#[sqlx::test(migrations = false)]
async fn a_request_by_itself_writes_nothing_if_its_claim_is_lost(pool: PgPool) {
    for connections in [1, 0] {
        let world = World::set_up(TRAINS, patient(connections), pool.clone()).await;
        let gate = close(&world.pool, IN_READ).await;
        let sent = world.send("a", Take::Paused("local"));
        arrives_at(&world.pool, IN_READ).await;
        let first = world.take_elsewhere("a").await;
        gate.rollback().await.unwrap();
        assert_eq!(stored(ended(sent).await), (first, true));
        assert_eq!(count(&world.pool, LOCAL).await, 10);
        assert_eq!(world.seen.batches(), [(1, true)]);
        assert_eq!(world.seen.alone(), []);
        world.tear_down().await;
    }
}

#[sqlx::test(migrations = false)]
async fn a_row_that_is_held_elsewhere_is_waited_for_alone(pool: PgPool) {
    let world = World::set_up(TRAINS, patient(1), pool).await;
    let mut elsewhere = world.pool.begin().await.unwrap();
    let hold = "UPDATE trains SET free = 7 WHERE name = 'local'";
    execute(&mut *elsewhere, hold).await;
    let sent = [
        ("a", Take::Seat("local")),
        ("b", Take::Seat("local")),
        ("c", Take::Seat("last")),
    ];
    let mut sent = world.send_together(&sent).await;
    world.run_alone(3).await;
    // Alone, a request waits for nothing but its own rows.
    assert_eq!(answer(sent.remove(2)).await.1, "last: 0");
    elsewhere.commit().await.unwrap();
    let mut answers = answers(sent).await;
    answers.sort_unstable();
    assert_eq!(answers, ["local: 5", "local: 6"]);
    assert_eq!(count(&world.pool, LOCAL).await, 5);
    assert_eq!(world.seen.alone(), [RanAlone::BatchFailed; 3]);
}

/// The claim of such a key is given back. By then, others may have seen what its request changed.
#[cfg(feature = "memory")]
#[sqlx::test(migrations = false)]
async fn a_remembered_key_leaves_its_batch_before_the_others_are_decided(pool: PgPool) {
    use charge_once_idempotency::{Batches, Memory};

    let mut world = World::set_up(TRAINS, patient(1), pool).await;
    let memory = Memory {
        keep: Some(support::PATIENCE * 100),
        by_time_in_key: false,
        answer: |_| Reply::raw_json(409, "remembered"),
    };
    let idempotency = Idempotency::new(world.pool.clone(), Settings::default()).unwrap();
    let idempotency = idempotency.remembering(memory).unwrap();
    world.batches = Batches::observed(&idempotency, patient(1), world.seen.clone());
    let remember = "INSERT INTO idempotency_tombstones (id, request, expired_at)
         SELECT idempotency_tombstone_id('00000000-0000-0000-0000-000000000001', 'b'), 1, now()";
    execute(&world.pool, remember).await;
    let sent = ["a", "b", "c"].map(|key| (key, Take::Seat("local")));
    let sent = world.send_together(&sent).await;
    assert_eq!(answers(sent).await, ["local: 9", "remembered", "local: 8"]);
    assert_eq!(world.seen.batches(), [(1, true), (3, true)]);
    assert_eq!(world.seen.alone(), [RanAlone::Undecided]);
    assert_eq!(count(&world.pool, LOCAL).await, 8);
}

#[sqlx::test(migrations = false)]
async fn a_replay_locks_nothing(pool: PgPool) {
    let world = World::set_up(TRAINS, patient(1), pool).await;
    let first = stored(ended(world.send("a", Take::Seat("local"))).await).0;
    let mut elsewhere = world.pool.begin().await.unwrap();
    let hold = "SELECT FROM trains WHERE name = 'local' FOR UPDATE";
    execute(&mut *elsewhere, hold).await;
    let sent = [("a", Take::Seat("local")), ("b", Take::Seat("last"))];
    let sent = world.send_together(&sent).await;
    let [of_a, of_b] = <[_; 2]>::try_from(sent).unwrap();
    assert_eq!(stored(ended(of_a).await), (first, true));
    assert_eq!(answer(of_b).await.1, "last: 0");
    // In the batch.
    assert_eq!(world.seen.batches(), [(1, true), (1, true), (2, true)]);
    assert_eq!(world.seen.alone(), []);
    elsewhere.rollback().await.unwrap();
}

#[sqlx::test(migrations = false)]
async fn a_round_of_reads_depends_on_the_one_before(pool: PgPool) {
    for connections in [1, 0] {
        let world = World::set_up(TRAINS, patient(connections), pool.clone()).await;
        let take = async |key: &str, train| ended(world.send(key, Take::Seat(train))).await;
        let body = |outcome| String::from_utf8(stored(outcome).0.reply.body.clone()).unwrap();
        assert_eq!(body(take("two", "full").await), "relief: 4");
        assert_eq!(body(take("three", "2").await), "4: 0");
        assert_eq!(world.seen.alone(), []);
        // A fourth round is a defect, and no reason to take a train for one that isn't there.
        assert_eq!(failed(take("four", "1").await).kind, FailureKind::Internal);
        assert_eq!(world.seen.alone(), [RanAlone::Undecided]);
        world.tear_down().await;
    }
}

#[sqlx::test(migrations = false)]
async fn a_row_that_only_a_change_before_it_names_is_read_alone(pool: PgPool) {
    let world = World::set_up(TRAINS, patient(1), pool).await;
    let sent = [
        ("a", Take::WithRelief("last", "relief")),
        ("b", Take::Seat("last")),
    ];
    let sent = world.send_together(&sent).await;
    assert_eq!(answers(sent).await, ["last: 0", "relief: 4"]);
    assert_eq!(world.seen.alone(), [RanAlone::Undecided]);
}

#[sqlx::test(migrations = false)]
async fn what_is_not_shared_runs_alone(pool: PgPool) {
    for connections in [1, 0] {
        let world = World::set_up(TRAINS, patient(connections), pool.clone()).await;
        let taken = world.send("a", Take::NotShared("local"));
        assert_eq!(answer(taken).await, (201, "local: 9".to_owned()));
        assert!(stored(ended(world.send("a", Take::NotShared("local"))).await).1);
        assert_eq!(count(&world.pool, LOCAL).await, 9);
        assert_eq!(world.seen.batches(), []);
        assert_eq!(world.seen.alone(), [RanAlone::Undecided; 2]);
        world.tear_down().await;
    }
}

#[sqlx::test(migrations = false)]
async fn a_batch_waits_for_the_rows_of_one_that_commits(pool: PgPool) {
    let world = World::set_up(TRAINS, patient(2), pool).await;
    let gate = close(&world.pool, IN_COMMIT).await;
    let first = world.send("a", Take::Seat("slow"));
    arrives_at(&world.pool, IN_COMMIT).await;
    let second = world.send("b", Take::Seat("slow"));
    // Longer than a batch waits for a lock.
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!second.is_finished());
    gate.rollback().await.unwrap();
    assert_eq!(answer(first).await.1, "slow: 9");
    assert_eq!(answer(second).await.1, "slow: 8");
    assert_eq!(world.seen.alone(), []);
}

#[sqlx::test(migrations = false)]
async fn a_commit_that_hangs_holds_up_the_next_batch_for_its_time(pool: PgPool) {
    let brief = BatchSettings {
        prepare_limit: Duration::from_millis(500),
        ..patient(2)
    };
    let world = World::set_up(TRAINS, brief, pool).await;
    let gate = close(&world.pool, IN_COMMIT).await;
    let first = world.send("a", Take::Seat("slow"));
    arrives_at(&world.pool, IN_COMMIT).await;
    let second = world.send("b", Take::Seat("slow"));
    world.run_alone(1).await;
    assert!(!first.is_finished());
    gate.rollback().await.unwrap();
    assert_eq!(answer(first).await.1, "slow: 9");
    assert_eq!(answer(second).await.1, "slow: 8");
    assert_eq!(world.seen.alone(), [RanAlone::BatchFailed]);
}
