//! `charge-once webhooks listen`: events for a receiver that is being developed.

use std::sync::mpsc;

use charge_once::{cli::api_key::revoke_key, domain::ids::EventId};
use uuid::{NoContext, Timestamp};

use super::*;
use crate::support::webhooks::verifies;

/// A listener that runs. Its lines are read as they come.
struct Listener {
    child: Child,
    lines: mpsc::Receiver<String>,
    complaints: mpsc::Receiver<String>,
    secret: String,
}

fn lines_of(stream: impl Read + Send + 'static) -> mpsc::Receiver<String> {
    let (hand_over, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines() {
            let _ = hand_over.send(line.unwrap());
        }
    });
    lines
}

/// The next line, waited for without stopping the tasks of this test.
async fn next(lines: &mpsc::Receiver<String>) -> String {
    let mut line = None;
    eventually("a line", || {
        line = lines.try_recv().ok();
        std::future::ready(line.is_some())
    })
    .await;
    line.unwrap()
}

impl Listener {
    async fn start(url: &str, forward_to: &str, more: &[&str]) -> Self {
        let arguments = [&["webhooks", "listen", "--forward-to", forward_to], more].concat();
        Self::start_as(command(url, &arguments)).await
    }

    /// With another API key, and forwarding to nowhere.
    async fn start_with_key(server: &TestServer, key: &str) -> Self {
        let arguments = ["webhooks", "listen", "--forward-to", "http://127.0.0.1:9/"];
        let mut command = command(&url_of(server), &arguments);
        command.env("CHARGE_ONCE_API_KEY", key);
        Self::start_as(command).await
    }

    async fn start_as(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let lines = lines_of(child.stdout.take().unwrap());
        let complaints = lines_of(child.stderr.take().unwrap());
        let first = next(&lines).await;
        let secret = first.strip_prefix("Signing secret: ").unwrap().to_owned();
        assert!(secret.starts_with("whsec_"), "{secret}");
        assert!(next(&lines).await.starts_with("Forwarding events of "));
        Self {
            child,
            lines,
            complaints,
            secret,
        }
    }

    /// The next event's line: type, id, and answer.
    async fn next(&self) -> (String, String, String) {
        let line = next(&self.lines).await;
        let parts: Vec<_> = line.split("  ").collect();
        let [time, event_type, id, answer] = parts[..] else {
            panic!("not four parts: {line}");
        };
        assert!(chrono::DateTime::parse_from_rfc3339(time).is_ok(), "{line}");
        (event_type.to_owned(), id.to_owned(), answer.to_owned())
    }

    /// Ctrl-C.
    async fn interrupt(mut self) {
        stops(&mut self.child, Signal::SIGINT).await;
        assert_eq!(self.lines.try_recv().ok(), None, "more lines");
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The ids of the next events that the receiver gets, each acknowledged.
async fn received(receiver: &mut Receiver, count: usize) -> Vec<String> {
    let mut ids = Vec::new();
    for _ in 0..count {
        let event = receiver.next().await;
        ids.push(event.event_id());
        event.answer(200).await;
    }
    ids
}

fn event_ids(ids: Vec<Uuid>) -> Vec<String> {
    let ids = ids.into_iter().map(EventId);
    ids.map(|id| id.to_string()).collect()
}

/// Adds copies of an event under these ids, created so many seconds before now.
async fn add_events(database: &TestDatabase, ids: &[Uuid], seconds: i32) {
    database.is_left_broken("several events tell of one charge");
    sqlx::query(
        "INSERT INTO events (account_id, id, type, object, request_id, idempotency_key, created_at)
         SELECT account_id, new_id, type, object, request_id, idempotency_key,
                now() - make_interval(secs => $2)
           FROM (SELECT * FROM events LIMIT 1) AS original, unnest($1::uuid[]) AS new_id",
    )
    .bind(ids)
    .bind(f64::from(seconds))
    .execute(&database.pool)
    .await
    .unwrap();
}

async fn charge_and_refund(client: &Client) {
    let refund = json!({"charge": client.charge("key-1").await.id()});
    client.post_new("/refunds", &refund).await;
}

#[tokio::test]
async fn events_from_now_on_are_forwarded_in_order_with_a_signature_that_verifies() {
    let server = TestServer::start().await;
    let client = &server.client;
    let mut receiver = Receiver::start().await;
    client.charge("before").await;
    let listener = Listener::start(&url_of(&server), &receiver.url(), &[]).await;

    charge_and_refund(client).await;
    for (event_type, status) in [
        ("charge.succeeded", 200),
        ("refund.created", 500),
        ("charge.refunded", 204),
    ] {
        let event = receiver.next().await;
        assert!(verifies(&listener.secret, event.signature(), &event.body));
        assert_eq!(event.line, "POST /hook?tenant=7 HTTP/1.1");
        let id = event.event_id();
        let shown = client.get(&format!("/events/{id}")).await;
        assert_eq!(event.body, shown.body, "the very bytes");
        event.answer(status).await;
        let line = (event_type.to_owned(), id, status.to_string());
        assert_eq!(listener.next().await, line);
    }
    listener.interrupt().await;
    assert!(receiver.arrived().is_none());
}

#[tokio::test]
async fn the_secret_is_the_same_in_the_next_run_and_another_one_with_another_api_key() {
    let server = TestServer::start().await;
    let other = api_key_of(&server.database, "dev").await;
    let mut secrets = Vec::new();
    for key in [API_KEY, API_KEY, &other] {
        let listener = Listener::start_with_key(&server, key).await;
        secrets.push(listener.secret.clone());
        listener.interrupt().await;
    }
    assert_eq!(secrets[0], secrets[1]);
    assert_ne!(secrets[0], secrets[2]);
}

#[tokio::test]
async fn only_events_of_the_types_that_were_named_are_forwarded() {
    let server = TestServer::start().await;
    let client = &server.client;
    let mut receiver = Receiver::start().await;
    let types = ["--events", "charge.refunded,order.created"];
    let listener = Listener::start(&url_of(&server), &receiver.url(), &types).await;
    charge_and_refund(client).await;
    open_order(client).await;
    for wanted in ["charge.refunded", "order.created"] {
        let event = receiver.next().await;
        assert_eq!(event.event()["type"], wanted);
        event.answer(200).await;
        assert_eq!(listener.next().await.0, wanted);
    }
    listener.interrupt().await;
}

#[tokio::test]
async fn a_receiver_that_is_down_is_told_and_the_next_event_is_forwarded_all_the_same() {
    let server = TestServer::start().await;
    let away = RefusedAddress::reserve();
    let listener = Listener::start(&url_of(&server), &away.url(), &[]).await;
    for key in ["key-1", "key-2"] {
        server.client.charge(key).await;
        let (event_type, _, answer) = listener.next().await;
        assert_eq!(event_type, "charge.succeeded");
        assert_eq!(answer, "not delivered: connection refused");
    }
    listener.interrupt().await;
}

#[tokio::test]
async fn across_a_restart_of_the_server_no_event_is_lost_and_none_is_sent_twice() {
    let database = TestDatabase::create().await;
    let address = lasting_address();
    let there = [("BIND_ADDRESS", address.as_str())];
    let first = ServerProcess::start(&database, &there);
    let other = ServerProcess::start(&database, &[]);
    let mut receiver = Receiver::start().await;
    let listener = Listener::start(&format!("http://{address}"), &receiver.url(), &[]).await;
    first.client.charge("key-1").await;
    let mut seen = received(&mut receiver, 1).await;
    first.kill();
    let told = next(&listener.complaints).await;
    assert_has(&told, "the service doesn't answer");
    // What happens meanwhile, through another replica.
    other.client.charge("key-2").await;
    other.client.charge("key-3").await;
    let again = ServerProcess::start(&database, &there);
    seen.extend(received(&mut receiver, 2).await);
    assert!(next(&listener.complaints).await.contains("answers again"));
    again.client.charge("key-4").await;
    seen.extend(received(&mut receiver, 1).await);
    let ids = database.values("SELECT id FROM events ORDER BY id").await;
    assert_eq!(seen, event_ids(ids));
    for _ in 0..4 {
        assert_eq!(listener.next().await.2, "200");
    }
    listener.interrupt().await;
    assert!(receiver.arrived().is_none());
}

#[tokio::test]
async fn an_event_that_appears_below_newer_ones_is_forwarded_once() {
    let server = TestServer::start().await;
    let mut receiver = Receiver::start().await;
    let listener = Listener::start(&url_of(&server), &receiver.url(), &[]).await;
    server.client.charge("key-1").await;
    received(&mut receiver, 1).await;
    // Its transaction began five seconds before, and is committed only now.
    let before = chrono::Utc::now().timestamp() - 5;
    let time = Timestamp::from_unix(NoContext, u64::try_from(before).unwrap(), 0);
    let late = Uuid::new_v7(time);
    add_events(&server.database, &[late], 5).await;
    assert_eq!(received(&mut receiver, 1).await, event_ids(vec![late]));
    // Polls that read all three again.
    server.client.charge("key-2").await;
    received(&mut receiver, 1).await;
    for _ in 0..3 {
        listener.next().await;
    }
    listener.interrupt().await;
    assert!(receiver.arrived().is_none());
}

#[tokio::test]
async fn events_that_fill_several_pages_are_forwarded_once_each_and_in_order() {
    let server = TestServer::start().await;
    server.client.charge("before").await;
    let mut receiver = Receiver::start().await;
    let listener = Listener::start(&url_of(&server), &receiver.url(), &[]).await;
    let ids: Vec<_> = (0..250).map(|_| Uuid::now_v7()).collect();
    add_events(&server.database, &ids, 0).await;
    assert_eq!(received(&mut receiver, 250).await, event_ids(ids));
    server.client.charge("after").await;
    received(&mut receiver, 1).await;
    for _ in 0..251 {
        listener.next().await;
    }
    listener.interrupt().await;
    assert!(receiver.arrived().is_none());
}

#[tokio::test]
async fn a_revoked_api_key_ends_it_with_an_error() {
    let server = TestServer::start().await;
    let key = api_key_of(&server.database, "dev").await;
    let mut listener = Listener::start_with_key(&server, &key).await;
    let database = server.database.connect(&[]).await;
    revoke_key(&database, &key).await.unwrap();
    assert_eq!(exit_code(&mut listener.child).await, Some(1));
    let told = listener.complaints.recv_timeout(PATIENCE).unwrap();
    told.must_have(&["CHARGE_ONCE_API_KEY"]);
}

#[tokio::test]
async fn an_argument_that_can_t_be_used_is_named_and_nothing_is_started() {
    let (good, nowhere) = ("http://127.0.0.1:9/", "http://127.0.0.1:9");
    for (forward_to, more, code, told) in [
        ("localhost:3000", "", 1, "--forward-to must begin with"),
        ("/hook", "", 1, "--forward-to must be a whole URL"),
        ("http://u:p@127.0.0.1/", "", 1, "--forward-to must not hold"),
        (good, "--timeout 61s", 1, "--timeout must be"),
        (good, "--timeout 0s", 1, "--timeout must be"),
        (good, "--events charge.stolen", 2, "charge.succeeded"),
    ] {
        let arguments = format!("webhooks listen --forward-to {forward_to} {more}");
        let arguments: Vec<_> = arguments.split_whitespace().collect();
        let said = run(nowhere, &arguments).await.failed(code);
        assert!(said.contains(told), "{arguments:?}: {said}");
    }
    let without = run(nowhere, &["webhooks", "listen"]).await.failed(2);
    without.must_have(&["--forward-to <URL>"]);
}
