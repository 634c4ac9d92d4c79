//! What an account had made before its move, and what clients and holders had begun: its lists, its
//! log, its keys, its holders' pages and its checkouts.

use charge_once::{
    database::{
        self,
        move_account::{self, MoveError, MoveStep, Progress},
        shards::FIRST_SHARD,
    },
    workers::expiry_sweep::Sweep,
};

use super::{
    moves::{Movable, counting},
    shards::SHOP,
};
use crate::{
    console::visit::{CONSOLE, Visit},
    support::{
        checkouts::level, holder_pages::open, prelude::*, racers::definite, webhooks::PENDING,
    },
};

/// Nothing is swept but by the test.
const KEEPS: [(&str, &str); 5] = [
    ("EVENT_RETENTION", "0s"),
    ("OPERATION_RETENTION", "0s"),
    ("REQUEST_LOG_RETENTION", "0s"),
    ("EXPIRY_SWEEP_INTERVAL", "1h"),
    ("KEY_MEMORY", "365d"),
];

/// Days since the oldest of [`OLD_ROWS`].
const OLDEST: usize = 100;

/// A row of each kind that retention removes, for each step of a move. Each is a day younger.
const OLD_ROWS: &str = "
    SET LOCAL session_replication_role = replica;
    CREATE TEMPORARY TABLE old ON COMMIT DROP AS
    SELECT accounts.id AS account_id, at, n,
           (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || '70008000000000000000')::uuid AS id
      FROM accounts, generate_series(1, 18) AS n, LATERAL (SELECT now() - (101 - n) * interval '1 day' AS at) AS aged
     WHERE accounts.name = 'shop';
    INSERT INTO events (account_id, id, type, object, request_id, idempotency_key, created_at)
    SELECT account_id, id, 'charge.succeeded', '{}', 'req_' || n, 'old', at FROM old;
    INSERT INTO webhook_deliveries (account_id, id, endpoint_id, event_id, status, next_attempt_at, delivered_at)
    SELECT account_id, id, id, id, 'succeeded', NULL, at FROM old;
    INSERT INTO webhook_replies (account_id, delivery_id, number, reply, created_at)
    SELECT account_id, id, 1, 'ok', at FROM old;
    INSERT INTO operations (account_id, id, verb, charge_id, amount, dialect, expand, request_id,
           idempotency_key, created_at, completed_at, outcome)
    SELECT account_id, id, 'capture_charge', id, 1000, 'ietf', false, 'req_' || n, 'old', at, at, 'done' FROM old;
    INSERT INTO request_log (account_id, id, method, route, status, outcome, duration_us, created_at)
    SELECT account_id, id, 'GET', '/charges', 200, 'read', 1, at FROM old;";

const OLD_LEFT: &str = "
    SELECT ARRAY[(SELECT count(*) FROM events WHERE id < young),
                 (SELECT count(*) FROM webhook_deliveries WHERE id < young),
                 (SELECT count(*) FROM webhook_replies WHERE delivery_id < young),
                 (SELECT count(*) FROM operations WHERE id < young),
                 (SELECT count(*) FROM request_log WHERE id < young)]
      FROM (SELECT (lpad(to_hex((extract(epoch FROM now() - interval '2 days') * 1000)::bigint), 12, '0')
                    || repeat('0', 20))::uuid) AS days (young)";

/// Does this while who is told of a step waits, which can't await.
fn meanwhile<F: Future<Output = ()>>(work: impl FnOnce() -> F + Send) {
    let work = || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.unwrap().block_on(work());
    };
    std::thread::scope(|scope| scope.spawn(work).join().unwrap());
}

/// Sweeps a database as a server would that keeps rows for so many days and a half.
async fn sweep(url: &str, shards: [(&str, &str); 2], days: usize) {
    let kept = format!("{}h", days * 24 + 12);
    let variables = [
        ("EVENT_RETENTION", &*kept),
        ("OPERATION_RETENTION", &kept),
        ("REQUEST_LOG_RETENTION", &kept),
        ("KEY_MEMORY", "365d"),
    ];
    let config = config(&[&shards[..], &variables].concat());
    let database = database::connect(url, &config).await.unwrap();
    let mut sweep = Sweep::new(database.clone(), &config, 0);
    sweep.keys().await.unwrap();
    let later = tokio::time::Instant::now() + Duration::from_secs(60);
    let removed = sweep.old_rows(later).await.unwrap();
    assert!(removed.last_failure.is_none(), "{removed:?}");
    sweep.disconnect().await;
    database.pool().close().await;
}

async fn run(connection: &mut PgConnection, sql: String) {
    let ran = sqlx::raw_sql(AssertSqlSafe(sql)).execute(connection).await;
    ran.unwrap();
}

fn expires(key: &str) -> String {
    format!(
        "UPDATE idempotency_keys SET created_at = now() - interval '25 hours', expires_at = now() - interval '1 hour'
          WHERE key = '{key}' AND account_id = ({SHOP})"
    )
}

/// Both homes are swept after each step, and some keys expire in between.
#[tokio::test]
async fn what_is_swept_while_an_account_moves_stays_away_and_all_else_is_kept() {
    let variables = [&KEEPS[..], &[FORGETFUL, CONSOLE]].concat();
    let (movable, server, shop) = Movable::served(&variables).await;
    let two = &movable.two;
    let kiosk = two.key_of_other("kiosk").await;
    let others = [API_KEY, &kiosk];
    let mut firsts = Vec::new();
    for key in others {
        firsts.push(server.client.with_api_key(key).charge("key-1").await);
    }
    let keys = ["key-1", "key-2", "key-3"];
    for key in keys {
        assert_eq!(shop.charge(key).await.status, 201);
    }
    let young = "SELECT count(*) FROM request_log WHERE status = 201";
    two.other.comes_to(young, 4).await;
    server.stop().await;
    two.other.execute(OLD_ROWS).await;
    two.other.execute(expires("key-1")).await;

    let shards = two.variables();
    let subscription = move_account::name_of(movable.account, FIRST_SHARD);
    let place = |step| MoveStep::ALL.iter().position(|it| *it == step).unwrap();
    let after = |step: MoveStep| {
        let homes = [&two.first.url, &two.other.url];
        let (number, is_moved) = (place(step), place(step) >= place(MoveStep::Switched));
        let subscription = &subscription;
        async move {
            let [mut first, mut other] = [
                PgConnection::connect(homes[0]).await.unwrap(),
                PgConnection::connect(homes[1]).await.unwrap(),
            ];
            if step == MoveStep::CaughtUp {
                // What the old home removes from now on, the new one has.
                let stop = format!("ALTER SUBSCRIPTION {subscription} DISABLE");
                run(&mut first, stop).await;
                let workers = "SELECT count(*) FROM pg_stat_subscription WHERE pid IS NOT NULL";
                let ended = async || {
                    let workers = sqlx::query_scalar::<_, i64>(workers);
                    let mut looking = PgConnection::connect(homes[0]).await.unwrap();
                    workers.fetch_one(&mut looking).await.unwrap() == 0
                };
                eventually("the copy ends", ended).await;
            }
            // The new home's sweep is a day ahead of the old one's.
            let days = OLDEST - 1 - number;
            let ahead = usize::from(!is_moved);
            sweep(homes[0], shards, days + ahead).await;
            sweep(homes[1], shards, days + 1 - ahead).await;
            for (at, key) in [(MoveStep::Copied, "key-2"), (MoveStep::Held, "key-3")] {
                if at == step {
                    run(&mut other, expires(key)).await;
                }
            }
            let home = if is_moved { &mut first } else { &mut other };
            let left = sqlx::query_scalar::<_, Vec<i64>>(OLD_LEFT);
            let left = left.fetch_one(home).await.unwrap();
            let expected = i64::try_from(MoveStep::ALL.len() - 1 - number).unwrap();
            assert_eq!(left, [expected; 5], "{step:?}");
        }
    };
    let mut tell = |progress| {
        if let Progress::Done(step) = progress {
            meanwhile(|| after(step));
        }
        Ok::<_, MoveError>(())
    };
    movable.to(FIRST_SHARD).await.run(&mut tell).await.unwrap();

    let expired = "SELECT count(*) FROM idempotency_keys WHERE expires_at <= now()";
    assert_eq!(two.first.count(expired).await, 1);
    sweep(&two.first.url, shards, 1).await;
    assert_eq!(two.first.count(expired).await, 0);
    let server = two.server(&variables).await;
    for (key, first) in others.into_iter().zip(&firsts) {
        let client = server.client.with_api_key(key);
        client.charge("key-1").await.assert_replays(first);
        let (events, _) = page(&client, "/events").await;
        assert_eq!(events.len(), 1, "{key}");
    }
    let shop = server.client.with_api_key(&movable.key);
    for key in keys {
        let late = shop.charge(key).await;
        assert_eq!(late.code(), "idempotency_key_expired", "{key}");
    }
    let (events, _) = page(&shop, "/events").await;
    assert_eq!(events.len(), keys.len());
    assert_eq!(two.other.count_of("events").await, 1, "the kiosk's");
    server.stop().await;
    movable.ends().await;
}

#[tokio::test]
async fn events_of_before_a_move_of_meanwhile_and_of_later_are_one_list_and_each_is_sent_once() {
    let (movable, server, shop) = Movable::served(QUICK).await;
    let two = &movable.two;
    let receiver = Receiver::start().await;
    Endpoint::at(&shop, &receiver.url()).await;
    let sent = counting(receiver);
    let path = format!("/charges/{}", shop.charge("key-1").await.id());
    let changes = async |when: &str| {
        let body = json!({"metadata": {"when": when}});
        let changed = definite(|| shop.post(&path, when, &body)).await;
        assert_eq!(changed.status, 200, "{when}: {}", changed.json());
    };
    changes("before").await;
    let steps = [MoveStep::Published, MoveStep::Copied, MoveStep::Draining];
    for step in steps {
        movable.killed_after(FIRST_SHARD, step).await;
        changes(&format!("{step:?}")).await;
    }
    movable.killed_after(FIRST_SHARD, MoveStep::Switched).await;
    changes("open").await;
    movable.moved(FIRST_SHARD).await;
    changes("after").await;

    let (mut listed, mut cursor) = (Vec::new(), String::new());
    loop {
        let list = shop.get(&format!("/events?limit=2{cursor}")).await.json();
        listed.extend(list["data"].as_array().unwrap().clone());
        if list["has_more"] == false {
            break;
        }
        cursor = format!("&starting_after={}", ids(&list).last().unwrap());
    }
    let of = |event: &Value| {
        let object = &event["data"]["object"];
        assert!(path.ends_with(object["id"].as_str().unwrap()), "{event}");
        let when = object["metadata"]["when"].as_str().unwrap_or("made");
        let version = event["data"]["object_version"].as_i64().unwrap();
        (when.to_owned(), version)
    };
    let (whens, versions): (Vec<_>, Vec<_>) = listed.iter().map(of).unzip();
    let expected = "after open Draining Copied Published before made";
    assert_eq!(whens.join(" "), expected);
    assert!(
        versions.is_sorted_by(|newer, older| newer > older),
        "{versions:?}"
    );
    let listed: BTreeSet<_> = ids(&json!({"data": listed})).into_iter().collect();
    let (oldest, newest) = (listed.first().unwrap(), listed.last().unwrap());
    let back = format!("/events?limit=10&ending_before={oldest}");
    assert_eq!(page(&shop, &back).await.0.len(), listed.len() - 1);
    let on = format!("/events?limit=10&ending_before={newest}");
    assert_eq!(page(&shop, &on).await.0.len(), 0);
    two.first.comes_to(PENDING, 0).await;
    let once: HashMap<_, _> = listed.into_iter().map(|id| (id, 1)).collect();
    assert_eq!(*sent.lock().unwrap(), once);
    server.stop().await;
    movable.ends().await;
}

#[tokio::test]
async fn the_log_of_requests_moves_along_and_is_looked_up_where_the_account_lives() {
    let (movable, server, shop) = Movable::served(&[CONSOLE]).await;
    let two = &movable.two;
    let visit = Visit::begin_with(&server.client, &movable.key).await;
    assert_eq!(shop.charge("key-1").await.status, 201);
    let logged = "SELECT count(*) FROM request_log WHERE idempotency_key = 'key-1'";
    two.other.comes_to(logged, 1).await;
    let list = "/console/requests";
    visit.page(list).await.must_have(&["key-1"]);

    movable.killed_after(FIRST_SHARD, MoveStep::Leaving).await;
    // The server forgets the home that it remembers.
    assert_eq!(shop.charge("key-2").await.status, 503);
    assert_eq!(visit.get(list).await.status, 503);
    movable.killed_after(FIRST_SHARD, MoveStep::Switched).await;
    // Both have the account now, and one of them is its home.
    assert_eq!(shop.charge_until_definite("key-2").await.status, 201);
    let made = "SELECT count(*) FROM request_log WHERE idempotency_key = 'key-2' AND status = 201";
    two.first.comes_to(made, 1).await;
    visit.page(list).await.must_have(&["key-1", "key-2"]);
    let shown = two.run("keys show key-1").await.succeeded();
    shown.must_have(&["shop", "POST /charges"]);
    movable.moved(FIRST_SHARD).await;

    visit.page(list).await.must_have(&["key-1", "key-2"]);
    let story = visit.page("/console/keys/key-1").await;
    story.must_have(&["executed", "201"]);
    assert_eq!(two.first.count(logged).await, 1);
    assert_eq!(two.other.count_of("request_log").await, 0);
    assert_eq!(two.other.count_of("request_counts").await, 0);
    server.stop().await;
    movable.ends().await;
}

#[tokio::test]
async fn a_holder_whose_account_is_closed_keeps_the_page_and_is_heard_once_at_the_new_home() {
    let (movable, server, shop) = Movable::served(&[]).await;
    let two = &movable.two;
    let intent = json!({
        "amount": 700, "currency": "usd", "confirm": true,
        "payment_method": "pm_card_threeDSecure2Required", "payment_method_types": ["card"],
    });
    let intent = shop.post_new("/payment_intents", &intent).await;
    let page = page_of(&intent);
    assert_eq!(open(&page).await.status, 200);

    movable.killed_after(FIRST_SHARD, MoveStep::Frozen).await;
    assert_eq!(open(&page).await.status, 200);
    let refused = press(&page, "complete").await;
    assert_eq!(refused.status, 503);
    assert!(refused.header("retry-after").is_some());
    movable.killed_after(FIRST_SHARD, MoveStep::Leaving).await;
    let closed = open(&page).await;
    assert_eq!(closed.status, 503);
    String::from_utf8_lossy(&closed.body).must_have(&["Please wait", "loads again by itself"]);
    assert_eq!(closed.header("refresh"), Some("3"));
    assert!(closed.header("retry-after").is_some());
    assert_eq!(press(&page, "complete").await.status, 503);
    movable.killed_after(FIRST_SHARD, MoveStep::Switched).await;
    assert_eq!(open(&page).await.status, 200);
    let completed = press(&page, "complete").await;
    assert_eq!(completed.status, 200);
    movable.moved(FIRST_SHARD).await;

    let again = press(&page, "fail").await;
    assert_eq!(
        (again.status, &again.body),
        (completed.status, &completed.body)
    );
    assert_eq!(open(&page).await.status, 410);
    let paid = "SELECT count(*) FROM payment_intents WHERE status = 'succeeded'";
    assert_eq!(two.first.count(paid).await, 1);
    assert_eq!(
        (two.first.charges().await, two.other.charges().await),
        (1, 0)
    );
    server.stop().await;
    movable.ends().await;
}

#[tokio::test]
async fn a_checkout_of_before_a_move_replays_and_one_that_was_refused_meanwhile_happens_once() {
    let (movable, server, shop) = Movable::served(&[]).await;
    let two = &movable.two;
    stock(&shop, "mug", 10).await;
    let buys = async |key: &str| shop.post("/checkouts", key, &checkout()).await;
    let before = buys("before").await;
    assert_eq!(before.status, 201, "{}", before.json());
    for step in [MoveStep::Frozen, MoveStep::Leaving] {
        movable.killed_after(FIRST_SHARD, step).await;
        let refused = buys("meanwhile").await;
        assert_eq!(refused.status, 503, "{step:?}: {}", refused.json());
        assert!(refused.header("retry-after").is_some());
        assert_eq!(refused.header("stripe-should-retry"), Some("true"));
    }
    movable.moved(FIRST_SHARD).await;
    let bought = definite(|| buys("meanwhile")).await;
    assert_eq!(bought.status, 201, "{}", bought.json());
    assert!(!bought.is_replay());
    buys("meanwhile").await.assert_replays(&bought);
    buys("before").await.assert_replays(&before);
    assert_eq!(level(&shop, "mug").await, 6);
    assert_eq!(
        (two.first.orders().await, two.first.charges().await),
        (2, 2)
    );
    assert_eq!(
        (two.other.orders().await, two.other.charges().await),
        (0, 0)
    );
    server.stop().await;
    movable.ends().await;
}
