//! An account moves from one database to another while it is served.
//!
//! Each test has a PostgreSQL of its own, with two databases: a move waits for transactions of the
//! whole server.

use charge_once::database::{
    embedded, move_account,
    move_account::{Home, Move, MoveError, MoveStep, Moved, Pauses, Progress},
    shards::FIRST_SHARD,
};

use super::shards::{SHOP, Two, holder_page, with_shop};
use crate::support::{holder_pages::open, prelude::*, roles::apply, sharding::SECOND};

/// What a move needs of PostgreSQL beyond its defaults.
const LOGICAL: [(&str, &str); 5] = [
    ("wal_level", "logical"),
    ("max_replication_slots", "20"),
    ("max_wal_senders", "20"),
    ("max_worker_processes", "20"),
    ("max_logical_replication_workers", "10"),
];

/// A service with two databases, between which accounts can move.
pub(super) struct Movable {
    pub(super) two: Two,
    /// Of the account `shop`, which lives in the second one.
    pub(super) key: String,
    pub(super) account: Uuid,
    postgres: EmbeddedPostgres,
    folder: TempDir,
}

impl Movable {
    pub(super) async fn prepared() -> Self {
        let folder = scratch();
        let mut settings = embedded::settings(folder.path().to_owned(), None);
        let parameters = LOGICAL.map(|(name, value)| (name.to_owned(), value.to_owned()));
        settings.parameters = parameters.to_vec();
        let postgres = EmbeddedPostgres::start(settings).await.unwrap();
        let first = TestDatabase::in_private(&postgres).await;
        first.execute("CREATE DATABASE other").await;
        let url = postgres.url_of("other");
        let pool = PgPool::connect_lazy(&url).unwrap();
        let two = Two::of(first, TestDatabase::elsewhere(url, pool)).await;
        let key = two.key_of_other("shop").await;
        let account = two.other.value(SHOP).await;
        Self {
            two,
            key,
            account,
            postgres,
            folder,
        }
    }

    /// With a server of both, and a client of the account.
    pub(super) async fn served(variables: &[(&str, &str)]) -> (Self, TestServer, Client) {
        let movable = Self::prepared().await;
        let server = movable.two.server(variables).await;
        let shop = server.client.with_api_key(&movable.key);
        (movable, server, shop)
    }

    /// Its database and its name.
    fn home(&self, name: &str) -> &TestDatabase {
        match name == FIRST_SHARD {
            true => &self.two.first,
            false => &self.two.other,
        }
    }

    /// The move to a database, with servers that remember no home for long.
    pub(super) async fn to(&self, target: &str) -> Move {
        self.told(target, None).await
    }

    /// The same, but PostgreSQL is told that the old home is at this URL.
    async fn told(&self, target: &str, wrong: Option<&str>) -> Move {
        let source = [FIRST_SHARD, SECOND].into_iter().find(|it| *it != target);
        let mut homes = Vec::new();
        for name in [source.unwrap(), target] {
            let TestDatabase { url, .. } = self.home(name);
            let shards = config(&self.two.variables());
            let connected = charge_once::database::connect(url, &shards).await.unwrap();
            let told = wrong.unwrap_or(url);
            homes.push(Home::open(name, told, &connected).await.unwrap());
        }
        let (target, source) = (homes.pop().unwrap(), homes.pop().unwrap());
        let mut moving = Move::of(self.account, source, target).await.unwrap();
        moving.pauses = Pauses {
            homes: Duration::ZERO,
            look_ups: Duration::ZERO,
        };
        moving
    }

    /// A move that is killed right after this step.
    pub(super) async fn killed_after(&self, target: &str, last: MoveStep) {
        let mut tell = |progress| match progress {
            Progress::Done(step) if step == last => Err(MoveError::Stopped),
            Progress::Done(_) | Progress::Waits(_) => Ok(()),
        };
        let killed = self.to(target).await.run(&mut tell).await;
        assert!(
            matches!(killed, Err(MoveError::Stopped)),
            "{last:?}: {killed:?}"
        );
    }

    pub(super) async fn moved(&self, target: &str) -> Moved {
        self.to(target).await.run(&mut |_| Ok(())).await.unwrap()
    }

    /// Nothing is left of a move or of the account in one database, and all of it is in the other.
    async fn lives_only_in(&self, home: &str) {
        let made = "SELECT (SELECT count(*) FROM pg_replication_slots) + (SELECT count(*) FROM pg_subscription)
                         + (SELECT count(*) FROM pg_publication) + (SELECT count(*) FROM moving)";
        let lives =
            "SELECT count(*) FROM accounts JOIN api_keys ON account_id = id WHERE name = 'shop'";
        for name in [FIRST_SHARD, SECOND] {
            let database = self.home(name);
            assert_eq!(database.count(made).await, 0, "{name}");
            let is_home = name == home;
            assert_eq!(database.count(lives).await, i64::from(is_home), "{name}");
            for table in [
                "charges",
                "events",
                "idempotency_keys",
                "webhook_endpoints",
                "webhook_deliveries",
                "payment_intents",
                "customers",
            ] {
                let id = self.account;
                let sql = format!("SELECT count(*) FROM {table} WHERE account_id = '{id}'");
                let rows: i64 = sqlx::query_scalar(AssertSqlSafe(sql))
                    .fetch_one(&database.pool)
                    .await
                    .unwrap();
                assert_eq!(rows > 0, is_home, "{name} has {rows} rows of {table}");
            }
        }
    }

    async fn logs_all(&self) {
        for set in [
            "log_statement = 'all'",
            "log_min_duration_statement = 0",
            "log_min_error_statement = debug5",
            "log_parameter_max_length_on_error = -1",
            "log_error_verbosity = verbose",
        ] {
            let set = format!("ALTER SYSTEM SET {set}");
            self.two.first.execute(set).await;
        }
        self.two.first.execute("SELECT pg_reload_conf()").await;
    }

    fn log(&self) -> String {
        let log = self.folder.path().join("postgres.log");
        String::from_utf8_lossy(&fs::read(log).unwrap()).into_owned()
    }

    /// The command to the first database, as a role with this password.
    async fn moves_as(&self, role: &str, secret: &str) -> Run {
        let role = format!("{role}:{secret}");
        let [first, other] = [&self.two.first, &self.two.other].map(|one| as_role(&one.url, &role));
        let shards = format!("{SECOND}={other}");
        let variables = [("DATABASE_URL", &*first), ("SHARD_URLS", &shards)];
        let arguments = ["account", "move", "shop", "--to", "main"];
        let moved = run_to_end(program(&arguments, &variables)).await;
        for told in [&moved.stdout, &moved.stderr] {
            assert!(!told.contains(secret), "{told}");
        }
        moved
    }

    pub(super) async fn ends(self) {
        self.two.run("check").await.succeeded();
        self.stop().await;
    }

    async fn stop(self) {
        self.two.first.pool.close().await;
        self.two.other.pool.close().await;
        self.postgres.stop().await.unwrap();
    }
}

/// Rows of many tables: a customer, an intent that is paid, and one whose holder must authenticate.
async fn live(shop: &Client, receiver: &Receiver) -> String {
    Endpoint::at(shop, &receiver.url()).await;
    let customer = shop.post_new("/customers", &json!({"name": "Ada"})).await;
    let intent = json!({
        "amount": 700, "currency": "usd", "customer": customer.id(), "confirm": true,
        "payment_method": "pm_card_visa", "payment_method_types": ["card"],
    });
    let intent = shop.post_new("/payment_intents", &intent).await;
    assert_eq!(intent.status, 201, "{}", intent.json());
    holder_page(shop).await
}

/// How often each event arrived, with answers that take a while for every fifth one.
pub(super) fn counting(mut receiver: Receiver) -> Arc<Mutex<HashMap<String, usize>>> {
    let counts: Arc<Mutex<HashMap<String, usize>>> = Arc::default();
    let counted = Arc::clone(&counts);
    tokio::spawn(async move {
        let mut number = 0_u64;
        while let Some(received) = receiver.wait().await {
            number += 1;
            let late = Duration::from_millis(if number.is_multiple_of(5) { 300 } else { 0 });
            let counted = Arc::clone(&counted);
            tokio::spawn(async move {
                tokio::time::sleep(late).await;
                *counted
                    .lock()
                    .unwrap()
                    .entry(received.event_id())
                    .or_default() += 1;
                received.answer(204).await;
            });
        }
    });
    counts
}

/// None arrived twice. How many arrived.
fn assert_once_each(events: &Mutex<HashMap<String, usize>>) -> usize {
    let events = events.lock().unwrap();
    let twice: Vec<_> = events.iter().filter(|(_, times)| **times != 1).collect();
    assert!(twice.is_empty(), "{twice:?} of {}", events.len());
    events.len()
}

/// A client that charges until it is told to stop: its keys with the first definite answers, the
/// answers on the way that were not, and the longest time without a success.
struct Charging {
    charged: Vec<(String, Answer)>,
    unserved: Vec<u16>,
    longest: Duration,
}

async fn charge_all_the_time(client: Client, name: String, stop: Arc<AtomicUsize>) -> Charging {
    let mut it = Charging {
        charged: Vec::new(),
        unserved: Vec::new(),
        longest: Duration::ZERO,
    };
    while stop.load(Ordering::SeqCst) == 0 {
        let key = format!("{name}-{}", it.charged.len());
        let began = Instant::now();
        let answer = loop {
            let answer = client.charge(&key).await;
            if ![409, 503].contains(&answer.status.as_u16()) {
                break answer;
            }
            let says_when = answer.header("retry-after").is_some();
            assert!(says_when || answer.status == 409, "{}", answer.json());
            it.unserved.push(answer.status.as_u16());
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        it.longest = it.longest.max(began.elapsed());
        it.charged.push((key, answer));
    }
    it
}

#[tokio::test]
async fn an_account_moves_while_eight_clients_charge_and_no_key_is_lost_or_executed_twice() {
    let (movable, server, shop) = Movable::served(QUICK).await;
    let two = &movable.two;
    let variables = [&two.variables()[..], QUICK].concat();
    let replica = ServerProcess::start(&two.first, &variables);
    let dev = &server.client;
    let receiver = Receiver::start().await;
    let page = live(&shop, &receiver).await;
    let events = counting(receiver);
    let stop = Arc::new(AtomicUsize::new(0));
    let mut clients = JoinSet::new();
    for number in 0..8 {
        let at = [dev, &replica.client][number % 2].with_api_key(&movable.key);
        clients.spawn(charge_all_the_time(
            at,
            format!("shop-{number}"),
            Arc::clone(&stop),
        ));
    }
    let neighbor = tokio::spawn(charge_all_the_time(
        dev.clone(),
        "dev".to_owned(),
        Arc::clone(&stop),
    ));
    two.other
        .comes_to("SELECT least(count(*), 100) FROM charges", 100)
        .await;
    let told = two.run("account move shop --to main").await;
    report(&format!("{}{}", told.stderr, told.stdout));
    told.succeeded();
    stop.store(1, Ordering::SeqCst);
    let charged = clients.join_all().await;
    let neighbor = neighbor.await.unwrap();

    let keys: usize = charged.iter().map(|one| one.charged.len()).sum();
    let unserved: Vec<_> = charged
        .iter()
        .flat_map(|one| one.unserved.clone())
        .collect();
    let longest = charged.iter().map(|one| one.longest).max().unwrap();
    report(&format!(
        "{keys} keys, {} answers of 409 and 503, the longest wait of a client {longest:?}; the neighbor: {} charges, \
         at most {:?}",
        unserved.len(),
        neighbor.charged.len(),
        neighbor.longest
    ));
    assert!(neighbor.unserved.is_empty(), "{:?}", neighbor.unserved);
    let elsewhere = replica.client.with_api_key(&movable.key);
    let all = charged.iter().flat_map(|one| &one.charged);
    for (number, (key, first)) in all.enumerate() {
        assert_eq!(first.status, 201, "{key}: {}", first.json());
        let client = [&shop, &elsewhere][number % 2];
        client.charge(key).await.assert_replays(first);
    }
    let of_shop = "SELECT count(*) FROM charges JOIN accounts ON accounts.id = account_id WHERE name = 'shop'";
    // The intent has one, too.
    assert_eq!(
        two.first.count(of_shop).await,
        i64::try_from(keys).unwrap() + 1
    );
    assert_eq!(two.other.charges().await, 0);
    assert_eq!(open(&page).await.status, 200);
    assert_eq!(press(&page, "complete").await.status, 200);
    let pending = "SELECT count(*) FROM webhook_deliveries WHERE status = 'pending'";
    two.first.comes_to(pending, 0).await;
    let deliveries = two
        .first
        .count("SELECT count(*) FROM webhook_deliveries")
        .await;
    let arrived = assert_once_each(&events);
    assert_eq!(i64::try_from(arrived).unwrap(), deliveries);
    movable.lives_only_in(FIRST_SHARD).await;
    drop(replica);
    server.stop().await;
    movable.ends().await;
}

#[tokio::test]
async fn a_move_that_is_killed_after_any_step_is_finished_by_the_next_run() {
    let (movable, server, shop) = Movable::served(QUICK).await;
    let two = &movable.two;
    let receiver = Receiver::start().await;
    live(&shop, &receiver).await;
    let events = counting(receiver);
    let first = shop.charge("key-0").await;
    stock(&shop, "mug", 5).await;
    let checkout = shop.sending_in_vain("/checkouts", "checkout", &checkout_with("tok_slow"));
    two.other.comes_to(KEYS_IN_FLIGHT, 1).await;

    let mut charged = vec![("key-0".to_owned(), first)];
    for (number, step) in (1..).zip(MoveStep::ALL) {
        movable.killed_after(FIRST_SHARD, step).await;
        // It is charged in one of the two, or in neither until the move goes on.
        let key = format!("key-{number}");
        let answer = shop.charge(&key).await;
        match answer.status.as_u16() {
            201 => charged.push((key, answer)),
            503 => {
                let closed = [
                    MoveStep::Frozen,
                    MoveStep::Quiet,
                    MoveStep::Held,
                    MoveStep::CaughtUp,
                    MoveStep::Leaving,
                ];
                assert!(closed.contains(&step), "{step:?}: {}", answer.json());
            }
            _ => panic!("{step:?}: {}", answer.json()),
        }
        let stored = "SELECT count(*) FROM idempotency_keys WHERE status = 503";
        assert_eq!(
            two.other.count(stored).await + two.first.count(stored).await,
            0
        );
    }
    assert!(charged.len() > 10, "{}", charged.len());
    movable.moved(FIRST_SHARD).await;
    for (key, first) in &charged {
        shop.charge(key).await.assert_replays(first);
    }
    checkout.abort();
    two.first.expire_leases().await;
    let body = checkout_with("tok_slow");
    let ends = async || shop.post("/checkouts", "checkout", &body).await.status == 201;
    eventually("the checkout that was in flight ends", ends).await;
    two.first
        .comes_to(
            "SELECT count(*) FROM webhook_deliveries WHERE status = 'pending'",
            0,
        )
        .await;
    assert_once_each(&events);
    movable.lives_only_in(FIRST_SHARD).await;
    let told = two.run("account move shop --to main").await;
    assert_eq!(told.succeeded(), "The account lives in the shard main.\n");
    let told = two.run("account move shop --to main --abort").await;
    assert_eq!(told.succeeded(), "The account lives in the shard main.\n");
    server.stop().await;
    movable.ends().await;
}

#[tokio::test]
async fn a_move_is_undone_after_any_step_until_the_new_home_has_opened() {
    let (movable, server, shop) = Movable::served(QUICK).await;
    let receiver = Receiver::start().await;
    live(&shop, &receiver).await;
    let events = counting(receiver);
    let mut charged = Vec::new();
    let steps = MoveStep::ALL
        .into_iter()
        .take_while(|step| *step != MoveStep::Switched);
    for (number, step) in steps.enumerate() {
        movable.killed_after(FIRST_SHARD, step).await;
        movable.to(FIRST_SHARD).await.abort().await.unwrap();
        movable.lives_only_in(SECOND).await;
        let key = format!("key-{number}");
        let answer = shop.charge(&key).await;
        assert_eq!(answer.status, 201, "{step:?}: {}", answer.json());
        charged.push((key, answer));
    }
    movable
        .two
        .other
        .comes_to(
            "SELECT count(*) FROM webhook_deliveries WHERE status = 'pending'",
            0,
        )
        .await;
    movable.killed_after(FIRST_SHARD, MoveStep::Switched).await;
    let refused = movable.to(FIRST_SHARD).await.abort().await.unwrap_err();
    assert_has(&refused.to_string(), "the new home is open");
    movable.moved(FIRST_SHARD).await;
    // The server may still believe in the old home, which refuses.
    for (key, first) in &charged {
        let again = shop.charge_until_definite(key).await;
        again.assert_replays(first);
    }
    // And back again: nothing that the first move left is in its way.
    movable.moved(SECOND).await;
    movable.lives_only_in(SECOND).await;
    let back = shop.charge_until_definite("back").await;
    assert_eq!(back.status, 201, "{}", back.json());
    assert_once_each(&events);
    server.stop().await;
    movable.ends().await;
}

#[tokio::test]
async fn an_account_is_opened_again_whose_new_home_is_lost() {
    let (movable, server, shop) = Movable::served(QUICK).await;
    let receiver = Receiver::start().await;
    live(&shop, &receiver).await;
    let two = &movable.two;
    // The account's home is in reach, and the other database is not.
    let lost = ("DATABASE_URL", "postgres://nobody@127.0.0.1:1/lost");
    let [_, other] = two.variables();
    let abort = "account move shop --to main --abort";
    let alone = format!("{abort} --new-home-lost");
    let without = || {
        let arguments: Vec<_> = alone.split(' ').collect();
        run_to_end(program(&arguments, &[lost, other]))
    };
    let refused = two.run(&alone).await;
    refused
        .stderr
        .must_have(&["--new-home-lost: it is in reach"]);

    movable.killed_after(FIRST_SHARD, MoveStep::Leaving).await;
    let refused = without().await;
    assert_eq!(refused.code, Some(1), "{refused:?}");
    refused
        .stderr
        .must_have(&["the shard main may have opened the account: it must be in reach"]);
    movable.to(FIRST_SHARD).await.abort().await.unwrap();
    let refused = without().await;
    refused
        .stderr
        .must_have(&["the account does not move to the shard main"]);

    movable.killed_after(FIRST_SHARD, MoveStep::Held).await;
    assert_eq!(shop.charge("key-1").await.status, 503);
    assert_eq!(
        without().await.succeeded(),
        "The move was undone. Its new home was not asked.\n"
    );
    assert_eq!(shop.charge("key-1").await.status, 201);
    let slots: i64 = two
        .other
        .value("SELECT count(*) FROM pg_replication_slots")
        .await;
    assert_eq!(slots, 0);
    // The other database is back, with what it had of the move.
    let refused = two.run("account move shop --to main").await;
    refused
        .stderr
        .must_have(&["run it with --abort, and begin anew"]);
    assert_eq!(two.run(abort).await.succeeded(), "The move was undone.\n");
    movable.lives_only_in(SECOND).await;
    movable.moved(FIRST_SHARD).await;
    server.stop().await;
    movable.ends().await;
}

#[test]
fn a_new_home_that_was_lost_takes_nothing_of_the_next_one() {
    let [one, other] = [FIRST_SHARD, SECOND].map(|it| move_account::name_of(Uuid::nil(), it));
    assert_ne!(one, other);
    assert!(one.len() < 64, "{one}");
}

/// A lost new home comes back while the account moves to a third database.
#[tokio::test]
async fn a_move_to_another_home_is_neither_undone_nor_gone_on_with() {
    let (movable, server, shop) = Movable::served(QUICK).await;
    live(&shop, &Receiver::start().await).await;
    let two = &movable.two;
    movable.killed_after(FIRST_SHARD, MoveStep::Held).await;
    let moving = "SELECT state || ' ' || other || ' ' || (held IS NOT NULL) FROM moving";
    two.other.execute("UPDATE moving SET other = 'third'").await;
    for command in ["--to main", "--to main --dry-run"] {
        let refused = two.run(&format!("account move shop {command}")).await;
        refused
            .stderr
            .must_have(&["between the shards b and third is not over"]);
    }
    let undone = two.run("account move shop --to main --abort").await;
    assert_eq!(undone.succeeded(), "The move was undone.\n");
    assert_eq!(two.first.count_of("moving").await, 0);
    assert_eq!(two.first.count_of("charges").await, 0);
    let state: String = two.other.value(moving).await;
    assert_eq!(state, "frozen third true");
    assert_eq!(shop.charge("key-1").await.status, 503);

    two.other.execute("UPDATE moving SET other = 'main'").await;
    movable.to(FIRST_SHARD).await.abort().await.unwrap();
    movable.lives_only_in(SECOND).await;
    assert_eq!(shop.charge("key-1").await.status, 201);
    server.stop().await;
    movable.ends().await;
}

/// PostgreSQL ends it at any error, such as a lost connection.
#[tokio::test]
async fn a_copy_that_stopped_goes_on_with_the_next_run() {
    let (movable, server, shop) = Movable::served(QUICK).await;
    let two = &movable.two;
    let receiver = Receiver::start().await;
    live(&shop, &receiver).await;
    for (number, step) in [MoveStep::Subscribed, MoveStep::Copied]
        .into_iter()
        .enumerate()
    {
        movable.killed_after(FIRST_SHARD, step).await;
        let name = move_account::name_of(movable.account, FIRST_SHARD);
        let stop = format!("ALTER SUBSCRIPTION {name} DISABLE");
        two.first.execute(stop).await;
        let key = format!("key-{number}");
        assert_eq!(shop.charge(&key).await.status, 201, "{step:?}");
    }
    movable.moved(FIRST_SHARD).await;
    movable.lives_only_in(FIRST_SHARD).await;
    server.stop().await;
    movable.ends().await;
}

#[tokio::test]
async fn a_move_whose_new_home_differs_deletes_nothing_at_the_old_one() {
    let (movable, server, shop) = Movable::served(&[]).await;
    let two = &movable.two;
    assert_eq!(shop.charge("key-1").await.status, 201);
    // As if the copy had changed something on its way: the counts are the same.
    movable.killed_after(FIRST_SHARD, MoveStep::CaughtUp).await;
    let changed = "SET session_replication_role = replica; UPDATE charges SET amount = amount + 1";
    two.first.execute(changed).await;
    let failed = movable.to(FIRST_SHARD).await.run(&mut |_| Ok(())).await;
    assert_has(
        &failed.unwrap_err().to_string(),
        "1 rows of charges are not at the new home",
    );
    assert_eq!(two.other.charges().await, 1);
    server.stop().await;
    movable.stop().await;
    // And if a row is missing, the old home opens again.
    let (movable, server, shop) = Movable::served(&[]).await;
    let two = &movable.two;
    assert_eq!(shop.charge("key-1").await.status, 201);
    movable.killed_after(FIRST_SHARD, MoveStep::CaughtUp).await;
    let lost = "SET session_replication_role = replica; DELETE FROM idempotency_keys";
    two.first.execute(lost).await;
    let failed = movable.to(FIRST_SHARD).await.run(&mut |_| Ok(())).await;
    assert_has(
        &failed.unwrap_err().to_string(),
        "0 rows of idempotency_keys, and the old one 1",
    );
    assert_eq!(shop.charge("key-2").await.status, 201);
    movable.to(FIRST_SHARD).await.abort().await.unwrap();
    server.stop().await;
    movable.ends().await;
}

/// A server that remembers the old home, and workers of both.
#[tokio::test]
async fn while_an_account_is_closed_nothing_of_it_is_written_sent_or_swept() {
    let (two, key) = with_shop().await;
    let server = two
        .server(&quick_but(&[FORGETFUL, ("EXPIRY_SWEEP_INTERVAL", "20ms")]))
        .await;
    let (dev, shop) = (&server.client, server.client.with_api_key(&key));
    let mut receiver = Receiver::start().await;
    let endpoint = Endpoint::at(&shop, &receiver.url()).await;
    let customer = shop.post_new("/customers", &json!({})).await;
    receiver.next().await.answer(204).await;
    let first = shop.charge("key-1").await;
    receiver.next().await.answer(204).await;
    let state = |state: &str| {
        two.other.execute(format!(
            "INSERT INTO moving (account_id, state, other) SELECT id, '{state}', 'main' FROM accounts
                 ON CONFLICT (account_id) DO UPDATE SET state = excluded.state"
        ))
    };
    // Workers begin nothing new, and clients notice nothing.
    state("draining").await;
    assert_eq!(shop.charge("key-2").await.status, 201);
    assert_eq!(dev.charge("key-2").await.status, 201);
    state("frozen").await;
    two.other.expire_records().await;
    let records = two.other.records().await;
    for key in ["key-1", "key-3"] {
        let refused = shop.charge(key).await;
        assert_eq!(refused.status, 503, "{}", refused.json());
        assert!(refused.header("retry-after").is_some());
        assert_eq!(refused.header("stripe-should-retry"), Some("true"));
    }
    // These need no key. As in a real move, the endpoint is taken out of the table.
    two.other
        .execute("CREATE TABLE held AS TABLE webhook_endpoints; DELETE FROM webhook_endpoints")
        .await;
    for path in [
        format!("/webhook_endpoints/{}", endpoint.id),
        format!("/customers/{}", customer.id()),
    ] {
        let refused = Answer::of(shop.request(Method::DELETE, &path)).await;
        assert_eq!(refused.status, 503, "{}", refused.json());
        assert!(refused.header("retry-after").is_some());
    }
    two.other
        .execute("INSERT INTO webhook_endpoints TABLE held")
        .await;
    let tombstone = "INSERT INTO idempotency_tombstones (id, request, expired_at)
                     SELECT idempotency_tombstone_id(id, 'key-0'), 1, now() FROM accounts";
    let forget = "WITH forgotten AS (DELETE FROM idempotency_tombstones RETURNING 1) SELECT count(*) FROM forgotten";
    two.other.execute(tombstone).await;
    assert_eq!(two.other.count(forget).await, 0);
    assert_eq!(shop.get("/charges").await.status, 200);
    assert_eq!(dev.charge("key-3").await.status, 201);
    let saved = sqlx::query("UPDATE idempotency_keys SET status = 200").execute(&two.other.pool);
    let saved = saved.await.unwrap_err().into_database_error().unwrap();
    assert_eq!(saved.code().as_deref(), Some("57C01"));
    let revoke = sqlx::query("UPDATE api_keys SET revoked_at = now()").execute(&two.other.pool);
    assert!(revoke.await.is_err());
    // Sweeps of both run meanwhile: those of the first database remove what expired there.
    two.first.expire_records().await;
    two.first
        .comes_to("SELECT count(*) FROM idempotency_keys", 0)
        .await;
    assert_eq!(two.other.records().await, records);
    let pending = "SELECT count(*) FROM webhook_deliveries WHERE status = 'pending'";
    assert_eq!(two.other.count(pending).await, 1);
    assert!(receiver.arrived().is_none());

    state("leaving").await;
    assert_eq!(shop.get("/charges").await.status, 503);
    assert_eq!(shop.charge("key-3").await.status, 503);
    assert_eq!(two.other.records().await, records);
    two.other.execute("DELETE FROM moving").await;
    // It is as it was before.
    assert_eq!(two.other.count(forget).await, 1);
    receiver.next().await.answer(204).await;
    two.other
        .comes_to("SELECT count(*) FROM idempotency_keys", 0)
        .await;
    let again = shop.charge("key-1").await;
    assert!(
        again.status == 201 && !again.is_replay(),
        "{}",
        again.json()
    );
    assert_ne!(again.id(), first.id());
    server.stop().await;
}

/// It may have looked before the account was closed, and would write what the new home never gets.
#[tokio::test]
async fn a_move_waits_for_what_changes_without_a_key_and_opens_the_account_if_that_takes_long() {
    let (movable, server, shop) = Movable::served(QUICK).await;
    let two = &movable.two;
    let receiver = Receiver::start().await;
    live(&shop, &receiver).await;
    // To begin a copy, PostgreSQL waits for all transactions.
    movable.killed_after(FIRST_SHARD, MoveStep::Copied).await;
    let mut holder = two.other.pool.begin().await.unwrap();
    let hold = sqlx::query("SELECT hold_account($1)").bind(movable.account);
    hold.execute(&mut *holder).await.unwrap();
    let failed = movable.to(FIRST_SHARD).await.run(&mut |_| Ok(())).await;
    assert_has(&failed.unwrap_err().to_string(), "lock timeout");
    let open = "SELECT count(*) FROM moving WHERE state = 'copying'";
    assert_eq!(two.other.count(open).await, 1);
    assert_eq!(shop.charge("key-1").await.status, 201);
    holder.rollback().await.unwrap();
    movable.moved(FIRST_SHARD).await;
    movable.lives_only_in(FIRST_SHARD).await;
    server.stop().await;
    movable.ends().await;
}

/// A new table with rows of accounts needs a decision what becomes of it.
#[tokio::test]
async fn each_table_with_rows_of_accounts_is_copied_or_taken_along_or_left_alone() {
    let two = Two::prepared().await;
    let mut connection = two.first.pool.acquire().await.unwrap();
    let unknown = move_account::unknown_tables(&mut connection).await.unwrap();
    assert_eq!(unknown, [""; 0]);
    two.first
        .execute("CREATE TABLE payouts (account_id uuid PRIMARY KEY)")
        .await;
    let unknown = move_account::unknown_tables(&mut connection).await.unwrap();
    assert_eq!(unknown, ["payouts"]);
}

#[tokio::test]
async fn what_can_t_be_moved_is_refused_before_anything_is_made() {
    let (two, _) = with_shop().await;
    for (arguments, expected) in [
        ("shop --to b", ""),
        ("shop --to c", "SHARD_URLS names no such database"),
        ("nobody --to main", "there is no account \"nobody\""),
        (
            "shop --to main",
            "the shard b has wal_level = replica, and a move needs logical",
        ),
    ] {
        let told = two.run(&format!("account move {arguments}")).await;
        match expected {
            "" => assert_eq!(told.succeeded(), "The account lives in the shard b.\n"),
            _ => assert_has(&told.failed(1), expected),
        }
    }
    assert_eq!(two.first.count("SELECT count(*) FROM moving").await, 0);
    let test = "UPDATE accounts SET test_until = now() + interval '1 day'";
    two.other.execute(test).await;
    let told = two.run("account move shop --to main").await;
    assert_has(&told.failed(1), "a test account is not moved");
    let alone = two.first.command("account move shop --to main");
    assert_has(&alone.failed(1), "SHARD_URLS names no other one");
}

/// PostgreSQL logs all that it can, and a subscription fails as one, too.
#[tokio::test]
async fn the_password_of_the_old_home_is_in_no_log_and_in_no_open_column() {
    let movable = Movable::prepared().await;
    movable.logs_all().await;
    let Movable { two, .. } = &movable;
    let secret = format!("secret{}", Uuid::now_v7().simple());
    for (url, expected) in [
        (
            "u:SECRET@nowhere.invalid",
            "could not connect to the publisher",
        ),
        ("u:%SECRET@localhost", "can't read the URL of the old home"),
    ] {
        let url = format!("postgres://{}/charge_once", url.replace("SECRET", &secret));
        let failed = movable.told(FIRST_SHARD, Some(&url)).await;
        let failed = failed.run(&mut |_| Ok(())).await.unwrap_err().to_string();
        assert_has(&failed, expected);
        assert!(!failed.contains(&secret), "{failed}");
        movable.to(FIRST_SHARD).await.abort().await.unwrap();
    }
    let moved = movable.moves_as("charge_once", &secret).await;
    moved.succeeded();
    let log = movable.log();
    assert_has(&log, "CREATE PUBLICATION");
    assert_has(&log, "could not connect to the publisher");
    assert!(!log.contains(&secret));
    let reads = "SELECT count(*) FROM information_schema.column_privileges
                  WHERE table_name = 'pg_subscription' AND column_name = 'subconninfo' AND grantee = 'PUBLIC'";
    assert_eq!(two.first.count(reads).await, 0);
    movable.ends().await;
}

#[tokio::test]
async fn the_role_of_a_move_is_no_superuser_and_can_do_no_more_than_move() {
    let (movable, server, shop) = Movable::served(&[]).await;
    let Movable { two, .. } = &movable;
    let first = shop.charge("key-1").await;
    assert_eq!(first.status, 201);
    let secret = format!("secret{}", Uuid::now_v7().simple());
    let tables = "DO $$ DECLARE found regclass; BEGIN
        FOR found IN SELECT oid FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' LOOP
            EXECUTE format('ALTER TABLE %s OWNER TO charge_once_migrator', found);
        END LOOP; END $$";
    for database in [&two.first, &two.other] {
        apply_roles(&database.url, &[]);
        database.execute(tables).await;
        for _ in 0..2 {
            apply(
                "mover.sql",
                &database.url,
                &[("CHARGE_ONCE_MOVER_PASSWORD", &secret)],
            );
        }
    }
    // From PostgreSQL 16 on, such a role must subscribe with a password.
    let hba: String = two.first.value("SHOW hba_file").await;
    let lines = fs::read_to_string(&hba).unwrap();
    fs::write(
        &hba,
        format!("local all charge_once_mover scram-sha-256\n{lines}"),
    )
    .unwrap();
    movable.logs_all().await;

    let moved = movable.moves_as("charge_once_mover", &secret).await;
    moved.succeeded();
    shop.charge("key-1").await.assert_replays(&first);
    assert!(!movable.log().contains(&secret));

    let superusers =
        "SELECT count(*) FROM pg_roles WHERE rolname = 'charge_once_mover' AND rolsuper";
    assert_eq!(two.first.count(superusers).await, 0);
    let url = as_role(&two.first.url, &format!("charge_once_mover:{secret}"));
    let mut mover = PgConnection::connect(&url).await.unwrap();
    // From PostgreSQL 16 on, there is no such function.
    for (statement, codes) in [
        ("ALTER ROLE charge_once_mover SUPERUSER", ["42501"; 2]),
        ("COPY charges TO PROGRAM 'cat'", ["42501"; 2]),
        (
            "SELECT charge_once_subscribe('mine', '')",
            ["P0001", "42883"],
        ),
    ] {
        let denied = sqlx::raw_sql(statement).execute(&mut mover).await;
        let denied = denied.unwrap_err().into_database_error().unwrap();
        let code = denied.code().unwrap();
        assert!(codes.contains(&&*code), "{statement}: {code}");
    }
    server.stop().await;
    movable.ends().await;
}

/// The triggers run as who writes.
#[tokio::test]
async fn the_roles_of_servers_and_sweeps_need_no_more_where_accounts_may_move() {
    let (two, key) = with_shop().await;
    for database in [&two.first, &two.other] {
        apply_roles(&database.url, &[]);
    }
    let [app, sweeper] = ["charge_once_app", "charge_once_sweeper"].map(|role| {
        let [first, other] = [&two.first, &two.other].map(|one| as_role(&one.url, role));
        (first, format!("{SECOND}={other}"))
    });
    let variables = |(first, shards): &(String, String)| {
        [
            ("DATABASE_URL", first.clone()),
            ("SHARD_URLS", shards.clone()),
            ("MIGRATE_ON_START", "false".to_owned()),
        ]
    };
    let variables = [app, sweeper].map(|role| variables(&role));
    let [app, sweeper] = variables
        .each_ref()
        .map(|all| all.each_ref().map(|(name, value)| (*name, &**value)));
    let server = ServerProcess::start(&two.first, &app);
    let shop = server.client.with_api_key(&key);
    assert_eq!(shop.charge("key-1").await.status, 201);
    printed_by(&["api-key", "create", "--account", "shop"], &app);
    printed_by(&["shards"], &app);
    two.other.expire_records().await;
    let swept = printed_by(&["sweep"], &sweeper);
    assert_has(&swept, "Removed 1 expired");
    let denied = sqlx::query("SELECT held FROM moving")
        .execute(&mut PgConnection::connect(app[0].1).await.unwrap())
        .await;
    let denied = denied.unwrap_err().into_database_error().unwrap();
    assert_eq!(denied.code().as_deref(), Some("42501"));
}
