//! An idempotency key, as clients see it.

use super::prelude::*;
use crate::idempotency::{KnownRequest, Step};

views! {
    /// An idempotency key, as clients see it.
    pub struct KeyObject as IdempotencyKey of(key: String, request: Option<KnownRequest>) where {
        // Without one, another replica works on it, and nothing is known.
        let request = request.as_ref();
        let outcome = request.and_then(|request| request.outcome);
        let text = |field: fn(&KnownRequest) -> &String| request.map(field).cloned();
    } {
        /// Always `idempotency_key`.
        always object: &'static str = "idempotency_key";
        /// The key, without quotes.
        key: String [example = "8e03978e-40d5-43dd-bc93-6894a57f9324"] = key;
        /// `completed`; `abandoned`: it was given up; `in_flight`; or `in_doubt`: an attempt may
        /// have been executed, and its answer is not known.
        status: &'static str [example = "completed"] =
            request.map_or("in_flight", KnownRequest::status);
        /// Of the first request; null while another replica works on it.
        maybe method: String [example = "POST"] = text(|request| &request.method);
        /// Of the first request; null while another replica works on it.
        maybe path: String [example = "/charges"] = text(|request| &request.path);
        /// SHA-256 of the first request, in hexadecimal.
        maybe fingerprint: String = request.map(|request| hex::encode(&request.fingerprint));
        /// The status that every retry gets.
        maybe response_status: u16 [example = 201] = outcome.map(|outcome| outcome.status);
        /// The id of what was made or changed; of what is being made where that takes several
        /// transactions.
        maybe resource: String [example = "ch_01kar2w7n9e4xt8f5mq0v3z6yd"] =
            request.and_then(|request| request.resource_id.clone());
        /// The `req_…` that executed.
        maybe request: String = text(|request| &request.request_id);
        /// What the first request named in Idempotency-Workflow; null if it named nothing.
        maybe workflow: String [example = "checkout-6735"] =
            request.and_then(|request| request.label.clone());
        /// Unix seconds; null while nothing of the first request is committed.
        maybe created: i64 [example = 1_795_000_000] =
            request.and_then(|request| request.created_at).map(|at| at.timestamp());
        /// Unix seconds; null while it is in flight.
        maybe expires: i64 [example = 1_795_086_400] =
            outcome.map(|outcome| outcome.expires_at.timestamp());
    }
}

impl From<Step> for KeyObject {
    fn from(step: Step) -> Self {
        Self::of(step.key, Some(step.request))
    }
}
