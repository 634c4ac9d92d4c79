//! `POST /transfers` with `{"from":1,"to":2,"amount":100}` and an `Idempotency-Key`.

use std::num::NonZeroU32;

use actix_web::{
    HttpRequest, HttpResponse,
    http::StatusCode,
    post,
    web::{Bytes, Data},
};
use charge_once_idempotency::{Command, Idempotency, IdempotencyKey, Rejection, Reply, Request};
use serde::Deserialize;
use serde_json::json;
use sqlx::PgConnection;

use crate::TENANT;

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
        let refused = |error| Err(Rejection::json(400, &json!({ "error": error })));
        let Ok(Transfer { from, to, amount }) = serde_json::from_slice(&self.body) else {
            return refused("transfer_invalid");
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
            return refused("funds_insufficient");
        }
        let credit = "UPDATE accounts SET balance = balance + $2 WHERE id = $1";
        let credited = sqlx::query(credit).bind(to).bind(i64::from(amount.get()));
        if credited.execute(&mut *tx).await?.rows_affected() == 0 {
            // The debit is undone: a refusal is stored without what the command wrote.
            return refused("recipient_unknown");
        }
        Ok(Reply::json(201, &json!({ "object": "transfer" }))?)
    }
}

#[post("/transfers")]
pub(crate) async fn create(
    idempotency: Data<Idempotency>,
    asked: HttpRequest,
    body: Bytes,
) -> HttpResponse {
    match IdempotencyKey::of_headers(asked.headers().get_all("idempotency-key")) {
        Ok(key) => {
            let request = Request::json(TENANT, key, "POST", asked.path(), &body);
            render(idempotency.run(request, MoveMoney { body }).await)
        }
        Err(error) => render(error),
    }
}

/// Actix has a response of its own. Once for all endpoints.
fn render(answer: impl Into<http::Response<Vec<u8>>>) -> HttpResponse {
    let (head, body) = answer.into().into_parts();
    let status = StatusCode::from_u16(head.status.as_u16());
    let mut response = HttpResponse::build(status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR));
    for (name, value) in &head.headers {
        response.append_header((name.as_str(), value.as_bytes()));
    }
    response.body(body)
}
