//! What is kept for a time only: events with their deliveries, and operations.

use charge_once::{
    domain::ids::WebhookDeliveryId,
    store::old_rows::Age,
    webhooks::{delete_events, old_events, retry_now},
    workers::{
        expiry_sweep::Sweep,
        retention::{Removed, Retention, Round, Stop},
    },
};
use tokio::time::Instant;

use crate::support::prelude::*;

const KEPT: &[(&str, &str)] = &[("EVENT_RETENTION", "30d"), ("OPERATION_RETENTION", "30d")];

/// Old rows of three accounts: 1,201 events, each with a delivery, and 700 operations. Of the first
/// account's, one delivery is pending, one operation has no answer, and one is a step of a checkout
/// that goes on.
const OLD_ROWS: &str = "
    SET LOCAL session_replication_role = replica;
    CREATE FUNCTION old_id(n bigint) RETURNS uuid STABLE LANGUAGE sql AS $$
        SELECT (lpad(to_hex((extract(epoch FROM now() - interval '40 days') * 1000)::bigint + n), 12, '0')
                || '7000800000000000' || lpad(to_hex(n), 4, '0'))::uuid $$;
    CREATE FUNCTION old_account(n bigint) RETURNS uuid IMMUTABLE LANGUAGE sql AS
        $$ SELECT lpad(to_hex(1 + CASE WHEN n <= 1101 THEN 0 ELSE n % 3 END), 32, '0')::uuid $$;
    INSERT INTO accounts (id, name)
    SELECT DISTINCT old_account(n), old_account(n)::text FROM generate_series(1, 1201) AS n;
    INSERT INTO events (account_id, id, type, object, request_id, idempotency_key, created_at)
    SELECT old_account(n), old_id(n), 'charge.succeeded', '{}', 'req_' || n, 'key-' || n,
           now() - interval '40 days'
      FROM generate_series(1, 1201) AS n;
    INSERT INTO webhook_deliveries (account_id, id, endpoint_id, event_id, status, next_attempt_at,
           delivered_at)
    SELECT old_account(n), old_id(n), old_id(1), old_id(n),
           CASE WHEN n = 1 THEN 'pending' ELSE 'succeeded' END, CASE WHEN n = 1 THEN now() END,
           CASE WHEN n <> 1 THEN now() END
      FROM generate_series(1, 1201) AS n;
    INSERT INTO checkouts (account_id, id, amount, currency, items, metadata, card_token, card_exp_month,
           card_exp_year, dialect, request_id, idempotency_key)
    SELECT old_account(2), old_id(2), 1000, 'usd', '[{}]', '{}', 'tok_visa', 12, 2099, 'ietf', 'req', 'key';
    INSERT INTO operations (account_id, id, verb, charge_id, checkout_id, amount, dialect, expand,
           request_id, idempotency_key, created_at, completed_at, outcome)
    SELECT old_account(n), old_id(n), 'capture_charge', old_id(n), CASE WHEN n = 2 THEN old_id(2) END,
           1000, 'ietf', false, 'req_' || n, 'key-' || n, now() - interval '40 days',
           CASE WHEN n <> 1 THEN now() END, CASE WHEN n <> 1 THEN 'done' END
      FROM generate_series(1, 700) AS n;";

/// Why [`OLD_ROWS`] contradict the invariants.
const MADE_UP: &str = "its old rows are about nothing";

async fn add_old_rows(database: &TestDatabase) {
    database.is_left_broken(MADE_UP);
    database.execute(OLD_ROWS).await;
}

async fn with_old_rows() -> TestDatabase {
    let database = TestDatabase::create().await;
    add_old_rows(&database).await;
    database
}

/// Where the events of the second of three accounts can't be removed.
async fn where_the_second_refuses() -> TestDatabase {
    let database = with_old_rows().await;
    let refuse = "
        CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN RAISE 'the second account''s events stay'; END $$;
        CREATE TRIGGER refuse BEFORE DELETE ON events FOR EACH ROW
            WHEN (OLD.account_id = old_account(1201)) EXECUTE FUNCTION refuse()";
    database.execute(refuse).await;
    database
}

const SECOND: AccountId = AccountId(Uuid::from_u128(2));

/// A walk through the accounts, and the connection that it has.
struct Walk {
    retention: Retention,
    connection: PgConnection,
}

impl Walk {
    async fn of(database: &TestDatabase) -> Self {
        Self {
            retention: Retention::new(config(KEPT).retention, PATIENCE, 0),
            connection: PgConnection::connect(&database.url).await.unwrap(),
        }
    }

    async fn until(&mut self, deadline: Instant) -> (Stop, Removed) {
        let mut removed = Removed::default();
        let walk = self
            .retention
            .go_on(&mut self.connection, &mut removed, deadline);
        (walk.await.unwrap(), removed)
    }
}

async fn sweep(database: &TestDatabase, variables: &[(&str, &str)]) -> Sweep {
    let connected = database.connect(variables).await;
    Sweep::new(connected, &config(variables), 0)
}

fn later() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

async fn removes(sweep: &mut Sweep, until: Instant) -> (u64, u64, bool) {
    counts(&sweep.old_rows(until).await.unwrap())
}

fn counts(removed: &Removed) -> (u64, u64, bool) {
    let is_whole = removed.round == Round::Whole;
    (removed.events, removed.operations, is_whole)
}

async fn left(database: &TestDatabase) -> [i64; 3] {
    [
        database.count_of("events").await,
        database.count_of("webhook_deliveries").await,
        database.count_of("operations").await,
    ]
}

#[tokio::test]
async fn what_is_old_goes_and_what_is_young_or_still_at_work_stays() {
    let server = TestServer::start().await;
    assert_eq!(server.client.charge("young").await.status, 201);
    // Its own sweep must find nothing to remove.
    let database = &server.stop().await;
    add_old_rows(database).await;
    let mut sweep = sweep(database, KEPT).await;
    assert_eq!(removes(&mut sweep, later()).await, (1200, 698, true));
    assert_eq!(left(database).await, [2, 1, 2]);
    assert_eq!(removes(&mut sweep, later()).await, (0, 0, true));
}

#[tokio::test]
async fn what_has_ended_goes_with_the_next_round() {
    let database = with_old_rows().await;
    let mut sweep = sweep(&database, KEPT).await;
    sweep.old_rows(later()).await.unwrap();
    let change = "SET LOCAL session_replication_role = replica;
         UPDATE webhook_deliveries SET status = 'failed', next_attempt_at = NULL;
         UPDATE operations SET completed_at = now(), outcome = 'done' WHERE completed_at IS NULL;
         UPDATE checkouts SET status = 'completed', order_id = id";
    database.execute(change).await;
    assert_eq!(removes(&mut sweep, later()).await, (1, 2, true));
    assert_eq!(left(&database).await, [0, 0, 0]);
}

#[tokio::test]
async fn a_round_that_is_interrupted_goes_on_where_it_stopped() {
    let database = with_old_rows().await;
    let mut sweep = sweep(&database, KEPT).await;
    // No time at all, and then a table that is locked for longer than a statement waits.
    assert_eq!(removes(&mut sweep, Instant::now()).await, (0, 0, false));
    let tx = database.holding("LOCK TABLE operations").await;
    let removed = sweep.old_rows(later()).await.unwrap();
    // Each account's events had their turn before its operations.
    assert_eq!(counts(&removed), (1200, 0, false));
    assert_eq!(removed.failed_accounts, 4, "the dev account's, too");
    tx.rollback().await.unwrap();
    let removed = sweep.old_rows(later()).await.unwrap();
    assert_eq!((removed.operations, removed.round), (698, Round::Whole));
    assert_eq!(left(&database).await, [1, 1, 2]);
}

#[tokio::test]
async fn an_account_that_had_its_turn_is_passed_over_until_the_next_round() {
    let database = where_the_second_refuses().await;
    let mut walk = Walk::of(&database).await;
    // A walk that fails leaves its connection with a transaction.
    let mut go_on = async || {
        walk.connection = PgConnection::connect(&database.url).await.unwrap();
        walk.until(later()).await
    };
    let (stop, removed) = go_on().await;
    assert!(matches!(stop, Stop::Failed(SECOND, _)));
    assert_eq!((removed.events, removed.operations), (1133, 698));
    let change =
        "INSERT INTO events (account_id, id, type, object, request_id, idempotency_key, created_at)
         VALUES (old_account(1), old_id(2000), 'charge.succeeded', '{}', 'req', 'key',
                 now() - interval '40 days')";
    database.execute(change).await;
    let (stop, removed) = go_on().await;
    assert!(matches!(stop, Stop::At(Round::Failed)));
    assert_eq!((removed.events, removed.failed_accounts), (33, 1));
    database.execute("DROP TRIGGER refuse ON events").await;
    let (stop, removed) = go_on().await;
    assert!(matches!(stop, Stop::At(Round::Whole)));
    assert_eq!((removed.events, removed.failed_accounts), (35, 0));
}

/// The events of the first account take so long to remove that the time is up after its first
/// batch.
#[tokio::test]
async fn a_walk_that_is_stopped_by_time_goes_on_with_the_next_account() {
    let database = where_the_second_refuses().await;
    let change = "CREATE FUNCTION take_long() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN
                 -- Only the first batch leaves so many.
                 IF (SELECT count(*) FROM events) > 700 THEN PERFORM pg_sleep(4); END IF;
                 RETURN NULL;
             END $$;
         CREATE TRIGGER take_long AFTER DELETE ON events FOR EACH STATEMENT
             EXECUTE FUNCTION take_long()";
    database.execute(change).await;
    let mut walk = Walk::of(&database).await;
    // The accounts are listed in far less than that, and then the first one is visited.
    let soon = Instant::now() + Duration::from_secs(3);
    let (stop, removed) = walk.until(soon).await;
    assert!(matches!(stop, Stop::At(Round::GoesOn)));
    assert_eq!((removed.events, removed.operations), (499, 0), "one batch");

    let (stop, removed) = walk.until(later()).await;
    assert!(matches!(stop, Stop::Failed(SECOND, _)));
    assert_eq!(removed.events, 0, "none of the first account's");
    let (stop, removed) = walk.until(later()).await;
    assert!(matches!(stop, Stop::At(Round::Over)));
    assert_eq!(removed.events, 33, "the third account's");

    // What failed before is known until a round without a failure has ended.
    let (stop, removed) = walk.until(Instant::now()).await;
    assert!(matches!(stop, Stop::At(Round::GoesOn)));
    assert_eq!(removed.failed_accounts, 1);
}

/// The first account has more old events than one visit removes.
#[tokio::test]
async fn an_account_with_more_old_rows_than_time_holds_up_no_other() {
    let database = with_old_rows().await;
    let change = "UPDATE webhook_deliveries SET status = 'succeeded', next_attempt_at = NULL, delivered_at = now()
          WHERE status = 'pending';
         INSERT INTO events (account_id, id, type, object, request_id, idempotency_key, created_at)
         SELECT old_account(1), old_id(2000 + n), 'charge.succeeded', '{}', 'req', 'key',
                now() - interval '40 days'
           FROM generate_series(1, 12000) AS n";
    database.execute(change).await;
    let events_of = async |account: u128| {
        let events = "SELECT count(*) FROM events WHERE account_id = $1";
        let events = sqlx::query_scalar::<_, i64>(events).bind(Uuid::from_u128(account));
        events.fetch_one(&database.pool).await.unwrap()
    };
    let (stop, removed) = Walk::of(&database).await.until(later()).await;
    assert!(matches!(stop, Stop::At(Round::Over)));
    assert_eq!(events_of(1).await, 1101 + 33 + 12_000 - 12_500);
    // Operations have their turn beside the events.
    assert_eq!(removed.operations, 698);
    assert_eq!((events_of(2).await, events_of(3).await), (0, 0));
    // What is left has the next rounds of a sweep, one after the other.
    let mut sweep = sweep(&database, KEPT).await;
    assert_eq!(removes(&mut sweep, later()).await, (634, 0, true));
}

#[tokio::test]
async fn an_account_whose_rows_can_not_be_removed_holds_up_no_other() {
    let database = where_the_second_refuses().await;
    let mut sweep = sweep(&database, KEPT).await;
    for events in [1166, 0] {
        let removed = sweep.old_rows(later()).await.unwrap();
        assert_eq!((removed.events, removed.round), (events, Round::Failed));
        assert_eq!(removed.failed_accounts, 1);
        let (account, error) = removed.last_failure.unwrap();
        assert_eq!(account, SECOND);
        assert!(error.to_string().contains("events stay"), "{error}");
        // Its connection is closed, and PostgreSQL undoes what it did when it notices. The next
        // walk passes over rows that are locked.
        let locks = "SELECT count(*) FROM pg_locks WHERE relation = 'events'::regclass";
        database.comes_to(locks, 0).await;
    }
    database.execute("DROP TRIGGER refuse ON events").await;
    let removed = sweep.old_rows(later()).await.unwrap();
    assert_eq!(counts(&removed), (34, 0, true));
    assert!(removed.last_failure.is_none());
}

#[tokio::test]
async fn replicas_share_a_round() {
    let database = with_old_rows().await;
    let (mut one, mut other) = (sweep(&database, KEPT).await, sweep(&database, KEPT).await);
    let (left_one, right_one) = tokio::join!(one.old_rows(later()), other.old_rows(later()));
    let (removed, more) = (left_one.unwrap(), right_one.unwrap());
    let rest = one.old_rows(later()).await.unwrap();
    assert_eq!(removed.events + more.events + rest.events, 1200);
    assert_eq!(removed.operations + more.operations + rest.operations, 698);
}

/// An endpoint, and an old event with two deliveries: one to it that failed, and one elsewhere that
/// arrived.
const FAILED_DELIVERY: &str = "
    INSERT INTO webhook_endpoints (account_id, id, url, enabled_events, metadata, secret)
    SELECT old_account(2), old_id(1), 'https://example.com/', '{*}', '{}', 'whsec_';
    UPDATE webhook_deliveries SET status = 'failed', delivered_at = NULL WHERE id = old_id(2);
    INSERT INTO webhook_deliveries (account_id, id, endpoint_id, event_id, status, next_attempt_at,
           delivered_at)
    SELECT old_account(2), old_id(1300), old_id(3), old_id(2), 'succeeded', NULL, now();";

/// The account and the id of the delivery that failed, and of its event.
async fn failed_delivery(database: &TestDatabase) -> (AccountId, WebhookDeliveryId, Uuid) {
    database.is_left_broken(MADE_UP);
    let pool = &database.pool;
    // In one transaction: the ids are made of its time.
    let rows = format!("{OLD_ROWS}{FAILED_DELIVERY}");
    database.execute(rows).await;
    let sql = "SELECT account_id, id, event_id FROM webhook_deliveries WHERE status = 'failed'";
    let (account, id, event) = sqlx::query_as(sql).fetch_one(pool).await.unwrap();
    (AccountId(account), WebhookDeliveryId(id), event)
}

#[tokio::test]
async fn a_delivery_that_is_made_due_again_keeps_its_event_and_fails_no_batch() {
    let database = TestDatabase::create().await;
    let (account, delivery, event) = failed_delivery(&database).await;
    let mut sweep = sweep(&database, KEPT).await;
    let mut tx = database.pool.begin().await.unwrap();
    let is_due = retry_now(&mut tx, account.0, delivery.0).await;
    assert_eq!(is_due.unwrap(), Some(true));
    // Not committed, so that the event's deliveries look as if it could go.
    assert_eq!(removes(&mut sweep, later()).await, (1199, 698, true));
    tx.commit().await.unwrap();
    assert_eq!(removes(&mut sweep, later()).await, (0, 0, true));
    // As if it had been committed between the look at the event and its lock.
    let mut tx = database.pool.begin().await.unwrap();
    let deleted = delete_events(&mut tx, account.0, &[event]).await;
    assert_eq!(deleted.unwrap(), 0);
    tx.commit().await.unwrap();
    // The other delivery of the event is still there.
    assert_eq!(left(&database).await, [2, 3, 2]);
}

#[tokio::test]
async fn a_delivery_whose_event_is_just_removed_is_not_found() {
    let database = TestDatabase::create().await;
    let pool = &database.pool;
    let (account, delivery, event) = failed_delivery(&database).await;
    let mut tx = pool.begin().await.unwrap();
    let age = Age::above(Duration::from_secs(30 * 86400)).unwrap();
    let old = old_events(&mut tx, account.0, Uuid::nil(), age.below, &age.kept).await;
    assert!(old.unwrap().contains(&(event, true)));
    let mut other = pool.acquire().await.unwrap();
    let retry = tokio::spawn(async move { retry_now(&mut other, account.0, delivery.0).await });
    let waiting = "SELECT count(*) FROM pg_stat_activity
                    WHERE datname = current_database() AND wait_event_type = 'Lock'";
    database.comes_to(waiting, 1).await;
    let deleted = delete_events(&mut tx, account.0, &[event]).await;
    assert_eq!(deleted.unwrap(), 1);
    tx.commit().await.unwrap();
    assert_eq!(retry.await.unwrap().unwrap(), None);
}

/// A rest of many times what a batch takes is longer than any test.
#[tokio::test]
async fn what_is_passed_over_takes_a_rest_too() {
    let database = with_old_rows().await;
    let keep = "UPDATE webhook_deliveries SET status = 'pending', next_attempt_at = now(), delivered_at = NULL";
    database.execute(keep).await;
    let events = [("EVENT_RETENTION", "30d"), ("OPERATION_RETENTION", "0s")];
    for (rest, is_over) in [(0, true), (1_000_000, false)] {
        let mut retention = Retention::new(config(&events).retention, PATIENCE, rest);
        let mut connection = PgConnection::connect(&database.url).await.unwrap();
        let mut removed = Removed::default();
        let going = retention.go_on(&mut connection, &mut removed, later());
        let gone = timeout(Duration::from_secs(2), going).await;
        assert_eq!(gone.is_ok(), is_over, "a rest of {rest} times the batch");
        assert_eq!(removed.events, 0);
    }
}

#[tokio::test]
async fn with_0_nothing_is_removed() {
    let database = with_old_rows().await;
    let forever = [("EVENT_RETENTION", "0s"), ("OPERATION_RETENTION", "0s")];
    let mut sweep = sweep(&database, &forever).await;
    assert_eq!(removes(&mut sweep, later()).await, (0, 0, true));
    assert_eq!(left(&database).await, [1201, 1201, 700]);
}

#[tokio::test]
async fn a_batch_that_gets_no_answer_ends_at_its_deadline() {
    let database = with_old_rows().await;
    let tx = database.holding("LOCK TABLE webhook_deliveries").await;
    let kept = config(KEPT).retention;
    let mut retention = Retention::new(kept, Duration::from_millis(50), 0);
    let mut connection = PgConnection::connect(&database.url).await.unwrap();
    let mut removed = Removed::default();
    let removing = retention.go_on(&mut connection, &mut removed, later());
    let stop = timeout(PATIENCE, removing).await.expect("it ends");
    assert!(matches!(stop, Ok(Stop::Failed(..))));
    tx.rollback().await.unwrap();

    let mut sweep = sweep(&database, KEPT).await;
    assert_eq!(removes(&mut sweep, later()).await, (1200, 698, true));
}
