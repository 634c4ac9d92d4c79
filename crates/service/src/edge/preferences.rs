//! What a client would rather have: the headers `Prefer` and `Accept`.

use std::time::Duration;

use actix_web::http::header::{ACCEPT, HeaderMap};

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
