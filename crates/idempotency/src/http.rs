//! What a handler writes around [`Idempotency::run`](crate::Idempotency::run), written once: JSON
//! in and out, the header of the key, and every outcome in HTTP.
//!
//! Promise: a stored outcome is rendered from its record alone, so that a replay is the first
//! answer with one header more.

use std::{collections::HashSet, fmt, time::Duration};

use http::{HeaderValue, Response, StatusCode, header};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{self, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::{
    Failure, FailureKind, FingerprintInput, IdempotencyKey, KeyError, Outcome, Parameters, Record,
    Rejection, Reply, Request, retry_after_seconds,
};

/// What the keys begin with that a server makes.
const ASSIGNED: &str = "assigned-";

/// Doubles hold every whole number below this one: 2 to the power of 53.
const DOUBLE_IS_EXACT_BELOW: f64 = 9_007_199_254_740_992.0;

/// Whatever the failure was: it can't say "not executed" for sure.
pub(crate) const NO_OUTCOME: &str = "There is no definite outcome. A retry with the same key is safe, and one with another key is not.";

/// Why the headers of a request name no key. As an [`http::Response`], it is a 400.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// The header isn't there.
    #[error(
        "Send the header Idempotency-Key. A UUID, made before the first attempt, is a good key."
    )]
    Missing,
    /// Which one is meant can't be known, and proxies disagree about the first and the last.
    #[error("Send the header Idempotency-Key once.")]
    Repeated,
    /// It is a key that a server assigned to another request.
    #[error(
        "The idempotency key is one that a server assigned to a request without a key. It can't be \
         sent: a retry is the same request only if its key was made before the first attempt."
    )]
    Assigned,
    /// Its value is no key.
    #[error(transparent)]
    Invalid(#[from] KeyError),
}

impl IdempotencyKey {
    /// The key in the values of all headers `Idempotency-Key` of a request. There must be one.
    pub fn of_headers<V: AsRef<[u8]>>(
        values: impl IntoIterator<Item = V>,
    ) -> Result<Self, HeaderError> {
        let mut values = values.into_iter();
        match (values.next(), values.next()) {
            (None, _) => Err(HeaderError::Missing),
            (Some(value), None) => match Self::parse(value.as_ref())? {
                key if key.is_assigned() => Err(HeaderError::Assigned),
                key => Ok(key),
            },
            (Some(_), Some(_)) => Err(HeaderError::Repeated),
        }
    }

    /// A key for a request that has none: `assigned-` and a UUID. No client can send it, so it is
    /// the key of this one request: its retry is another request, which does the work again.
    #[must_use]
    pub fn assigned() -> Self {
        Self(format!("{ASSIGNED}{}", Uuid::new_v4()))
    }

    /// Whether a server made it: see [`IdempotencyKey::assigned`].
    #[must_use]
    pub fn is_assigned(&self) -> bool {
        let id = self.0.strip_prefix(ASSIGNED);
        id.is_some_and(|id| Uuid::try_parse(id).is_ok())
    }
}

impl Request {
    /// A request with a JSON body and without a query. `path` is the path as it was requested: one
    /// key at `/orders/1/pay` and `/orders/2/pay` is two requests.
    ///
    /// A retry may order the members anew and write its text in another way (RFC 8785), so `1.0` is
    /// `1`, and fractions are compared as doubles. A body is compared byte by byte if it isn't
    /// JSON, if an object has a member twice, or if a number is 2 to the power of 53 or more, which
    /// a double may round: so a refusal of such a body can be stored as well.
    pub fn json(
        account_id: Uuid,
        key: IdempotencyKey,
        method: &str,
        path: &str,
        body: &[u8],
    ) -> Self {
        let canonical = canonical(body);
        let parameters = match &canonical {
            Some(canonical) => Parameters::Canonical(canonical),
            None => Parameters::Raw(body),
        };
        let input = FingerprintInput {
            method,
            path,
            query: Parameters::Canonical(b"{}"),
            media_type: "json",
            parameters,
        };
        Self::new(account_id, key, &input)
    }
}

pub(crate) fn canonical(body: &[u8]) -> Option<Vec<u8>> {
    serde_json::from_slice::<UniqueMembers>(body).ok()?;
    let value = serde_json::from_slice(body).ok().filter(is_exact)?;
    serde_json_canonicalizer::to_vec(&value).ok()
}

/// JSON without an object that has a member twice. `Value` would keep the last one and say nothing.
struct UniqueMembers;

impl<'de> Deserialize<'de> for UniqueMembers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for UniqueMembers {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self, A::Error> {
        while items.next_element::<Self>()?.is_some() {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self, A::Error> {
        let mut names = HashSet::new();
        while let Some((name, Self)) = members.next_entry::<String, Self>()? {
            if !names.insert(name) {
                return Err(de::Error::custom("a member is there twice"));
            }
        }
        Ok(self)
    }
}

/// Whether no two whole numbers in it could become one: canonical JSON writes every number as a
/// double.
fn is_exact(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(_) | Value::String(_) => true,
        Value::Number(number) => number
            .as_f64()
            .is_some_and(|number| number.abs() < DOUBLE_IS_EXACT_BELOW),
        Value::Array(items) => items.iter().all(is_exact),
        Value::Object(members) => members.values().all(is_exact),
    }
}

impl Reply {
    /// A reply whose body is `value` as JSON. It names no resource. Fails as a defect where JSON
    /// can't hold the value, as with a map whose keys are no text.
    pub fn json<T: Serialize + ?Sized>(status: u16, value: &T) -> Result<Self, Failure> {
        let body = serde_json::to_vec(value).map_err(Failure::internal)?;
        Ok(Self::raw_json(status, body))
    }
}

impl Rejection {
    /// A refusal whose body is `value` as JSON.
    pub fn json<T: Serialize + ?Sized>(status: u16, value: &T) -> Self {
        Reply::json(status, value).map_or_else(Self::Failed, Self::Refused)
    }
}

impl From<Outcome> for Response<Vec<u8>> {
    /// The stored reply with `original-request`, and with `idempotent-replayed` where it is a
    /// replay. Or an error: `{"error":{"code":…,"message":…}}`, with `retry-after` where waiting
    /// helps.
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Stored {
                record, replayed, ..
            } => stored(&record, replayed).unwrap_or_else(|error| {
                tracing::error!(%error, "a stored reply is none in HTTP");
                failed(FailureKind::Internal, None)
            }),
            Outcome::Reused => error(
                StatusCode::UNPROCESSABLE_ENTITY,
                "idempotency_key_reused",
                "The key belongs to another request.",
            ),
            Outcome::InUse { retry_after } => in_use(retry_after),
            Outcome::Unfinished => in_use(None),
            Outcome::Failed(failure) => failed(failure.kind, failure.retry_after),
        }
    }
}

impl From<HeaderError> for Response<Vec<u8>> {
    fn from(header: HeaderError) -> Self {
        let code = match header {
            HeaderError::Missing => "idempotency_key_required",
            HeaderError::Repeated | HeaderError::Assigned | HeaderError::Invalid(_) => {
                "idempotency_key_invalid"
            }
        };
        error(StatusCode::BAD_REQUEST, code, &header.to_string())
    }
}

fn stored(record: &Record, replayed: bool) -> http::Result<Response<Vec<u8>>> {
    let mut response = head(&record.reply).header("original-request", &record.request_id);
    if replayed {
        response = response.header("idempotent-replayed", "true");
    }
    response.body(record.reply.body.clone())
}

/// A response as far as the body.
pub(crate) fn head(reply: &Reply) -> http::response::Builder {
    let response = Response::builder().status(reply.status);
    let headers = reply.headers.iter();
    headers.fold(response, |response, (name, value)| {
        response.header(name, value)
    })
}

fn in_use(wait: Option<Duration>) -> Response<Vec<u8>> {
    let message = "The first request with this key has not ended. Retry with the same key.";
    let in_use = error(StatusCode::CONFLICT, "idempotency_key_in_use", message);
    retryable(in_use, wait)
}

pub(crate) fn failed(kind: FailureKind, wait: Option<Duration>) -> Response<Vec<u8>> {
    let unavailable = StatusCode::SERVICE_UNAVAILABLE;
    match kind {
        FailureKind::Busy => {
            let busy = error(StatusCode::CONFLICT, "resource_busy", NO_OUTCOME);
            retryable(busy, wait)
        }
        FailureKind::Unavailable => {
            retryable(error(unavailable, "service_unavailable", NO_OUTCOME), wait)
        }
        // However long a client waits, this process is not set up for the work.
        FailureKind::Unsupported => error(unavailable, "service_unavailable", NO_OUTCOME),
        // A retry would meet the defect again.
        FailureKind::Internal => error(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal_error",
            NO_OUTCOME,
        ),
    }
}

pub(crate) fn error(status: StatusCode, code: &str, message: &str) -> Response<Vec<u8>> {
    let body = json!({ "error": { "code": code, "message": message } });
    let mut response = Response::new(body.to_string().into_bytes());
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

fn retryable(mut response: Response<Vec<u8>>, wait: Option<Duration>) -> Response<Vec<u8>> {
    let headers = response.headers_mut();
    headers.insert(header::RETRY_AFTER, retry_after_seconds(wait).into());
    response
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
    use std::sync::Arc;

    use super::*;
    use crate::Fingerprint;

    fn fingerprint(body: &str) -> Fingerprint {
        let key = IdempotencyKey::parse(b"one").unwrap();
        Request::json(Uuid::nil(), key, "POST", "/charges", body.as_bytes()).fingerprint
    }

    #[test]
    fn the_same_json_in_another_spelling_is_the_same_request() {
        let first = fingerprint(r#"{"amount":2000,"note":"é"}"#);
        let again = fingerprint("{ \"note\": \"\\u00e9\", \"amount\": 2000 }");
        assert_eq!(first, again);
        assert_ne!(first, fingerprint(r#"{"amount":2001,"note":"é"}"#));
    }

    #[test]
    fn it_is_the_fingerprint_of_canonical_json() {
        let input = FingerprintInput {
            method: "POST",
            path: "/charges",
            query: Parameters::Canonical(b"{}"),
            media_type: "json",
            parameters: Parameters::Canonical(br#"{"amount":2000}"#),
        };
        assert_eq!(fingerprint(r#" {"amount":2e3}"#), Fingerprint::of(&input));
    }

    #[test]
    fn what_a_double_rounds_or_a_map_drops_is_not_the_same_request() {
        for (one, other) in [
            ("[9007199254740992]", "[9007199254740993]"),
            ("[-9007199254740992]", "[-9007199254740993]"),
            (
                r#"{"a":18446744073709551616}"#,
                r#"{"a":18446744073709551617}"#,
            ),
            ("[1e400]", "[1e401]"),
            // Which of the two members counts is the reader's choice.
            (r#"{"a":1,"a":2}"#, r#"{"a":2}"#),
            (r#"[{"a":1,"\u0061":2}]"#, r#"[{"a":2}]"#),
            ("no JSON", "no  JSON"),
        ] {
            assert_ne!(fingerprint(one), fingerprint(other), "{one}");
        }
    }

    #[test]
    fn one_header_names_one_key() {
        let key = IdempotencyKey::of_headers(["\"one\""]).unwrap();
        assert_eq!(key.as_str(), "one");
        let refused = |values: &[&str]| IdempotencyKey::of_headers(values).unwrap_err();
        assert_eq!(refused(&[]), HeaderError::Missing);
        assert_eq!(refused(&["one", "one"]), HeaderError::Repeated);
        let assigned = IdempotencyKey::assigned();
        assert!(assigned.is_assigned() && !key.is_assigned());
        assert_eq!(refused(&[assigned.as_str()]), HeaderError::Assigned);
        let empty = refused(&[""]);
        assert_eq!(empty, HeaderError::Invalid(KeyError::Empty));
        let response = Response::from(empty);
        assert_eq!(response.status(), 400);
        let expected = json!({ "error": {
            "code": "idempotency_key_invalid",
            "message": "The idempotency key is empty.",
        } });
        assert_eq!(response.body(), expected.to_string().as_bytes());
    }

    #[test]
    fn every_outcome_has_its_status_and_says_whether_waiting_helps() {
        let retry_after = Some(Duration::from_millis(2_001));
        let busy = Failure {
            retry_after,
            ..Failure::busy("")
        };
        let [busy, unavailable, unsupported, internal] = [
            busy,
            Failure::unavailable(""),
            Failure::unsupported(""),
            Failure::internal("secret"),
        ]
        .map(Outcome::Failed);
        let leased = Outcome::InUse { retry_after };
        for (outcome, status, code, waits) in [
            (Outcome::Reused, 422, "idempotency_key_reused", None),
            (Outcome::IN_USE, 409, "idempotency_key_in_use", Some("1")),
            (leased, 409, "idempotency_key_in_use", Some("3")),
            (
                Outcome::Unfinished,
                409,
                "idempotency_key_in_use",
                Some("1"),
            ),
            (busy, 409, "resource_busy", Some("3")),
            (unavailable, 503, "service_unavailable", Some("1")),
            (unsupported, 503, "service_unavailable", None),
            (internal, 500, "internal_error", None),
        ] {
            let response = Response::from(outcome);
            assert_eq!(response.status(), status);
            let headers = response.headers();
            let told = headers
                .get("retry-after")
                .map(|value| value.to_str().unwrap());
            assert_eq!(told, waits, "{code}");
            assert_eq!(headers.get("content-type").unwrap(), "application/json");
            let body: Value = serde_json::from_slice(response.body()).unwrap();
            assert_eq!(body.pointer("/error/code").unwrap(), code);
            assert!(!body.to_string().contains("secret"), "{body}");
        }
    }

    fn outcome(headers: &[(&str, &str)], replayed: bool) -> Outcome {
        let mut reply = Reply::json(201, &json!({ "seat": 12 })).unwrap();
        let headers = headers
            .iter()
            .map(|(name, value)| ((*name).into(), (*value).into()));
        reply.headers.extend(headers);
        let record = Record {
            reply,
            request_id: "req_1".to_owned(),
            method: "POST".to_owned(),
            path: "/bookings".to_owned(),
            label: None,
            fingerprint_version: 1,
            fingerprint: Vec::new(),
            created_at: chrono::DateTime::UNIX_EPOCH,
            expires_at: chrono::DateTime::UNIX_EPOCH,
            is_sealed: false,
        };
        Outcome::Stored {
            record: Arc::new(record),
            replayed,
            taken_over: false,
        }
    }

    #[test]
    fn a_replay_is_the_first_answer_with_one_header_more() {
        let cookies = [("set-cookie", "a"), ("set-cookie", "b")];
        let first = Response::from(outcome(&cookies, false));
        let mut replay = Response::from(outcome(&cookies, true));
        assert_eq!(
            (first.status(), first.body()),
            (replay.status(), replay.body())
        );
        assert_eq!(first.headers().get("original-request").unwrap(), "req_1");
        assert_eq!(first.headers().get_all("set-cookie").iter().count(), 2);
        let marked = replay.headers_mut().remove("idempotent-replayed");
        assert_eq!(marked.unwrap(), "true");
        assert_eq!(first.headers(), replay.headers());
    }

    #[test]
    fn a_reply_that_http_can_not_carry_is_a_defect() {
        let response = Response::from(outcome(&[("two words", "")], false));
        assert_eq!(response.status(), 500);
        let no_text = std::collections::BTreeMap::from([((1, 2), 3)]);
        let rejection = Rejection::json(400, &no_text);
        assert!(
            matches!(rejection, Rejection::Failed(failure) if failure.kind == FailureKind::Internal)
        );
    }
}
