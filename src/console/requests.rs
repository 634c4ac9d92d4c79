//! The requests of an account, the newest first.

use std::collections::{HashMap, HashSet};

use actix_web::{HttpRequest, HttpResponse, web};
use maud::{Markup, html};
use uuid::Uuid;

use super::{
    error::ConsoleError,
    layout::{self, Section, key_path, state, table, time},
    visitor::Visitor,
};
use crate::{
    domain::{ids::RequestId, logged_request::LoggedRequest},
    http::{App, request::query_value},
    store,
};

/// Requests on a page.
const PAGE_ROWS: usize = 50;

/// A page of requests, before the one that the address names.
pub(super) async fn show(
    app: web::Data<App>,
    visitor: Visitor,
    request: HttpRequest,
) -> Result<HttpResponse, ConsoleError> {
    let before = before(&request)?;
    let rows = rows(&app, &visitor, before).await?;
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
    app: web::Data<App>,
    visitor: Visitor,
) -> Result<HttpResponse, ConsoleError> {
    Ok(layout::fragment(rows(&app, &visitor, None).await?))
}

fn before(request: &HttpRequest) -> Result<Option<RequestId>, ConsoleError> {
    match query_value(request, "before") {
        None => Ok(None),
        Some(id) => RequestId::parse(&id)
            .map(Some)
            .ok_or(ConsoleError::Unreadable("No request has such an id.")),
    }
}

async fn rows(
    app: &App,
    visitor: &Visitor,
    before: Option<RequestId>,
) -> Result<Markup, ConsoleError> {
    let account = visitor.account;
    let below = before.map_or(Uuid::max(), |before| before.0);
    let (requests, replays) = app
        .snapshot(account, move |connection| {
            Box::pin(async move {
                let limit = i64::try_from(PAGE_ROWS + 1).unwrap_or(i64::MAX);
                let log = store::request_log::list(connection, account, below, limit).await?;
                let keys = log.iter().filter_map(|one| one.idempotency_key.clone());
                let keys: HashSet<_> = keys.collect();
                let keys: Vec<_> = keys.into_iter().collect();
                let replays = store::request_log::count_replays(connection, account, &keys).await?;
                Ok((log, replays))
            })
        })
        .await?;
    if requests.is_empty() {
        return Ok(html! {
            p { "No request yet. Send one, and it appears here." }
        });
    }
    let older = requests
        .get(PAGE_ROWS..)
        .is_some_and(|more| !more.is_empty());
    let shown = requests.get(..PAGE_ROWS).unwrap_or(&requests);
    let rows = html! { @for request in shown { (row(request, &replays)) } };
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

fn row(request: &LoggedRequest, replays: &HashMap<String, i64>) -> Markup {
    let key = request.idempotency_key.as_deref();
    html! {
        tr {
            td { (time(request.came_at())) }
            td { (request.method) }
            td .wide { (request.path.as_deref().unwrap_or(&request.route)) }
            td .wide { @if let Some(key) = key { a href=(key_path(key)) { (key) } } }
            td { @if let Some(status) = request.status { (status) } }
            td { (state(request.outcome.as_str())) }
            td { @if let Some(key) = key { (replay_count(replays.get(key).copied())) } }
            td .number { (milliseconds(request)) }
        }
    }
}

/// How long a request took.
pub(super) fn milliseconds(request: &LoggedRequest) -> String {
    let micros = request.duration.as_micros();
    format!("{}.{}", micros / 1000, micros % 1000 / 100)
}

/// Replays beyond the number that is counted are not counted.
pub(super) fn replay_count(replays: Option<i64>) -> String {
    let replays = replays.unwrap_or(0);
    let more = if replays >= store::request_log::COUNTED_MAX {
        "+"
    } else {
        ""
    };
    format!("{replays}{more}")
}
