//! `POST /transfers` with `{"from":1,"to":2,"amount":100}` and an `Idempotency-Key`.

use std::num::NonZeroU32;

use actix_web::{
    HttpRequest, HttpResponse,
    http::StatusCode,
    post,
    web::{Bytes, Data},
};
use charge_once_idempotency::{
    Command, FingerprintInput, Idempotency, IdempotencyKey, Outcome, Parameters, Rejection, Reply,
    Request,
};
use serde::Deserialize;
use sqlx::PgConnection;
use uuid::Uuid;

/// The tenant whose keys they are. With several tenants, the request's credentials name it.
const TENANT: Uuid = Uuid::nil();

/// In seconds, with answers that are not stored.
const RETRY_AFTER: (&str, &str) = ("retry-after", "1");

/// Reads the body inside the transaction, so that a refusal of the body is stored as well.
struct MoveMoney {
    body: Bytes,
}

#[derive(Deserialize)]
struct Transfer {
    from: i64,
    to: i64,
    amount: NonZeroU32,
}

impl Command for MoveMoney {
    async fn execute(&self, tx: &mut PgConnection) -> Result<Reply, Rejection> {
        let refused = |error| Err(Rejection::Refused(Reply::json(400, error)));
        let Ok(Transfer { from, to, amount }) = serde_json::from_slice(&self.body) else {
            return refused(r#"{"error":"transfer_invalid"}"#);
        };
        // In one order, so that opposite transfers wait for each other instead of deadlocking.
        sqlx::query("SELECT FROM accounts WHERE id IN ($1, $2) ORDER BY id FOR UPDATE")
            .bind(from)
            .bind(to)
            .execute(&mut *tx)
            .await?;
        let debit = "UPDATE accounts SET balance = balance - $2 WHERE id = $1 AND balance >= $2";
        let debited = sqlx::query(debit).bind(from).bind(i64::from(amount.get()));
        if debited.execute(&mut *tx).await?.rows_affected() == 0 {
            return refused(r#"{"error":"funds_insufficient"}"#);
        }
        let credit = "UPDATE accounts SET balance = balance + $2 WHERE id = $1";
        let credited = sqlx::query(credit).bind(to).bind(i64::from(amount.get()));
        if credited.execute(&mut *tx).await?.rows_affected() == 0 {
            // The debit is undone: a refusal is stored without what the command wrote.
            return refused(r#"{"error":"recipient_unknown"}"#);
        }
        Ok(Reply::json(201, r#"{"object":"transfer"}"#))
    }
}

#[post("/transfers")]
pub(crate) async fn create(
    idempotency: Data<Idempotency>,
    http: HttpRequest,
    body: Bytes,
) -> HttpResponse {
    let mut keys = http.headers().get_all("idempotency-key");
    let key = match (keys.next(), keys.next()) {
        (Some(key), None) => key.as_bytes(),
        _ => b"", // none, or several
    };
    let key = match IdempotencyKey::parse(key) {
        Ok(key) => key,
        Err(error) => return HttpResponse::BadRequest().body(error.to_string()),
    };
    // What tells one request from another. Raw bytes: a retry must send the same ones.
    let input = FingerprintInput {
        method: "POST",
        path: http.path(),
        query: Parameters::Raw(b""),
        media_type: "json",
        parameters: Parameters::Raw(&body),
    };
    let request = Request::new(TENANT, key, &input);
    match idempotency.run(request, MoveMoney { body }).await {
        Outcome::Stored {
            record, replayed, ..
        } => render(&record.reply, replayed),
        Outcome::Reused => {
            HttpResponse::UnprocessableEntity().body("the key belongs to another request")
        }
        Outcome::InUse | Outcome::Unfinished => {
            let mut conflict = HttpResponse::Conflict();
            conflict.insert_header(RETRY_AFTER);
            conflict.body("the first request is executing")
        }
        // The cause is in the log. The effect may exist, so only the same key is a safe retry.
        Outcome::Failed(_) => {
            let mut unavailable = HttpResponse::ServiceUnavailable();
            unavailable.insert_header(RETRY_AFTER);
            unavailable.body("retry with the same key")
        }
    }
}

/// Uses nothing but what is stored, so that a replay is equal to the first answer.
fn render(reply: &Reply, replayed: bool) -> HttpResponse {
    let status = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = HttpResponse::build(status);
    for header in &reply.headers {
        response.append_header((header.0.as_str(), header.1.as_str()));
    }
    if replayed {
        response.insert_header(("idempotent-replayed", "true"));
    }
    response.body(reply.body.clone())
}
