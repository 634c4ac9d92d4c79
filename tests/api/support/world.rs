//! The service and a card processor, each as a process with a database of its own.

use crate::support::prelude::*;

/// charge-once and a processor, each with a database of its own.
pub struct World {
    pub database: TestDatabase,
    pub processor: Processor,
    pub server: ServerProcess,
}

/// Short enough that a processor that is silent is told apart quickly; the lease is as long as
/// ever, and runs out when the test says so.
const IMPATIENT: &[(&str, &str)] = &[("PROCESSOR_TIMEOUT", "3s")];

pub fn start(database: &TestDatabase, processor: &Processor) -> ServerProcess {
    start_with(database, processor, IMPATIENT)
}

fn start_with(
    database: &TestDatabase,
    processor: &Processor,
    limits: &[(&str, &str)],
) -> ServerProcess {
    let url = processor.url();
    let variables = [limits, &[("PROCESSOR_URL", url.as_str())]].concat();
    ServerProcess::start(database, &variables)
}

impl World {
    pub async fn new() -> Self {
        Self::start(IMPATIENT).await
    }

    pub async fn with_client() -> (Self, Client) {
        let world = Self::new().await;
        let client = world.client();
        (world, client)
    }

    /// With the usual time for the processor's answer: for requests that must outlast what a test
    /// does meanwhile.
    pub async fn with_patience() -> Self {
        Self::start(&[]).await
    }

    async fn start(limits: &[(&str, &str)]) -> Self {
        let database = TestDatabase::create().await;
        // Some tests kill it and start it again where it was.
        let address = lasting_address();
        let processor = Processor::start_with(&[("PROCESSOR_BIND_ADDRESS", &address)]).await;
        let server = start_with(&database, &processor, limits);
        Self {
            database,
            processor,
            server,
        }
    }

    pub fn client(&self) -> Client {
        self.server.client.clone()
    }

    pub fn kill_and_start(&mut self) {
        // First: what it has begun must not be answered while the other one starts.
        self.server.kill_now();
        self.server = start(&self.database, &self.processor);
    }

    /// The dead holder's time is over.
    pub async fn the_lease_runs_out(&self) {
        self.database.expire_leases().await;
    }

    /// What the processor does with the next instruction: `json!({"fault": "drop_after"})`.
    pub async fn set_fault(&self, fault: Value) {
        self.processor.set_fault(fault).await;
    }

    /// Holds up what the processor gets, before or after it has executed that, for longer than any
    /// request waits: only `reset_faults` lets it go on.
    pub async fn set_delay(&self, fault: &str) {
        let fault = json!({"fault": fault, "milliseconds": 60_000});
        self.processor.set_fault(fault).await;
    }

    pub async fn in_flight(&self) -> i64 {
        self.database.count(KEYS_IN_FLIGHT).await
    }

    pub async fn assert_the_ledgers_agree(&self, case: &str) {
        let list = self.client().get("/charges?limit=100").await.json();
        let mut ours = BTreeMap::new();
        for charge in list["data"].as_array().unwrap() {
            let id = charge["id"].as_str().unwrap().to_owned();
            assert_ne!(charge["status"], "pending", "{case}: {id}");
            let members = ["amount", "amount_captured", "amount_refunded"];
            let mut sums = members.map(|name| charge[name].as_i64().unwrap());
            if charge["paid"] != true {
                sums[0] = 0;
            }
            if sums != [0, 0, 0] {
                ours.insert(id, sums);
            }
        }
        let ledger = self.processor.ledger().await;
        let theirs: BTreeMap<_, _> = ledger["charges"]
            .as_array()
            .unwrap()
            .iter()
            .map(|sums| {
                let sum = |name: &str| sums[name].as_i64().unwrap();
                let id = sums["charge"].as_str().unwrap().to_owned();
                // A charge says that what it never captured was refunded, and the ledger that it
                // was released.
                let back = match sum("captured") {
                    0 => sum("released"),
                    _ => sum("refunded"),
                };
                (id, [sum("authorized"), sum("captured"), back])
            })
            .collect();
        assert_eq!(ours, theirs, "{case}");
        assert_eq!(self.in_flight().await, 0, "{case}");
    }

    /// What `verb` needs, and the request for it: a path, a body, and a charge if there is one yet.
    pub async fn prepare(&self, verb: Verb) -> (String, Value, Option<String>) {
        let client = self.client();
        let mut body = json!({"amount": 2000, "currency": "usd"});
        match verb {
            Verb::Charge => ("/charges".into(), body, None),
            Verb::Pay => {
                let items = json!([{"quantity": 1, "unit_amount": 2000}]);
                let order = json!({"currency": "usd", "items": items});
                let order = client.post_new("/orders", &order).await.id();
                (format!("/orders/{order}/pay"), json!({}), None)
            }
            Verb::Capture => {
                body["capture"] = false.into();
                let charge = client.post_new("/charges", &body).await.id();
                let path = format!("/charges/{charge}/capture");
                (path, json!({}), Some(charge))
            }
            Verb::Refund => {
                let charge = client.post_new("/charges", &body).await.id();
                let body = json!({"charge": charge, "amount": 500});
                ("/refunds".into(), body, Some(charge))
            }
        }
    }

    /// Retries until a definite answer, and lets the lease expire where a dead process holds it.
    pub async fn until_definite(&self, path: &str, body: &Value) -> Answer {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let answer = self.client().post(path, "key-1", body).await;
            if answer.header("stripe-should-retry") != Some("true") {
                return answer;
            }
            assert!(tokio::time::Instant::now() < deadline, "{answer:?}");
            self.the_lease_runs_out().await;
        }
    }
}

/// What the client does after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    AtOnce,
    AfterTheLease,
    Never,
}

/// What the client asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    Charge,
    Capture,
    Refund,
    Pay,
}
