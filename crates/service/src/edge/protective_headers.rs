//! The headers that limit what browsers and caches do with a reply.

use actix_web::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderMap, HeaderName, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};

/// For replies that set no policy: a reply of the API that a browser opens loads and runs nothing,
/// and no page can put it into a frame. `default-src` doesn't cover the other three.
const NOTHING: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

/// Replies of an API hold what is private. Files that anyone may read say that they may be kept.
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

const NO_SNIFF: HeaderValue = HeaderValue::from_static("nosniff");

/// Paths hold ids.
const NO_REFERRER: HeaderValue = HeaderValue::from_static("no-referrer");

/// Adds the protective headers to a reply: browsers guess no type, load and run nothing, and tell
/// no other site of the path, and caches keep nothing. A policy, a referrer rule or a cache rule
/// that the handler set stays. Call it in the outermost middleware, so that no error lacks them.
pub fn protect(headers: &mut HeaderMap) {
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
