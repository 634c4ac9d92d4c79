//! `POST /bookings` with `{"seat":12}` and an `Idempotency-Key`.

use axum::{Json, http::StatusCode};
use charge_once_idempotency::{Failure, IdempotentTx};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
pub(crate) struct Booking {
    seat: i32,
}

/// `tx` is the transaction that claims the key, and commits the reply with the booking.
pub(crate) async fn create(
    mut tx: IdempotentTx,
    Json(Booking { seat }): Json<Booking>,
) -> Result<(StatusCode, Json<Value>), Failure> {
    let booked = sqlx::query("INSERT INTO bookings (seat) VALUES ($1) ON CONFLICT DO NOTHING")
        .bind(seat)
        .execute(&mut *tx)
        .await?;
    let (status, body) = match booked.rows_affected() {
        0 => (StatusCode::BAD_REQUEST, json!({ "error": "seat_taken" })),
        _ => (
            StatusCode::CREATED,
            json!({ "object": "booking", "seat": seat }),
        ),
    };
    Ok((status, Json(body)))
}
