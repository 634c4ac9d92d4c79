//! `POST /bookings` with `{"seat":12}` and an `Idempotency-Key`.

use axum::{
    body::{Body, Bytes},
    extract::State,
    http::{HeaderMap, Response, Uri},
};
use charge_once_idempotency::{Command, Idempotency, IdempotencyKey, Rejection, Reply, Request};
use serde::Deserialize;
use serde_json::json;
use sqlx::PgConnection;
use uuid::Uuid;

/// The tenant whose keys they are. With several tenants, the request's credentials name it.
const TENANT: Uuid = Uuid::nil();

/// Reads the body inside the transaction, so that a refusal of the body is stored as well.
struct BookSeat {
    body: Bytes,
}

#[derive(Deserialize)]
struct Booking {
    seat: i32,
}

impl Command for BookSeat {
    async fn execute(&self, tx: &mut PgConnection) -> Result<Reply, Rejection> {
        let refused = |error| Err(Rejection::json(400, &json!({ "error": error })));
        let Ok(Booking { seat }) = serde_json::from_slice(&self.body) else {
            return refused("seat_invalid");
        };
        let booked = sqlx::query("INSERT INTO bookings (seat) VALUES ($1) ON CONFLICT DO NOTHING")
            .bind(seat)
            .execute(tx)
            .await?;
        match booked.rows_affected() {
            0 => refused("seat_taken"),
            _ => Ok(Reply::json(
                201,
                &json!({ "object": "booking", "seat": seat }),
            )?),
        }
    }
}

pub(crate) async fn create(
    State(idempotency): State<Idempotency>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    let answer = match IdempotencyKey::of_headers(headers.get_all("idempotency-key")) {
        Ok(key) => {
            let request = Request::json(TENANT, key, "POST", uri.path(), &body);
            idempotency.run(request, BookSeat { body }).await.into()
        }
        Err(error) => Response::from(error),
    };
    answer.map(Body::from)
}
