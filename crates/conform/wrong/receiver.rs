//! A receiver of webhooks that makes one of seven mistakes, or none, to try
//! `charge-once-conform webhooks` on. It keeps everything in memory.
//!
//! ```sh
//! WEBHOOK_SECRET=whsec_dGVzdA== cargo run --example receiver -- never-remembers
//! ```
//!
//! `POST /webhooks` counts an effect of the event's object, and `GET /effects/{id}` tells how many
//! there are.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use axum::{
    Router,
    body::Bytes,
    extract::{Path, State},
    http::{HeaderMap, StatusCode},
    routing::{get, post},
};
use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use clap::ValueEnum;
use ring::hmac::{HMAC_SHA256, Key, verify};
use serde_json::Value;
use tokio::net::TcpListener;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Mistake {
    None,
    /// Does the work for each delivery.
    NeverRemembers,
    /// Looks the id up, and remembers it when the work is done.
    LooksFirst,
    /// Remembers the id before the work, which ends with its client.
    RemembersTooEarly,
    /// Remembers the id before it verifies the signature.
    RemembersForgeries,
    /// Verifies nothing.
    TrustsEveryone,
    /// Takes a signature of any age.
    NoTolerance,
    /// Drops an event that is older than the last one.
    NewestOnly,
}

/// One lock is one transaction.
#[derive(Default)]
struct Database {
    seen: HashSet<String>,
    newest: u64,
    effects: HashMap<String, u64>,
}

#[derive(Clone)]
struct Receiver {
    mistake: Mistake,
    secret: String,
    database: Arc<Mutex<Database>>,
}

/// How long the work takes.
const WORK: Duration = Duration::from_millis(50);
/// How long it takes the receiver that looks first: a busy machine must deliver again meanwhile.
const LONG_WORK: Duration = Duration::from_millis(300);
/// How old a signature may be, in seconds.
const TOLERANCE: u64 = 300;

impl Receiver {
    fn database(&self) -> MutexGuard<'_, Database> {
        self.database.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the signature is right, and of now. Of Stripe, or of Standard Webhooks.
    fn is_signed(&self, headers: &HeaderMap, body: &[u8]) -> Option<bool> {
        let header = |name: &str| headers.get(name)?.to_str().ok();
        let (key, signed, timestamp, signature) = match header("stripe-signature") {
            Some(signature) => {
                let (t, v1) = signature.strip_prefix("t=")?.split_once(",v1=")?;
                let pairs = v1.as_bytes().chunks(2).map(std::str::from_utf8);
                let bytes = pairs.map(|pair| u8::from_str_radix(pair.ok()?, 16).ok());
                let signature = bytes.collect::<Option<Vec<u8>>>()?;
                (
                    self.secret.clone().into_bytes(),
                    format!("{t}."),
                    t,
                    signature,
                )
            }
            None => {
                let (id, t) = (header("webhook-id")?, header("webhook-timestamp")?);
                let signature = header("webhook-signature")?.strip_prefix("v1,")?;
                let key = BASE64.decode(self.secret.strip_prefix("whsec_")?).ok()?;
                (key, format!("{id}.{t}."), t, BASE64.decode(signature).ok()?)
            }
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs();
        let age = now.abs_diff(timestamp.parse().ok()?);
        let is_young = age <= TOLERANCE || self.mistake == Mistake::NoTolerance;
        let key = Key::new(HMAC_SHA256, &key);
        let message = [signed.as_bytes(), body].concat();
        Some(is_young && verify(&key, &message, &signature).is_ok())
    }

    /// Does the work of an event that it has not seen.
    async fn handle(self, id: String, created: u64, object: String) {
        let remembers_first = self.mistake == Mistake::RemembersTooEarly;
        {
            let mut database = self.database();
            let is_known = database.seen.contains(&id);
            if is_known && self.mistake != Mistake::NeverRemembers {
                return;
            }
            if created < database.newest && self.mistake == Mistake::NewestOnly {
                return;
            }
            database.newest = database.newest.max(created);
            if remembers_first {
                database.seen.insert(id.clone());
            }
        }
        let is_long = self.mistake == Mistake::LooksFirst;
        tokio::time::sleep(if is_long { LONG_WORK } else { WORK }).await;
        let mut database = self.database();
        let is_new = database.seen.insert(id);
        let looked = matches!(
            self.mistake,
            Mistake::LooksFirst | Mistake::NeverRemembers | Mistake::RemembersTooEarly
        );
        if is_new || looked {
            *database.effects.entry(object).or_default() += 1;
        }
    }
}

async fn receive(State(receiver): State<Receiver>, headers: HeaderMap, body: Bytes) -> StatusCode {
    let event: Option<Value> = serde_json::from_slice(&body).ok();
    let event = event.unwrap_or_default();
    let text = |pointer: &str| {
        event
            .pointer(pointer)
            .and_then(Value::as_str)
            .map(str::to_owned)
    };
    let id = headers.get("webhook-id").and_then(|id| id.to_str().ok());
    let id = id.map(str::to_owned).or_else(|| text("/id"));
    let object = text("/data/object/id").or_else(|| text("/data/id"));
    let (Some(id), Some(object)) = (id, object) else {
        return StatusCode::BAD_REQUEST;
    };
    let is_signed = receiver.is_signed(&headers, &body) == Some(true);
    if !is_signed && receiver.mistake != Mistake::TrustsEveryone {
        if receiver.mistake == Mistake::RemembersForgeries {
            receiver.database().seen.insert(id);
        }
        return StatusCode::BAD_REQUEST;
    }
    let created = event
        .pointer("/created")
        .or_else(|| event.pointer("/data/created"));
    let created = created.and_then(Value::as_u64).unwrap_or_default();
    let is_canceled_with_its_client = receiver.mistake == Mistake::RemembersTooEarly;
    let handling = receiver.handle(id, created, object);
    if is_canceled_with_its_client {
        handling.await;
    } else if tokio::spawn(handling).await.is_err() {
        return StatusCode::INTERNAL_SERVER_ERROR;
    }
    StatusCode::OK
}

async fn count(State(receiver): State<Receiver>, Path(object): Path<String>) -> String {
    let database = receiver.database();
    database
        .effects
        .get(&object)
        .copied()
        .unwrap_or_default()
        .to_string()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let name = std::env::args().nth(1).unwrap_or_default();
    let mistake = Mistake::from_str(&name, false);
    let receiver = Receiver {
        mistake: mistake.map_err(|_| "name a mistake, such as never-remembers, or none")?,
        secret: std::env::var("WEBHOOK_SECRET")?,
        database: Arc::default(),
    };
    let app = Router::new()
        .route("/webhooks", post(receive))
        .route("/effects/{object}", get(count))
        .with_state(receiver);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}
