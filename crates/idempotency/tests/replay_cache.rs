//! Replays from memory: what is remembered is what the database would answer.
#![cfg(all(feature = "replay-cache", feature = "sweep"))]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test may stop at the first surprise"
)]

mod support;

use std::{num::NonZeroU64, sync::Arc, time::Duration};

use charge_once_idempotency::{
    Command, Failure, Idempotency, Outcome, Record, Rejection, ReplayCache, Reply, Request,
    Settings, SweepPace, sweep,
};
use chrono::{DateTime, Utc};
use sqlx::{Connection, PgConnection, PgPool};
use support::{ACCOUNT, BookSeat, count, failed, request, set_up, stored, until, within_reason};
use uuid::Uuid;

const MEBIBYTE: NonZeroU64 = NonZeroU64::new(1 << 20).unwrap();
const BOOKINGS: &str = "SELECT count(*) FROM bookings";
const EXPIRED: &str = "SELECT count(*) FROM idempotency_keys WHERE expires_at <= clock_timestamp()";

/// A process of its own, as far as memory goes.
struct Replica {
    idempotency: Idempotency,
    cache: ReplayCache,
}

impl Replica {
    fn of(idempotency: Idempotency) -> Self {
        let cache = ReplayCache::new(&idempotency, MEBIBYTE);
        Self { idempotency, cache }
    }

    /// Its records live for three seconds, which its memory does not know: only the clock tells.
    /// That has been read.
    async fn with_short_lives(pool: &PgPool, idempotency: Idempotency) -> Self {
        let lasting = Self::of(idempotency);
        let request = request(ACCOUNT, "lasting", "/bookings", "{}");
        let remembered = async {
            while lasting.cache.look_up(&request).is_none() {
                lasting.book(&request, "lasting").await;
            }
        };
        within_reason("the clock is read", remembered).await;
        let settings = Settings {
            retention: Duration::from_secs(3),
            ..Settings::default()
        };
        Self {
            idempotency: Idempotency::new(pool.clone(), settings).unwrap(),
            cache: lasting.cache,
        }
    }

    async fn run<C: Command>(&self, request: &Request, command: C) -> Outcome {
        let execute = |request| self.idempotency.run(request, command);
        self.cache.run(request.clone(), execute).await
    }

    /// The answer to a request that books a seat, and whether it is a replay.
    async fn book(&self, request: &Request, seat: &str) -> (Arc<Record>, bool) {
        let seat = BookSeat::new(request.account_id, seat);
        stored(self.run(request, seat).await)
    }

    /// Sends a request again until it is answered from memory: until the database's clock has been
    /// read.
    async fn remembers(&self, request: &Request) -> Outcome {
        let remembered = async {
            loop {
                if let Some(outcome) = self.cache.look_up(request) {
                    break outcome;
                }
                self.book(request, "never").await;
            }
        };
        within_reason("it is remembered", remembered).await
    }
}

/// A replica that remembers a request whose record is dead, by the database's clock. It booked seat
/// 1a.
struct Expired {
    pool: PgPool,
    replica: Replica,
    request: Request,
}

impl Expired {
    async fn set_up(pool: PgPool) -> Self {
        let (pool, idempotency) = set_up(pool).await;
        let replica = Replica::with_short_lives(&pool, idempotency).await;
        let request = request(ACCOUNT, "key", "/bookings", r#"{"seat":"1a"}"#);
        replica.book(&request, "1a").await;
        replica.remembers(&request).await;
        let expired = async || count(&pool, EXPIRED).await > 0;
        until("the record expires", expired).await;
        Self {
            pool,
            replica,
            request,
        }
    }
}

#[sqlx::test(migrations = false)]
async fn a_replay_from_memory_is_the_original_and_asks_no_database(pool: PgPool) {
    let (pool, idempotency) = set_up(pool).await;
    let replica = Replica::of(idempotency);
    let request = request(ACCOUNT, "key", "/bookings", "{}");
    let (original, replayed) = replica.book(&request, "1a").await;
    assert!(!replayed);
    replica.remembers(&request).await;
    pool.close().await;
    assert_eq!(replica.book(&request, "1a").await, (original, true));
}

#[sqlx::test(migrations = false)]
async fn a_refusal_is_remembered_and_a_failure_is_not(pool: PgPool) {
    struct Fails;
    impl Command for Fails {
        async fn execute(&self, _: &mut PgConnection) -> Result<Reply, Rejection> {
            Err(Failure::unavailable("not now").into())
        }
    }
    let (_, idempotency) = set_up(pool).await;
    let replica = Replica::of(idempotency);
    let first = request(ACCOUNT, "first", "/bookings", "{}");
    replica.book(&first, "1a").await;
    let taken = request(ACCOUNT, "taken", "/bookings", "{}");
    replica.book(&taken, "1a").await;
    let (refusal, _) = stored(replica.remembers(&taken).await);
    assert_eq!(refusal.reply.status, 400);

    let failing = request(ACCOUNT, "failing", "/bookings", "{}");
    failed(replica.run(&failing, Fails).await);
    assert!(replica.cache.look_up(&failing).is_none());
    assert!(!replica.book(&failing, "1b").await.1);
}

#[sqlx::test(migrations = false)]
async fn a_record_answers_its_own_request_and_account_only(pool: PgPool) {
    let (alice, bob) = (Uuid::now_v7(), Uuid::now_v7());
    let (pool, idempotency) = set_up(pool).await;
    let replica = Replica::of(idempotency);
    let first = request(alice, "key", "/bookings", r#"{"seat":"1a"}"#);
    replica.book(&first, "1a").await;
    replica.remembers(&first).await;

    for other in [
        request(alice, "key", "/bookings", r#"{"seat":"1b"}"#),
        request(alice, "key", "/other", r#"{"seat":"1a"}"#),
    ] {
        let reused = replica.cache.look_up(&other);
        assert!(matches!(reused, Some(Outcome::Reused)), "{reused:?}");
        // As the database says.
        let seat = BookSeat::new(alice, "1b");
        let asked = replica.idempotency.run(other, seat).await;
        assert!(matches!(asked, Outcome::Reused), "{asked:?}");
    }

    let of_bob = request(bob, "key", "/bookings", r#"{"seat":"1a"}"#);
    assert!(replica.cache.look_up(&of_bob).is_none());
    assert!(!replica.book(&of_bob, "1b").await.1);
    assert_eq!(count(&pool, BOOKINGS).await, 2);
}

#[sqlx::test(migrations = false)]
async fn after_a_restart_the_database_answers_and_then_memory_does(pool: PgPool) {
    let (pool, idempotency) = set_up(pool).await;
    let request = request(ACCOUNT, "key", "/bookings", "{}");
    let before = Replica::of(idempotency.clone());
    let (original, _) = before.book(&request, "1a").await;

    let after = Replica::of(idempotency);
    assert!(after.cache.look_up(&request).is_none());
    let replay = (original, true);
    assert_eq!(after.book(&request, "1a").await, replay);
    assert_eq!(stored(after.remembers(&request).await), replay);
    assert_eq!(count(&pool, BOOKINGS).await, 1);
}

#[sqlx::test(migrations = false)]
async fn a_record_that_the_database_calls_dead_is_not_answered(pool: PgPool) {
    let Expired {
        replica, request, ..
    } = Expired::set_up(pool).await;
    assert!(replica.cache.look_up(&request).is_none());
    // The seat is taken, by the request before: this is another one.
    let (again, replayed) = replica.book(&request, "1a").await;
    assert_eq!((again.reply.status, replayed), (400, false));
}

#[sqlx::test(migrations = false)]
async fn a_key_that_another_replica_took_over_belongs_to_its_new_request(pool: PgPool) {
    let Expired {
        pool,
        replica: one,
        request: old,
    } = Expired::set_up(pool).await;
    let other = Replica::of(Idempotency::new(pool.clone(), Settings::default()).unwrap());

    let new = request(old.account_id, "key", "/bookings", r#"{"seat":"1b"}"#);
    assert!(!other.book(&new, "1b").await.1);
    let asked = one.run(&old, BookSeat::new(old.account_id, "1c")).await;
    assert!(matches!(asked, Outcome::Reused), "{asked:?}");
    assert!(one.book(&new, "1c").await.1);
    assert_eq!(count(&pool, BOOKINGS).await, 3);
}

#[sqlx::test(migrations = false)]
async fn a_key_that_another_replica_swept_is_free(pool: PgPool) {
    let Expired {
        pool,
        replica,
        request,
    } = Expired::set_up(pool).await;
    let mut elsewhere = pool.acquire().await.unwrap();
    let swept = sweep(&mut elsewhere, SweepPace::default()).await.unwrap();
    assert_eq!(swept, 1);
    assert!(!replica.book(&request, "1b").await.1);
    assert_eq!(count(&pool, BOOKINGS).await, 3);
}

#[sqlx::test(migrations = false)]
async fn memory_is_bounded(pool: PgPool) {
    let (_, idempotency) = set_up(pool).await;
    let replica = Replica {
        cache: ReplayCache::new(&idempotency, NonZeroU64::new(10_000).unwrap()),
        idempotency,
    };
    let mut requests = Vec::new();
    let first = request(ACCOUNT, "first", "/bookings", "{}");
    replica.book(&first, "first").await;
    replica.remembers(&first).await;
    for number in 0..100 {
        let name = number.to_string();
        let request = request(ACCOUNT, &name, "/bookings", "{}");
        replica.book(&request, &name).await;
        requests.push(request);
    }
    // The cache forgets in the background of its own calls.
    let few = async || {
        let is_known = |request: &&Request| replica.cache.look_up(request).is_some();
        (1..20).contains(&requests.iter().filter(is_known).count())
    };
    until("some are remembered, and not all", few).await;
    assert!(replica.cache.bytes() <= 10_000);
}

#[sqlx::test(migrations = false)]
async fn the_clock_is_read_again_while_requests_come(pool: PgPool) {
    const LAST_READING: &str = "
        SELECT query_start FROM pg_stat_activity
         WHERE datname = current_database() AND pid <> pg_backend_pid() AND query ILIKE '%pg_postmaster_start_time() AS \"started%'
         ORDER BY query_start DESC
         LIMIT 1";
    let connect = pool.connect_options();
    let (_, idempotency) = set_up(pool).await;
    let replica = Replica::of(idempotency);
    let request = request(ACCOUNT, "key", "/bookings", "{}");
    replica.book(&request, "1a").await;
    replica.remembers(&request).await;
    let mut elsewhere = PgConnection::connect_with(&connect).await.unwrap();
    let mut last_reading = async || -> Option<DateTime<Utc>> {
        let read = sqlx::query_scalar(LAST_READING);
        read.fetch_optional(&mut elsewhere).await.unwrap()
    };
    // Another statement may have followed on its connection. From here on there is none but the
    // readings.
    let first = last_reading().await;
    let again = async {
        while last_reading().await.is_none_or(|last| Some(last) == first) {
            assert!(replica.cache.look_up(&request).is_some());
        }
    };
    within_reason("the clock is read again", again).await;
}
