//! `POST /deposits` with `{"to":2,"amount":100}` and an `Idempotency-Key`.

use std::num::NonZeroU32;

use actix_web::{HttpResponse, web::Json};
use charge_once_idempotency::{Failure, IdempotentTx};
use serde::Deserialize;
use serde_json::json;

#[derive(Deserialize)]
pub(crate) struct Deposit {
    to: i64,
    amount: NonZeroU32,
}

/// `tx` is the transaction that claims the key, and commits the reply with the deposit.
pub(crate) async fn create(
    mut tx: IdempotentTx,
    Json(Deposit { to, amount }): Json<Deposit>,
) -> Result<HttpResponse, Failure> {
    let credit = "UPDATE accounts SET balance = balance + $2 WHERE id = $1";
    let credited = sqlx::query(credit).bind(to).bind(i64::from(amount.get()));
    Ok(match credited.execute(&mut *tx).await?.rows_affected() {
        0 => HttpResponse::BadRequest().json(json!({ "error": "recipient_unknown" })),
        _ => HttpResponse::Created().json(json!({ "object": "deposit" })),
    })
}
