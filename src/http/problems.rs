//! The form of an error: the envelope, or the problem that a client asks for by `Accept`.
//!
//! Promise: both forms of an outcome are made of the same bytes, whether it is stored or not. Below
//! `/v1` an error is always Stripe's envelope.

use actix_web::{
    HttpResponse, ResponseError,
    body::{BoxBody, to_bytes},
    dev::ServiceRequest,
    http::header::{ACCEPT, CONTENT_TYPE, HeaderValue, VARY},
};

use super::error::HttpError;
use crate::{
    idempotency::FailureKind,
    wire::{dialect::Dialect, problem},
};

const ENVELOPE: &str = "application/json";

/// The media type of a problem.
pub(super) const PROBLEM: &str = "application/problem+json";

/// What a request says of the form of errors. `None`: it has no choice.
pub(super) struct Accepted(Option<Vec<HeaderValue>>);

impl Accepted {
    /// Noted before the request moves on. It is read only for an error.
    pub(super) fn of(request: &ServiceRequest) -> Self {
        // As the router reads the path: `/%761` is `/v1`.
        let path = request.match_info().as_str();
        let may_choose = Dialect::of_path(path) == Dialect::Ietf;
        Self(may_choose.then(|| request.headers().get_all(ACCEPT).cloned().collect()))
    }

    /// A reply, as a problem if it is an error and the client prefers one.
    pub(super) async fn form(&self, mut response: HttpResponse) -> HttpResponse {
        let is_error = response.status().as_u16() >= 400;
        let (Some(accepted), true) = (&self.0, is_error) else {
            return response;
        };
        let kind = response.headers().get(CONTENT_TYPE);
        if kind.is_none_or(|kind| kind.as_bytes() != ENVELOPE.as_bytes()) {
            return response;
        }
        let varies = HeaderValue::from_static("accept");
        response.headers_mut().append(VARY, varies);
        if quality(accepted, PROBLEM) <= quality(accepted, ENVELOPE) {
            return response;
        }
        let (mut response, body) = response.into_parts();
        // It is whole, and layers may have wrapped it.
        let Ok(envelope) = to_bytes(body).await else {
            return HttpError::failed(FailureKind::Internal).error_response();
        };
        match problem::of_envelope(&envelope, response.status().as_u16()) {
            Some(problem) => {
                let kind = HeaderValue::from_static(PROBLEM);
                response.headers_mut().insert(CONTENT_TYPE, kind);
                response.set_body(BoxBody::new(problem))
            }
            None => response.set_body(BoxBody::new(envelope)),
        }
    }
}

/// How much a media type is wanted, in thousandths (RFC 9110, section 12.5.1): what the most
/// specific range says that holds it. A range that can't be read says nothing.
fn quality(accepted: &[HeaderValue], kind: &str) -> u16 {
    let ranges = accepted.iter().filter_map(|value| value.to_str().ok());
    let ranges = ranges.flat_map(|value| value.split(','));
    let said = ranges.filter_map(|range| {
        let mut parts = range.split(';').map(str::trim);
        let range = parts.next()?;
        let specific = match range {
            "*/*" => 0,
            "application/*" => 1,
            _ if range.eq_ignore_ascii_case(kind) => 2,
            _ => return None,
        };
        let weight = parts.find_map(|part| {
            let (name, value) = part.split_once('=')?;
            name.eq_ignore_ascii_case("q").then_some(value)
        });
        Some((specific, weight.map_or(Some(1000), thousandths)?))
    });
    said.max().map_or(0, |(_, quality)| quality)
}

/// `0.5` is 500. A weight is 0 to 1, with three digits at most.
fn thousandths(weight: &str) -> Option<u16> {
    let (whole, digits) = weight.split_once('.').unwrap_or((weight, ""));
    let is_weight = ["0", "1"].contains(&whole)
        && digits.len() <= 3
        && digits.bytes().all(|digit| digit.is_ascii_digit());
    let all: u16 = format!("{whole}{digits:0<3}").parse().ok()?;
    (is_weight && all <= 1000).then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_preferred_only_where_it_is_wanted_more() {
        for (accept, is_preferred) in [
            ("", false),
            ("*/*", false),
            ("application/json", false),
            ("application/problem+json", true),
            ("Application/Problem+JSON; charset=utf-8", true),
            ("text/html, application/problem+json;q=0.001", true),
            ("application/problem+json;q=0", false),
            ("application/problem+json, application/json", false),
            ("application/json;q=0.9, application/problem+json", true),
            ("application/json, application/problem+json;q=0.9", false),
            ("application/problem+json;q=0.5, */*;q=0.4", true),
            ("application/problem+json;q=0.5, */*", false),
            (
                "application/problem+json;q=0.1, application/*;q=0.2, */*",
                false,
            ),
            ("application/json;q=0.1, application/*", true),
            ("application/json ; Q=0, */*", true),
            ("text/html", false),
            // What can't be read says nothing.
            ("application/problem+json;q=2", false),
            ("application/problem+json;q=1.001", false),
            ("application/problem+json;q=0.1234", false),
            ("application/problem+json;q=", false),
            ("application/problem+json;q=+1", false),
            ("application/problem+json;q=½", false),
            ("problem+json", false),
            (";;,,q=1,/", false),
            (
                ",,application/problem+json;q=.5,application/problem+json;q=1.",
                true,
            ),
        ] {
            let Ok(value) = HeaderValue::from_bytes(accept.as_bytes()) else {
                panic!("no header: {accept}");
            };
            let accepted = [value];
            let wanted = quality(&accepted, PROBLEM) > quality(&accepted, ENVELOPE);
            assert_eq!(wanted, is_preferred, "{accept}");
        }
    }
}
