//! Forms: one that a page of the console sent, and what a page says of a field that is wrong.
//!
//! Promise: a handler that has one knows that its own pages sent it. Reading is bounded in bytes
//! and time.

use std::collections::HashMap;

use actix_web::{
    FromRequest, HttpRequest,
    dev::Payload,
    http::header::{HOST, HeaderMap, ORIGIN},
    web,
};
use charge_once_strict_params::card_numbers::holds_card_number;
use futures_util::future::LocalBoxFuture;
use maud::{Markup, html};

use super::{Server, error::ConsoleError};

/// What is wrong with a form: the field at fault, and what it must be.
pub(super) type Problem = (&'static str, &'static str);

fn at(problem: Option<Problem>, field: &str) -> Option<&'static str> {
    let (_, message) = problem.filter(|(at_fault, _)| *at_fault == field)?;
    Some(message)
}

/// `aria-invalid` of a field.
pub(super) fn invalid(problem: Option<Problem>, field: &str) -> Option<&'static str> {
    at(problem, field).map(|_| "true")
}

/// `aria-describedby` of a field.
pub(super) fn described_by(problem: Option<Problem>, field: &str) -> Option<String> {
    at(problem, field).map(|_| format!("{field}-problem"))
}

/// What a field must be, to stand below it.
pub(super) fn below(problem: Option<Problem>, field: &str) -> Markup {
    html! {
        @if let Some(message) = at(problem, field) {
            p .problem id={ (field) "-problem" } role="alert" { (message) }
        }
    }
}

/// A field for a text of at most so many bytes, with an example of one.
pub(super) fn text_field(
    problem: Option<Problem>,
    (name, label): (&str, &str),
    value: &str,
    example: &str,
    longest: usize,
) -> Markup {
    html! {
        div {
            label for=(name) { (label) }
            input id=(name) name=(name) value=(value) placeholder=(example) maxlength=(longest)
                spellcheck="false" autocomplete="off"
                aria-invalid=[invalid(problem, name)]
                aria-describedby=[described_by(problem, name)];
            (below(problem, name))
        }
    }
}

/// Longest form, in bytes: an API key, or a key with an amount.
const FORM_MAX_BYTES: usize = 4096;

/// The fields of a form. Of a field that is sent twice, the last one counts.
#[derive(Default)]
pub(super) struct Form(HashMap<String, String>);

impl Form {
    /// What a form holds that was not sent yet.
    pub(super) fn of(fields: &[(&str, &str)]) -> Self {
        let fields = fields.iter();
        Self(
            fields
                .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
                .collect(),
        )
    }

    /// As it was sent, but for what may be the number of a card.
    pub(super) fn without_card_numbers(mut self) -> Self {
        self.0.retain(|_, text| !holds_card_number(text));
        self
    }

    /// What the address of a page fills in.
    pub(super) fn of_query(request: &HttpRequest) -> Self {
        let query = form_urlencoded::parse(request.query_string().as_bytes());
        Self(query.into_owned().collect())
    }

    /// What a field holds, without spaces around it; nothing if it isn't sent.
    pub(super) fn field(&self, name: &str) -> &str {
        self.0.get(name).map_or("", |value| value.trim())
    }
}

impl FromRequest for Form {
    type Error = ConsoleError;
    type Future = LocalBoxFuture<'static, Result<Self, ConsoleError>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let request = request.clone();
        let payload = web::Payload::from_request(&request, payload).into_inner();
        Box::pin(async move {
            if !is_own(request.headers()) {
                return Err(ConsoleError::ForeignForm);
            }
            let unreadable = || ConsoleError::Unreadable("The form can't be read.");
            let server = request
                .app_data::<web::Data<dyn Server>>()
                .ok_or_else(unreadable)?;
            let payload = payload.map_err(|_| unreadable())?;
            let reading = server.read_body(request.headers(), payload, FORM_MAX_BYTES);
            let bytes = reading.await?;
            Ok(Self(form_urlencoded::parse(&bytes).into_owned().collect()))
        })
    }
}

/// Whether a page of this host sent the form. Browsers say with each POST which origin its page
/// has, and no page can change that. Behind a proxy the scheme is unknown here, so only host and
/// port are compared.
fn is_own(headers: &HeaderMap) -> bool {
    let mut origins = headers.get_all(ORIGIN);
    let (Some(origin), None) = (origins.next(), origins.next()) else {
        return false;
    };
    let origin = origin.to_str().ok().and_then(|origin| {
        let rest = origin.strip_prefix("https://");
        rest.or_else(|| origin.strip_prefix("http://"))
    });
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    matches!((origin, host), (Some(origin), Some(host)) if origin.eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::HeaderValue;

    use super::*;

    fn headers(host: &'static str, origins: &[&'static str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::from_static(host));
        for origin in origins {
            headers.append(ORIGIN, HeaderValue::from_static(origin));
        }
        headers
    }

    #[test]
    fn only_a_page_of_the_same_host_and_port_sends_its_own_forms() {
        for origin in ["http://shop.example:8080", "https://SHOP.example:8080"] {
            assert!(is_own(&headers("shop.example:8080", &[origin])), "{origin}");
        }
        for origins in [
            &[][..],
            &["null"],
            &["http://shop.example"],
            &["http://evil.example:8080"],
            &["http://shop.example:8080.evil.example"],
            &["http://evil.example/shop.example:8080"],
            &["shop.example:8080"],
            &["http://shop.example:8080", "http://shop.example:8080"],
        ] {
            let headers = headers("shop.example:8080", origins);
            assert!(!is_own(&headers), "{origins:?}");
        }
    }
}
