//! `POST /bookings` with `{"seat":12}` and an `Idempotency-Key`.

use axum::{
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode, Uri},
    response::{IntoResponse, Response},
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
const RETRY_AFTER: [(&str, &str); 1] = [("retry-after", "1")];

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
        let refused = |error| Err(Rejection::Refused(Reply::json(400, error)));
        let Ok(Booking { seat }) = serde_json::from_slice(&self.body) else {
            return refused(r#"{"error":"seat_invalid"}"#);
        };
        let booked = sqlx::query("INSERT INTO bookings (seat) VALUES ($1) ON CONFLICT DO NOTHING")
            .bind(seat)
            .execute(tx)
            .await?;
        match booked.rows_affected() {
            0 => refused(r#"{"error":"seat_taken"}"#),
            _ => Ok(Reply::json(201, r#"{"object":"booking"}"#)),
        }
    }
}

pub(crate) async fn create(
    State(idempotency): State<Idempotency>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let mut keys = headers.get_all("idempotency-key").iter();
    let key = match (keys.next(), keys.next()) {
        (Some(key), None) => key.as_bytes(),
        _ => b"", // none, or several
    };
    let key = match IdempotencyKey::parse(key) {
        Ok(key) => key,
        Err(error) => return (StatusCode::BAD_REQUEST, error.to_string()).into_response(),
    };
    // What tells one request from another. Raw bytes: a retry must send the same ones.
    let input = FingerprintInput {
        method: "POST",
        path: uri.path(),
        query: Parameters::Raw(b""),
        media_type: "json",
        parameters: Parameters::Raw(&body),
    };
    let request = Request::new(TENANT, key, &input);
    match idempotency.run(request, BookSeat { body }).await {
        Outcome::Stored {
            record, replayed, ..
        } => render(&record.reply, replayed),
        Outcome::Reused => {
            let message = "the key belongs to another request";
            (StatusCode::UNPROCESSABLE_ENTITY, message).into_response()
        }
        Outcome::InUse | Outcome::Unfinished => {
            let message = "the first request is executing";
            (StatusCode::CONFLICT, RETRY_AFTER, message).into_response()
        }
        // The cause is in the log. The effect may exist, so only the same key is a safe retry.
        Outcome::Failed(_) => {
            let message = "retry with the same key";
            (StatusCode::SERVICE_UNAVAILABLE, RETRY_AFTER, message).into_response()
        }
    }
}

/// Uses nothing but what is stored, so that a replay is equal to the first answer.
fn render(reply: &Reply, replayed: bool) -> Response {
    let mut response = Response::builder().status(reply.status);
    for (name, value) in &reply.headers {
        response = response.header(name, value);
    }
    if replayed {
        response = response.header("idempotent-replayed", "true");
    }
    let response = response.body(reply.body.clone().into());
    response.unwrap_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response())
}
