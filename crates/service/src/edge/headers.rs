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

/// The preference that [`preferred_wait`] reads.
pub const WAIT: &str = "wait";

/// The preference that [`preferred_retention`] reads.
pub const RETAIN: &str = "retain";

/// `Prefer: wait=N`, in whole seconds; the caller caps it. Other preferences and malformed ones are
/// ignored, as RFC 7240, section 2, wants it; the first `wait` counts.
pub fn preferred_wait(headers: &HeaderMap) -> Option<Duration> {
    seconds(preference(headers, WAIT)?)
}

/// `Prefer: retain=N`, in whole seconds, or with a unit as in `retain=7d`. Otherwise as
/// [`preferred_wait`].
pub fn preferred_retention(headers: &HeaderMap) -> Option<Duration> {
    let text = preference(headers, RETAIN)?;
    let with_unit = |(unit, length): &(char, u32)| {
        let number = seconds(text.strip_suffix(*unit)?)?;
        Some(number.saturating_mul(*length))
    };
    seconds(text).or_else(|| UNITS.iter().find_map(with_unit))
}

/// Units of time, in seconds.
const UNITS: [(char, u32); 4] = [('s', 1), ('m', 60), ('h', 3_600), ('d', 86_400)];

/// The first preference with this name.
fn preference<'h>(headers: &'h HeaderMap, wanted: &str) -> Option<&'h str> {
    let preferences = headers.get_all("prefer");
    let (_, value) = preferences
        .filter_map(|value| value.to_str().ok())
        .flat_map(unquoted)
        .filter_map(|preference| preference.split_once('='))
        .find(|(name, _)| name.trim().eq_ignore_ascii_case(wanted))?;
    Some(value.trim().trim_matches('"'))
}

/// The parts between commas and semicolons outside of quotes, in which a backslash quotes one
/// character.
fn unquoted(text: &str) -> impl Iterator<Item = &str> {
    let (mut quoted, mut escaped) = (false, false);
    text.split(move |character| {
        let is_escaped = escaped;
        escaped = quoted && !is_escaped && character == '\\';
        quoted ^= character == '"' && !is_escaped;
        !quoted && matches!(character, ',' | ';')
    })
}

fn seconds(seconds: &str) -> Option<Duration> {
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
            // A quoted comma ends nothing.
            (r#"note="a, wait=8, \", wait=9", wait=7"#, Some(7)),
            (r#"note="a, wait=8"#, None),
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

    #[test]
    fn a_retention_may_have_a_unit_and_stand_beside_a_wait() {
        for (header, seconds) in [
            ("retain=90", Some(90)),
            ("wait=7, RETAIN = \"90\"; retain=8", Some(90)),
            ("retain=90s", Some(90)),
            ("retain=2m", Some(120)),
            ("retain=2h", Some(7_200)),
            ("retain=7d", Some(604_800)),
            ("retain=d", None),
            ("retain=1.5d", None),
            ("retain=7w", None),
            ("retain=-1", None),
            ("retain", None),
        ] {
            let request = TestRequest::default().insert_header(("prefer", header));
            let retention = preferred_retention(request.to_http_request().headers());
            assert_eq!(retention, seconds.map(Duration::from_secs), "{header}");
        }
    }
}
