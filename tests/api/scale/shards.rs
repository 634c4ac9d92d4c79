//! Several databases: each account lives in one of them.

use charge_once::server;
use tokio::sync::oneshot;

use crate::support::{
    holder_pages::open,
    prelude::*,
    sharding::{SECOND, second},
    wire::send_slowly,
};

/// A service that had one database, in which the account `dev` lives, and has an empty one more.
pub(super) struct Two {
    pub(super) first: TestDatabase,
    pub(super) other: TestDatabase,
    pub(super) shards: String,
}

impl Two {
    pub(super) async fn prepared() -> Self {
        let first = TestDatabase::create_unsharded().await;
        let other = TestDatabase::create_empty().await;
        Self::of(first, other).await
    }

    /// Of a migrated database and an empty one.
    pub(super) async fn of(first: TestDatabase, other: TestDatabase) -> Self {
        let shards = second(&other.url);
        let two = Self {
            first,
            other,
            shards,
        };
        two.run("migrate").await.succeeded();
        two
    }

    pub(super) fn variables(&self) -> [(&str, &str); 2] {
        [
            ("DATABASE_URL", &self.first.url),
            ("SHARD_URLS", &self.shards),
        ]
    }

    pub(super) async fn run(&self, arguments: &str) -> Run {
        let arguments: Vec<_> = arguments.split(' ').collect();
        run_to_end(program(&arguments, &self.variables())).await
    }

    /// The same, but the second database is reached through `url`.
    pub(super) fn through(&self, url: &str) -> Self {
        Self {
            first: self.first.clone(),
            other: self.other.clone(),
            shards: second(url),
        }
    }

    pub(super) async fn server(&self, variables: &[(&str, &str)]) -> TestServer {
        let variables = [&[("SHARD_URLS", &*self.shards)], variables].concat();
        TestServer::start_on(self.first.clone(), &variables).await
    }

    pub(super) async fn key_of_other(&self, name: &str) -> String {
        let create = format!("api-key create --account {name} --shard {SECOND}");
        let printed = self.run(&create).await.succeeded();
        printed.lines().next().unwrap().to_owned()
    }
}

pub(super) async fn holder_page(client: &Client) -> String {
    let body = json!({
        "payment_method": "pm_card_threeDSecure2Required", "confirm": true,
        "payment_method_types": ["card"],
    });
    page_of(&client.post_new("/setup_intents", &body).await)
}

pub(super) const SHOP: &str = "SELECT id FROM accounts WHERE name = 'shop'";

/// With an account of the second database, that has this key.
pub(super) async fn with_shop() -> (Two, String) {
    let two = Two::prepared().await;
    let key = two.key_of_other("shop").await;
    (two, key)
}

/// Its keys would be tried in another database, too, whose account of this name has other keys.
#[tokio::test]
async fn a_program_that_knows_one_database_of_several_serves_nothing_and_makes_no_account() {
    let two = Two::prepared().await;
    for arguments in [&["serve"][..], &["api-key", "create", "--account", "twice"]] {
        let variables = [("DATABASE_URL", &*two.other.url), ANY_PORT];
        let variables = [&variables[..], WAITS_FOR_CONNECTIONS].concat();
        let said = complaint_of(arguments, &variables, 1);
        assert_has(&said, "is the shard b of a service");
    }
}

/// As after a restore of one database from before an account moved.
#[tokio::test]
async fn an_account_that_lives_twice_is_refused_at_the_start() {
    let (two, _) = with_shop().await;
    let account: Uuid = two.other.value(SHOP).await;
    let again = format!("INSERT INTO accounts (id, name) VALUES ('{account}', 'shop')");
    two.first.execute(again).await;
    let variables = [&two.variables()[..], &[ANY_PORT]].concat();
    let said = complaint_of(&["serve"], &variables, 1);
    assert_has(&said, "lives in the shards main and b");
}

#[tokio::test]
async fn an_account_has_all_it_does_in_its_own_database_and_keys_are_its_own() {
    let two = Two::prepared().await;
    let server = two.server(&[("CONSOLE", "true")]).await;
    let dev = &server.client;
    let shop = dev.with_api_key(&two.key_of_other("shop").await);
    for (client, database) in [(dev, &two.first), (&shop, &two.other)] {
        let first = client.charge("key-1").await;
        assert_eq!(first.status, 201, "{}", first.json());
        client.charge("key-1").await.assert_replays(&first);
        let refund = json!({"charge": first.id(), "amount": 500});
        assert_eq!(client.post_new("/refunds", &refund).await.status, 201);
        let listed = client.get("/charges").await.json();
        assert_eq!(listed["data"].as_array().unwrap().len(), 1, "{listed}");
        assert_eq!((database.charges().await, database.records().await), (1, 2));
        let logged = "SELECT count(*) FROM request_log WHERE status = 201";
        database.comes_to(logged, 3).await;
    }
    let charge = dev.get("/charges").await.json()["data"][0]["id"].clone();
    let path = format!("/charges/{}", charge.as_str().unwrap());
    for (client, status) in [(dev, 200), (&shop, 404)] {
        assert_eq!(client.get(&path).await.status, status);
    }
    let stranger = dev.with_api_key("sk_test_of_nobody_at_all");
    assert_eq!(stranger.get("/charges").await.status, 401);
    assert_eq!(dev.get("/readyz").await.json(), json!({"status": "ready"}));
    server.stop().await;
    let checked = two.run("check").await;
    assert!(checked.stderr.contains("shard main:") && checked.stderr.contains("shard b:"));
    checked.succeeded();
}

#[tokio::test]
async fn the_database_refuses_a_key_of_an_account_that_lives_elsewhere() {
    let two = Two::prepared().await;
    let dev = "SELECT id FROM accounts WHERE name = 'dev'";
    let dev: Uuid = two.first.value(dev).await;
    let claim = format!(
        "INSERT INTO idempotency_keys (account_id, key, fingerprint_version, fingerprint, method, path,
                                       request_id, created_at, expires_at)
         VALUES ('{dev}', 'k', 1, sha256('x'), 'POST', '/charges', 'req_1', now(), now() + interval '1 day')"
    );
    let refuses = |refused: sqlx::Error| {
        let refused = refused.into_database_error().unwrap();
        assert_eq!(refused.code().as_deref(), Some("57C01"), "{refused}");
        assert!(refused.message().contains("does not live in this shard"));
    };
    let claimed = sqlx::raw_sql(AssertSqlSafe(&*claim)).execute(&two.other.pool);
    refuses(claimed.await.unwrap_err());

    // A key that was left behind is not taken over either.
    let left = format!("SET LOCAL session_replication_role = replica; {claim}");
    two.other.execute(left).await;
    let take_over = "UPDATE idempotency_keys SET fingerprint = sha256('y'), request_id = 'req_2'";
    let taken_over = sqlx::query(take_over).execute(&two.other.pool).await;
    refuses(taken_over.unwrap_err());
    two.other.execute("DELETE FROM idempotency_keys").await;

    // A program that believes in the wrong database: it has the account's key there, and not the
    // account's row.
    two.key_of_other("shop").await;
    let moved = "ALTER TABLE api_keys DROP CONSTRAINT an_api_key_belongs_to_an_account;
                 UPDATE accounts SET id = gen_random_uuid()";
    // A refusal makes a server look again, so each request has one of its own.
    let (believed, other) = (two.server(&[]).await, two.server(&[]).await);
    let key = two.key_of_other("shop").await;
    let shop = believed.client.with_api_key(&key);
    let elsewhere = other.client.with_api_key(&key);
    for shop in [&shop, &elsewhere] {
        assert_eq!(shop.charge("before").await.status, 201);
    }
    two.other.execute(moved).await;
    let level = json!({"on_hand": 3});
    for answer in [
        shop.charge("after").await,
        elsewhere.put("/inventory/mug", "after-2", &level).await,
    ] {
        assert_eq!(answer.status, 503, "{}", answer.json());
    }
    let stored = (two.other.charges().await, two.other.records().await);
    assert_eq!(stored, (1, 1));
    other.stop().await;
    believed.stop().await;
}

#[tokio::test]
async fn while_one_database_is_down_accounts_of_the_others_notice_nothing() {
    let (two, key) = with_shop().await;
    let proxy = PostgresProxy::in_front_of(&two.other.url).await;
    let two = two.through(&proxy.url);
    // A look at a database that says nothing lasts two seconds then.
    let patient = [("POOL_WAIT", "3s"), ("REQUEST_TIMEOUT", "12s")];
    let server = two.server(&patient).await;
    let dev = &server.client;
    let shop = dev.with_api_key(&key);
    let first = shop.charge("key-1").await;
    assert_eq!(first.status, 201);
    for fault in [NetworkFault::Cut, NetworkFault::Stalled] {
        proxy.inject(fault);
        let reason = json!({"b": "The database can't be reached."});
        eventually("each probe has its answer in time", || async {
            let began = std::time::Instant::now();
            let ready = dev.get("/readyz").await;
            let took = began.elapsed();
            assert!(took.as_millis() < 1500, "{fault:?} {took:?}");
            assert_eq!(ready.status, 200);
            ready.json()["unfit_shards"] == reason
        })
        .await;
        assert_eq!(shop.charge("key-2").await.status, 503);
        // A key that was not used here before is looked for everywhere.
        let printed = two.first.printed_by("api-key create --account dev");
        let fresh = dev.with_api_key(printed.lines().next().unwrap());
        for client in [dev, &fresh] {
            let began = std::time::Instant::now();
            assert_eq!(client.post_new("/charges", &charge()).await.status, 201);
            let took = began.elapsed();
            assert!(took.as_secs() < 3, "{fault:?} {took:?}");
        }
        // Nothing is known of a key that only the other one could have.
        let unknown = dev.with_api_key(&format!("sk_test_unknown_{}", Uuid::now_v7().simple()));
        assert_eq!(unknown.get("/charges").await.status, 503);
        proxy.inject(NetworkFault::None);
        let is_back = async || shop.get("/charges").await.status == 200;
        eventually("it is back", is_back).await;
        let is_ready = async || dev.get("/readyz").await.json() == json!({"status": "ready"});
        eventually("probes see that it is back", is_ready).await;
    }
    shop.charge("key-1").await.assert_replays(&first);
    server.stop().await;
}

#[tokio::test]
async fn while_one_database_is_down_guesses_are_limited_and_what_the_others_have_is_not() {
    let (two, key) = with_shop().await;
    let proxy = PostgresProxy::in_front_of(&two.other.url).await;
    let server = two.through(&proxy.url).server(&[]).await;
    let dev = &server.client;
    let shop = dev.with_api_key(&key);
    let (page, other) = (holder_page(dev).await, holder_page(&shop).await);
    // A page's address is read as the router reads it.
    for page in [&page, &other] {
        assert_eq!(open(page).await.status, 200);
        let encoded = page.replace("/authenticate/acct_", "/%61uthenticate/acct%5F");
        assert_ne!(&encoded, page);
        assert_eq!(open(&encoded).await.status, 200);
    }

    proxy.inject(NetworkFault::Cut);
    // What one database doesn't have, the other may: none of these can be told from a guess.
    let key = async || {
        let guess = format!("sk_test_guess_{}", Uuid::now_v7().simple());
        dev.with_api_key(&guess).get("/charges").await.status
    };
    let wrong = format!("{page}x");
    let status_of = async |url: &str| open(url).await.status;
    for (kind, told) in [
        ("keys", join_all((0..50).map(|_| key())).await),
        ("tokens", join_all((0..50).map(|_| status_of(&wrong))).await),
        ("pages", join_all((0..50).map(|_| status_of(&other))).await),
    ] {
        let told = |status: u16| told.iter().filter(|told| **told == status).count();
        assert!(told(429) > 0, "{kind}");
        assert_eq!(told(503) + told(429), 50, "{kind}");
        assert_eq!(open(&page).await.status, 200);
    }
    for _ in 0..30 {
        assert_eq!(shop.get("/charges").await.status, 503);
        assert_eq!(dev.get("/charges").await.status, 200);
    }
    server.stop().await;
}

#[tokio::test]
async fn a_server_that_starts_while_a_database_is_down_serves_it_once_it_is_fit() {
    let (two, key) = with_shop().await;
    let proxy = PostgresProxy::in_front_of(&two.other.url).await;
    proxy.inject(NetworkFault::Cut);
    let often = [("CONSOLE", "true"), ("EXPIRY_SWEEP_INTERVAL", "50ms")];
    let server = two.through(&proxy.url).server(&often).await;
    let dev = &server.client;
    let shop = dev.with_api_key(&key);
    assert_eq!(dev.charge("key-1").await.status, 201);
    assert_eq!(shop.charge("key-1").await.status, 503);

    // Whatever is wrong with it keeps it out, and no more: another shard's name, and an account
    // that lives in both.
    let account: Uuid = two.other.value(SHOP).await;
    let other = &two.other;
    let rename = |name: &str| other.execute(format!("UPDATE shard SET name = '{name}'"));
    rename("c").await;
    proxy.inject(NetworkFault::None);
    let unchecked = "The database has not passed the checks of a start yet. The log says why.";
    let is_kept_out = async || {
        let ready = dev.get("/readyz").await;
        assert_eq!(ready.status, 200);
        ready.json()["unfit_shards"] == json!({"b": unchecked})
    };
    eventually("it is in reach", is_kept_out).await;
    let twice = format!("INSERT INTO accounts (id, name) VALUES ('{account}', 'shop')");
    two.first.execute(twice).await;
    rename("b").await;
    // The checks read the accounts. They begin a second time only because they failed the first
    // time.
    let trying = "SELECT count(*) FROM pg_stat_activity
                   WHERE datname = current_database() AND wait_event_type = 'Lock'";
    for _ in 0..2 {
        let lock = other.holding("LOCK TABLE accounts IN ACCESS EXCLUSIVE MODE");
        let lock = lock.await;
        two.other.comes_to(trying, 1).await;
        lock.rollback().await.unwrap();
    }
    assert!(is_kept_out().await);
    assert_eq!(shop.charge("key-1").await.status, 503);
    assert_eq!(two.other.records().await, 0);

    // It remembers keys, and this server would execute requests with them.
    let remember = "INSERT INTO idempotency_tombstones (id, request, expired_at)
                    VALUES (gen_random_uuid(), 1, now())";
    other.execute(remember).await;
    let once = format!("DELETE FROM accounts WHERE id = '{account}'");
    two.first.execute(once).await;
    for _ in 0..2 {
        let lock = "LOCK TABLE idempotency_tombstones IN ACCESS EXCLUSIVE MODE";
        let lock = other.holding(lock).await;
        two.other.comes_to(trying, 1).await;
        lock.rollback().await.unwrap();
    }
    assert_eq!(shop.charge("key-1").await.status, 503);
    other.execute("TRUNCATE idempotency_tombstones").await;
    let is_served = async || shop.charge("key-1").await.status == 201;
    eventually("it is served", is_served).await;
    // What it says may be a second old.
    let is_ready = async || dev.get("/readyz").await.json() == json!({"status": "ready"});
    eventually("no database is unfit", is_ready).await;
    two.other.expire_records().await;
    let are_swept = async || two.other.records().await == 0;
    eventually("its expired keys are swept", are_swept).await;
    server.stop().await;
}

#[tokio::test]
async fn a_start_refuses_a_database_that_answers_and_is_not_what_it_should_be() {
    let two = Two::prepared().await;
    let elsewhere = two.through("postgres://charge_once@127.0.0.1:1/b");
    let name = two.other.url.rsplit('/').next().unwrap();
    let (name, _) = name.split_once('?').unwrap_or((name, ""));
    let missing = two.through(&two.other.url.replace(name, "no_such_database"));
    let none = [("DATABASE_URL", "postgres://charge_once@127.0.0.1:1/a")];
    let start = |two: &Two, more: &[(&str, &str)]| {
        let variables = [&two.variables()[..], &[ANY_PORT], more].concat();
        complaint_of(&["serve"], &variables, 1)
    };
    assert_has(&start(&missing, &[]), "the shard b: the database doesn't");
    assert_has(&start(&elsewhere, &none), "the shard main: the database");
}

/// A name belongs to one account, wherever it lives.
#[tokio::test]
async fn two_who_make_an_account_at_once_take_turns() {
    let two = Two::prepared().await;
    let mut other = two.first.pool.acquire().await.unwrap();
    let lock = "SELECT pg_advisory_lock(x'6163636f756e7473'::bigint)";
    sqlx::raw_sql(lock).execute(&mut *other).await.unwrap();
    let create = ["api-key", "create", "--account", "twin", "--shard", SECOND];
    let patient = [&two.variables()[..], PATIENT].concat();
    let creating = tokio::spawn(run_to_end(program(&create, &patient)));
    let waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
                      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    two.first.comes_to(waiting, 1).await;
    let made = "INSERT INTO accounts (id, name) VALUES (gen_random_uuid(), 'twin')";
    two.first.execute(made).await;
    other.close().await.unwrap();
    let told = creating.await.unwrap().failed(1);
    assert_has(&told, "lives in the shard main");
    let twins = "SELECT count(*) FROM accounts WHERE name = 'twin'";
    assert_eq!(two.other.count(twins).await, 0);
}

/// What finds the account's database and what reads the body share the time before the work.
#[tokio::test]
async fn a_request_has_its_time_once() {
    let (two, key) = with_shop().await;
    // Two seconds until the work begins.
    let ladder = [
        ("POOL_WAIT", "1s"),
        ("STATEMENT_TIMEOUT", "8s"),
        ("DATABASE_DEADLINE", "9s"),
        ("IDLE_IN_TRANSACTION_TIMEOUT", "10s"),
        ("REQUEST_TIMEOUT", "12s"),
    ];
    let server = two.server(&ladder).await;
    let slow = "ALTER TABLE api_keys RENAME TO quick_api_keys;
                CREATE VIEW api_keys AS SELECT quick_api_keys.* FROM quick_api_keys, pg_sleep(1)";
    two.other.execute(slow).await;
    let headers = format!(
        "Authorization: Bearer {key}\r\nContent-Type: {JSON}\r\nIdempotency-Key: key-1\r\n"
    );
    let began = std::time::Instant::now();
    let reply = send_slowly(&server.client, "/charges", &headers).await;
    let took = began.elapsed().as_millis();
    assert!(reply.starts_with("HTTP/1.1 408 "), "{reply}");
    assert!((2000..2900).contains(&took), "{took} ms");
    two.other.is_left_broken("its keys are a view");
    server.stop().await;
}

#[tokio::test]
async fn an_account_is_made_whole_or_not_at_all_and_a_key_is_revoked_or_said_not_to_be() {
    let (two, key) = with_shop().await;
    // Where it lives, whatever is asked for; and `--shard` is no wish then.
    two.run("api-key create --account shop").await.succeeded();
    let told = two.run("api-key create --account shop --shard main").await;
    assert!(told.failed(1).contains("lives in the shard b"));
    // `dev` lives in one and `shop` in the other, so the first of them gets the next.
    let told = two.run("api-key create --account third").await;
    assert_has(&told.stderr, "lives in the shard main");

    let proxy = PostgresProxy::in_front_of(&two.other.url).await;
    proxy.inject(NetworkFault::Cut);
    let halved = two.through(&proxy.url);
    let told = halved.run("api-key create --account fourth").await;
    assert_has(&told.failed(1), "may live in b, so none is made");
    halved.run("api-key create --account dev").await.succeeded();
    let told = halved.run("api-key create --account shop").await;
    assert_has(&told.failed(1), "may live in b");
    let made = "SELECT count(*) FROM accounts WHERE name IN ('shop', 'fourth')";
    assert_eq!(two.first.count(made).await, 0);

    let revoke = async |two: &Two| {
        let mut revoking = program(&["api-key", "revoke"], &two.variables());
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, key.as_bytes()).unwrap();
        std::io::Seek::rewind(&mut file).unwrap();
        revoking.stdin(file);
        run_to_end(revoking).await
    };
    assert_has(&revoke(&halved).await.failed(1), "the key may be one of b");
    let told = halved.run("check").await.failed(2);
    assert_has(&told, "it failed in 1 of 2 shards: b");
    revoke(&two).await.succeeded();
    assert_has(&revoke(&two).await.failed(1), "revoked before");
}

#[tokio::test]
async fn a_database_is_the_shard_that_it_was_at_first() {
    let two = Two::prepared().await;
    let swapped = second(&two.first.url);
    let refused = |first: &str, shards: &str| {
        let variables = [("DATABASE_URL", first), ("SHARD_URLS", shards)];
        complaint_of(&["migrate"], &variables, 1)
    };
    let told = refused(&two.other.url, &swapped);
    assert_has(&told, "leads to the database of the shard b");
    assert_has(&told, "leads to the database of the shard main");
    let has_accounts = TestDatabase::create_unsharded().await;
    let shards = format!("{},c={}", two.shards, has_accounts.url);
    let told = refused(&two.first.url, &shards);
    told.must_have(&[
        "only an empty one becomes a shard",
        "it failed in 1 of 3 shards: c",
    ]);
}

#[tokio::test]
async fn each_command_works_on_all_databases_or_on_one() {
    let (two, _) = with_shop().await;
    let current = "The schema is current.\n";
    for (arguments, told) in [
        ("migrate", &*current.repeat(2)),
        ("migrate --shard b", current),
        ("keys list --in-flight", ""),
        ("operations list", ""),
    ] {
        assert_eq!(two.run(arguments).await.succeeded(), told, "{arguments:?}");
    }
    let keys = two.run("api-key list").await.succeeded();
    assert_eq!(keys.lines().count(), 2, "{keys}");
    let swept = two.run("sweep").await.succeeded();
    assert_eq!(swept.matches("Removed 0 expired").count(), 2, "{swept}");
    let told = two.run("check --json").await.failed(2);
    assert_has(&told, "name it with --shard");
    for arguments in ["check --json", "keys list --in-flight --account shop"] {
        let arguments = format!("{arguments} --shard b");
        two.run(&arguments).await.succeeded();
    }
    let account = "keys show key-1 --account shop";
    let unknown = two.run(account).await;
    assert!(unknown.stdout.contains("key      key-1"), "{unknown:?}");
    let forget = "keys forget key-1 --by Ada --yes --account shop";
    let of_main = "keys list --in-flight --account shop --shard main";
    for (arguments, expected) in [
        (of_main, "the shard main has no account"),
        ("sweep --shard c", "SHARD_URLS names no such database"),
        (account, "nothing is known of this key"),
        (forget, "nothing is stored of this key"),
        ("keys show key-1", "no account has a record"),
        ("keys show key-1 --account nobody", "there is no account"),
    ] {
        assert_has(&two.run(arguments).await.failed(1), expected);
    }
}

#[tokio::test]
async fn fifty_racers_on_two_replicas_charge_once_in_the_account_s_database() {
    let (two, key) = with_shop().await;
    let replicas = [(); 2].map(|()| ServerProcess::start(&two.first, &two.variables()));
    let clients = replicas
        .each_ref()
        .map(|replica| replica.client.with_api_key(&key));
    let answers = all_at_once(50, |number| {
        let client: Client = clients[number % 2].clone();
        let body = charge();
        async move { client.post_waiting(20, "/charges", "key-1", &body).await }
    })
    .await;
    let first = &answers[0];
    for answer in &answers {
        assert_eq!((answer.status, answer.json()), (first.status, first.json()));
    }
    let charges = (two.other.charges().await, two.first.charges().await);
    assert_eq!(charges, (1, 0));
    let refused = ServerProcess::start(&two.first, &[&two.variables()[..], &[ALONE]].concat());
    let alone = refused.client.with_api_key(&key);
    assert_eq!(alone.charge("key-1").await.json(), first.json());
}

#[tokio::test]
async fn webhooks_and_sweeps_of_each_database_are_the_work_of_a_process_beside_servers() {
    let (two, key) = with_shop().await;
    let without_workers = [QUICK, &[("BACKGROUND", "off")]].concat();
    let server = two.server(&without_workers).await;
    let mut receiver = Receiver::start().await;
    let shop = server.client.with_api_key(&key);
    let endpoint = Endpoint::at(&shop, &receiver.url()).await;
    assert_eq!(shop.charge("key-1").await.status, 201);
    two.other.expire_records().await;
    let (stop, stopped) = oneshot::channel::<()>();
    let quick = [
        ("SHARD_URLS", &*two.shards),
        ("EXPIRY_SWEEP_INTERVAL", "50ms"),
    ];
    let config = config(&[QUICK, &quick].concat());
    let databases = charge_once::database::connect_all(&two.first.url, &config).await;
    let databases = databases.unwrap();
    assert!(two.other.records().await > 0, "nobody swept");
    let working = tokio::spawn(async move {
        let stopped = async { _ = stopped.await };
        let worked = server::work(None, databases, &config, stopped).await;
        worked.unwrap();
    });
    let received = receiver.next().await;
    assert_eq!(received.event()["type"], "charge.succeeded");
    received.answer(204).await;
    endpoint.newest_succeeds(&shop).await;
    let expired = "SELECT count(*) FROM idempotency_keys";
    two.other.comes_to(expired, 0).await;
    stop.send(()).unwrap();
    working.await.unwrap();
    server.stop().await;
}
