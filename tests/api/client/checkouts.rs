//! The client's checkouts: what takes several steps is asked for until it has ended, and what is
//! refused is refused once.

use charge_once_client::Checkout;

use super::*;
use crate::support::client_examples::sell;

/// The processor is back, for checkouts that found it down.
const PROCESSOR_IS_BACK: &str = "UPDATE checkouts SET card_token = 'tok_visa'";

/// The processor is back, and it is a worker's turn.
const WORKER_TAKES_OVER: &str = "UPDATE checkouts SET card_token = 'tok_visa';
    UPDATE idempotency_leases SET recover_after = now()";

const OF_CHARGE: &str = ",/checkouts/%/create_charge%";

const COMPLETED: &str = "SELECT count(*) FROM checkouts WHERE status = 'completed'";

async fn stocked(variables: &[(&str, &str)]) -> TestServer {
    let server = TestServer::start_with(variables).await;
    stock(&server.client, "mug", 5).await;
    server
}

fn url(server: &TestServer) -> String {
    format!("http://{}", server.client.address)
}

fn attempts(checkout: &Checkout) -> Vec<(&str, &str, i64)> {
    let steps = checkout.steps.iter();
    steps
        .map(|step| (step.name.as_str(), step.state.as_str(), step.attempts))
        .collect()
}

/// One order, one charge that counts, two mugs gone.
async fn sold_once(database: &TestDatabase) {
    let kept = "SELECT sum(amount_captured - amount_refunded)::bigint FROM charges";
    for (what, sql, expected) in [
        ("checkouts", COMPLETED, 1),
        ("orders", "SELECT count(*) FROM orders", 1),
        ("kept", kept, 2400),
        ("left", "SELECT quantity FROM inventory", 3),
    ] {
        assert_eq!(database.count(sql).await, expected, "{what}");
    }
}

/// A clock in whose pauses something happens at the service.
#[derive(Debug, Clone)]
struct Meanwhile {
    clock: TestClock,
    database: PgPool,
    happens: &'static str,
    /// Until so many are completed.
    completed: i64,
}

impl Clock for Meanwhile {
    fn unix_time(&self) -> Duration {
        self.clock.unix_time()
    }

    fn monotonic(&self) -> Duration {
        self.clock.monotonic()
    }

    fn sleep(&self, pause: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let meanwhile = self.clone();
        let pausing = self.clock.sleep(pause);
        Box::pin(async move {
            let happens = sqlx::raw_sql(meanwhile.happens).execute(&meanwhile.database);
            happens.await.unwrap();
            eventually("so many are completed", || async {
                let count = sqlx::query_scalar::<_, i64>(COMPLETED).fetch_one(&meanwhile.database);
                count.await.unwrap() >= meanwhile.completed
            })
            .await;
            pausing.await;
        })
    }
}

#[tokio::test]
async fn after_a_503_the_same_call_goes_on_with_the_checkout_or_finds_it_completed() {
    for (happens, completed) in [(PROCESSOR_IS_BACK, 0), (WORKER_TAKES_OVER, 1)] {
        let server = stocked(&[]).await;
        let proxy = HttpProxy::in_front_of(server.client.address, []).await;
        let (told, mut retries) = tokio::sync::mpsc::unbounded_channel();
        let clock = Meanwhile {
            clock: TestClock::default(),
            database: server.database.pool.clone(),
            happens,
            completed,
        };
        let client = Client::builder(proxy.url(), API_KEY)
            .clock(clock)
            .on_retry(move |retry| told.send(retry.clone()).unwrap())
            .build()
            .unwrap();
        let checkout = client.create_checkout(&a_cart("tok_outage")).unwrap();
        let reply = checkout.send_for_reply().await.unwrap();
        let checkout: Checkout = reply.object().unwrap();
        let expected = [
            ("create_order", "done", 1),
            ("create_charge", "done", 2),
            ("allocate_inventory", "done", 1),
        ];
        assert_eq!(attempts(&checkout), expected);
        // One retry was enough, not before the service wanted it.
        assert_all_alike(&proxy.seen(), 2);
        let retry = retries.try_recv().unwrap();
        let AttemptFailure::Answered(refusal) = retry.failure else {
            panic!("not an answer: {retry:?}");
        };
        let refusal = (refusal.status, &*refusal.code);
        assert_eq!(refusal, (503, "service_unavailable"));
        assert!(retry.pause >= Duration::from_secs(1), "{:?}", retry.pause);
        sold_once(&server.database).await;
    }
}

#[tokio::test]
async fn what_outlasts_the_deadline_is_unknown_and_kept_and_resumed_as_the_same_checkout() {
    let server = stocked(&[]).await;
    let folder = TempDir::new().unwrap();
    let clock = TestClock::default();
    // Under /v1 a duplicate waits for the first one, however fast a test's clock runs: the last
    // attempt may be cut off by the deadline.
    let url = format!("{}/v1", url(&server));
    let client = || {
        builder(url.clone(), &clock)
            .key_store(store(&folder))
            .retry_policy(RetryPolicy {
                budget: 1000,
                ..RetryPolicy::default()
            })
            .build()
            .unwrap()
    };
    let checkout = client().create_checkout(&a_cart("tok_outage")).unwrap();
    let given_up = gave_up(checkout.send().await);
    assert_eq!(given_up.reason, Reason::Deadline);
    assert!(given_up.attempts > 3, "{given_up}");
    let all: Duration = clock.pauses().iter().sum();
    assert!(all < RetryPolicy::default().deadline, "{all:?}");
    assert_eq!(files(&folder).len(), 1);

    server.database.execute(PROCESSOR_IS_BACK).await;
    is_resumed(&client(), checkout.key(), &folder, &server.database).await;
}

/// The one operation that was left unfinished is completed.
async fn is_resumed(client: &Client, key: &str, folder: &TempDir, database: &TestDatabase) {
    let (operation, reply) = resume_one(client).await;
    assert_eq!(operation.key(), key);
    let completed: Checkout = reply.object().unwrap();
    assert_eq!(completed.status, "completed");
    assert!(files(folder).is_empty());
    sold_once(database).await;
}

#[tokio::test]
async fn refusals_of_a_checkout_are_final_and_told_apart() {
    let server = stocked(&[]).await;
    let proxy = HttpProxy::in_front_of(server.client.address, []).await;
    let folder = TempDir::new().unwrap();
    let clock = TestClock::default();
    let client = keeping(proxy.url(), &clock, store(&folder));
    let mut too_many = a_cart("tok_visa");
    too_many.items[0].quantity = 6;

    let declined = client.create_checkout(&a_cart("tok_chargeDeclinedInsufficientFunds"));
    let declined = declined.unwrap();
    let out_of_stock = client.create_checkout(&too_many).unwrap();
    for _ in 0..2 {
        let Err(Error::Declined(refusal)) = declined.send().await else {
            panic!("not declined");
        };
        assert_eq!(refusal.decline_code.as_deref(), Some("insufficient_funds"));
        let failed = client.retrieve_charge(&refusal.charge.unwrap()).await;
        assert!(!failed.unwrap().paid);

        let Err(Error::Invalid(refusal)) = out_of_stock.send().await else {
            panic!("not refused");
        };
        assert_eq!((refusal.status, &*refusal.code), (400, "out_of_stock"));
        assert_eq!(refusal.param.as_deref(), Some("items[0][quantity]"));
    }
    assert!(clock.pauses().is_empty(), "none of them is asked again");
    assert!(files(&folder).is_empty());
    let list = client.list_checkouts(&Default::default()).await.unwrap();
    assert_eq!(list.data.len(), 2);
    for (checkout, code) in list.data.iter().zip(["out_of_stock", "card_declined"]) {
        assert_eq!(checkout.status, "canceled");
        assert_eq!(checkout.failure_code.as_deref(), Some(code));
    }
    assert_eq!(attempts(&list.data[0])[3], ("create_refund", "done", 1));

    // What a shop makes of it, as docs/client.md shows.
    let declined = a_cart("tok_chargeDeclined");
    for (cart, key, expected) in [
        (declined, "cart-1", "Another card, please: "),
        (too_many, "cart-2", "Fewer, please: "),
        (a_cart("tok_visa"), "cart-3", "It is yours: co_"),
    ] {
        for _ in 0..2 {
            let told = sell(&client, &cart, key).await.unwrap();
            assert!(told.starts_with(expected), "{told}");
        }
    }
    assert_eq!(server.database.count(COMPLETED).await, 1);
}

/// The service continues on its own; the client doesn't know, and retries until there is an answer.
#[tokio::test]
async fn a_checkout_that_takes_longer_than_an_attempt_is_asked_for_until_it_has_ended() {
    let server = stocked(PATIENT).await;
    let mut pause = PausePoint::at(Stage::Claiming, &server.database, OF_CHARGE).await;
    let (told, mut retries) = tokio::sync::mpsc::unbounded_channel();
    // The service takes the time that it takes, so the pauses are real.
    let client = Client::builder(url(&server), API_KEY)
        .retry_policy(RetryPolicy {
            attempt_timeout: Duration::from_millis(500),
            ..RetryPolicy::default()
        })
        .on_retry(move |retry| {
            let _ = told.send(retry.failure.clone());
        })
        .build()
        .unwrap();
    let checkout = client.create_checkout(&a_cart("tok_visa")).unwrap();
    let sending = tokio::spawn(async move { checkout.send().await });
    // The channel ends with the last one who could retry: this test fails, and doesn't hang.
    drop(client);
    pause.is_reached().await;
    let first = retries.recv().await;
    assert!(matches!(first, Some(AttemptFailure::NoAnswer(_))));
    loop {
        match retries.recv().await.unwrap() {
            AttemptFailure::Answered(refusal) => {
                assert_eq!(refusal.code, "idempotency_key_in_use");
                break;
            }
            AttemptFailure::NoAnswer(_) => {}
            AttemptFailure::NotConnected(why) => panic!("{why}"),
        }
    }
    pause.release().await;
    let checkout = sending.await.unwrap().unwrap();
    assert_eq!(attempts(&checkout)[1], ("create_charge", "done", 1));
    sold_once(&server.database).await;
}

const SHOP_URL: &str = "SHOP_URL";

const SHOP_STORE: &str = "SHOP_STORE";

fn shop(url: String, folder: &str) -> Client {
    Client::builder(url, API_KEY)
        .key_store(FileKeyStore::open(folder).unwrap())
        .build()
        .unwrap()
}

/// A process with one checkout, for the test below to kill.
#[tokio::test]
#[ignore = "it is a process of another test's"]
async fn the_shop_that_is_killed() {
    let (Ok(url), Ok(folder)) = (std::env::var(SHOP_URL), std::env::var(SHOP_STORE)) else {
        return;
    };
    let client = shop(url, &folder);
    let checkout = client.create_checkout(&a_cart("tok_visa")).unwrap();
    let _ = checkout.send().await;
}

#[tokio::test]
async fn killed_in_the_middle_of_a_checkout_and_started_again_it_has_sold_once() {
    let (_, module) = module_path!().split_once("::").unwrap();
    let the_shop = format!("{module}::the_shop_that_is_killed");
    let server = stocked(PATIENT).await;
    // Here a duplicate waits for the request that is executing.
    let url = format!("{}/v1", url(&server));
    let folder = TempDir::new().unwrap();
    let mut pause = PausePoint::at(Stage::Claiming, &server.database, OF_CHARGE).await;
    let mut killed = Command::new(std::env::current_exe().unwrap())
        .args([&the_shop, "--exact", "--ignored"])
        .env(SHOP_URL, &url)
        .env(SHOP_STORE, folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    pause.is_reached().await;
    killed.kill().unwrap();
    killed.wait().unwrap();
    let database = &server.database;
    let made = (database.orders().await, database.charges().await);
    assert_eq!(made, (1, 0), "it is in the middle");
    assert_eq!(files(&folder).len(), 1);
    pause.release().await;

    let client = shop(url, folder.path().to_str().unwrap());
    let key = "SELECT idempotency_key FROM checkouts";
    let key: String = server.database.value(key).await;
    is_resumed(&client, &key, &folder, &server.database).await;
}
