//! 3 · One file, one verb, one transaction.
//!
//! Promise: a command is a value with the verb's parameters as they were decoded. It checks their
//! meaning, decides by the rules in `domain/`, writes through `store/`, and says how it ended: a
//! reply to commit, a refusal to store, or a failure. It never begins or commits.

mod create_charge;
mod create_order;

pub use create_charge::CreateCharge;
pub use create_order::CreateOrder;

use serde::Serialize;

use crate::{
    domain::{
        dialect::Dialect,
        error::{ApiError, ErrorType},
    },
    idempotency::{Failure, Rejection, Reply},
};

/// Ends the message of a stored refusal: without it, a client would correct its request, keep the
/// key, and meet "key reused".
const STORED_REFUSAL: &str = " This answer is kept under the idempotency key: send a corrected \
                              request with a new key.";

/// A reply that created `id`.
fn created<T: Serialize>(
    dialect: Dialect,
    collection: &str,
    id: String,
    object: &T,
) -> Result<Reply, Rejection> {
    let location = format!("{}/{collection}/{id}", dialect.prefix());
    let mut reply = json(201, object)?;
    reply.headers.push(("location".into(), location));
    reply.resource_id = Some(id);
    Ok(reply)
}

/// A reply with a JSON body.
fn json<T: Serialize>(status: u16, object: &T) -> Result<Reply, Rejection> {
    let body =
        serde_json::to_vec(object).map_err(|error| Rejection::Failed(Failure::internal(error)))?;
    Ok(Reply {
        status,
        headers: vec![("content-type".into(), "application/json".into())],
        body,
        resource_id: None,
    })
}

/// The reply of an error that is a definite outcome.
fn error_reply(error: &ApiError) -> Result<Reply, Rejection> {
    let mut reply = json(error.code.status(), &error.envelope())?;
    let described_by = format!("<{}>; rel=\"describedby\"", error.code.doc_url());
    reply.headers.push(("link".into(), described_by));
    Ok(reply)
}

/// A deterministic refusal: nothing that the command wrote survives, the reply is stored.
impl From<ApiError> for Rejection {
    fn from(mut error: ApiError) -> Self {
        if error.code.error_type() == ErrorType::InvalidRequest {
            error.message.push_str(STORED_REFUSAL);
        }
        error_reply(&error).map_or_else(|rejection| rejection, Rejection::Refused)
    }
}
