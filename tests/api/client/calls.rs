//! The client's half of the promise, against the real server and a network that fails.

use std::{
    collections::BTreeMap,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    pin::Pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use charge_once::http::openapi;
use charge_once_client::{
    Capture, Charge, ChargeUpdate, Client, ClientBuilder, Clock, Error, FileKeyStore, GaveUp, Kept,
    KeyStore, KeyStoreError, ListQuery, MetadataUpdate, NewCharge, NewCheckout, NewItem, NewOrder,
    NewRefund, NewWebhookEndpoint, Operation, Order, Payment, Reason, Request, Resumed,
    RetryPolicy, Saved, Trouble,
};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::support::{
    go_between::{Act, GoBetween, Seen},
    harness::{API_KEY, PATIENT, TestServer, one_charge_and_its_record},
    obstacle::{Obstacle, Stage},
};

const SECOND: Duration = Duration::from_secs(1);

/// The head of an answer that ends a call.
const NEVER_AGAIN: &str = "503 Service Unavailable\r\nstripe-should-retry: false";

/// Time that passes only while somebody sleeps, and then at once.
#[derive(Debug, Clone, Default)]
pub struct TestClock {
    now: Arc<Mutex<Duration>>,
    pauses: Arc<Mutex<Vec<Duration>>>,
}

/// When the clock of a test starts, in unix seconds.
const START: Duration = Duration::from_secs(1_800_000_000);

impl TestClock {
    fn advance(&self, by: Duration) {
        *self.now.lock().unwrap() += by;
    }

    pub fn pauses(&self) -> Vec<Duration> {
        self.pauses.lock().unwrap().clone()
    }
}

impl Clock for TestClock {
    fn unix_time(&self) -> Duration {
        START + self.monotonic()
    }

    fn monotonic(&self) -> Duration {
        *self.now.lock().unwrap()
    }

    fn sleep(&self, pause: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        self.advance(pause);
        self.pauses.lock().unwrap().push(pause);
        Box::pin(tokio::task::yield_now())
    }
}

pub fn builder(url: String, clock: &TestClock) -> ClientBuilder {
    Client::builder(url, API_KEY).clock(clock.clone())
}

pub fn store(folder: &TempDir) -> FileKeyStore {
    FileKeyStore::open(folder.path()).unwrap()
}

fn payment(client: &Client) -> Request<Charge> {
    client.create_charge(&NewCharge::new(2000, "usd")).unwrap()
}

fn an_order() -> NewOrder {
    NewOrder {
        currency: "usd".to_owned(),
        items: vec![NewItem {
            sku: Some("mug".to_owned()),
            quantity: 2,
            unit_amount: 1200,
            ..NewItem::default()
        }],
        ..NewOrder::default()
    }
}

/// Two mugs, paid with this card.
pub fn a_cart(card: &str) -> NewCheckout {
    let NewOrder {
        currency, items, ..
    } = an_order();
    NewCheckout {
        currency,
        items,
        source: Some(card.to_owned()),
        ..NewCheckout::default()
    }
}

fn an_endpoint() -> NewWebhookEndpoint {
    NewWebhookEndpoint {
        url: "https://example.invalid/webhooks".to_owned(),
        enabled_events: vec!["order.canceled".to_owned()],
        ..NewWebhookEndpoint::default()
    }
}

pub fn gave_up<T: std::fmt::Debug>(outcome: Result<T, Error>) -> GaveUp {
    match outcome {
        Err(Error::GaveUp(gave_up)) => *gave_up,
        other => panic!("it should not know: {other:?}"),
    }
}

pub fn files(folder: &TempDir) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder.path()).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

/// Every attempt is the same request, to the byte.
pub fn assert_all_alike(seen: &[Seen], attempts: usize) {
    assert_eq!(seen.len(), attempts);
    for other in seen {
        assert_eq!(other, &seen[0]);
    }
}

/// As `docs/client.md` shows it.
async fn buy_a_mug(url: &str, api_key: &str, folder: &Path) -> Result<(), Error> {
    let client = Client::builder(url, api_key)
        .key_store(FileKeyStore::open(folder)?)
        .build()?;
    // First what an earlier process left unfinished.
    let _reports = client.resume().await?;
    // The key is made here.
    let payment = client.create_charge(&NewCharge::new(2000, "usd"))?;
    match payment.send().await {
        Ok(charge) => println!("charged: {}", charge.id),
        Err(Error::Declined(refusal)) => println!("declined: {}", refusal.message),
        // Never to be shown as "failed".
        Err(Error::GaveUp(unknown)) => println!("not known yet: {unknown}"),
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Goes on with a checkout of which only the name is known.
async fn go_on(client: &Client, name: &str) -> Result<Option<Order>, Error> {
    let steps = client.workflow(name).await?;
    let opened = steps.iter().find(|step| step.key == format!("{name}/open"));
    // Nothing is recorded now. That is no "no": it may still arrive.
    let Some(order) = opened.and_then(|step| step.resource.as_ref()) else {
        return Ok(None);
    };
    // Under the key that this step has in any process: where it was paid already, this is a retry.
    let payment = client
        .pay_order(order, &Payment::default())?
        .with_key(format!("{name}/pay"))?
        .with_workflow(name)?;
    payment.send().await.map(Some)
}

/// Sells what is in a cart, once, and says what to tell the customer.
pub async fn sell(client: &Client, cart: &NewCheckout, key: &str) -> Result<String, Error> {
    match client.create_checkout(cart)?.with_key(key)?.send().await {
        Ok(checkout) => Ok(format!("It is yours: {}", checkout.id)),
        // Nothing is left of it. Another attempt is another checkout, under a key of its own.
        Err(Error::Declined(refusal)) => Ok(format!("Another card, please: {}", refusal.message)),
        Err(Error::Invalid(refusal)) if refusal.code == "out_of_stock" => {
            Ok(format!("Fewer, please: {}", refusal.message))
        }
        // It goes on where it stopped: under this key, or by a worker of the service's.
        Err(Error::GaveUp(_)) => Ok("We are still at it.".to_owned()),
        Err(error) => Err(error),
    }
}

#[tokio::test]
async fn a_checkout_of_which_only_the_name_is_known_is_gone_on_with() {
    let server = TestServer::start().await;
    let url = format!("http://{}", server.client.address);
    let client = Client::builder(url, API_KEY).build().unwrap();
    assert_eq!(go_on(&client, "checkout-1").await.unwrap(), None);
    let opened = client
        .create_order(&an_order())
        .and_then(|order| order.with_key("checkout-1/open"))
        .and_then(|order| order.with_workflow("checkout-1"))
        .unwrap();
    let opened = opened.send().await.unwrap();
    for _ in 0..2 {
        let paid = go_on(&client, "checkout-1").await.unwrap().unwrap();
        assert_eq!((&paid.id, paid.status.as_str()), (&opened.id, "paid"));
    }
    let steps = client.workflow("checkout-1").await.unwrap();
    let told: Vec<_> = steps
        .iter()
        .map(|step| (step.key.as_str(), step.response_status))
        .collect();
    let pay = ("checkout-1/pay", Some(200));
    assert_eq!(told, [("checkout-1/open", Some(201)), pay]);
    assert_eq!(server.database.charges().await, 1);
}

#[tokio::test]
async fn the_example_of_the_document_charges() {
    let server = TestServer::start().await;
    let url = format!("http://{}", server.client.address);
    let folder = TempDir::new().unwrap();
    buy_a_mug(&url, API_KEY, folder.path()).await.unwrap();
    one_charge_and_its_record(&server.database).await;
}

#[tokio::test]
async fn a_lost_answer_is_asked_for_again_under_the_same_key_with_the_same_bytes() {
    let server = TestServer::start().await;
    let acts = [Act::LoseTheAnswer, Act::LoseTheRequest, Act::LoseTheAnswer];
    let between = GoBetween::in_front_of(server.client.address, acts).await;
    let clock = TestClock::default();
    let client = builder(between.url(), &clock).build().unwrap();
    let payment = payment(&client);
    let key = payment.key().to_owned();
    let charge = payment.send().await.unwrap();
    assert_eq!((charge.amount, charge.status.as_str()), (2000, "succeeded"));
    let seen = between.seen();
    assert_all_alike(&seen, 4);
    assert_eq!(seen[0].key(), key);
    assert_eq!(seen[0].body, r#"{"amount":2000,"currency":"usd"}"#);
    one_charge_and_its_record(&server.database).await;

    // The value can be sent again at any time: it is the same operation.
    let again = payment.send_for_reply().await.unwrap();
    assert!(again.replayed && again.stored);
    assert_eq!(again.object::<Charge>().unwrap(), charge);
    assert_all_alike(&between.seen(), 5);
    one_charge_and_its_record(&server.database).await;
}

#[tokio::test]
async fn two_requests_are_two_operations_and_one_named_by_its_caller_is_one_on_two_machines() {
    let server = TestServer::start().await;
    // Under /v1 a duplicate waits for the first one, however fast a test's clock runs.
    let url = format!("http://{}/v1", server.client.address);
    let client = builder(url, &TestClock::default()).build().unwrap();
    assert_ne!(payment(&client).key(), payment(&client).key());
    let named = || payment(&client).with_key("order-2001").unwrap();
    let (first, second) = (named(), named());
    let (first, second) = tokio::join!(first.send(), second.send());
    assert_eq!(first.unwrap(), second.unwrap());
    one_charge_and_its_record(&server.database).await;
    for unusable in ["", "a b", "a,b", "\"a\"", "ä", &"k".repeat(256)] {
        let refused = payment(&client).with_key(unusable);
        assert!(matches!(refused, Err(Error::Unusable(_))), "{unusable}");
    }
}

#[tokio::test]
async fn a_workflow_goes_with_every_attempt_and_is_resumed_with_its_operation() {
    let server = TestServer::start().await;
    let acts = [Act::LoseTheRequest, Act::Answer(NEVER_AGAIN, "{}")];
    let between = GoBetween::in_front_of(server.client.address, acts).await;
    let folder = TempDir::new().unwrap();
    let client = || {
        builder(between.url(), &TestClock::default())
            .key_store(store(&folder))
            .build()
            .unwrap()
    };
    let payment = payment(&client()).with_workflow("checkout-1").unwrap();
    assert_eq!(payment.operation().workflow(), Some("checkout-1"));
    gave_up(payment.send().await);
    let resumed = client().resume().await.unwrap();
    let [
        Resumed::Sent {
            outcome: Ok(_),
            operation,
        },
    ] = resumed.as_slice()
    else {
        panic!("not resumed: {resumed:?}");
    };
    assert_eq!(operation, payment.operation());
    let seen = between.seen();
    assert_all_alike(&seen, 3);
    assert_eq!(seen[0].header("idempotency-workflow"), Some("checkout-1"));
    let steps = client().workflow("checkout-1").await.unwrap();
    assert_eq!((steps.len(), steps[0].key.as_str()), (1, payment.key()));
    for unusable in ["", "a b", "a,b", "\"a\"", "ä", &"n".repeat(256)] {
        let refused = self::payment(&client()).with_workflow(unusable);
        assert!(matches!(refused, Err(Error::Unusable(_))), "{unusable}");
    }
}

#[tokio::test]
async fn a_workflow_is_read_to_its_end() {
    let server = TestServer::start().await;
    let first =
        r#"{"object":"list","data":[{"key":"a b/c","status":"completed"}],"has_more":true}"#;
    let last = r#"{"object":"list","data":[{"key":"d","status":"in_flight"}],"has_more":false}"#;
    let acts = [Act::Answer("200 OK", first), Act::Answer("200 OK", last)];
    let between = GoBetween::in_front_of(server.client.address, acts).await;
    let client = builder(between.url(), &TestClock::default())
        .build()
        .unwrap();
    let steps = client.workflow("a/b").await.unwrap();
    let keys: Vec<_> = steps.iter().map(|step| step.key.as_str()).collect();
    assert_eq!(keys, ["a b/c", "d"]);
    let seen = between.seen();
    let asked: Vec<_> = seen
        .iter()
        .map(|seen| seen.head.lines().next().unwrap())
        .collect();
    assert_eq!(
        asked,
        [
            "GET /workflows?name=a%2Fb HTTP/1.1",
            "GET /workflows?name=a%2Fb&starting_after=a+b%2Fc HTTP/1.1",
        ]
    );
}

#[tokio::test]
async fn what_a_version_without_workflows_and_methods_has_written_down_is_resumed_as_a_post() {
    let server = TestServer::start().await;
    let between = GoBetween::in_front_of(server.client.address, []).await;
    let folder = TempDir::new().unwrap();
    let line = serde_json::json!({
        "version": 1, "key": "old-1", "server": between.url(), "path": "/charges",
        "body": r#"{"amount":2000,"currency":"usd"}"#, "created_at": START.as_secs(),
    });
    let line = line.to_string();
    let sum = hex::encode(Sha256::digest(&line));
    let name = format!("{}.operation", hex::encode(Sha256::digest("old-1")));
    std::fs::write(folder.path().join(name), format!("{line}\n{sum}\n")).unwrap();
    let client = builder(between.url(), &TestClock::default())
        .key_store(store(&folder))
        .build()
        .unwrap();
    let resumed = client.resume().await.unwrap();
    let [
        Resumed::Sent {
            outcome: Ok(_),
            operation,
        },
    ] = resumed.as_slice()
    else {
        panic!("not resumed: {resumed:?}");
    };
    assert_eq!((operation.key(), operation.workflow()), ("old-1", None));
    assert_eq!(operation.method(), "POST");
    assert!(between.seen()[0].head.starts_with("POST /charges "));
    assert_eq!(between.seen()[0].header("idempotency-workflow"), None);
    assert_eq!(files(&folder), [] as [PathBuf; 0]);
    one_charge_and_its_record(&server.database).await;
}

#[tokio::test]
async fn a_deletion_whose_answer_was_lost_is_found_done() {
    let server = TestServer::start().await;
    let between = GoBetween::in_front_of(server.client.address, []).await;
    let client = builder(between.url(), &TestClock::default())
        .build()
        .unwrap();
    let endpoint = client.create_webhook_endpoint(&an_endpoint()).unwrap();
    let endpoint = endpoint.send().await.unwrap();
    let lossy = GoBetween::in_front_of(server.client.address, [Act::LoseTheAnswer]).await;
    let elsewhere = builder(lossy.url(), &TestClock::default()).build().unwrap();
    let deleted = elsewhere.delete_webhook_endpoint(&endpoint.id).await;
    assert!(!deleted.unwrap(), "an earlier attempt did it");
    assert_eq!(lossy.seen().len(), 2);
    let list = ListQuery::default();
    let left = client.list_webhook_endpoints(&list).await.unwrap();
    assert_eq!(left.data, []);
}

#[tokio::test]
async fn a_duplicate_in_flight_is_asked_again_until_the_first_is_done_without_spending_the_budget()
{
    let server = TestServer::start_with(PATIENT).await;
    let mut obstacle = Obstacle::at(Stage::Executing, &server.database, "order-2001").await;
    let first = {
        let client = server.client.clone();
        let body = serde_json::json!({"amount": 2000, "currency": "usd"});
        tokio::spawn(async move { client.post("/charges", "order-2001", &body).await })
    };
    obstacle.is_met().await;
    let (told, mut retries) = tokio::sync::mpsc::unbounded_channel();
    let client = builder(
        format!("http://{}", server.client.address),
        &TestClock::default(),
    )
    .retry_policy(RetryPolicy {
        deadline: 3600 * SECOND,
        budget: 0,
        ..RetryPolicy::default()
    })
    .on_retry(move |retry| {
        let _ = told.send(retry.clone());
    })
    .build()
    .unwrap();
    let second = payment(&client).with_key("order-2001").unwrap();
    let second = tokio::spawn(async move { second.send_for_reply().await });
    // The channel ends with the last one who could retry: this test fails, and doesn't hang.
    drop(client);
    for attempts in 1..=3 {
        let retry = retries.recv().await.unwrap();
        assert_eq!(retry.attempts, attempts);
        assert!(
            retry.pause >= SECOND,
            "Retry-After says 1: {:?}",
            retry.pause
        );
        let Trouble::Answered(refusal) = retry.trouble else {
            panic!("not an answer: {retry:?}");
        };
        assert_eq!(refusal.code, "idempotency_key_in_use");
    }
    obstacle.lift().await;
    let (first, second) = (first.await.unwrap(), second.await.unwrap().unwrap());
    assert_eq!((second.body, second.replayed), (first.body, true));
    one_charge_and_its_record(&server.database).await;
}

#[tokio::test]
async fn trouble_is_retried_and_never_before_the_service_wants_it() {
    let server = TestServer::start().await;
    let acts = [
        Act::Answer("503 Service Unavailable\r\nretry-after: 7", ""),
        Act::Answer(
            "429 Too Many Requests\r\nretry-after: 3\r\nstripe-should-retry: true",
            "{}",
        ),
        Act::Answer("408 Request Timeout", ""),
        Act::Answer("502 Bad Gateway", "<html>"),
        Act::Answer("400 Bad Request\r\nstripe-should-retry: true", "{}"),
        // From somebody in between: no service says this.
        Act::Answer("200 OK", "<html>Welcome to our network!</html>"),
    ];
    let between = GoBetween::in_front_of(server.client.address, acts).await;
    let clock = TestClock::default();
    let client = builder(between.url(), &clock).build().unwrap();
    payment(&client).send().await.unwrap();
    assert_all_alike(&between.seen(), 7);
    let jitter_max = [0.25, 0.5, 1.0, 2.0, 4.0, 8.0].map(Duration::from_secs_f64);
    let asked_for = [7, 3, 0, 0, 0, 0].map(Duration::from_secs);
    let pauses = clock.pauses();
    assert_eq!(pauses.len(), 6);
    for ((pause, least), jitter) in pauses.iter().zip(asked_for).zip(jitter_max) {
        assert!(*pause >= least && *pause <= least + jitter, "{pauses:?}");
    }
    one_charge_and_its_record(&server.database).await;
}

#[tokio::test]
async fn told_not_to_retry_it_doesnt_and_says_that_the_outcome_is_unknown() {
    let server = TestServer::start().await;
    let between =
        GoBetween::in_front_of(server.client.address, [Act::Answer(NEVER_AGAIN, "{}")]).await;
    let folder = TempDir::new().unwrap();
    let client = builder(between.url(), &TestClock::default())
        .key_store(store(&folder))
        .build()
        .unwrap();
    let payment = payment(&client);
    let given_up = gave_up(payment.send().await);
    assert_eq!((given_up.attempts, given_up.reason), (1, Reason::ToldNotTo));
    assert_eq!(given_up.key.as_deref(), Some(payment.key()));
    assert_eq!(files(&folder).len(), 1, "kept, because it isn't known");
}

#[tokio::test]
async fn definite_refusals_are_final_typed_and_forgotten() {
    let server = TestServer::start().await;
    let between = GoBetween::in_front_of(server.client.address, []).await;
    let folder = TempDir::new().unwrap();
    let clock = TestClock::default();
    let client = builder(between.url(), &clock)
        .key_store(store(&folder))
        .build()
        .unwrap();
    let charge = |amount, source: &str| {
        let new = NewCharge {
            source: Some(source.to_owned()),
            ..NewCharge::new(amount, "usd")
        };
        client.create_charge(&new).unwrap()
    };

    let declined = charge(2000, "tok_chargeDeclinedInsufficientFunds");
    for _ in 0..2 {
        let Err(Error::Declined(refusal)) = declined.send().await else {
            panic!("not declined");
        };
        assert_eq!(refusal.code, "card_declined");
        assert_eq!(refusal.decline_code.as_deref(), Some("insufficient_funds"));
        let failed = client
            .retrieve_charge(refusal.charge.as_ref().unwrap())
            .await
            .unwrap();
        assert_eq!((failed.status.as_str(), failed.paid), ("failed", false));
    }
    let Err(Error::Invalid(refusal)) = charge(0, "tok_visa").send().await else {
        panic!("not invalid");
    };
    assert_eq!(
        (refusal.status, refusal.param.as_deref()),
        (400, Some("amount"))
    );
    let reused = charge(3000, "tok_visa").with_key(declined.key()).unwrap();
    assert!(matches!(reused.send().await, Err(Error::KeyReused(_))));
    let stranger = Client::builder(between.url(), "sk_test_of_nobody")
        .build()
        .unwrap();
    let refused = stranger.list_charges(&ListQuery::default()).await;
    assert!(matches!(refused, Err(Error::Unauthenticated(_))));
    assert!(matches!(
        payment(&stranger).send().await,
        Err(Error::Unauthenticated(_))
    ));

    assert!(clock.pauses().is_empty(), "none of them is asked again");
    assert_eq!(files(&folder), [] as [PathBuf; 0]);
}

/// The first attempt was executed, its answer lost; then the API key is revoked. "Not authenticated"
/// is true of the second attempt and says nothing about the first.
#[tokio::test]
async fn a_refusal_that_is_not_stored_does_not_settle_an_earlier_attempt() {
    let server = TestServer::start().await;
    let revoked = r#"{"error":{"type":"authentication_error","code":"api_key_invalid"}}"#;
    let acts = [
        Act::LoseTheAnswer,
        Act::Answer("401 Unauthorized\r\nstripe-should-retry: false", revoked),
        Act::Answer("401 Unauthorized\r\nstripe-should-retry: false", revoked),
    ];
    let between = GoBetween::in_front_of(server.client.address, acts).await;
    let folder = TempDir::new().unwrap();
    let client = || {
        builder(between.url(), &TestClock::default())
            .key_store(store(&folder))
            .build()
            .unwrap()
    };
    let payment = payment(&client());
    let given_up = gave_up(payment.send().await);
    assert_eq!(
        (given_up.attempts, given_up.reason),
        (2, Reason::EarlierAttempt)
    );
    let Trouble::Answered(refusal) = given_up.last else {
        panic!("an answer came");
    };
    assert_eq!(
        (refusal.status, refusal.code.as_str()),
        (401, "api_key_invalid")
    );

    // Nor after a restart, while the key is still revoked.
    let resumed = client().resume().await.unwrap();
    let [
        Resumed::Sent {
            outcome: Err(Error::GaveUp(_)),
            ..
        },
    ] = resumed.as_slice()
    else {
        panic!("it should not know: {resumed:?}");
    };
    assert_eq!(files(&folder).len(), 1);

    // With a good key again the charge is found.
    let resumed = client().resume().await.unwrap();
    let [
        Resumed::Sent {
            outcome: Ok(reply),
            operation,
        },
    ] = resumed.as_slice()
    else {
        panic!("not resumed: {resumed:?}");
    };
    assert!(reply.replayed);
    assert_eq!(operation.key(), payment.key());
    assert_eq!(files(&folder), [] as [PathBuf; 0]);
    one_charge_and_its_record(&server.database).await;
}

#[tokio::test]
async fn a_used_up_budget_ends_all_calls_of_a_client_at_once_until_answers_fill_it() {
    let server = TestServer::start().await;
    let outage = Act::Answer("503 Service Unavailable", "{}");
    let between = GoBetween::in_front_of(server.client.address, vec![outage; 7]).await;
    let clock = TestClock::default();
    let policy = RetryPolicy {
        budget: 3,
        ..RetryPolicy::default()
    };
    let client = builder(between.url(), &clock)
        .retry_policy(policy)
        .build()
        .unwrap();
    let first = gave_up(payment(&client).send().await);
    assert_eq!((first.attempts, first.reason), (4, Reason::Budget));
    // Clones share it: an outage meets one attempt for each call, and no more.
    for _ in 0..3 {
        let next = gave_up(payment(&client.clone()).send().await);
        assert_eq!((next.attempts, next.reason), (1, Reason::Budget));
    }
    assert_eq!(clock.pauses().len(), 3);
    for _ in 0..10 {
        client.list_charges(&ListQuery::default()).await.unwrap();
    }
    assert_eq!(server.database.charges().await, 0);
    payment(&client).send().await.unwrap();
}

#[tokio::test]
async fn no_pause_begins_that_would_end_after_the_deadline() {
    let server = TestServer::start().await;
    let slow = "503 Service Unavailable\r\nretry-after: 25";
    let between =
        GoBetween::in_front_of(server.client.address, vec![Act::Answer(slow, "{}"); 9]).await;
    let clock = TestClock::default();
    let client = builder(between.url(), &clock).build().unwrap();
    let given_up = gave_up(payment(&client).send().await);
    // At 0, after 25 and after 50 seconds; 75 would be beyond the 60.
    assert_eq!((given_up.attempts, given_up.reason), (3, Reason::Deadline));
    assert!(clock.monotonic() < 60 * SECOND);
    assert_eq!(clock.pauses().len(), 2);
}

#[tokio::test]
async fn where_nobody_listens_nothing_was_received_and_nothing_is_lost() {
    let server = TestServer::start().await;
    let address = server.client.address;
    let database = server.stop().await;
    let folder = TempDir::new().unwrap();
    let client = builder(format!("http://{address}"), &TestClock::default())
        .key_store(store(&folder))
        .build()
        .unwrap();
    let given_up = gave_up(payment(&client).send().await);
    assert!(
        matches!(given_up.last, Trouble::NotConnected(_)),
        "{given_up}"
    );
    assert!(given_up.attempts > 3, "{given_up}");
    assert_eq!((database.charges().await, files(&folder).len()), (0, 1));
}

/// The store's own view of what is there when a request arrives.
#[derive(Debug)]
struct FailingStore;

impl KeyStore for FailingStore {
    fn save(&self, _: &Operation) -> Result<Saved, KeyStoreError> {
        Err(KeyStoreError::Io {
            path: "/full".into(),
            error: std::io::ErrorKind::StorageFull.into(),
        })
    }

    fn remove(&self, _: &str) -> Result<(), KeyStoreError> {
        Ok(())
    }

    fn unfinished(&self) -> Result<Vec<Kept>, KeyStoreError> {
        Ok(Vec::new())
    }
}

#[tokio::test]
async fn what_can_not_be_written_down_is_not_sent() {
    let server = TestServer::start().await;
    let between = GoBetween::in_front_of(server.client.address, []).await;
    let client = builder(between.url(), &TestClock::default())
        .key_store(FailingStore)
        .build()
        .unwrap();
    assert!(matches!(
        payment(&client).send().await,
        Err(Error::Store(_))
    ));
    assert_eq!(between.seen(), []);
}

/// A store of the client's user: a table, with operations as text.
#[derive(Debug, Clone, Default)]
struct Table(Arc<Mutex<BTreeMap<String, String>>>);

impl KeyStore for Table {
    fn save(&self, operation: &Operation) -> Result<Saved, KeyStoreError> {
        let mut table = self.0.lock().unwrap();
        if let Some(found) = table.get(operation.key()) {
            let found: Operation = serde_json::from_str(found).unwrap();
            return if found.asks_the_same_as(operation) {
                Ok(Saved::Found(found))
            } else {
                Err(KeyStoreError::OtherRequest)
            };
        }
        let text = serde_json::to_string(operation).unwrap();
        table.insert(operation.key().to_owned(), text);
        Ok(Saved::New)
    }

    fn remove(&self, key: &str) -> Result<(), KeyStoreError> {
        self.0.lock().unwrap().remove(key);
        Ok(())
    }

    fn unfinished(&self) -> Result<Vec<Kept>, KeyStoreError> {
        let table = self.0.lock().unwrap();
        let operations = table.values().map(|text| serde_json::from_str(text));
        Ok(operations
            .map(|read| Kept::Operation(read.unwrap()))
            .collect())
    }
}

#[tokio::test]
async fn a_charge_is_resumed_from_a_store_of_one_s_own() {
    let server = TestServer::start().await;
    let table = Table::default();
    let charge = NewCharge::new(2000, "usd");
    is_resumed(&server, table, |client| client.create_charge(&charge)).await;
    one_charge_and_its_record(&server.database).await;
}

#[tokio::test]
async fn a_level_is_resumed_as_the_put_that_it_was_from_any_store() {
    let folder = TempDir::new().unwrap();
    let file = store(&folder);
    for own_store in [true, false] {
        let server = TestServer::start().await;
        let client = builder(
            format!("http://{}", server.client.address),
            &TestClock::default(),
        );
        let client = client.build().unwrap();
        let set = |client: &Client| client.set_inventory("a mug", 5);
        let seen = match own_store {
            true => is_resumed(&server, Table::default(), set).await,
            false => is_resumed(&server, file.clone(), set).await,
        };
        assert!(seen.head.starts_with("PUT /inventory/a%20mug HTTP/1.1"));
        assert_eq!(seen.body, r#"{"quantity":5}"#);
        let level = client.retrieve_inventory("a mug").await.unwrap();
        assert_eq!((level.quantity, level.sku.as_str()), (5, "a mug"));
        assert_eq!(server.database.records().await, 1);
    }
    assert_eq!(files(&folder), [] as [PathBuf; 0]);
}

/// Sends what `prepare` makes, which is executed, and gives up; then resumes it from `store`.
async fn is_resumed<T: serde::de::DeserializeOwned + std::fmt::Debug>(
    server: &TestServer,
    store: impl KeyStore + Clone + 'static,
    prepare: impl Fn(&Client) -> Result<Request<T>, Error>,
) -> Seen {
    let acts = [Act::LoseTheAnswer, Act::Answer(NEVER_AGAIN, "{}")];
    let between = GoBetween::in_front_of(server.client.address, acts).await;
    let client = || {
        builder(between.url(), &TestClock::default())
            .key_store(store.clone())
            .build()
            .unwrap()
    };
    let request = prepare(&client()).unwrap();
    gave_up(request.send().await);
    let resumed = client().resume().await.unwrap();
    let [
        Resumed::Sent {
            outcome: Ok(_),
            operation,
        },
    ] = resumed.as_slice()
    else {
        panic!("not resumed: {resumed:?}");
    };
    assert_eq!(operation, request.operation());
    let mut seen = between.seen();
    assert_all_alike(&seen, 3);
    assert!(client().resume().await.unwrap().is_empty());
    seen.remove(0)
}

/// It would send a POST.
#[tokio::test]
async fn a_client_that_knows_no_method_does_not_read_a_file_with_one() {
    let folder = TempDir::new().unwrap();
    let client = builder("http://127.0.0.1:1".to_owned(), &TestClock::default());
    let client = client.build().unwrap();
    let set = client.set_inventory("mug", 5).unwrap();
    for (operation, version) in [(payment(&client).operation(), 1), (set.operation(), 2)] {
        store(&folder).save(operation).unwrap();
        let file = files(&folder).pop().unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.contains(&format!(r#""version":{version},"#)), "{text}");
        assert_eq!(text.contains("method"), version == 2, "{text}");
        std::fs::remove_file(file).unwrap();
    }
    let mut posted = serde_json::to_value(set.operation()).unwrap();
    assert_eq!(
        posted.as_object_mut().unwrap().remove("method").unwrap(),
        "PUT"
    );
    let posted: Operation = serde_json::from_value(posted).unwrap();
    assert_eq!((posted.method(), posted.path()), ("POST", "/inventory/mug"));
    assert!(!set.operation().asks_the_same_as(&posted));
}

#[tokio::test]
async fn a_sku_of_any_characters_is_named_by_its_path() {
    let server = TestServer::start().await;
    let url = format!("http://{}", server.client.address);
    let client = Client::builder(url, API_KEY).build().unwrap();
    let skus = [
        "mug",
        "a b",
        " ",
        "a/b",
        "/",
        "../charges",
        "...",
        "%",
        "100%",
        "%2F",
        "%2e%2E",
        "%2e",
        "a+b",
        "a?b",
        "#1",
        "a&b=c",
        "é",
        "e\u{301}",
        "茶碗",
        "\n",
        "\t",
        "a\\b",
        "\\",
        ":",
        "~",
        "-",
        "_",
        "\"",
    ];
    for (sku, quantity) in skus.iter().zip(1..) {
        let set = client.set_inventory(sku, quantity).unwrap();
        let set = set.send().await.unwrap();
        assert_eq!((set.sku.as_str(), set.quantity), (*sku, quantity));
    }
    // No two of them were taken for one.
    for (sku, quantity) in skus.iter().zip(1..) {
        let level = client.retrieve_inventory(sku).await.unwrap();
        assert_eq!((level.sku.as_str(), level.quantity), (*sku, quantity));
    }
    for no_segment in ["", ".", ".."] {
        let refused = client.set_inventory(no_segment, 1);
        assert!(matches!(refused, Err(Error::Unusable(_))), "{no_segment}");
        let refused = client.retrieve_inventory(no_segment).await;
        assert!(matches!(refused, Err(Error::Unusable(_))), "{no_segment}");
    }
    let Err(Error::Invalid(refusal)) = client.retrieve_inventory("cup").await else {
        panic!("there is no such level");
    };
    assert_eq!(
        (refusal.status, refusal.param.as_deref()),
        (404, Some("sku"))
    );
}

#[tokio::test]
async fn an_operation_is_on_disk_with_its_key_for_its_owner_only_and_without_the_api_key() {
    let server = TestServer::start().await;
    let between = GoBetween::in_front_of(server.client.address, [Act::Swallow]).await;
    let folder = TempDir::new().unwrap();
    let below = folder.path().join("payments");
    let client = builder(between.url(), &TestClock::default())
        .key_store(FileKeyStore::open(&below).unwrap())
        .build()
        .unwrap();
    let payment = payment(&client);
    let operation = payment.operation().clone();
    let sending = tokio::spawn(async move { payment.send().await });
    crate::support::harness::eventually("it is sent", || async { !between.seen().is_empty() })
        .await;

    let store = FileKeyStore::open(&below).unwrap();
    assert_eq!(store.unfinished().unwrap(), [Kept::Operation(operation)]);
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&below), 0o700);
    for entry in std::fs::read_dir(&below).unwrap() {
        let file = entry.unwrap().path();
        assert_eq!(mode(&file), 0o600);
        assert!(!std::fs::read_to_string(&file).unwrap().contains(API_KEY));
    }
    assert!(!format!("{client:?}").contains(API_KEY));
    sending.abort();
}

#[tokio::test]
async fn an_operation_that_is_too_old_is_reported_and_not_sent_again() {
    let server = TestServer::start().await;
    let between = GoBetween::in_front_of(
        server.client.address,
        vec![Act::Answer("503 Service Unavailable\r\nretry-after: 60", "{}"); 2],
    )
    .await;
    let folder = TempDir::new().unwrap();
    let clock = TestClock::default();
    let client = builder(between.url(), &clock)
        .key_store(store(&folder))
        .build()
        .unwrap();
    let payment = payment(&client);
    gave_up(payment.send().await);
    clock.advance(22 * 3600 * SECOND);
    gave_up(payment.send().await);
    clock.advance(3600 * SECOND);
    assert!(matches!(payment.send().await, Err(Error::Expired(_))));
    let resumed = client.resume().await.unwrap();
    let [Resumed::NotSent { operation, .. }] = resumed.as_slice() else {
        panic!("it was sent: {resumed:?}");
    };
    assert_eq!(operation.key(), payment.key());
    assert_eq!(between.seen().len(), 2);

    // Somebody finds out that nothing happened, and clears it.
    let found = client.look_up_key(operation.key()).await;
    assert!(matches!(found, Err(Error::Invalid(refusal)) if refusal.status == 404));
    client.forget(operation.key()).await.unwrap();
    assert!(client.resume().await.unwrap().is_empty());
}

#[tokio::test]
async fn what_a_store_can_not_read_is_reported_and_kept() {
    let server = TestServer::start().await;
    let between = GoBetween::in_front_of(server.client.address, []).await;
    for damage in [
        (|text: String| text.replace("2000", "9000")) as fn(String) -> String,
        |text| text[..text.len() / 2].to_owned(),
        |_| String::new(),
    ] {
        let folder = TempDir::new().unwrap();
        let client = builder(between.url(), &TestClock::default())
            .key_store(store(&folder))
            .build()
            .unwrap();
        let payment = payment(&client);
        store(&folder).save(payment.operation()).unwrap();
        let file = files(&folder).pop().unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, damage(text)).unwrap();
        let resumed = client.resume().await.unwrap();
        let [Resumed::Corrupt { place, .. }] = resumed.as_slice() else {
            panic!("not reported: {resumed:?}");
        };
        assert_eq!(Path::new(place), file);
        let refused = payment.send().await;
        assert!(matches!(
            refused,
            Err(Error::Store(KeyStoreError::Corrupt { .. }))
        ));
        assert!(file.exists());
    }
    assert_eq!(between.seen(), []);
}

#[tokio::test]
async fn a_store_keeps_the_oldest_of_the_same_request_and_refuses_another_one_under_its_key() {
    let folder = TempDir::new().unwrap();
    let clock = TestClock::default();
    let client = builder("http://127.0.0.1:1".to_owned(), &clock)
        .build()
        .unwrap();
    let named = |amount| {
        let request = client
            .create_charge(&NewCharge::new(amount, "usd"))
            .unwrap();
        // Longer than a file name, and with a slash.
        let key = format!("orders/{}", "7".repeat(248));
        request.with_key(key).unwrap().operation().clone()
    };
    let store = store(&folder);
    // What a crash leaves behind that came before the operation had its name: it was never sent.
    let draft = folder.path().join(".0.draft");
    std::fs::write(&draft, "half an operat").unwrap();
    assert_eq!(store.unfinished().unwrap(), []);
    std::fs::remove_file(&draft).unwrap();
    let oldest = named(2000);
    assert_eq!(store.save(&oldest).unwrap(), Saved::New);
    clock.advance(60 * SECOND);
    assert_eq!(
        store.save(&named(2000)).unwrap(),
        Saved::Found(oldest.clone())
    );
    assert!(matches!(
        store.save(&named(2001)),
        Err(KeyStoreError::OtherRequest)
    ));
    assert_eq!(
        store.unfinished().unwrap(),
        [Kept::Operation(oldest.clone())]
    );
    assert_eq!(files(&folder).len(), 1, "no draft is left");

    let elsewhere = builder("http://127.0.0.1:2".to_owned(), &clock)
        .key_store(store.clone())
        .build()
        .unwrap();
    let resumed = elsewhere.resume().await.unwrap();
    assert!(
        matches!(resumed.as_slice(), [Resumed::NotSent { .. }]),
        "{resumed:?}"
    );
    store.remove(oldest.key()).unwrap();
    store.remove(oldest.key()).unwrap();
    assert_eq!(store.unfinished().unwrap(), []);
}

#[tokio::test]
async fn a_redirect_is_not_followed_because_the_api_key_would_go_with_it() {
    let server = TestServer::start().await;
    let elsewhere = Act::Answer("307 Temporary Redirect\r\nlocation: /v1/charges", "");
    let between = GoBetween::in_front_of(server.client.address, [elsewhere]).await;
    let client = builder(between.url(), &TestClock::default())
        .build()
        .unwrap();
    let refused = payment(&client).send().await;
    assert!(matches!(refused, Err(Error::Invalid(refusal)) if refusal.status == 307));
    assert_eq!(between.seen().len(), 1);
    assert_eq!(server.database.charges().await, 0);
}

#[tokio::test]
async fn a_newer_service_is_read_and_what_can_not_be_read_was_done_all_the_same() {
    let server = TestServer::start().await;
    let newer = r#"{"object":"list","data":[],"has_more":false,"since":2031}"#;
    let odd = r#"{"object":"charge","id":7}"#;
    let acts = [
        Act::Answer("200 OK", newer),
        Act::Answer("201 Created", odd),
    ];
    let between = GoBetween::in_front_of(server.client.address, acts).await;
    let folder = TempDir::new().unwrap();
    let client = builder(between.url(), &TestClock::default())
        .key_store(store(&folder))
        .build()
        .unwrap();
    let page = client.list_charges(&ListQuery::default()).await.unwrap();
    assert_eq!(page.data, []);
    let error = payment(&client).send().await.unwrap_err();
    assert!(error.is_outcome(), "{error}");
    let Error::Unreadable { reply, .. } = error else {
        panic!("it should say so: {error}");
    };
    assert_eq!((reply.status, reply.body), (201, odd.as_bytes().to_vec()));
    assert!(files(&folder).is_empty());
}

#[tokio::test]
async fn every_call_of_the_api_has_a_typed_function() {
    let server = TestServer::start().await;
    let between = GoBetween::in_front_of(server.client.address, []).await;
    let url = format!("{}/v1/", between.url());
    let client = Client::builder(url, API_KEY).build().unwrap();
    let metadata = |value: &str| [("channel".to_owned(), value.to_owned())].into();

    let new_charge = NewCharge {
        capture: Some(false),
        customer: Some("cus 1".to_owned()),
        description: Some("A mug".to_owned()),
        statement_descriptor: Some("MUGS".to_owned()),
        receipt_email: Some("zoe@example.com".to_owned()),
        metadata: metadata("web"),
        ..NewCharge::new(2000, "EUR")
    };
    let charge = client
        .create_charge(&new_charge)
        .unwrap()
        .send()
        .await
        .unwrap();
    assert!(charge.paid && !charge.captured);
    let update = ChargeUpdate {
        description: Some(String::new()),
        ..ChargeUpdate::default()
    };
    let charge = client
        .update_charge(&charge.id, &update)
        .unwrap()
        .send()
        .await
        .unwrap();
    assert_eq!(charge.description, None);
    let capture = Capture { amount: Some(1500) };
    let charge = client
        .capture_charge(&charge.id, &capture)
        .unwrap()
        .send()
        .await
        .unwrap();
    assert_eq!(
        (charge.amount_captured, &charge.metadata),
        (1500, &metadata("web"))
    );
    assert_eq!(client.retrieve_charge(&charge.id).await.unwrap(), charge);
    let query = ListQuery {
        customer: Some("cus 1".to_owned()),
        limit: Some(1),
        created_from: Some(charge.created),
        created_before: Some(charge.created + 1),
        ..ListQuery::default()
    };
    let page = client.list_charges(&query).await.unwrap();
    assert_eq!((page.data, page.has_more), (vec![charge.clone()], false));

    let new_refund = NewRefund {
        charge: charge.id.clone(),
        amount: Some(500),
        reason: Some("duplicate".to_owned()),
        metadata: metadata("phone"),
    };
    let refund = client
        .create_refund(&new_refund)
        .unwrap()
        .send()
        .await
        .unwrap();
    let update = MetadataUpdate {
        metadata: metadata(""),
    };
    let refund = client
        .update_refund(&refund.id, &update)
        .unwrap()
        .send()
        .await
        .unwrap();
    assert!(refund.metadata.is_empty());
    assert_eq!(client.retrieve_refund(&refund.id).await.unwrap(), refund);
    let query = ListQuery {
        charge: Some(charge.id.clone()),
        ..ListQuery::default()
    };
    let page = client.list_refunds(&query).await.unwrap();
    assert_eq!(page.data, std::slice::from_ref(&refund));
    let all = ListQuery::default();
    let page = client.list_refunds_of_charge(&charge.id, &all).await;
    assert_eq!(page.unwrap().data, [refund]);

    let new_endpoint = NewWebhookEndpoint {
        description: Some("The warehouse".to_owned()),
        metadata: metadata("web"),
        ..an_endpoint()
    };
    let endpoint = client.create_webhook_endpoint(&new_endpoint).unwrap();
    let mut endpoint = endpoint.send().await.unwrap();
    let secret = endpoint.secret.take().expect("only here");
    assert!(secret.reveal().starts_with("whsec_"));
    assert_eq!(format!("{secret:?}"), "whsec_…");
    let retrieved = client.retrieve_webhook_endpoint(&endpoint.id).await;
    assert_eq!(retrieved.unwrap(), endpoint);
    let page = client.list_webhook_endpoints(&all).await;
    assert_eq!(page.unwrap().data, [endpoint.clone()]);

    let new_order = NewOrder {
        client_order_id: Some("web-6735".to_owned()),
        ..an_order()
    };
    let order = client
        .create_order(&new_order)
        .unwrap()
        .send()
        .await
        .unwrap();
    let update = MetadataUpdate {
        metadata: metadata("web"),
    };
    client
        .update_order(&order.id, &update)
        .unwrap()
        .send()
        .await
        .unwrap();
    let pay = client.pay_order(&order.id, &Payment::default()).unwrap();
    let paid = pay.send().await.unwrap();
    assert_eq!((paid.status.as_str(), paid.amount), ("paid", 2400));
    assert_eq!(client.retrieve_order(&order.id).await.unwrap(), paid);
    let query = ListQuery {
        client_order_id: Some("web-6735".to_owned()),
        ..ListQuery::default()
    };
    assert_eq!(client.list_orders(&query).await.unwrap().data, [paid]);
    let other = NewOrder {
        client_order_id: None,
        ..new_order
    };
    let other = client.create_order(&other).unwrap().send().await.unwrap();
    let canceled = client
        .cancel_order(&other.id)
        .unwrap()
        .send()
        .await
        .unwrap();
    assert_eq!(canceled.status, "canceled");

    call_checkouts(&client).await;

    let query = ListQuery {
        event_type: Some("order.canceled".to_owned()),
        ..ListQuery::default()
    };
    let events = client.list_events(&query).await.unwrap().data;
    assert_eq!(events[0].data.object["id"], other.id);
    assert_eq!(
        client.retrieve_event(&events[0].id).await.unwrap(),
        events[0]
    );
    let deliveries = client.list_webhook_deliveries(&endpoint.id, &all).await;
    let deliveries = deliveries.unwrap().data;
    assert_eq!((deliveries.len(), &deliveries[0].event), (1, &events[0].id));
    let deleted = client.delete_webhook_endpoint(&endpoint.id).await.unwrap();
    let again = client.delete_webhook_endpoint(&endpoint.id).await.unwrap();
    assert_eq!((deleted, again), (true, false));

    let status = client.look_up_key(pay.key()).await.unwrap();
    assert_eq!(
        (status.status.as_str(), status.response_status),
        ("completed", Some(200))
    );
    assert_eq!(client.workflow("checkout-1").await.unwrap(), []);
    assert_all_are_called(&between.seen());

    for no_id in ["", "..", "ch_1/capture", "ch_1?x=y", "ch_%31"] {
        let refused = client.retrieve_charge(no_id).await;
        assert!(matches!(refused, Err(Error::Unusable(_))), "{no_id}");
    }
}

async fn call_checkouts(client: &Client) {
    let set = client.set_inventory("mug", 5).unwrap().send().await;
    assert_eq!(set.unwrap().quantity, 5);
    let new_checkout = NewCheckout {
        customer: Some("cus 1".to_owned()),
        metadata: [("channel".to_owned(), "web".to_owned())].into(),
        ..a_cart("tok_visa")
    };
    let checkout = client.create_checkout(&new_checkout).unwrap();
    let checkout = checkout.send().await.unwrap();
    assert_eq!(
        (checkout.status.as_str(), checkout.amount),
        ("completed", 2400)
    );
    assert_eq!(checkout.metadata, new_checkout.metadata);
    assert_eq!(checkout.items[0].sku.as_deref(), Some("mug"));
    let [order, charge, allocated] = checkout.steps.as_slice() else {
        panic!("not as planned: {checkout:?}");
    };
    assert_eq!(
        (&order.resource, &charge.resource),
        (&checkout.order, &checkout.charge)
    );
    assert_eq!(
        (
            allocated.name.as_str(),
            allocated.state.as_str(),
            allocated.attempts
        ),
        ("allocate_inventory", "done", 1)
    );
    let retrieved = client.retrieve_checkout(&checkout.id).await;
    assert_eq!(retrieved.unwrap(), checkout);
    for (customer, listed) in [("cus 1", vec![checkout]), ("cus 2", vec![])] {
        let query = ListQuery {
            customer: Some(customer.to_owned()),
            ..ListQuery::default()
        };
        assert_eq!(client.list_checkouts(&query).await.unwrap().data, listed);
    }
    let left = client.retrieve_inventory("mug").await.unwrap();
    assert_eq!(left.quantity, 3);
}

/// Every operation of the document was asked for, but those by path that are there by query too.
fn assert_all_are_called(seen: &[Seen]) {
    let called = |method: &str, template: &str| {
        seen.iter().any(|seen| {
            let line = seen.head.lines().next().unwrap();
            let (asked, path) = line.split_once(" /v1").expect("a call under /v1");
            let path = path.split([' ', '?']).next().unwrap();
            let alike = |(shown, sent): (&str, &str)| shown.starts_with('{') || shown == sent;
            asked == method
                && template.split('/').count() == path.split('/').count()
                && template.split('/').zip(path.split('/')).all(alike)
        })
    };
    let document = serde_json::to_value(openapi::document()).unwrap();
    let mut operations = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        if [
            "/livez",
            "/readyz",
            "/idempotency-keys/{key}",
            "/workflows/{name}",
        ]
        .contains(&&**path)
        {
            continue;
        }
        for method in ["GET", "POST", "PUT", "PATCH", "DELETE"] {
            if item.get(method.to_lowercase()).is_some() {
                assert!(called(method, path), "no function calls {method} {path}");
                operations += 1;
            }
        }
    }
    assert!(operations >= 30, "{operations}");
}

#[test]
fn a_server_is_a_plain_url() {
    for (url, is_usable) in [
        ("http://127.0.0.1:8080", true),
        ("https://pay.example/v1/", true),
        ("ftp://pay.example", false),
        ("pay.example", false),
        ("https://user:secret@pay.example", false),
        ("https://pay.example?key=secret", false),
    ] {
        assert_eq!(
            Client::builder(url, API_KEY).build().is_ok(),
            is_usable,
            "{url}"
        );
    }
}
