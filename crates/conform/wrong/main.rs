//! A server that makes one of thirteen mistakes with idempotency keys, or none in one of several
//! ways, to try `charge-once-conform` on. It keeps everything in memory.
//!
//! ```sh
//! cargo run --example wrong -- check-then-act
//! ```
//!
//! `POST /effects` makes an effect, and `GET /effects` lists the account's. [`Mistake`] is where
//! the mistakes are; search for it to see each. All the rest is right.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Path, State},
    http::{HeaderMap, HeaderValue, Response, StatusCode, Uri},
    routing::{get, post},
};
use clap::ValueEnum;
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::watch};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Mistake {
    None,
    /// Looks the key up, and inserts it when the work is done.
    CheckThenAct,
    /// Commits the effect, and then the key's record.
    SecondTransaction,
    /// A key whose request has ended without an outcome stays in use until its retention ends.
    LeaseAsLongAsRetention,
    /// A key is in use for half a second, as with `SET key … NX PX 500` in Redis, however long its
    /// request works.
    LeaseShorterThanWork,
    /// A lease that is shorter than the work, too, but each duplicate renews it.
    LeaseRenewedByDuplicates,
    /// Sends 409 without `Retry-After`: a detail, and no effect happens twice.
    NoRetryAfter,
    /// Stores 5xx.
    EveryStatusFrozen,
    /// Compares no bodies.
    NoFingerprint,
    /// Keeps the effect's id, and renders the effect as it is now.
    RenderedAfresh,
    /// Takes the API key for the account.
    ScopeByApiKey,
    /// Makes the effect of a slow request, and stores its reply when all its work is done. After a
    /// crash between these, its key is in use for a while and then free.
    FreedAfterCrash,
    /// Has one set of keys for all accounts.
    SharedByAccounts,
    /// Reads no keys.
    KeysIgnored,
    /// No mistake: executes requests without a key.
    KeyOptional,
    /// No mistake: marks replays by a header of another name.
    MarkedOtherwise,
    /// No mistake: says 423 where others say 409.
    Locked,
}

/// What one key has come to.
#[derive(Clone)]
struct Record {
    /// Of the first request. Equal JSON is equal, however it is written.
    body: Value,
    /// `None`: in flight.
    reply: Option<(u16, Value)>,
    claimed: Instant,
    /// When the process died that worked for it.
    orphaned: Option<Instant>,
}

impl Record {
    fn of(body: Value, reply: Option<(u16, Value)>) -> Self {
        let claimed = Instant::now();
        Self {
            body,
            reply,
            claimed,
            orphaned: None,
        }
    }
}

/// The "database". One lock is one transaction.
#[derive(Default)]
struct Database {
    records: HashMap<(String, String), Record>,
    /// Whose it is, and how it is shown. Its place is its id.
    effects: Vec<(String, Value)>,
    /// Numbers of requests that have failed once.
    failed: HashSet<u64>,
}

#[derive(Clone)]
struct Server {
    mistake: Mistake,
    database: Arc<Mutex<Database>>,
    /// How many requests have got between two steps that ought to be one.
    arrivals: watch::Sender<usize>,
    /// How often it has crashed.
    crashes: watch::Sender<usize>,
}

/// How long a request stays between two steps, unless another one gets there. Wide, so that the
/// mistake is seen every time.
const WINDOW: Duration = Duration::from_millis(200);
const SLOW: Duration = Duration::from_millis(1500);
/// How long a key is in use where its lease is too short.
const LEASE: Duration = Duration::from_millis(500);
/// How long it is in use after a duplicate, where duplicates renew the lease.
const RENEWED_LEASE: Duration = Duration::from_millis(800);
/// How long a key is in use after a crash.
const LEASE_OF_THE_DEAD: Duration = Duration::from_millis(2500);

/// Says that the key is in use.
const IN_USE: u16 = 409;

/// A reply, and whether it is a replay.
type Answer = (u16, Value, bool);

fn refusal(status: u16, error: &str) -> Answer {
    (status, json!({ "error": error }), false)
}

impl Server {
    fn database(&self) -> MutexGuard<'_, Database> {
        self.database.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the next request to get between the same two steps, or for the window to end.
    async fn window(&self) {
        let mut others = self.arrivals.subscribe();
        self.arrivals.send_modify(|arrivals| *arrivals += 1);
        let own = *others.borrow_and_update();
        let _ = tokio::time::timeout(WINDOW, others.wait_for(|arrivals| *arrivals > own)).await;
    }

    async fn answer(self, account: String, scope: (String, String), body: Value) -> Answer {
        if let Some(answer) = self.known(&scope, &body) {
            return answer;
        }
        let _claim = if self.mistake == Mistake::CheckThenAct {
            self.window().await;
            None
        } else {
            match self.claim(&scope, &body) {
                Ok(claim) => Some(claim),
                Err(answer) => return answer,
            }
        };
        if self.mistake == Mistake::LeaseAsLongAsRetention {
            self.window().await;
        }
        let is_slow = body.pointer("/slow").is_some();
        let works_first = self.mistake == Mistake::FreedAfterCrash;
        if is_slow && !works_first {
            tokio::time::sleep(SLOW).await;
        }
        let (status, reply) = self.work(account, &body);
        if is_slow && works_first {
            tokio::time::sleep(SLOW).await;
        }
        if self.mistake == Mistake::SecondTransaction {
            self.window().await;
        }
        if status < 500 || self.mistake == Mistake::EveryStatusFrozen {
            let record = Record::of(body, Some((status, reply.clone())));
            self.database().records.insert(scope, record);
        }
        (status, reply, false)
    }

    /// Claims the key, or says what became of it.
    fn claim(&self, scope: &(String, String), body: &Value) -> Result<Claim, Answer> {
        let mut database = self.database();
        // Since the look-up, another request may have claimed it.
        let record = database.records.get(scope);
        if record.is_some_and(|record| !self.has_lapsed(record)) {
            drop(database);
            return Err(self.known(scope, body).unwrap_or_else(in_use));
        }
        let record = Record::of(body.clone(), None);
        database.records.insert(scope.clone(), record);
        Ok(Claim {
            server: self.clone(),
            scope: scope.clone(),
        })
    }

    /// Whether the lease of a key in flight is over.
    fn has_lapsed(&self, record: &Record) -> bool {
        let is_short = self.mistake == Mistake::LeaseShorterThanWork;
        let is_renewed = self.mistake == Mistake::LeaseRenewedByDuplicates;
        let held = record.claimed.elapsed();
        let is_over = is_short && held > LEASE || is_renewed && held > RENEWED_LEASE;
        let died = record.orphaned;
        let is_dead = died.is_some_and(|died| died.elapsed() > LEASE_OF_THE_DEAD);
        record.reply.is_none() && (is_over || is_dead)
    }

    /// Makes the effect, unless the request asks for something else.
    fn work(&self, account: String, body: &Value) -> (u16, Value) {
        let mut database = self.database();
        let asks = |member: &str| body.get(member).is_some();
        let Some(number) = body.get("number").and_then(Value::as_u64) else {
            return (400, json!({ "error": "number_missing" }));
        };
        if asks("declined") {
            return (402, json!({ "error": "declined" }));
        }
        if asks("fails_once") && database.failed.insert(number) {
            return (503, json!({ "error": "try_again" }));
        }
        let made = json!({ "id": database.effects.len(), "number": number, "status": "made" });
        database.effects.push((account, made.clone()));
        (201, made)
    }

    /// What is known of the key, if anything is.
    fn known(&self, scope: &(String, String), body: &Value) -> Option<Answer> {
        let mut database = self.database();
        let record = database.records.get_mut(scope);
        let record = record.filter(|record| !self.has_lapsed(record))?;
        if self.mistake == Mistake::LeaseRenewedByDuplicates {
            record.claimed = Instant::now();
        }
        if record.body != *body && self.mistake != Mistake::NoFingerprint {
            return Some(refusal(422, "key_reused"));
        }
        let Some((status, reply)) = record.reply.clone() else {
            return Some(in_use());
        };
        let id = reply.get("id").and_then(Value::as_u64);
        let id = id.and_then(|id| usize::try_from(id).ok());
        match id.and_then(|id| database.effects.get(id)) {
            Some((_, now)) if self.mistake == Mistake::RenderedAfresh => {
                Some((status, now.clone(), true))
            }
            _ => Some((status, reply, true)),
        }
    }
}

fn in_use() -> Answer {
    refusal(IN_USE, "key_in_use")
}

/// Frees the key when its request ends without an outcome: it failed, or its client has gone.
struct Claim {
    server: Server,
    scope: (String, String),
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut database = self.server.database();
        let record = database.records.get(&self.scope);
        let is_open = record.is_some_and(|it| it.reply.is_none() && it.orphaned.is_none());
        if is_open && self.server.mistake != Mistake::LeaseAsLongAsRetention {
            database.records.remove(&self.scope);
        }
    }
}

/// The account of an API key: `alice-1` and `alice-2` are both alice's.
fn account(headers: &HeaderMap) -> Option<(String, String)> {
    let secret = headers.get("authorization")?.to_str().ok()?;
    let secret = secret.strip_prefix("Bearer ")?.to_owned();
    let (account, _) = secret.split_once('-')?;
    matches!(account, "alice" | "bob").then(|| (account.to_owned(), secret.clone()))
}

/// One key of 1 to 255 visible characters, bare or as one quoted string.
fn key(headers: &HeaderMap) -> Option<String> {
    let mut values = headers.get_all("idempotency-key").iter();
    let value = values.next()?.to_str().ok()?;
    let bare = match value.strip_prefix('"') {
        Some(rest) => rest.strip_suffix('"')?,
        None => value,
    };
    let is_visible = |c: char| c.is_ascii_graphic() && c != '"' && c != '\\';
    let is_key = (1..=255).contains(&bare.len()) && bare.chars().all(is_visible);
    (is_key && values.next().is_none()).then(|| bare.to_owned())
}

fn render((status, body, is_replay): Answer) -> Response<Body> {
    let response = Response::builder().status(status);
    let mut response = response.header("content-type", "application/json");
    if is_replay {
        response = response.header("idempotent-replayed", "true");
    }
    if status == IN_USE {
        response = response.header("retry-after", "1");
    }
    response
        .body(Body::from(body.to_string()))
        .unwrap_or_default()
}

async fn create(
    State(server): State<Server>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    let Some((account, secret)) = account(&headers) else {
        return render(refusal(401, "secret_invalid"));
    };
    let has_none = !headers.contains_key("idempotency-key");
    let is_optional = has_none && server.mistake == Mistake::KeyOptional;
    let key = match is_optional || server.mistake == Mistake::KeysIgnored {
        // No other request has it.
        true => Some(format!("none-{}", server.database().effects.len())),
        false => key(&headers),
    };
    let Some(key) = key else {
        return render(refusal(400, "key_invalid"));
    };
    let tenant = if server.mistake == Mistake::ScopeByApiKey {
        secret
    } else if server.mistake == Mistake::SharedByAccounts {
        String::new()
    } else {
        account.clone()
    };
    // The query is part of what a key is for.
    let body = match uri.query() {
        Some(query) => Ok(json!(query)),
        None => serde_json::from_slice(&body),
    };
    let Ok(body) = body else {
        return render(refusal(400, "body_invalid"));
    };
    let mistake = server.mistake;
    let answering = server.clone().answer(account, (tenant, key), body);
    let is_canceled_with_its_client = matches!(
        mistake,
        Mistake::SecondTransaction | Mistake::LeaseAsLongAsRetention
    );
    if is_canceled_with_its_client {
        return render(answering.await);
    }
    let mut crashes = server.crashes.subscribe();
    let mut working = tokio::spawn(answering);
    let answer = tokio::select! {
        answer = &mut working => answer,
        _ = crashes.changed() => {
            working.abort();
            return no_reply();
        }
    };
    let mut response = render(answer.unwrap_or_else(|_| refusal(500, "internal")));
    if mistake == Mistake::NoRetryAfter {
        response.headers_mut().remove("retry-after");
    }
    if mistake == Mistake::MarkedOtherwise
        && response
            .headers_mut()
            .remove("idempotent-replayed")
            .is_some()
    {
        let replayed = HeaderValue::from_static("replayed");
        response.headers_mut().insert("key-status", replayed);
    }
    if mistake == Mistake::Locked && response.status().as_u16() == IN_USE {
        *response.status_mut() = StatusCode::LOCKED;
    }
    response
}

/// The connection ends in the middle.
fn no_reply() -> Response<Body> {
    let ended = Err::<Bytes, _>(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
    Response::new(Body::from_stream(futures_util::stream::iter([ended])))
}

/// What a crash does: work under way ends without an answer. What was committed stays.
async fn crash(State(server): State<Server>) {
    if server.mistake == Mistake::FreedAfterCrash {
        for record in server.database().records.values_mut() {
            record.orphaned = Some(Instant::now());
        }
    }
    server.crashes.send_modify(|crashes| *crashes += 1);
}

async fn list(State(server): State<Server>, headers: HeaderMap) -> Response<Body> {
    let account = account(&headers).map(|(account, _)| account);
    let database = server.database();
    let effects = database.effects.iter();
    let own = effects.filter(|(owner, _)| Some(owner) == account.as_ref());
    let shown: Vec<&Value> = own.map(|(_, effect)| effect).collect();
    render((200, json!({ "data": shown }), false))
}

async fn change(State(server): State<Server>, Path(id): Path<usize>) -> Response<Body> {
    if let Some((_, Value::Object(effect))) = server.database().effects.get_mut(id) {
        effect.insert("status".to_owned(), json!("changed"));
    }
    render((200, json!({}), false))
}

async fn expire(State(server): State<Server>) -> Response<Body> {
    let mut database = server.database();
    database.records.retain(|_, record| record.reply.is_none());
    render((200, json!({}), false))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_default();
    let mistake = Mistake::from_str(&name, false);
    let mistake = mistake.map_err(|_| "name a mistake, such as check-then-act, or none")?;
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:0".to_owned());
    let server = Server {
        mistake,
        database: Arc::default(),
        arrivals: watch::Sender::new(0),
        crashes: watch::Sender::new(0),
    };
    let app = Router::new()
        .route("/effects", get(list).post(create))
        .route("/effects/{id}/change", post(change))
        .route("/expire", post(expire))
        .route("/crash", post(crash))
        .with_state(server);
    let listener = TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}
