//! The card processor as a process of its own, for every test that needs one.

use charge_once::processor::Instruction;

use crate::support::{
    prelude::*,
    program::{self},
};

/// What the log says to do where a server has no processor and needs one.
pub const REMEDY: &str = "start this server with the PROCESSOR_URL of that processor";

/// `charge-once processor`, with its database.
pub struct Processor {
    pub address: SocketAddr,
    pub database: TestDatabase,
    pub child: Child,
    http: reqwest::Client,
}

/// Status and body of a reply.
pub type Said = (u16, Value);

impl Processor {
    /// With an empty database of its own.
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    pub async fn start_with(variables: &[(&str, &str)]) -> Self {
        Self::start_on(TestDatabase::create_empty().await, variables)
    }

    /// On the database of one that has ended, or of one that still runs.
    pub fn start_on(database: TestDatabase, variables: &[(&str, &str)]) -> Self {
        let url = database.url.clone();
        Self::start_through(database, &url, variables)
    }

    /// Reaches its database through `url`: a proxy's, say.
    pub fn start_through(database: TestDatabase, url: &str, variables: &[(&str, &str)]) -> Self {
        let mut child = program(&["processor"], &[])
            .env("PROCESSOR_BIND_ADDRESS", "127.0.0.1:0")
            .env("PROCESSOR_DATABASE_URL", url)
            .env("WORKERS", "2")
            .env("RUST_LOG", "warn")
            .envs(variables.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
        let address = line.trim().rsplit("http://").next().unwrap().parse();
        // No pool: a test that kills it must not meet a half-dead connection.
        let http = http_client_builder().unwrap().pool_max_idle_per_host(0);
        Self {
            address: address.unwrap_or_else(|_| panic!("no address in the banner: {line:?}")),
            database,
            child,
            http: http.build().unwrap(),
        }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// `Signal::SIGKILL` is kill -9; start another one on its database afterwards.
    pub fn signal(&self, signal: Signal) {
        program::signal(&self.child, signal);
    }

    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http
            .request(method, format!("http://{}{path}", self.address))
    }

    /// Sends an instruction. `None`: the connection ended without a reply.
    pub async fn put(&self, key: Uuid, instruction: &Instruction) -> Option<Said> {
        let request = self
            .request(Method::PUT, &format!("/operations/{key}"))
            .json(instruction);
        said(request).await
    }

    pub async fn executes(&self, key: Uuid, instruction: &Instruction) {
        let said = self.put(key, instruction).await;
        assert_eq!(said, done(key), "{instruction:?}");
    }

    pub async fn look_up(&self, key: Uuid) -> Option<Said> {
        said(self.request(Method::GET, &format!("/operations/{key}"))).await
    }

    /// Sets a fault: `json!({"fault": "drop_after"})`.
    pub async fn set_fault(&self, fault: Value) {
        let request = self.request(Method::POST, "/faults").json(&fault);
        assert_eq!(said(request).await.unwrap().0, 200, "{fault}");
    }

    /// Forgets all faults and ends the delays that are running.
    pub async fn reset_faults(&self) {
        let request = self.request(Method::DELETE, "/faults");
        assert_eq!(said(request).await.unwrap().0, 200);
    }

    /// Returns when this many requests are being delayed by a fault.
    pub async fn delays(&self, requests: u64) {
        eventually("requests are being delayed", || async {
            let shown = said(self.request(Method::GET, "/faults")).await.unwrap().1;
            shown["delaying"] == requests
        })
        .await;
    }

    /// `{"operations": [newest, …], "charges": […]}`
    pub async fn ledger(&self) -> Value {
        let (status, ledger) = said(self.request(Method::GET, "/ledger")).await.unwrap();
        assert_eq!(status, 200);
        ledger
    }

    /// How many operations were executed or declined.
    pub async fn lines(&self) -> usize {
        self.ledger().await["operations"].as_array().unwrap().len()
    }

    pub async fn reaches_lines(&self, lines: usize) {
        eventually("the processor has executed it", || async {
            self.lines().await == lines
        })
        .await;
    }

    /// `[authorized, captured, released, refunded]` of one charge.
    pub async fn sums(&self, charge: &str) -> [i64; 4] {
        let ledger = self.ledger().await;
        let charges = ledger["charges"].as_array().unwrap();
        let sums = charges.iter().find(|sums| sums["charge"] == charge);
        ["authorized", "captured", "released", "refunded"]
            .map(|sum| sums.map_or(0, |sums| sums[sum].as_i64().unwrap()))
    }
}

impl Drop for Processor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn said(request: RequestBuilder) -> Option<Said> {
    let response = match request.send().await {
        Ok(response) => response,
        // A refused connection is a failure of the test; one that ended is an outcome.
        Err(error) => {
            assert!(!error.is_connect(), "{error:?}");
            return None;
        }
    };
    let status = response.status().as_u16();
    let body = response.bytes().await.unwrap();
    Some((status, serde_json::from_slice(&body).unwrap_or_default()))
}

/// 2000, taken at once.
pub fn authorize(charge: &str, card: &str) -> Instruction {
    authorization(charge, card, true)
}

fn authorization(charge: &str, card: &str, capture: bool) -> Instruction {
    Instruction::Authorize {
        charge: charge.to_owned(),
        amount: 2000,
        currency: "usd".to_owned(),
        card: card.to_owned(),
        capture,
    }
}

/// 2000, promised.
pub fn promise(charge: &str) -> Instruction {
    authorization(charge, "tok_visa", false)
}

pub fn capture(charge: &str, amount: i64) -> Instruction {
    Instruction::Capture {
        charge: charge.to_owned(),
        amount,
    }
}

pub fn refund(charge: &str, amount: i64) -> Instruction {
    Instruction::Refund {
        charge: charge.to_owned(),
        refund: "re_1".to_owned(),
        amount,
    }
}

/// The reply to an instruction that was executed.
pub fn done(key: Uuid) -> Option<Said> {
    Some((200, json!({"key": key, "status": "done"})))
}

/// A reply without an answer.
pub fn only(http: u16, key: Uuid, status: &str) -> Option<Said> {
    Some((http, json!({"key": key, "status": status})))
}

/// The reply to an instruction that breaks the processor's own rules.
pub fn broke_a_rule(key: Uuid) -> Option<Said> {
    let code = "processing_error";
    Some((200, json!({"key": key, "status": "declined", "code": code})))
}

/// Longer than any test: only a reset, or the end of the process, ends such a delay.
pub const FOREVER: u64 = 600_000;

/// Sends an authorization of `ch_1` without waiting for its reply.
pub fn sends(processor: &Arc<Processor>, key: Uuid) -> JoinHandle<Option<Said>> {
    let processor = processor.clone();
    tokio::spawn(async move { processor.put(key, &authorize("ch_1", "tok_visa")).await })
}

/// As [`sends`] does; returns when a fault delays what was sent.
pub async fn sends_to_a_delay(
    processor: &Arc<Processor>,
    key: Uuid,
    fault: &str,
) -> JoinHandle<Option<Said>> {
    let long = json!({"fault": fault, "milliseconds": FOREVER});
    processor.set_fault(long).await;
    let reply = sends(processor, key);
    processor.delays(1).await;
    reply
}
