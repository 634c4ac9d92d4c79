//! The reconciler gives every account its turn, and no client waits for it.

use charge_once::idempotency::Request;
use tokio::sync::watch;

use crate::support::{
    effects::{request, stored},
    far_side::{Far, Start, World},
    prelude::*,
};

/// When sessions last looked for leases or tried to take one over, and whether they wait for a
/// lock. Without the sessions that asked this.
const LOOKS: &str = "
    SELECT query_start, wait_event_type IS NOT DISTINCT FROM 'Lock'
      FROM pg_stat_activity
     WHERE datname = current_database()
       AND query LIKE '%FROM idempotency_leases%' AND query NOT LIKE '%pg_stat_activity%'";

/// How many operations the busy account has abandoned.
const BACKLOG: usize = 30;

fn request_of(account: u128, key: &str) -> Request {
    let mut request = request("A", Duration::ZERO);
    request.account_id = Uuid::from_u128(account);
    request.key = IdempotencyKey::parse(key.as_bytes()).unwrap();
    request
}

/// Operations of these accounts whose outcome is unknown and whose leases are over, in this order.
async fn abandoned(accounts: impl IntoIterator<Item = u128>) -> World {
    let world = World::new().await;
    for (number, account) in accounts.into_iter().enumerate() {
        world.network.will(&[Far::DropsBefore]);
        let request = request_of(account, &format!("key-{number}"));
        let start = Start { refuses: false };
        let _unknown = world.replica().run(request, start).await;
    }
    world.database.expire_leases().await;
    world
}

#[tokio::test]
async fn an_account_with_many_abandoned_operations_delays_no_other_account() {
    for (busy, quiet) in [(1, 2), (2, 1)] {
        let world = abandoned([busy; BACKLOG].into_iter().chain([quiet])).await;
        let of_the_quiet_one = world.network.calls()[BACKLOG];
        let replica = world.replica();
        assert!(replica.recover_one().await.unwrap());
        assert!(replica.recover_one().await.unwrap());
        let first = &world.network.calls()[BACKLOG + 1..];
        assert!(first.contains(&of_the_quiet_one), "busy is {busy}");
        // And each operation has its turn.
        while replica.recover_one().await.unwrap() {}
        assert_eq!(world.network.executed(), BACKLOG + 1);
    }
}

/// Four thousand copies of the operation that the first account has abandoned.
const MANY: &str = "
    INSERT INTO far_operations (id) SELECT md5(n::text)::uuid FROM generate_series(1, 4000) AS n;
    INSERT INTO idempotency_keys
    SELECT (jsonb_populate_record(one, jsonb_build_object('key', 'copy-' || n))).*
      FROM idempotency_keys AS one, generate_series(1, 4000) AS n WHERE one.key = 'key-0';
    INSERT INTO idempotency_leases
    SELECT (jsonb_populate_record(one, jsonb_build_object(
               'key', 'copy-' || n, 'operation', md5(n::text), 'token', md5(n::text)))).*
      FROM idempotency_leases AS one, generate_series(1, 4000) AS n WHERE one.key = 'key-0';";

#[tokio::test]
async fn of_thousands_of_abandoned_operations_another_account_s_is_the_first_or_the_second() {
    for (busy, quiet) in [(1, 2), (2, 1)] {
        let world = abandoned([busy, quiet]).await;
        world.database.execute(MANY).await;
        let leases = "SELECT count(*) FROM idempotency_leases WHERE leased_until < now()";
        assert_eq!(world.database.count(leases).await, 4002);
        let of_the_quiet_one = world.network.calls()[1];
        let replica = world.replica();
        for _ in 0..2 {
            assert!(replica.recover_one().await.unwrap());
        }
        let recovered = &world.network.calls()[2..];
        assert!(recovered.contains(&of_the_quiet_one), "busy is {busy}");
    }
}

#[tokio::test]
async fn nothing_is_taken_over_to_find_out_that_there_is_nothing() {
    let world = World::new().await;
    assert!(!world.replica().is_any_abandoned().await.unwrap());
    let world = abandoned([1]).await;
    assert!(world.replica().is_any_abandoned().await.unwrap());
    let takeovers = "SELECT sum(takeovers)::bigint FROM idempotency_leases";
    assert_eq!(world.database.count(takeovers).await, 0);
}

#[tokio::test]
async fn a_reconciler_that_finds_nothing_tries_to_take_nothing_over() {
    let world = World::new().await;
    let pool = &world.database.pool;
    // It lets what looks pass, and what would lock a row wait.
    let lock = "LOCK TABLE idempotency_leases IN EXCLUSIVE MODE";
    let _tx = world.database.holding(lock).await;
    let (_stop, stopping) = watch::channel(false);
    let running = tokio::spawn(world.replica().reconcile(|| {}, stopping));
    let looks = Mutex::new(HashSet::new());
    eventually("it looks again and again", || async {
        let seen = sqlx::query_as::<_, (DateTime<Utc>, bool)>(LOOKS).fetch_all(pool);
        let seen = seen.await.unwrap();
        assert!(!seen.iter().any(|(_, waits)| *waits), "it locks rows");
        let mut looks = looks.lock().unwrap();
        looks.extend(seen);
        looks.len() >= 3
    })
    .await;
    running.abort();
}

#[tokio::test]
async fn a_retry_does_not_wait_for_the_reconciler() {
    let world = abandoned([1; 5]).await;
    world.network.will(&[Far::ExecutesLater; 4]);
    // Four at a time, and the far side is silent about each of them.
    let replica = world.replica();
    let mut reconciler = JoinSet::new();
    for _ in 0..4 {
        let replica = replica.clone();
        reconciler.spawn(async move { replica.recover_one().await });
    }
    world.network.is_asked(9).await;
    let free = "SELECT key FROM idempotency_leases WHERE leased_until <= now()";
    let free: String = world.database.value(free).await;
    let retry = replica.run(request_of(1, &free), Start { refuses: false });
    let (record, _) = stored(retry.await);
    assert_eq!(record.reply.status, 201);
    reconciler.abort_all();
}
