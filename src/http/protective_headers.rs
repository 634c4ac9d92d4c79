//! The headers that limit what browsers and caches do with a reply.
//!
//! Promise: every reply that the service renders has all of them, errors and panics included. They
//! are added after a stored reply is rendered, so no record holds them, and the first reply and its
//! replays have the same.

use actix_web::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderMap, HeaderName, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};

/// For replies that set no policy: a reply of the API that a browser opens loads and runs nothing,
/// and no page can put it into a frame. `default-src` doesn't cover the other three.
const NOTHING: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

/// Replies hold payment data, and the creation of a webhook endpoint its secret. Files that are the
/// same for everyone say that they may be kept.
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

const NO_SNIFF: HeaderValue = HeaderValue::from_static("nosniff");

/// Paths hold ids and idempotency keys.
const NO_REFERRER: HeaderValue = HeaderValue::from_static("no-referrer");

/// Adds them. A policy, a referrer rule or a cache rule that the handler set stays.
pub(super) fn add(headers: &mut HeaderMap) {
    headers.insert(X_CONTENT_TYPE_OPTIONS, NO_SNIFF);
    add_default(headers, REFERRER_POLICY, NO_REFERRER);
    add_default(headers, CACHE_CONTROL, NO_STORE);
    add_default(headers, CONTENT_SECURITY_POLICY, NOTHING);
}

fn add_default(headers: &mut HeaderMap, name: HeaderName, value: HeaderValue) {
    if !headers.contains_key(&name) {
        headers.insert(name, value);
    }
}
