//! The receiver of the events that the accounts want.
//!
//! Promise: an event counts as received only with a valid signature, and only if this answered 200.

use std::{
    collections::{HashMap, HashSet, hash_map::Entry},
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use axum::{
    Router,
    body::Bytes,
    extract::{Path, State},
    http::{HeaderMap, StatusCode},
    routing::post,
};
use chrono::{DateTime, Utc};
use serde_json::Value;
use tokio::net::TcpListener;

use crate::history::lock;

/// Refuses every so many deliveries, so that each kind of event is delivered again, but one event
/// only once: the sender waits longer after each refusal, in the end for longer than the checks do.
const REFUSED_EVERY: u64 = 17;

#[derive(Default)]
pub(crate) struct Received {
    /// The endpoints' secrets, by account.
    secrets: Mutex<Vec<String>>,
    /// When each one was first received, by account and event id.
    events: Mutex<HashMap<(usize, String), DateTime<Utc>>>,
    repeated: Mutex<Vec<Repeated>>,
    refused: Mutex<HashSet<(usize, String)>>,
    bad_signatures: AtomicU64,
    deliveries: AtomicU64,
}

/// An event that was received once more.
#[derive(Debug, Clone)]
pub(crate) struct Repeated {
    pub(crate) account: usize,
    pub(crate) event: String,
    pub(crate) first: DateTime<Utc>,
    pub(crate) at: DateTime<Utc>,
}

impl Received {
    /// Listens on a local port. An endpoint of account `n` is `http://address/n`.
    pub(crate) async fn listen(self: &Arc<Self>) -> anyhow::Result<SocketAddr> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let app = Router::new()
            .route("/{account}", post(receive))
            .with_state(Arc::clone(self));
        tokio::spawn(async move { axum::serve(listener, app).await });
        Ok(address)
    }

    pub(crate) fn add_secret(&self, secret: String) {
        lock(&self.secrets).push(secret);
    }

    /// The account and the id of every event that was received.
    pub(crate) fn events(&self) -> HashSet<(usize, String)> {
        lock(&self.events).keys().cloned().collect()
    }

    pub(crate) fn repeated(&self) -> Vec<Repeated> {
        lock(&self.repeated).clone()
    }

    pub(crate) fn bad_signatures(&self) -> u64 {
        self.bad_signatures.load(Ordering::Relaxed)
    }

    pub(crate) fn deliveries(&self) -> u64 {
        self.deliveries.load(Ordering::Relaxed)
    }
}

async fn receive(
    State(received): State<Arc<Received>>,
    Path(account): Path<usize>,
    headers: HeaderMap,
    body: Bytes,
) -> StatusCode {
    let number = received.deliveries.fetch_add(1, Ordering::Relaxed);
    let header = headers.get("stripe-signature");
    let header = header.and_then(|value| value.to_str().ok()).unwrap_or("");
    let secret = lock(&received.secrets).get(account).cloned();
    let Some(secret) = secret else {
        return StatusCode::SERVICE_UNAVAILABLE;
    };
    if webhook_receiver::verify(&secret, header, &body, Utc::now().timestamp()).is_err() {
        received.bad_signatures.fetch_add(1, Ordering::Relaxed);
        return StatusCode::BAD_REQUEST;
    }
    let event: Value = serde_json::from_slice(&body).unwrap_or_default();
    let Some(id) = event.get("id").and_then(Value::as_str) else {
        return StatusCode::BAD_REQUEST;
    };
    let event = (account, id.to_owned());
    if number % REFUSED_EVERY == 0 && lock(&received.refused).insert(event.clone()) {
        return StatusCode::INTERNAL_SERVER_ERROR;
    }
    let at = Utc::now();
    match lock(&received.events).entry(event) {
        Entry::Vacant(first) => {
            first.insert(at);
        }
        Entry::Occupied(first) => {
            let (account, event) = first.key().clone();
            let first = *first.get();
            let again = Repeated {
                account,
                event,
                first,
                at,
            };
            lock(&received.repeated).push(again);
        }
    }
    StatusCode::OK
}
