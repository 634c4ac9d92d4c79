//! A charge that is made at most once, in one file: what the crate does, without the crate.
//!
//! ```text
//! BEGIN
//! INSERT INTO keys … ON CONFLICT DO NOTHING   the claim: a second request with the key waits here
//! SAVEPOINT work
//!   INSERT INTO charges, UPDATE wallets       a refusal is rolled back to the savepoint
//! UPDATE keys SET status, body                the reply
//! COMMIT                                      all of it exists, or nothing
//! ```
//!
//! ```sh
//! DATABASE_URL=postgres://… cargo run -p charge-once-idempotency --example smallest
//! ```
//!
//! It lacks what a service needs besides: keys that expire, clients that wait, limits on who may
//! wait, headers in the reply, an effect outside the database, sessions that are pinned to the
//! schema of the tables.

use sha2::{Digest, Sha256};
use sqlx::{Connection, PgConnection, PgPool, Row};

/// `COLLATE "C"`: the C library's order of a language must not decide whether two keys are one.
pub const SCHEMA: &str = r#"
CREATE TABLE keys (
    account     text COLLATE "C" NOT NULL,
    key         text COLLATE "C" NOT NULL,
    fingerprint bytea NOT NULL,
    status      smallint,
    body        text,
    CONSTRAINT one_record_per_account_and_key PRIMARY KEY (account, key)
);
CREATE TABLE wallets (account text COLLATE "C" PRIMARY KEY, balance bigint NOT NULL);
CREATE TABLE charges (
    id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    account text COLLATE "C" NOT NULL,
    amount  bigint NOT NULL
);"#;

/// `POST /charges`, as far as it matters here. The body is compared as it was sent.
#[derive(Clone)]
pub struct Request {
    /// Whose key it is.
    pub account: String,
    /// The value of `Idempotency-Key`.
    pub key: String,
    /// The amount, in digits.
    pub body: String,
}

/// What the client gets: the first time, and every time.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// The HTTP status, 200 to 499: anything else is no outcome.
    pub status: i16,
    /// The bytes of the body.
    pub body: String,
}

impl Reply {
    fn new(status: i16, body: impl Into<String>) -> Self {
        let body = body.into();
        Self { status, body }
    }
}

/// How the work can end without a charge.
enum Rejection {
    /// A definite answer. It is stored, and what the work wrote is undone.
    Refused(Reply),
    /// Nothing is stored: the key is free for the next attempt.
    Failed(sqlx::Error),
}

impl From<sqlx::Error> for Rejection {
    fn from(error: sqlx::Error) -> Self {
        Self::Failed(error)
    }
}

/// Answers the request. After an error the client gets 503 and sends the same key again. Where the
/// error came from COMMIT, PostgreSQL may have committed, and that retry finds out.
pub async fn answer(pool: PgPool, request: Request) -> Result<Reply, sqlx::Error> {
    // A task of its own: a client that goes away must not end a transaction half-way.
    let task = tokio::spawn(async move {
        let mut connection = pool.acquire().await?;
        let answered = transaction(&mut connection, &request).await;
        if answered.is_err() {
            // What state is it in? The next request gets another one.
            connection.close_on_drop();
        }
        answered
    });
    task.await
        .unwrap_or_else(|panic| Err(sqlx::Error::Io(std::io::Error::other(panic))))
}

async fn transaction(
    connection: &mut PgConnection,
    request: &Request,
) -> Result<Reply, sqlx::Error> {
    let fingerprint = Sha256::digest(&request.body).to_vec();
    // READ COMMITTED, whatever the role's default is: the SELECT below must see what was committed
    // while the INSERT waited.
    let begin = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = '5s'";
    let mut tx = connection.begin_with(begin).await?;

    let claim =
        "INSERT INTO keys (account, key, fingerprint) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";
    let claimed = sqlx::query(claim)
        .bind(&request.account)
        .bind(&request.key)
        .bind(&fingerprint)
        .execute(&mut *tx)
        .await?;
    if claimed.rows_affected() == 0 {
        let record = sqlx::query(
            "SELECT fingerprint, status, body FROM keys WHERE account = $1 AND key = $2",
        )
        .bind(&request.account)
        .bind(&request.key)
        .fetch_one(&mut *tx)
        .await?;
        tx.rollback().await?;
        if record.try_get::<Vec<u8>, _>("fingerprint")? != fingerprint {
            return Ok(Reply::new(422, r#"{"error":"idempotency_key_reused"}"#));
        }
        return Ok(Reply {
            status: record.try_get("status")?,
            body: record.try_get("body")?,
        });
    }

    sqlx::query("SAVEPOINT work").execute(&mut *tx).await?;
    let reply = match charge(&mut tx, request).await {
        Ok(reply) => reply,
        Err(Rejection::Refused(reply)) => {
            // The claim stays, so the key is never free between the refusal and its storage.
            sqlx::query("ROLLBACK TO work").execute(&mut *tx).await?;
            reply
        }
        // Dropping the transaction rolls back, and the claim is gone with everything else.
        Err(Rejection::Failed(error)) => return Err(error),
    };
    let save = "UPDATE keys SET status = $3, body = $4 WHERE account = $1 AND key = $2";
    let saved = sqlx::query(save)
        .bind(&request.account)
        .bind(&request.key)
        .bind(reply.status)
        .bind(&reply.body)
        .execute(&mut *tx)
        .await?;
    if saved.rows_affected() != 1 {
        return Err(sqlx::Error::RowNotFound);
    }
    // With a synchronous standby, it must not be answered with a warning: see `acknowledged`.
    tx.commit().await?;
    Ok(reply)
}

/// The work: only SQL, and every database error is passed on.
async fn charge(tx: &mut PgConnection, request: &Request) -> Result<Reply, Rejection> {
    let Ok(amount) = request.body.parse::<u32>().map(i64::from) else {
        let invalid = Reply::new(400, r#"{"error":"amount_invalid"}"#);
        return Err(Rejection::Refused(invalid));
    };
    let id: i64 =
        sqlx::query_scalar("INSERT INTO charges (account, amount) VALUES ($1, $2) RETURNING id")
            .bind(&request.account)
            .bind(amount)
            .fetch_one(&mut *tx)
            .await?;
    let pay = "UPDATE wallets SET balance = balance - $2 WHERE account = $1 AND balance >= $2";
    let paid = sqlx::query(pay)
        .bind(&request.account)
        .bind(amount)
        .execute(&mut *tx)
        .await?;
    if paid.rows_affected() == 0 {
        let insufficient = Reply::new(402, r#"{"error":"insufficient_funds"}"#);
        return Err(Rejection::Refused(insufficient));
    }
    let charge = format!(r#"{{"id":{id},"amount":{amount}}}"#);
    Ok(Reply::new(201, charge))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pool = PgPool::connect(&std::env::var("DATABASE_URL")?).await?;
    sqlx::raw_sql(SCHEMA).execute(&pool).await?;
    sqlx::query("INSERT INTO wallets VALUES ('alice', 100)")
        .execute(&pool)
        .await?;
    for (key, body) in [
        ("one", "70"),
        ("one", "70"),
        ("one", "7"),
        ("two", "70"),
        ("two", "70"),
    ] {
        let request = Request {
            account: "alice".into(),
            key: key.into(),
            body: body.into(),
        };
        let reply = answer(pool.clone(), request).await?;
        println!("{key}: charge {body}: {} {}", reply.status, reply.body);
    }
    Ok(())
}
