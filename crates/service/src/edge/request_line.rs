//! The first line of a request: its method, and its path, decoded once.

use std::borrow::Cow;

use actix_web::{HttpRequest, http::Method};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// Everything but the unreserved characters of RFC 3986, section 2.3.
const IN_A_SEGMENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// A method as it may be logged and counted: `unknown`, if HTTP doesn't define it. It may be any
/// word, of any length: a card number too.
pub fn known_method(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        Method::CONNECT => "CONNECT",
        Method::TRACE => "TRACE",
        _ => "unknown",
    }
}

/// The path as the router understood it: `/charge%73` is `/charges`.
pub fn routed_path(request: &HttpRequest) -> &str {
    request.match_info().as_str()
}

/// The path without any percent-encoding. `None`: it is no text, or holds a NUL, which PostgreSQL
/// can't store. The router replaces all bytes that are not UTF-8 by the same character, so two
/// paths would become one.
pub fn decoded_path(request: &HttpRequest) -> Option<Cow<'_, str>> {
    let path = percent_decode_str(request.uri().path());
    let path = path.decode_utf8().ok()?;
    (!path.contains('\0')).then_some(path)
}

/// What the path ends with, for names that may hold any character.
///
/// It is decoded once, from the path as it was sent. The router's own text is decoded but for `%`,
/// `/` and `+`: decoding that would decode some characters twice.
pub fn last_segment(request: &HttpRequest) -> Vec<u8> {
    segment_from_the_end(request, 0)
}

/// As [`last_segment`], of the segment that has so many behind it.
pub fn segment_from_the_end(request: &HttpRequest, behind: usize) -> Vec<u8> {
    let segment = request.uri().path().rsplit('/').nth(behind);
    percent_decode_str(segment.unwrap_or_default()).collect()
}

/// A name as a segment of a path, which [`last_segment`] decodes.
pub fn encode_segment(name: &str) -> String {
    utf8_percent_encode(name, IN_A_SEGMENT).to_string()
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    #[test]
    fn a_name_in_a_path_may_hold_any_character() {
        for name in [
            "order-1042",
            "a/b",
            "100%25",
            "a+b c",
            "kaffee für zwei",
            "?#",
        ] {
            let path = format!("/names/{}", encode_segment(name));
            let request = TestRequest::with_uri(&path).to_http_request();
            assert_eq!(last_segment(&request), name.as_bytes(), "{path}");
        }
    }

    #[test]
    fn a_path_is_text_without_nul() {
        for (path, expected) in [
            ("/charge%73/a%2Fb", Some("/charges/a/b")),
            ("/a%2500", Some("/a%00")),
            ("/a%00", None),
            ("/a%FF", None),
        ] {
            let request = TestRequest::with_uri(path).to_http_request();
            assert_eq!(decoded_path(&request).as_deref(), expected, "{path}");
        }
    }
}
