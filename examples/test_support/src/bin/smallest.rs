//! `crates/idempotency/examples/smallest.rs` over HTTP, so that `scripts/conform-test` can ask it:
//! `POST /charges` with an amount, by alice or by bob.

use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    http::{HeaderMap, Response},
    routing::post,
};
use sqlx::PgPool;
use tokio::net::TcpListener;

#[path = "../../../../crates/idempotency/examples/smallest.rs"]
#[allow(
    dead_code,
    missing_docs,
    unreachable_pub,
    reason = "its `main` is for people, and its words are its docs"
)]
mod smallest;

use smallest::{Reply, Request, SCHEMA, answer};

/// What the file leaves to its caller: whose key it is, and the key.
fn request(headers: &HeaderMap, body: &Bytes) -> Result<Request, (u16, &'static str)> {
    let account = headers
        .get("authorization")
        .and_then(|value| value.to_str().ok());
    let account = account.filter(|account| ["alice", "bob"].contains(account));
    let mut keys = headers.get_all("idempotency-key").iter();
    let key = keys.next().and_then(|key| key.to_str().ok());
    let is_key = |key: &&str| (1..=255).contains(&key.len()) && !key.contains(['"', ' ']);
    match (account, key.filter(is_key), keys.next()) {
        (None, _, _) => Err((401, r#"{"error":"account_unknown"}"#)),
        (Some(account), Some(key), None) => Ok(Request {
            account: account.to_owned(),
            key: key.to_owned(),
            body: String::from_utf8_lossy(body).into_owned(),
        }),
        (Some(_), _, _) => Err((400, r#"{"error":"idempotency_key_invalid"}"#)),
    }
}

async fn create(State(pool): State<PgPool>, headers: HeaderMap, body: Bytes) -> Response<Body> {
    let (status, body) = match request(&headers, &body) {
        Err((status, body)) => (status, body.to_owned()),
        Ok(request) => match answer(pool, request).await {
            Ok(Reply { status, body }) => (u16::try_from(status).unwrap_or(500), body),
            Err(_) => (503, r#"{"error":"try_again"}"#.to_owned()),
        },
    };
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status.try_into().unwrap_or_default();
    response
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pool = PgPool::connect(&std::env::var("DATABASE_URL")?).await?;
    sqlx::raw_sql(SCHEMA).execute(&pool).await?;
    let fund = "INSERT INTO wallets VALUES ('alice', 1000000000000), ('bob', 1000000000000)";
    sqlx::raw_sql(fund).execute(&pool).await?;
    let app = Router::new()
        .route("/charges", post(create))
        .with_state(pool);
    let listener = TcpListener::bind(std::env::var("BIND_ADDRESS")?).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}
