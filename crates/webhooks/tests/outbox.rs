//! From a transaction to a receiver. Each test has a database of its own, which `#[sqlx::test]`
//! creates on the server that `DATABASE_URL` names.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use charge_once_webhooks::{
    Claimed, DeliveryFault, EVERY_EVENT, Endpoint, Event, Interference, NewEndpoint, NewEvent,
    Pauses, Secret, Settings, Slice, Worker, deliveries, emit, endpoints, events, migrate,
    retry_failed, retry_now,
};
use futures_util::future::BoxFuture;
use sqlx::{Connection, PgConnection, PgPool};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    sync::{Notify, watch},
    task::JoinHandle,
    time::timeout,
};
use uuid::Uuid;

const PATIENCE: Duration = Duration::from_secs(20);

const ACCOUNT: Uuid = Uuid::from_u128(7);

/// The object and nothing else, if it is one.
fn body(event: &Event) -> serde_json::Result<Vec<u8>> {
    let object: serde_json::Map<_, _> = serde_json::from_str(&event.object)?;
    serde_json::to_vec(&object)
}

/// An endpoint on this machine, for all events of one account.
async fn endpoint(pool: &PgPool) -> TcpListener {
    migrate(&mut pool.acquire().await.unwrap()).await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    insert(pool, url).await;
    listener
}

async fn insert(pool: &PgPool, url: String) -> Endpoint {
    let new = NewEndpoint {
        url,
        enabled_events: vec![EVERY_EVENT.to_owned()],
        api_version: None,
        standard_webhooks: false,
        description: None,
        metadata: BTreeMap::new(),
    };
    let mut connection = pool.acquire().await.unwrap();
    let id = Uuid::now_v7();
    let inserted = endpoints::insert(&mut connection, ACCOUNT, id, &new, &Secret::random()).await;
    inserted.unwrap()
}

/// Answers the next webhook with `status`, and returns the request.
async fn receive(listener: &TcpListener, status: &str) -> String {
    receive_and_say(listener, status, "").await
}

/// As [`receive`], with a body.
async fn receive_and_say(listener: &TcpListener, status: &str, body: &str) -> String {
    let receiving = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"}") {
            assert!(stream.read_buf(&mut request).await.unwrap() > 0);
        }
        let length = body.len();
        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{body}");
        stream.write_all(answer.as_bytes()).await.unwrap();
        String::from_utf8(request).unwrap()
    };
    timeout(PATIENCE, receiving).await.unwrap()
}

fn booked(seat: &str) -> NewEvent {
    NewEvent {
        account_id: ACCOUNT,
        id: Uuid::now_v7(),
        event_type: "booking.created",
        api_version: None,
        object: format!(r#"{{"seat": "{seat}"}}"#),
        object_version: None,
        previous_attributes: None,
        request_id: "req_1".to_owned(),
        idempotency_key: "key-1".to_owned(),
        traceparent: None,
    }
}

async fn commit(pool: &PgPool, events: &[NewEvent]) {
    let mut tx = pool.begin().await.unwrap();
    emit(&mut tx, events).await.unwrap();
    tx.commit().await.unwrap();
}

/// A worker that looks when it is woken, and by itself after the poll interval.
fn start(pool: &PgPool, settings: Settings) -> (Arc<Notify>, watch::Sender<bool>, JoinHandle<()>) {
    run(Worker::new(pool.clone(), settings, body).unwrap())
}

fn run(worker: Worker) -> (Arc<Notify>, watch::Sender<bool>, JoinHandle<()>) {
    let (stop, stopping) = watch::channel(false);
    let wake = Arc::new(Notify::new());
    let working = tokio::spawn(worker.woken_by(Arc::clone(&wake)).run(stopping));
    (wake, stop, working)
}

const LOCAL: Settings = Settings {
    allow_private: true,
    timeout: Duration::from_secs(10),
    pauses: Pauses {
        min: Duration::from_millis(1),
        max: Duration::from_millis(2),
    },
    poll_interval: Duration::from_secs(3600),
    database_deadline: Duration::from_secs(5),
    keeps_replies: Some(|_| true),
    user_agent: "test",
    signature_header: "outbox-signature",
    standard_id: |event| event.id.to_string(),
    traceparent: || None,
    commit: |tx| Box::pin(tx.commit()),
};

async fn statuses(pool: &PgPool) -> Vec<(String, i32)> {
    sqlx::query_as(
        "SELECT status, jsonb_array_length(attempts) FROM webhook_deliveries ORDER BY event_id",
    )
    .fetch_all(pool)
    .await
    .unwrap()
}

async fn until(mut is_reached: impl AsyncFnMut() -> bool) {
    let reached = async {
        while !is_reached().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, reached).await.unwrap();
}

async fn eventually(pool: &PgPool, expected: &[(&str, i32)]) {
    let expected = expected.iter().map(|(s, n)| ((*s).to_owned(), *n));
    let expected: Vec<_> = expected.collect();
    until(async || statuses(pool).await == expected).await;
}

#[sqlx::test(migrations = false)]
async fn what_commits_is_sent_at_once_and_what_rolls_back_never(pool: PgPool) {
    let listener = endpoint(&pool).await;
    let (wake, stop, _) = start(&pool, LOCAL);
    let mut tx = pool.begin().await.unwrap();
    emit(&mut tx, &[booked("1A")]).await.unwrap();
    tx.rollback().await.unwrap();
    wake.notify_one();
    commit(&pool, &[booked("1B")]).await;
    wake.notify_one();
    let request = receive(&listener, "200 OK").await;
    assert!(request.starts_with("POST /hook HTTP/1.1\r\n"), "{request}");
    assert!(request.contains("\r\noutbox-signature: t="), "{request}");
    assert!(request.ends_with(r#"{"seat":"1B"}"#), "{request}");
    eventually(&pool, &[("succeeded", 1)]).await;
    // Without it, the worker would go on.
    stop.send_replace(true);
}

#[sqlx::test(migrations = false)]
async fn what_is_not_acknowledged_is_sent_again(pool: PgPool) {
    let listener = endpoint(&pool).await;
    commit(&pool, &[booked("1A")]).await;
    let often = Settings {
        poll_interval: Duration::from_millis(10),
        ..LOCAL
    };
    let (_wake, _stop, _) = start(&pool, often);
    let first = receive(&listener, "500 No").await;
    let second = receive(&listener, "204 Yes").await;
    let body = |request: &str| request.split("\r\n\r\n").nth(1).map(str::to_owned);
    assert_eq!(body(&first), body(&second));
    eventually(&pool, &[("succeeded", 2)]).await;
}

#[sqlx::test(migrations = false)]
async fn nothing_is_sent_while_it_is_not_known_that_its_claim_is_committed(pool: PgPool) {
    let listener = endpoint(&pool).await;
    commit(&pool, &[booked("1A")]).await;
    let warned = Settings {
        commit: |tx| {
            Box::pin(async {
                tx.commit().await?;
                Err(sqlx::Error::Protocol("a standby may lack it".to_owned()))
            })
        },
        ..LOCAL
    };
    let (wake, stop, working) = start(&pool, warned);
    wake.notify_one();
    let claims = "SELECT count(claim) FROM webhook_deliveries";
    let claims = || sqlx::query_scalar::<_, i64>(claims).fetch_one(&pool);
    until(async || claims().await.unwrap() == 1).await;
    stop.send_replace(true);
    timeout(PATIENCE, working).await.unwrap().unwrap();
    assert!(timeout(Duration::ZERO, listener.accept()).await.is_err());
}

#[sqlx::test(migrations = false)]
async fn nothing_is_sent_to_an_address_that_is_not_public(pool: PgPool) {
    let listener = endpoint(&pool).await;
    commit(&pool, &[booked("1A")]).await;
    let careful = Settings {
        allow_private: false,
        poll_interval: Duration::from_millis(10),
        pauses: Settings::default().pauses,
        ..LOCAL
    };
    let (_wake, _stop, _) = start(&pool, careful);
    eventually(&pool, &[("pending", 1)]).await;
    let accepted = timeout(Duration::from_millis(50), listener.accept()).await;
    assert!(accepted.is_err());
}

#[sqlx::test(migrations = false)]
async fn an_event_without_a_body_holds_up_no_other(pool: PgPool) {
    let listener = endpoint(&pool).await;
    let unreadable = NewEvent {
        object: "[]".to_owned(),
        ..booked("1A")
    };
    commit(&pool, &[unreadable, booked("1B")]).await;
    let patient = Settings {
        pauses: Settings::default().pauses,
        ..LOCAL
    };
    let (wake, _stop, _) = start(&pool, patient);
    wake.notify_one();
    let request = receive(&listener, "200 OK").await;
    assert!(request.ends_with(r#"{"seat":"1B"}"#), "{request}");
    eventually(&pool, &[("pending", 1), ("succeeded", 1)]).await;
}

/// A fault that acts on every delivery, and how often it was asked for.
struct Acts(DeliveryFault, AtomicUsize);

impl Acts {
    fn asked(&self) -> usize {
        self.1.load(Ordering::SeqCst)
    }
}

impl Interference for Acts {
    fn fault<'a>(&'a self, _: &'a Claimed) -> BoxFuture<'a, Option<DeliveryFault>> {
        self.1.fetch_add(1, Ordering::SeqCst);
        Box::pin(async { Some(self.0) })
    }
}

/// A worker that looks often, with a fault.
fn start_with(
    pool: &PgPool,
    fault: DeliveryFault,
) -> (Arc<Acts>, watch::Sender<bool>, JoinHandle<()>) {
    let often = Settings {
        poll_interval: Duration::from_millis(10),
        ..LOCAL
    };
    let acts = Arc::new(Acts(fault, AtomicUsize::new(0)));
    let worker = Worker::new(pool.clone(), often, body).unwrap();
    let (_, stop, working) = run(worker.interfered_by(acts.clone()));
    (acts, stop, working)
}

#[sqlx::test(migrations = false)]
async fn what_is_taken_is_sent_once_more_where_the_fault_is_twice(pool: PgPool) {
    let listener = endpoint(&pool).await;
    commit(&pool, &[booked("1A")]).await;
    let (acts, _stop, _) = start_with(&pool, DeliveryFault::Twice);
    receive(&listener, "200 OK").await;
    // While it is sent again.
    eventually(&pool, &[("pending", 1)]).await;
    receive(&listener, "500 No").await;
    receive(&listener, "200 OK").await;
    eventually(&pool, &[("succeeded", 3)]).await;
    assert_eq!(acts.asked(), 1);
}

#[sqlx::test(migrations = false)]
async fn what_a_receiver_says_is_kept_apart_and_what_failed_is_made_due_in_batches(pool: PgPool) {
    let listener = endpoint(&pool).await;
    let seats: Vec<_> = ["1A", "1B", "1C"].map(booked).into();
    commit(&pool, &seats).await;
    // Gone for good, so that each fails at once.
    let receiver = tokio::spawn(async move {
        for _ in 0..3 {
            receive_and_say(&listener, "410 Gone", "no such\0seat").await;
        }
        listener
    });
    let (wake, stop, working) = start(&pool, LOCAL);
    wake.notify_one();
    eventually(&pool, &[("failed", 1), ("failed", 1), ("failed", 1)]).await;
    stop.send_replace(true);
    working.await.unwrap();
    let _listener = receiver.await.unwrap();
    let mut connection = pool.acquire().await.unwrap();
    let ids = "SELECT id, endpoint_id FROM webhook_deliveries ORDER BY id";
    let ids: Vec<(Uuid, Uuid)> = sqlx::query_as(ids).fetch_all(&pool).await.unwrap();
    for (id, _) in &ids {
        let replies = deliveries::replies(&mut connection, ACCOUNT, *id).await;
        let kept = "no such\u{fffd}seat".to_owned();
        assert_eq!(replies.unwrap(), [(1, kept)]);
    }
    let endpoint = ids.first().unwrap().1;
    let tallies = deliveries::tallies(&mut connection, ACCOUNT, &[endpoint]).await;
    let tally = tallies.unwrap().remove(0);
    assert_eq!((tally.attempts, tally.succeeded), (3, 0));
    for (account, rows, due) in [
        (Uuid::nil(), 2, 0),
        (ACCOUNT, 2, 2),
        (ACCOUNT, 2, 1),
        (ACCOUNT, 2, 0),
    ] {
        let retried = retry_failed(&mut connection, account, endpoint, &Slice::newest(rows)).await;
        assert_eq!(retried.unwrap(), due);
    }
}

#[sqlx::test(migrations = false)]
async fn the_first_attempt_is_put_off_where_the_fault_is_late(pool: PgPool) {
    let listener = endpoint(&pool).await;
    commit(&pool, &[booked("1A")]).await;
    let hour = Duration::from_secs(3600);
    let (acts, _stop, _) = start_with(&pool, DeliveryFault::Late(hour));
    let put_off = "SELECT (min(id::text)::uuid) FROM webhook_deliveries
                    WHERE status = 'pending' AND claim IS NULL AND attempts = '[]'
                      AND next_attempt_at > created_at + interval '50 minutes'";
    let put_off = || sqlx::query_scalar::<_, Option<Uuid>>(put_off).fetch_one(&pool);
    until(async || put_off().await.unwrap().is_some()).await;
    assert!(timeout(Duration::ZERO, listener.accept()).await.is_err());
    let id = put_off().await.unwrap().unwrap();
    let mut tx = pool.begin().await.unwrap();
    assert_eq!(retry_now(&mut tx, ACCOUNT, id).await.unwrap(), Some(true));
    tx.commit().await.unwrap();
    receive(&listener, "200 OK").await;
    eventually(&pool, &[("succeeded", 1)]).await;
    assert_eq!(acts.asked(), 1);
}

#[sqlx::test(migrations = false)]
async fn nothing_is_sent_where_the_fault_is_lost(pool: PgPool) {
    let listener = endpoint(&pool).await;
    commit(&pool, &[booked("1A")]).await;
    let (acts, _stop, _) = start_with(&pool, DeliveryFault::Lost);
    eventually(&pool, &[("succeeded", 1)]).await;
    assert!(timeout(Duration::ZERO, listener.accept()).await.is_err());
    let attempt = "SELECT attempts #>> '{0,response_status}', attempts #>> '{0,error}'
                     FROM webhook_deliveries";
    let attempt: (String, String) = sqlx::query_as(attempt).fetch_one(&pool).await.unwrap();
    assert_eq!(attempt.0, "200");
    assert_eq!(attempt.1, "not sent: a planned fault lost it");
    assert_eq!(acts.asked(), 1);
}

#[sqlx::test(migrations = false)]
async fn a_slice_of_a_list_ends_at_its_limits(pool: PgPool) {
    let mut connection = pool.acquire().await.unwrap();
    migrate(&mut connection).await.unwrap();
    let first = insert(&pool, "https://example.com/1".to_owned()).await;
    let second = insert(&pool, "https://example.com/2".to_owned()).await;
    let event = booked("1A");
    let event_id = event.id;
    commit(&pool, &[event]).await;

    let oldest = Slice {
        newest_first: false,
        ..Slice::newest(1)
    };
    let after_second = Slice {
        below: second.id,
        ..Slice::newest(9)
    };
    for (slice, expected) in [
        (Slice::newest(9), vec![second.clone(), first.clone()]),
        (Slice::newest(1), vec![second.clone()]),
        (oldest, vec![first.clone()]),
        (after_second, vec![first.clone()]),
    ] {
        let listed = endpoints::list(&mut connection, ACCOUNT, &slice).await;
        assert_eq!(listed.unwrap(), expected, "{slice:?}");
    }
    let stranger = endpoints::list(&mut connection, Uuid::nil(), &Slice::newest(9)).await;
    assert_eq!(stranger.unwrap(), Vec::new());

    let all = Slice::newest(9);
    let sent = deliveries::list(&mut connection, ACCOUNT, first.id, &all).await;
    let carried: Vec<_> = sent.unwrap().iter().map(|one| one.event_id).collect();
    assert_eq!(carried, [event_id]);
    let (unknown, booked): (&[_], &[_]) = (&["a.b"], &["a.b", "booking.created"]);
    for (types, count) in [
        (None, 1),
        (Some(booked), 1),
        (Some(unknown), 0),
        (Some(&[]), 0),
    ] {
        let listed = events::list(&mut connection, ACCOUNT, &all, types).await;
        assert_eq!(listed.unwrap().len(), count, "{types:?}");
    }
}

/// A second outbox would know no event of the first.
#[sqlx::test(migrations = false)]
async fn a_later_search_path_makes_no_second_outbox(pool: PgPool) {
    let first = migrate(&mut pool.acquire().await.unwrap()).await;
    assert_eq!(first.unwrap(), "public");
    let defaults = "CREATE SCHEMA other; DO $$ BEGIN
        EXECUTE format('ALTER DATABASE %I SET search_path = other', current_database());
    END $$";
    sqlx::raw_sql(defaults).execute(&pool).await.unwrap();
    let options = (*pool.connect_options()).clone();
    let mut connection = PgConnection::connect_with(&options).await.unwrap();
    assert_eq!(migrate(&mut connection).await.unwrap(), "public");
    let asking = options.options([("search_path", "other")]);
    let mut connection = PgConnection::connect_with(&asking).await.unwrap();
    let told = migrate(&mut connection).await.unwrap_err().to_string();
    let expected = "public has the tables and not other";
    assert!(told.contains(expected), "{told}");
    let outboxes = "SELECT count(*) FROM pg_tables WHERE tablename = 'events'";
    let outboxes: i64 = sqlx::query_scalar(outboxes).fetch_one(&pool).await.unwrap();
    assert_eq!(outboxes, 1);
}
