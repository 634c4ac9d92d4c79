//! The search: keys, ids, clients' names of orders, and e-mail addresses, compared whole.

use actix_web::{HttpRequest, http::StatusCode};
use maud::html;

use super::{
    Asked, Found, Page,
    layout::{self, encoded, key_path},
    noun::Noun,
    query_value,
    requests::{SOUGHT_MUST_BE, is_sought},
    visitor::Visitor,
};

/// Leads to the only thing with a name, lists several, or says what was searched.
pub(super) async fn show(server: Asked, visitor: Visitor, request: HttpRequest) -> Page {
    let name = query_value(&request, "q").unwrap_or_default();
    let name = name.trim();
    let is_sought = is_sought(name);
    let found = match is_sought && !name.is_empty() {
        true => server.look_up(visitor.account, name).await?,
        false => Vec::new(),
    };
    if let [one] = &*found {
        return Ok(layout::redirect(&address(one)));
    }
    let body = html! {
        h1 { "Search" }
        @if !is_sought {
            p .problem role="alert" { (SOUGHT_MUST_BE) }
        } @else if found.is_empty() && !name.is_empty() {
            p .says { "This account has nothing that is called " code { (name) } "." }
            p {
                a href=(layout::address("/console/requests", &[("key", name)])) { "Requests whose key has it as a part" }
            }
        }
        @if found.is_empty() {
            p {
                "A search compares whole names: keys that are recorded, in flight or in the log; ids of objects, \
                 events, deliveries and requests in the log; " code { "client_order_id" } " of orders; and e-mail \
                 addresses of customers."
            }
        } @else {
            p { "Several things are called " code { (name) } ", at most ten of them customers:" }
            ul { @for one in &found { li { (what(one)) ": " a .mono href=(address(one)) { (text(one)) } } } }
        }
    };
    let status = match is_sought {
        true => StatusCode::OK,
        false => StatusCode::BAD_REQUEST,
    };
    Ok(layout::page_with_status(
        &visitor, status, "Search", None, &body,
    ))
}

fn address(found: &Found) -> String {
    match found {
        Found::Key(key) => key_path(key),
        Found::Object(kind, id) => format!("/console/{}/{}", Noun::of(*kind).path, encoded(id)),
        Found::Delivery(id) => format!("/console/deliveries/{}", encoded(id)),
        Found::Request { before } => {
            format!("/console/requests?outcome=any&before={before}")
        }
    }
}

fn what(found: &Found) -> &'static str {
    match found {
        Found::Key(_) => "Key",
        Found::Object(kind, _) => Noun::of(*kind).one,
        Found::Delivery(_) => "Delivery",
        Found::Request { .. } => "Request",
    }
}

fn text(found: &Found) -> &str {
    match found {
        Found::Key(name) | Found::Object(_, name) | Found::Delivery(name) => name,
        Found::Request { .. } => "without a key",
    }
}
