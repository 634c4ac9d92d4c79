//! The requests of an account, the newest first.

use actix_web::{HttpRequest, HttpResponse, web};
use maud::{Markup, html};

use super::{
    Logged, Server,
    error::ConsoleError,
    layout::{self, Section, key_path, state, table, time},
    query_value,
    visitor::Visitor,
};

/// Requests on a page.
const PAGE_ROWS: usize = 50;

/// A page of requests, before the one that the address names.
pub(super) async fn show(
    server: web::Data<dyn Server>,
    visitor: Visitor,
    request: HttpRequest,
) -> Result<HttpResponse, ConsoleError> {
    let before = query_value(&request, "before");
    let rows = rows(&server, &visitor, before.as_deref()).await?;
    let body = html! {
        h1 { "Requests" }
        p {
            "Every authenticated request of this account, the newest first. Choose a key to see all that \
             happened under it. The log may miss requests, because no request waits for it."
        }
        @if before.is_none() {
            div #live data-live="/console/live" { (rows) }
        } @else {
            p { a href="/console" { "Back to the newest" } }
            (rows)
        }
    };
    Ok(layout::page("Requests", Some(Section::Requests), &body))
}

/// The first page's rows, for the script that keeps them current.
pub(super) async fn live(
    server: web::Data<dyn Server>,
    visitor: Visitor,
) -> Result<HttpResponse, ConsoleError> {
    Ok(layout::fragment(rows(&server, &visitor, None).await?))
}

async fn rows(
    server: &web::Data<dyn Server>,
    visitor: &Visitor,
    before: Option<&str>,
) -> Result<Markup, ConsoleError> {
    let requests = server.requests(visitor.account, before, PAGE_ROWS + 1);
    let requests = requests
        .await?
        .ok_or(ConsoleError::Unreadable("No request has such an id."))?;
    if requests.is_empty() {
        return Ok(html! {
            p { "No request yet. Send one, and it appears here." }
        });
    }
    let older = requests
        .get(PAGE_ROWS..)
        .is_some_and(|more| !more.is_empty());
    let shown = requests.get(..PAGE_ROWS).unwrap_or(&requests);
    let rows = html! { @for request in shown { (row(request)) } };
    let columns = [
        "Time (UTC)",
        "Method",
        "Path",
        "Key",
        "Status",
        "Outcome",
        "Replays",
        "Milliseconds",
    ];
    Ok(html! {
        (table("Requests", &columns, &rows))
        @if let (true, Some(last)) = (older, shown.last()) {
            p { a href={ "/console?before=" (last.id) } { "Older requests" } }
        }
    })
}

fn row(request: &Logged) -> Markup {
    let key = request.idempotency_key.as_deref();
    html! {
        tr {
            td { (time(request.came_at)) }
            td { (request.method) }
            td .wide { (request.path) }
            td .wide { @if let Some(key) = key { a href=(key_path(key)) { (key) } } }
            td { @if let Some(status) = request.status { (status) } }
            td { (state(request.outcome)) }
            td { @if key.is_some() { (request.replays) } }
            td .number { (milliseconds(request)) }
        }
    }
}

/// How long a request took.
pub(super) fn milliseconds(request: &Logged) -> String {
    let micros = request.duration.as_micros();
    format!("{}.{}", micros / 1000, micros % 1000 / 100)
}
