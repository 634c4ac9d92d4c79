//! The application of the library's README, with a log-in that creates the session.
#![allow(clippy::unwrap_used, reason = "a smallest application")]

use std::{
    collections::HashSet,
    env,
    fs::OpenOptions,
    io::Write,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{Json, Router, http::StatusCode, routing::post};
use axum_idempotent::{IdempotentLayer, IdempotentOptions};
use ruts::{
    CookieOptions, Session, SessionLayer,
    store::{Ttl, moka::MokaStore},
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, time::sleep};
use tower_cookies::CookieManagerLayer;

static FAILED: Mutex<Option<HashSet<String>>> = Mutex::new(None);
static NEXT: Mutex<u64> = Mutex::new(0);

#[tokio::main]
async fn main() {
    let store = Arc::new(MokaStore::builder().build());
    let options = IdempotentOptions::default()
        .use_idempotency_key_header(Some("Idempotency-Key"), true)
        .expire_after(60 * 5);
    let app = Router::new()
        .route("/charges", post(charge))
        .layer(IdempotentLayer::<MokaStore>::new(options))
        .route("/log-in", post(log_in))
        .layer(SessionLayer::new(store).with_cookie_options(CookieOptions::build().name("session")))
        .layer(CookieManagerLayer::new());
    let port = env::var("PORT").unwrap();
    let listener = TcpListener::bind(format!("127.0.0.1:{port}"))
        .await
        .unwrap();
    axum::serve(listener, app).await.unwrap();
}

async fn log_in(session: Session<MokaStore>) -> StatusCode {
    let day = Ttl::new(86_400).unwrap();
    session.set("user", &"customer", day, None).await.unwrap();
    StatusCode::NO_CONTENT
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
    let id = {
        let mut next = NEXT.lock().unwrap();
        *next += 1;
        *next
    };
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
