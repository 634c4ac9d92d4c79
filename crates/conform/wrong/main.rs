//! A server that makes one of twenty-one mistakes with idempotency keys, or none, in one of several
//! [profiles](profiles.rs), to try `charge-once-conform` on. It keeps everything in memory.
//!
//! ```sh
//! cargo run --example wrong -- check-then-act 127.0.0.1:8080 stripe-v1
//! ```
//!
//! `POST /effects` makes an effect, and `GET /effects` lists the account's. [`Mistake`] is where
//! the mistakes are; search for it to see each. All the rest is right.

mod profiles;

use std::{
    collections::{HashMap, HashSet},
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Path, State},
    http::{HeaderMap, Response, StatusCode, Uri},
    routing::{get, post},
};
use clap::ValueEnum;
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::watch};

use profiles::{PROFILES, Profile};

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
    /// A key is in use for almost as long as a slow request works.
    LeaseAsLongAsWork,
    /// A lease that is shorter than the work, too, but each duplicate renews it.
    LeaseRenewedByDuplicates,
    /// Takes a claim for an outcome, and never frees it: a retry of work that failed is told that
    /// it is done.
    ClaimedIsDone,
    /// Stores the reply, and then commits the effect.
    ReplayBeforeCommit,
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
    /// Refuses every retry of what has ended, as if it were another request.
    ReplayRefused,
    /// Gives a key up by deleting its record: a request that comes later executes.
    GivenUpIsFree,
    /// Gives a key up while its request is at work, which ends in an effect.
    GivenUpAtWork,
    /// Stores keys and replies as they are.
    SecretsStored,
    /// Remembers that a key has expired, refuses it, and doesn't say what was made.
    ForgetsWhatItMade,
    /// No mistake: remembers keys that have expired, with what they made.
    KeysRemembered,
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
    /// Whose it is, and how it is shown. Its place is its id. Null: deleted.
    effects: Vec<(String, Value)>,
    /// Numbers of requests that have failed once.
    failed: HashSet<u64>,
    /// Requests without a key.
    nameless: usize,
}

#[derive(Clone)]
struct Server {
    mistake: Mistake,
    profile: Profile,
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
/// Ends a little before a slow request.
const LONG_LEASE: Duration = Duration::from_millis(1400);
/// How long a key is in use where its lease is too short.
const LEASE: Duration = Duration::from_millis(500);
/// How long it is in use after a duplicate, where duplicates renew the lease.
const RENEWED_LEASE: Duration = Duration::from_millis(800);
/// How long a key is in use after a crash.
const LEASE_OF_THE_DEAD: Duration = Duration::from_millis(2500);

/// A reply, and whether it is a replay.
type Answer = (u16, Value, bool);

fn refusal(status: u16, error: &str) -> Answer {
    (status, json!({ "title": error, "error": error }), false)
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
        let is_early = self.mistake == Mistake::ReplayBeforeCommit;
        let (status, reply) = self.work(&account, &body);
        if is_early && status == 201 {
            let record = Record::of(body.clone(), Some((status, reply.clone())));
            self.database().records.insert(scope.clone(), record);
            self.window().await;
            self.database().effects.push((account, reply.clone()));
        }
        if is_slow && works_first {
            tokio::time::sleep(SLOW).await;
        }
        if self.mistake == Mistake::SecondTransaction {
            self.window().await;
        }
        if self.keeps(status) {
            let record = Record::of(body, Some((status, reply.clone())));
            self.database().records.insert(scope, record);
        }
        (status, reply, false)
    }

    fn keeps(&self, status: u16) -> bool {
        match status {
            500.. => self.profile.keeps_server_errors || self.mistake == Mistake::EveryStatusFrozen,
            402 => self.profile.keeps_refusals,
            400 => self.profile.keeps_invalid,
            _ => true,
        }
    }

    /// Claims the key, or says what became of it.
    fn claim(&self, scope: &(String, String), body: &Value) -> Result<Claim, Answer> {
        let mut database = self.database();
        // Since the look-up, another request may have claimed it.
        let record = database.records.get(scope);
        if record.is_some_and(|record| !self.has_lapsed(record)) {
            drop(database);
            return Err(self.known(scope, body).unwrap_or_else(|| self.in_use()));
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
        let is_long = self.mistake == Mistake::LeaseAsLongAsWork;
        let is_over = is_short && held > LEASE
            || is_long && held > LONG_LEASE
            || is_renewed && held > RENEWED_LEASE;
        let died = record.orphaned;
        let is_dead = died.is_some_and(|died| died.elapsed() > LEASE_OF_THE_DEAD);
        record.reply.is_none() && (is_over || is_dead)
    }

    /// Makes the effect, unless the request asks for something else.
    fn work(&self, account: &str, body: &Value) -> (u16, Value) {
        let mut database = self.database();
        let asks = |member: &str| body.get(member).is_some();
        let Some(number) = body.get("number").and_then(Value::as_u64) else {
            return (400, json!({ "error": "number_missing" }));
        };
        let declines_once = asks("declines_once") && database.failed.insert(number);
        if asks("declined") || declines_once {
            return (402, json!({ "error": "declined" }));
        }
        if asks("fails_once") && database.failed.insert(number) {
            return (503, json!({ "error": "try_again" }));
        }
        let made = json!({
            "id": database.effects.len(),
            "number": number,
            "status": "made",
            "secret": format!("secret-{number}"),
        });
        if self.mistake != Mistake::ReplayBeforeCommit {
            database.effects.push((account.to_owned(), made.clone()));
        }
        (201, made)
    }

    fn in_use(&self) -> Answer {
        if self.mistake == Mistake::ClaimedIsDone {
            return (200, json!({ "status": "duplicate" }), true);
        }
        refusal(self.profile.in_use, "key_in_use")
    }

    /// What is known of the key, if anything is.
    fn known(&self, scope: &(String, String), body: &Value) -> Option<Answer> {
        let mut database = self.database();
        let record = database.records.get_mut(scope);
        let record = record.filter(|record| !self.has_lapsed(record))?;
        if record.body == json!("given up") || record.body == json!("expired") {
            let (status, reply) = record.reply.clone()?;
            return Some((status, reply, false));
        }
        if self.mistake == Mistake::LeaseRenewedByDuplicates {
            record.claimed = Instant::now();
        }
        if let Some(reuse) = self.profile.reuse
            && record.body != *body
            && self.mistake != Mistake::NoFingerprint
        {
            return Some(refusal(reuse, "key_reused"));
        }
        let Some((status, reply)) = record.reply.clone() else {
            return Some(self.in_use());
        };
        if self.mistake == Mistake::ReplayRefused {
            return Some(refusal(422, "key_reused"));
        }
        let id = reply.get("id").and_then(Value::as_u64);
        let id = id.and_then(|id| usize::try_from(id).ok());
        match id.and_then(|id| database.effects.get(id)) {
            Some((_, now)) if self.profile.shows_latest => Some((200, now.clone(), true)),
            Some((_, now)) if self.mistake == Mistake::RenderedAfresh => {
                Some((status, now.clone(), true))
            }
            _ => Some((status, reply, true)),
        }
    }
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
        let is_freed = !matches!(
            self.server.mistake,
            Mistake::LeaseAsLongAsRetention | Mistake::ClaimedIsDone
        );
        if is_open && is_freed {
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

impl Server {
    fn render(&self, (status, body, is_replay): Answer) -> Response<Body> {
        let is_refusal = body.get("error").is_some() && !is_replay;
        let media_type = match is_refusal && self.profile.has_problems {
            true => "application/problem+json",
            false => "application/json",
        };
        let mut response = Response::builder()
            .status(status)
            .header("content-type", media_type);
        if is_replay && self.profile.marks {
            let name = match self.mistake == Mistake::MarkedOtherwise {
                true => ("key-status", "replayed"),
                false => ("idempotent-replayed", "true"),
            };
            response = response.header(name.0, name.1);
        }
        let is_in_use = body.get("error") == Some(&json!("key_in_use"));
        if is_in_use && self.mistake != Mistake::NoRetryAfter {
            response = response.header("retry-after", "1");
        }
        if is_in_use && self.mistake == Mistake::Locked {
            response = response.status(StatusCode::LOCKED);
        }
        response
            .body(Body::from(body.to_string()))
            .unwrap_or_default()
    }

    /// The record's scope and what it is for, or a refusal before it.
    fn prepare(
        &self,
        query: Option<&str>,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Result<(String, (String, String), Value), Answer> {
        let Some((account, secret)) = account(headers) else {
            return Err(refusal(401, "secret_invalid"));
        };
        let asked = self.profile.read(headers, query, body);
        let is_optional = !self.profile.is_required || self.mistake == Mistake::KeyOptional;
        let key = match asked.key {
            _ if self.mistake == Mistake::KeysIgnored => None,
            Ok(None) if is_optional => None,
            Ok(Some(key)) => Some(key),
            Ok(None) | Err(()) => return Err(refusal(400, "key_invalid")),
        };
        // No other request has it.
        let key = key.unwrap_or_else(|| format!("none {}", self.nameless()));
        let tenant = if self.mistake == Mistake::ScopeByApiKey {
            secret
        } else if self.mistake == Mistake::SharedByAccounts {
            String::new()
        } else {
            account.clone()
        };
        // The query is part of what a key is for.
        let body = asked.query.map(|query| json!(query)).or(asked.body);
        let body = body.ok_or_else(|| refusal(400, "body_invalid"))?;
        Ok((account, (tenant, key), body))
    }

    fn nameless(&self) -> usize {
        let mut database = self.database();
        database.nameless += 1;
        database.nameless
    }
}

async fn create(
    State(server): State<Server>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    let (account, scope, body) = match server.prepare(uri.query(), &headers, &body) {
        Ok(prepared) => prepared,
        Err(refusal) => return server.render(refusal),
    };
    let answering = server.clone().answer(account, scope, body);
    let is_canceled_with_its_client = matches!(
        server.mistake,
        Mistake::SecondTransaction | Mistake::LeaseAsLongAsRetention | Mistake::ReplayBeforeCommit
    );
    if is_canceled_with_its_client {
        return server.render(answering.await);
    }
    let mut crashes = server.crashes.subscribe();
    let mut working = tokio::spawn(answering);
    tokio::select! {
        answer = &mut working => {
            server.render(answer.unwrap_or_else(|_| refusal(500, "internal")))
        }
        _ = crashes.changed() => {
            working.abort();
            no_reply()
        }
    }
}

/// Deletes an effect, with a key of its own or without one.
async fn delete(
    State(server): State<Server>,
    Path(id): Path<usize>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    let body = if body.is_empty() { b"{}" } else { &*body };
    let (_, scope, _) = match server.prepare(uri.query(), &headers, body) {
        Ok(prepared) => prepared,
        Err(refusal) => return server.render(refusal),
    };
    let (is_keyed, what) = (server.profile.has_keyed_delete, json!({ "delete": id }));
    if is_keyed && let Some(answer) = server.known(&scope, &what) {
        return server.render(answer);
    }
    let mut database = server.database();
    let found = database
        .effects
        .get_mut(id)
        .filter(|(_, effect)| !effect.is_null());
    let Some((_, effect)) = found else {
        return server.render(refusal(404, "none"));
    };
    *effect = Value::Null;
    let reply = json!({ "deleted": true });
    if is_keyed {
        let record = Record::of(what, Some((200, reply.clone())));
        database.records.insert(scope, record);
    }
    server.render((200, reply, false))
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
    let shown: Vec<&Value> = own
        .map(|(_, effect)| effect)
        .filter(|it| !it.is_null())
        .collect();
    server.render((200, json!({ "data": shown }), false))
}

async fn change(State(server): State<Server>, Path(id): Path<usize>) -> Response<Body> {
    if let Some((_, Value::Object(effect))) = server.database().effects.get_mut(id) {
        effect.insert("status".to_owned(), json!("changed"));
    }
    server.render((200, json!({}), false))
}

async fn expire(State(server): State<Server>) -> Response<Body> {
    let mut database = server.database();
    let forgets = server.mistake == Mistake::ForgetsWhatItMade;
    if forgets || server.mistake == Mistake::KeysRemembered {
        for record in database.records.values_mut() {
            let Some((_, reply)) = &record.reply else {
                continue;
            };
            let made = reply.get("id").filter(|_| !forgets);
            let refusal = json!({ "error": "key_expired", "title": "key_expired", "made": made });
            *record = Record::of(json!("expired"), Some((409, refusal)));
        }
    } else {
        database.records.retain(|_, record| record.reply.is_none());
    }
    server.render((200, json!({}), false))
}

/// Gives a key of the account up: no request with it executes any more.
async fn abandon(
    State(server): State<Server>,
    Path(key): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Response<Body> {
    let prepared = server.prepare(uri.query(), &headers, b"{}");
    let (_, (tenant, _), _) = match prepared {
        Ok(prepared) => prepared,
        Err(refusal) => return server.render(refusal),
    };
    let mut database = server.database();
    let record = database.records.get(&(tenant.clone(), key.clone()));
    let is_at_work = record.is_some_and(|record| record.reply.is_none());
    if is_at_work && server.mistake != Mistake::GivenUpAtWork {
        return server.render(server.in_use());
    }
    let is_done = record.is_some_and(|record| record.body != json!("given up"));
    if is_done && !is_at_work {
        return server.render((200, json!({ "status": "completed" }), false));
    }
    if server.mistake != Mistake::GivenUpIsFree && !is_at_work {
        let refusal = json!({ "error": "key_given_up", "title": "key_given_up" });
        let record = Record::of(json!("given up"), Some((409, refusal)));
        database.records.insert((tenant, key), record);
    }
    server.render((200, json!({ "status": "given_up" }), false))
}

/// What a copy of the table would show.
async fn stored(State(server): State<Server>) -> String {
    let shown = |text: &str| {
        if server.mistake == Mistake::SecretsStored {
            return text.to_owned();
        }
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        format!("{:x}", hasher.finish())
    };
    let database = server.database();
    let rows = database.records.iter().map(|((_, key), record)| {
        let reply = record.reply.as_ref().map(|(_, body)| body.to_string());
        format!("{} {}\n", shown(key), shown(&reply.unwrap_or_default()))
    });
    rows.collect()
}

async fn policy(State(server): State<Server>) -> Response<Body> {
    server.render((200, json!({ "retention_seconds": 86400 }), false))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_default();
    let mistake = Mistake::from_str(&name, false);
    let mistake = mistake.map_err(|_| "name a mistake, such as check-then-act, or none")?;
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:0".to_owned());
    let name = arguments.next().unwrap_or_else(|| "own".to_owned());
    let profile = PROFILES.into_iter().find(|profile| profile.name == name);
    let server = Server {
        mistake,
        profile: profile.ok_or("there is no such profile")?,
        database: Arc::default(),
        arrivals: watch::Sender::new(0),
        crashes: watch::Sender::new(0),
    };
    let app = Router::new()
        .route("/effects", get(list).post(create))
        .route("/effects/{id}/change", post(change))
        .route("/effects/{id}", axum::routing::delete(delete))
        .route("/.well-known/idempotency", get(policy))
        .route("/expire", post(expire))
        .route("/stored", get(stored))
        .route("/keys/{key}/abandon", post(abandon))
        .route("/crash", post(crash))
        .with_state(server);
    let listener = TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}
