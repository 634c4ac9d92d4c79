//! The receiver, and a sender of signed events.

use std::{
    net::SocketAddr,
    time::{SystemTime, UNIX_EPOCH},
};

use axum::Router;
use example_test_support::{empty_database, http_client};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use sqlx::PgPool;
use tokio::net::TcpListener;

pub const SECRET: &str = "whsec_of_the_tests";

/// The receiver on a database and a port of its own.
pub struct Receiver {
    pub pool: PgPool,
    address: SocketAddr,
    http: reqwest::Client,
}

impl Receiver {
    pub async fn start() -> Self {
        let pool = webhook_receiver::connect(&empty_database().await)
            .await
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        serve(
            listener,
            webhook_receiver::app(pool.clone(), SECRET.to_owned()),
        );
        Self {
            pool,
            address,
            http: http_client(),
        }
    }

    /// Delivers with this value of `Stripe-Signature`; returns the status.
    pub async fn deliver_signed(&self, signature: &str, body: &str) -> u16 {
        deliver(&self.http, self.address, signature, body).await
    }

    /// Delivers as the service does; returns the status.
    pub async fn deliver(&self, body: &str) -> u16 {
        let signature = signature(SECRET, now(), body);
        self.deliver_signed(&signature, body).await
    }

    /// The events that were handled, and the revenue in US cents.
    pub async fn effects(&self) -> (i64, i64) {
        effects(&self.pool).await
    }

    pub async fn execute(&self, sql: &'static str) {
        sqlx::raw_sql(sql).execute(&self.pool).await.unwrap();
    }
}

/// What was captured and refunded of the only charge, as far as the receiver knows.
pub async fn charge(pool: &PgPool) -> (i64, i64) {
    let charge = "SELECT amount_captured, amount_refunded FROM charges";
    sqlx::query_as(charge).fetch_one(pool).await.unwrap()
}

pub async fn deliver(
    http: &reqwest::Client,
    address: SocketAddr,
    signature: &str,
    body: &str,
) -> u16 {
    let request = http
        .post(format!("http://{address}/webhooks"))
        .header("stripe-signature", signature)
        .body(body.to_owned());
    request.send().await.unwrap().status().as_u16()
}

pub async fn effects(pool: &PgPool) -> (i64, i64) {
    sqlx::query_as(
        "SELECT (SELECT count(*) FROM handled_events),
                coalesce((SELECT amount FROM revenue WHERE currency = 'usd'), 0)",
    )
    .fetch_one(pool)
    .await
    .unwrap()
}

pub fn serve(listener: TcpListener, app: Router) {
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
}

pub fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(since.as_secs()).unwrap()
}

/// What the service sends as `Stripe-Signature`.
pub fn signature(secret: &str, time: i64, body: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(format!("{time}.{body}").as_bytes());
    format!("t={time},v1={}", hex::encode(mac.finalize().into_bytes()))
}

/// The body of an event that a charge of 20.00 USD succeeded.
pub fn charge_succeeded(id: &str) -> String {
    charge_event(id, "charge.succeeded", Some(1), 0)
}

/// The body of an event about a charge of 20.00 USD, with what was refunded of it at this version.
/// The release before writes events without a version.
pub fn charge_event(id: &str, event_type: &str, version: Option<i64>, refunded: i64) -> String {
    let version = version.map(|version| format!(r#","object_version":{version}"#));
    let version = version.unwrap_or_default();
    format!(
        r#"{{"id":"{id}","type":"{event_type}",
            "data":{{"object":{{"id":"ch_1","amount_captured":2000,"amount_refunded":{refunded},
                                "currency":"usd"}}{version}}}}}"#
    )
}
