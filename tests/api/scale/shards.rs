//! Several databases: each account lives in one of them.

use charge_once::{database::shards::FIRST_SHARD, server};
use serde_json::json;
use sqlx::{AssertSqlSafe, PgPool};
use tokio::sync::oneshot;
use uuid::Uuid;

use crate::support::{
    harness::{ALONE, Client, ServerProcess, TestDatabase, TestServer, charge, config, eventually},
    postgres_proxy::{NetworkFault, PostgresProxy},
    program::{Run, printed_by, program, run, run_to_end, text},
    racers::all_at_once,
    sharding::{SECOND, second},
    webhook_receiver::Receiver,
    webhooks::{Endpoint, QUICK},
};

/// A service that had one database, in which the account `dev` lives, and has an empty one more.
struct Two {
    first: TestDatabase,
    other: TestDatabase,
    shards: String,
}

impl Two {
    async fn prepared() -> Self {
        let first = TestDatabase::create_unsharded().await;
        let other = TestDatabase::create_empty().await;
        let shards = second(&other.url);
        let two = Self {
            first,
            other,
            shards,
        };
        two.run(&["migrate"]).await.succeeded();
        two
    }

    fn variables(&self) -> [(&str, &str); 2] {
        [
            ("DATABASE_URL", &self.first.url),
            ("SHARD_URLS", &self.shards),
        ]
    }

    async fn run(&self, arguments: &[&str]) -> Run {
        run_to_end(program(arguments, &self.variables())).await
    }

    /// The same, but the second database is reached through `url`.
    fn through(&self, url: &str) -> Self {
        Self {
            first: self.first.clone(),
            other: self.other.clone(),
            shards: second(url),
        }
    }

    async fn server(&self, variables: &[(&str, &str)]) -> TestServer {
        let variables = [&[("SHARD_URLS", &*self.shards)], variables].concat();
        TestServer::start_on(self.first.clone(), &variables).await
    }

    /// An API key of a new account in the second database.
    async fn key_of_other(&self, name: &str) -> String {
        let arguments = ["api-key", "create", "--account", name, "--shard", SECOND];
        let printed = self.run(&arguments).await.succeeded();
        printed.lines().next().unwrap().to_owned()
    }
}

async fn account_of(pool: &PgPool, name: &str) -> Uuid {
    let found = sqlx::query_scalar("SELECT id FROM accounts WHERE name = $1").bind(name);
    found.fetch_one(pool).await.unwrap()
}

/// Its keys would be tried in another database, too, whose account of this name has other keys.
#[tokio::test]
async fn a_program_that_knows_one_database_of_several_serves_nothing_and_makes_no_account() {
    let two = Two::prepared().await;
    for arguments in [&["serve"][..], &["api-key", "create", "--account", "twice"]] {
        let output = run(
            arguments,
            &[
                ("DATABASE_URL", &two.other.url),
                ("BIND_ADDRESS", "127.0.0.1:0"),
            ],
        );
        let said = text(&output.stderr);
        assert!(!output.status.success(), "{said}");
        assert!(said.contains("is the shard b of a service"), "{said}");
    }
}

/// As after a restore of one database from before an account moved.
#[tokio::test]
async fn an_account_that_lives_twice_is_refused_at_the_start() {
    let two = Two::prepared().await;
    two.key_of_other("shop").await;
    let account = account_of(&two.other.pool, "shop").await;
    let again = sqlx::query("INSERT INTO accounts (id, name) VALUES ($1, 'shop')");
    let again = again.bind(account).execute(&two.first.pool).await;
    again.unwrap();
    let output = run(
        &["serve"],
        &[
            ("DATABASE_URL", &two.first.url),
            ("SHARD_URLS", &two.shards),
            ("BIND_ADDRESS", "127.0.0.1:0"),
        ],
    );
    let said = text(&output.stderr);
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("lives in the shards main and b"), "{said}");
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
        eventually("both are logged beside it", || async {
            database.count(logged).await == 3
        })
        .await;
    }
    let charge = dev.get("/charges").await.json()["data"][0]["id"].clone();
    let path = format!("/charges/{}", charge.as_str().unwrap());
    assert_eq!(
        (dev.get(&path).await.status, shop.get(&path).await.status),
        (reqwest::StatusCode::OK, reqwest::StatusCode::NOT_FOUND,)
    );
    let stranger = dev.with_api_key("sk_test_of_nobody_at_all");
    assert_eq!(stranger.get("/charges").await.status, 401);
    assert_eq!(dev.get("/readyz").await.json(), json!({"status": "ready"}));
    server.stop().await;
    let checked = two.run(&["check"]).await;
    assert!(checked.stderr.contains("shard main:") && checked.stderr.contains("shard b:"));
    checked.succeeded();
}

#[tokio::test]
async fn the_database_refuses_a_key_of_an_account_that_lives_elsewhere() {
    let two = Two::prepared().await;
    let dev = account_of(&two.first.pool, "dev").await;
    let claim = format!(
        "INSERT INTO idempotency_keys (account_id, key, fingerprint_version, fingerprint, method, path,
                                       request_id, created_at, expires_at)
         VALUES ('{dev}', 'k', 1, sha256('x'), 'POST', '/charges', 'req_1', now(), now() + interval '1 day')"
    );
    let claimed = |pool: PgPool| {
        let claim = AssertSqlSafe(claim.clone());
        async move { sqlx::raw_sql(claim).execute(&pool).await }
    };
    let refuses = |refused: sqlx::Error| {
        let refused = refused.into_database_error().unwrap();
        assert_eq!(refused.code().as_deref(), Some("57P03"), "{refused}");
        assert!(refused.message().contains("does not live in this shard"));
    };
    refuses(claimed(two.other.pool.clone()).await.unwrap_err());

    // A key that was left behind is not taken over either.
    let left = format!("SET LOCAL session_replication_role = replica; {claim}");
    sqlx::raw_sql(AssertSqlSafe(left))
        .execute(&two.other.pool)
        .await
        .unwrap();
    let take_over = "UPDATE idempotency_keys SET fingerprint = sha256('y'), request_id = 'req_2'";
    refuses(
        sqlx::query(take_over)
            .execute(&two.other.pool)
            .await
            .unwrap_err(),
    );
    sqlx::query("DELETE FROM idempotency_keys")
        .execute(&two.other.pool)
        .await
        .unwrap();

    // A program that believes in the wrong database: it has the account's key there, and not the
    // account's row.
    two.key_of_other("shop").await;
    let moved = format!(
        "ALTER TABLE api_keys DROP CONSTRAINT an_api_key_belongs_to_an_account;
         UPDATE accounts SET id = '{}'",
        Uuid::now_v7()
    );
    let believed = two.server(&[]).await;
    let shop = believed
        .client
        .with_api_key(&two.key_of_other("shop").await);
    assert_eq!(shop.charge("before").await.status, 201);
    sqlx::raw_sql(AssertSqlSafe(moved))
        .execute(&two.other.pool)
        .await
        .unwrap();
    for path in ["/charges", "/inventory/mug"] {
        let body = match path {
            "/charges" => charge(),
            _ => json!({"on_hand": 3}),
        };
        let answer = match path {
            "/charges" => shop.post(path, "after", &body).await,
            _ => shop.put(path, "after-2", &body).await,
        };
        assert_eq!(answer.status, 503, "{}", answer.json());
    }
    assert_eq!(
        (two.other.charges().await, two.other.records().await),
        (1, 1)
    );
    believed.stop().await;
}

#[tokio::test]
async fn while_one_database_is_down_accounts_of_the_others_notice_nothing() {
    let two = Two::prepared().await;
    let key = two.key_of_other("shop").await;
    let proxy = PostgresProxy::in_front_of(&two.other.url).await;
    let two = two.through(&proxy.url);
    let server = two.server(&[]).await;
    let dev = &server.client;
    let shop = dev.with_api_key(&key);
    let first = shop.charge("key-1").await;
    assert_eq!(first.status, 201);
    for fault in [NetworkFault::Cut, NetworkFault::Stalled] {
        proxy.inject(fault);
        assert_eq!(shop.charge("key-2").await.status, 503);
        // A key that was not used here before is looked for everywhere.
        let printed = printed_by(
            &["api-key", "create", "--account", "dev"],
            &[("DATABASE_URL", &two.first.url)],
        );
        let fresh = dev.with_api_key(printed.lines().next().unwrap());
        for client in [dev, &fresh] {
            let began = std::time::Instant::now();
            assert_eq!(client.post_new("/charges", &charge()).await.status, 201);
            assert!(
                began.elapsed().as_secs() < 3,
                "{fault:?} {:?}",
                began.elapsed()
            );
        }
        // Nothing is known of a key that only the other one could have.
        let unknown = dev.with_api_key(&format!("sk_test_unknown_{}", Uuid::now_v7().simple()));
        assert_eq!(unknown.get("/charges").await.status, 503);
        let ready = dev.get("/readyz").await;
        assert_eq!(ready.status, 200);
        let reason = json!({"b": "The database can't be reached."});
        assert_eq!(ready.json()["unfit_shards"], reason);
        proxy.inject(NetworkFault::None);
        eventually("it is back", || async {
            shop.get("/charges").await.status == 200
        })
        .await;
    }
    shop.charge("key-1").await.assert_replays(&first);
    server.stop().await;
}

#[tokio::test]
async fn an_account_is_made_whole_or_not_at_all_and_a_key_is_revoked_or_said_not_to_be() {
    let two = Two::prepared().await;
    let key = two.key_of_other("shop").await;
    // Where it lives, whatever is asked for; and `--shard` is no wish then.
    two.run(&["api-key", "create", "--account", "shop"])
        .await
        .succeeded();
    let told = two
        .run(&[
            "api-key",
            "create",
            "--account",
            "shop",
            "--shard",
            FIRST_SHARD,
        ])
        .await;
    assert!(told.failed(1).contains("lives in the shard b"));
    // `dev` lives in one and `shop` in the other, so the first of them gets the next.
    let told = two.run(&["api-key", "create", "--account", "third"]).await;
    assert!(told.stderr.contains("lives in the shard main"), "{told:?}");

    let proxy = PostgresProxy::in_front_of(&two.other.url).await;
    proxy.inject(NetworkFault::Cut);
    let halved = two.through(&proxy.url);
    let told = halved
        .run(&["api-key", "create", "--account", "fourth"])
        .await
        .failed(1);
    assert!(told.contains("may live in b, so none is made"), "{told}");
    halved
        .run(&["api-key", "create", "--account", "dev"])
        .await
        .succeeded();
    let told = halved
        .run(&["api-key", "create", "--account", "shop"])
        .await
        .failed(1);
    assert!(told.contains("may live in b"), "{told}");
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
    let told = revoke(&halved).await.failed(1);
    assert!(told.contains("the key may be one of b"), "{told}");
    let told = halved.run(&["check"]).await.failed(2);
    assert!(told.contains("it failed in 1 of 2 shards: b"), "{told}");
    revoke(&two).await.succeeded();
    let told = revoke(&two).await.failed(1);
    assert!(told.contains("revoked before"), "{told}");
}

#[tokio::test]
async fn a_database_is_the_shard_that_it_was_at_first() {
    let two = Two::prepared().await;
    let swapped = second(&two.first.url);
    let refused = |first: &str, shards: &str| {
        let output = run(
            &["migrate"],
            &[("DATABASE_URL", first), ("SHARD_URLS", shards)],
        );
        Run::of(output).failed(1)
    };
    let told = refused(&two.other.url, &swapped);
    assert!(
        told.contains("leads to the database of the shard b"),
        "{told}"
    );
    assert!(
        told.contains("leads to the database of the shard main"),
        "{told}"
    );
    let has_accounts = TestDatabase::create_unsharded().await;
    let told = refused(
        &two.first.url,
        &format!("{},c={}", two.shards, has_accounts.url),
    );
    assert!(told.contains("only an empty one becomes a shard"), "{told}");
    assert!(told.contains("it failed in 1 of 3 shards: c"), "{told}");
}

#[tokio::test]
async fn each_command_works_on_all_databases_or_on_one() {
    let two = Two::prepared().await;
    two.key_of_other("shop").await;
    for (arguments, told) in [
        (
            &["migrate"][..],
            "The schema is current.\nThe schema is current.\n",
        ),
        (&["migrate", "--shard", "b"], "The schema is current.\n"),
        (&["keys", "list", "--in-flight"], ""),
        (&["operations", "list"], ""),
    ] {
        assert_eq!(two.run(arguments).await.succeeded(), told, "{arguments:?}");
    }
    let keys = two.run(&["api-key", "list"]).await.succeeded();
    assert_eq!(keys.lines().count(), 2, "{keys}");
    let swept = two.run(&["sweep"]).await.succeeded();
    assert_eq!(swept.matches("Removed 0 expired").count(), 2, "{swept}");
    let told = two.run(&["check", "--json"]).await.failed(2);
    assert!(told.contains("name it with --shard"), "{told}");
    two.run(&["check", "--json", "--shard", "b"])
        .await
        .succeeded();
    let told = two.run(&["sweep", "--shard", "c"]).await.failed(1);
    assert!(told.contains("SHARD_URLS names no such database"), "{told}");
    let account = ["keys", "show", "key-1", "--account", "shop"];
    assert!(two.run(&account).await.succeeded().contains("key-1"));
    let told = two
        .run(&["keys", "show", "key-1", "--account", "nobody"])
        .await
        .failed(1);
    assert!(told.contains("there is no account"), "{told}");
}

#[tokio::test]
async fn fifty_racers_on_two_replicas_charge_once_in_the_account_s_database() {
    let two = Two::prepared().await;
    let key = two.key_of_other("shop").await;
    let replicas = [(); 2].map(|()| ServerProcess::start(&two.first, &two.variables()));
    let clients = replicas
        .each_ref()
        .map(|replica| replica.client.with_api_key(&key));
    let answers = all_at_once(50, |number| {
        let client: Client = clients[number % 2].clone();
        async move {
            client
                .post_waiting(20, "/charges", "key-1", &charge())
                .await
        }
    })
    .await;
    let first = &answers[0];
    for answer in &answers {
        assert_eq!((answer.status, answer.json()), (first.status, first.json()));
    }
    assert_eq!(
        (two.other.charges().await, two.first.charges().await),
        (1, 0)
    );
    let refused = ServerProcess::start(&two.first, &[&two.variables()[..], &[ALONE]].concat());
    let alone = refused.client.with_api_key(&key);
    assert_eq!(alone.charge("key-1").await.json(), first.json());
}

#[tokio::test]
async fn webhooks_and_sweeps_of_each_database_are_the_work_of_a_process_beside_servers() {
    let two = Two::prepared().await;
    let key = two.key_of_other("shop").await;
    let server = two
        .server(&[QUICK, &[("BACKGROUND", "off")]].concat())
        .await;
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
    let databases = charge_once::database::connect_all(&two.first.url, &config)
        .await
        .unwrap();
    let pool = two.other.pool.clone();
    assert!(two.other.records().await > 0, "nobody swept");
    let working = tokio::spawn(async move {
        let stopped = async {
            let _ = stopped.await;
        };
        server::work(None, databases, &config, stopped)
            .await
            .unwrap();
    });
    let received = receiver.next().await;
    assert_eq!(received.event()["type"], "charge.succeeded");
    received.answer(204).await;
    endpoint.newest_succeeds(&shop).await;
    eventually("expired keys are gone", || async {
        let left = sqlx::query_scalar::<_, i64>("SELECT count(*) FROM idempotency_keys");
        left.fetch_one(&pool).await.unwrap() == 0
    })
    .await;
    stop.send(()).unwrap();
    working.await.unwrap();
    server.stop().await;
}
