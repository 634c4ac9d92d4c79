//! The client library with a clock of the test's own.

use charge_once_client::{
    Charge, Client, ClientBuilder, Clock, Error, FileKeyStore, GaveUp, KeyStore, KeyedRequest,
    NewCharge, NewCheckout, NewItem, NewOrder, NewWebhookEndpoint, Reply, Request, Resumed,
};
use serde::de::DeserializeOwned;

use crate::support::prelude::*;

/// Time that passes only during a sleep, and then at once.
#[derive(Debug, Clone, Default)]
pub struct TestClock {
    pub now: Arc<Mutex<Duration>>,
    pub pauses: Arc<Mutex<Vec<Duration>>>,
    /// As on a busy machine: how much longer each pause takes than it was to.
    pub oversleeps: Duration,
}

/// When the clock of a test starts, in unix seconds.
pub const START: Duration = Duration::from_secs(1_800_000_000);

impl TestClock {
    pub fn advance(&self, by: Duration) {
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
        self.advance(self.oversleeps + pause);
        self.pauses.lock().unwrap().push(pause);
        Box::pin(tokio::task::yield_now())
    }
}

pub fn builder(url: String, clock: &TestClock) -> ClientBuilder {
    Client::builder(url, API_KEY).clock(clock.clone())
}

pub fn keeping(url: String, clock: &TestClock, store: impl KeyStore + 'static) -> Client {
    let builder = builder(url, clock).key_store(store);
    builder.build().unwrap()
}

pub fn store(folder: &TempDir) -> FileKeyStore {
    FileKeyStore::open(folder.path()).unwrap()
}

pub fn payment(client: &Client) -> Request<Charge> {
    client.create_charge(&NewCharge::new(2000, "usd")).unwrap()
}

/// Sends what can be sent and succeeds.
pub async fn sent<T: DeserializeOwned>(request: Result<Request<T>, Error>) -> T {
    request.unwrap().send().await.unwrap()
}

/// Resumes the one operation that was left unfinished, which succeeds now.
pub async fn resume_one(client: &Client) -> (KeyedRequest, Reply) {
    let resumed = client.resume().await.unwrap();
    match resumed.as_slice() {
        [
            Resumed::Sent {
                operation,
                outcome: Ok(reply),
            },
        ] => (operation.clone(), reply.clone()),
        _ => panic!("not resumed: {resumed:?}"),
    }
}

pub fn an_order() -> NewOrder {
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

pub fn an_endpoint() -> NewWebhookEndpoint {
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

pub fn assert_all_alike(seen: &[Seen], attempts: usize) {
    assert_eq!(seen.len(), attempts);
    for other in seen {
        assert_eq!(other, &seen[0]);
    }
}

pub const SECOND: Duration = Duration::from_secs(1);

/// The head of an answer that ends a call.
pub const NEVER_AGAIN: &str = "503 Service Unavailable\r\nstripe-should-retry: false";
