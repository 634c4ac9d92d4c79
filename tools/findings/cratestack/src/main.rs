//! The layer and the store in Redis of the library's README, around a handler of axum.
#![allow(clippy::unwrap_used, reason = "a smallest application")]

use std::{
    collections::HashSet,
    env,
    fs::OpenOptions,
    io::Write,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use axum::{Json, Router, http::StatusCode, routing::post};
use cratestack_axum::idempotency::IdempotencyLayer;
use cratestack_redis::RedisIdempotencyStore;
use serde_json::{Value, json};
use tokio::{net::TcpListener, time::sleep};

static FAILED: Mutex<Option<HashSet<String>>> = Mutex::new(None);

#[tokio::main]
async fn main() {
    let (port, redis) = (env::var("PORT").unwrap(), env::var("REDIS_PORT").unwrap());
    let store = RedisIdempotencyStore::open(format!("redis://127.0.0.1:{redis}"), "app").unwrap();
    let day = Duration::from_secs(24 * 60 * 60);
    let app = Router::new()
        .route("/charges", post(charge))
        .layer(IdempotencyLayer::new(Arc::new(store), day));
    let listener = TcpListener::bind(format!("127.0.0.1:{port}"))
        .await
        .unwrap();
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, app).await.unwrap();
}

async fn charge(Json(body): Json<Value>) -> (StatusCode, Json<Value>) {
    let (note, what) = (
        body["note"].as_str().unwrap(),
        body["do"].as_str().unwrap_or_default(),
    );
    if what == "refuse" {
        return (
            StatusCode::PAYMENT_REQUIRED,
            Json(json!({"error": "declined"})),
        );
    }
    if what == "fail"
        && FAILED
            .lock()
            .unwrap()
            .get_or_insert_default()
            .insert(note.to_owned())
    {
        return (
            StatusCode::SERVICE_UNAVAILABLE,
            Json(json!({"error": "the database is gone"})),
        );
    }
    let effects = env::var("EFFECTS").unwrap();
    let mut effects = OpenOptions::new().append(true).open(effects).unwrap();
    effects.write_all(format!("{note}\n").as_bytes()).unwrap();
    let id = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_nanos()
        .to_string();
    sleep(Duration::from_millis(if what == "slow" {
        2000
    } else {
        50
    }))
    .await;
    (
        StatusCode::CREATED,
        Json(json!({"id": id, "amount": body["amount"]})),
    )
}
