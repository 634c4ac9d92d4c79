//! What a client would rather have, by the headers `Prefer` and `Accept`, and the headers that
//! limit what browsers and caches do with a reply.

use std::time::Duration;

use actix_web::http::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderMap, HeaderName, HeaderValue,
    REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
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

/// `Prefer: wait=N`, in whole seconds; the caller caps it. Other preferences and malformed ones are
/// ignored, as RFC 7240, section 2, wants it; the first `wait` counts.
pub fn preferred_wait(headers: &HeaderMap) -> Option<Duration> {
    let preferences = headers.get_all("prefer");
    let (_, seconds) = preferences
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split([',', ';']))
        .filter_map(|preference| preference.split_once('='))
        .find(|(name, _)| name.trim().eq_ignore_ascii_case("wait"))?;
    let seconds = seconds.trim().trim_matches('"');
    let digits = !seconds.is_empty() && seconds.bytes().all(|byte| byte.is_ascii_digit());
    // More digits than fit are a long wait.
    digits.then(|| Duration::from_secs(seconds.parse().unwrap_or(u64::MAX)))
}

/// Whether a request names HTML among the types that it accepts, which browsers do and programs
/// don't.
pub fn accepts_html(headers: &HeaderMap) -> bool {
    headers.get_all(ACCEPT).any(|types| {
        let types = types.to_str();
        types.is_ok_and(|types| types.contains("text/html"))
    })
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    #[test]
    fn the_first_wait_counts_and_nothing_that_is_malformed() {
        for (header, seconds) in [
            ("wait=7", Some(7)),
            ("respond-async, WAIT = \"7\"; wait=8", Some(7)),
            ("wait=99999999999999999999", Some(u64::MAX)),
            ("wait", None),
            ("wait=", None),
            ("wait=-1", None),
            ("wait=1.5", None),
        ] {
            let request = TestRequest::default().insert_header(("prefer", header));
            let wait = preferred_wait(request.to_http_request().headers());
            assert_eq!(wait, seconds.map(Duration::from_secs), "{header}");
        }
    }
}
