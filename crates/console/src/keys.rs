//! One key's story: its first request, what is stored, and what came of every request with it.

use actix_web::{HttpRequest, HttpResponse, web};
use charge_once_idempotency::{IdempotencyKey, Inspected, KnownRequest, Record, Reply};
use maud::{Markup, html};
use percent_encoding::percent_decode_str;

use super::{
    Happened, Logged, Server, Story,
    error::ConsoleError,
    layout::{self, resource, state, table, time},
    masked,
    objects::happened_table,
    requests::milliseconds,
    visitor::Visitor,
};

/// Requests with one key that are shown, the last ones.
const REQUESTS_MAX: usize = 200;

/// Digits of the fingerprint that are shown: enough to tell two requests apart.
const FINGERPRINT_DIGITS: usize = 12;

/// The story.
pub(super) async fn show(
    server: web::Data<dyn Server>,
    visitor: Visitor,
    request: HttpRequest,
) -> Result<HttpResponse, ConsoleError> {
    // As it was sent: the router's own text is decoded but for `%`, `/` and `+`.
    let segment = request.uri().path().rsplit('/').next().unwrap_or_default();
    let key: Vec<u8> = percent_decode_str(segment).collect();
    let key = IdempotencyKey::parse(&key).map_err(|_| ConsoleError::Missing)?;
    let text = key.as_str().to_owned();
    let Story {
        found,
        requests,
        events,
    } = server.story(visitor.account, key, REQUESTS_MAX).await?;
    if requests.is_empty() && matches!(found, Inspected::Nothing) {
        return Err(ConsoleError::Missing);
    }
    let body = html! {
        h1 { "The story of " code { (text) } }
        p .says { (summary(&found, &requests)) }
        (what_is_stored(&found))
        h2 { "Requests with this key" }
        @if requests.is_empty() {
            p { "None is in the log. It keeps requests for a day unless it was told otherwise." }
        } @else {
            (table("Requests with this key", &REQUEST_COLUMNS, &html! {
                @for request in &requests { (row(request)) }
            }))
        }
        h2 { "Events" }
        (told(&events))
        @if let Inspected::Completed(record) = &found { (stored_reply(record)) }
    };
    Ok(layout::page("The story of a key", None, &body))
}

const REQUEST_COLUMNS: [&str; 6] = [
    "Time (UTC)",
    "Request",
    "Path",
    "Status",
    "Outcome",
    "Milliseconds",
];

fn summary(found: &Inspected, requests: &[Logged]) -> String {
    let count = |outcome| requests.iter().filter(|one| one.outcome == outcome).count();
    let (replays, reuses) = (count("replayed"), count("reused"));
    let tail = format!(
        "{} got the stored reply again. Refused as reuses of the key: {reuses}.",
        many(replays, "retry", "retries"),
    );
    match found {
        Inspected::Completed(record) => format!("{} {tail}", ended(&record.reply)),
        Inspected::InFlight(_) => {
            "In flight: the first request has not ended. A retry with this key is safe.".to_owned()
        }
        Inspected::Nothing => {
            "No outcome is stored now. That does not mean that a new key is safe: retry with this one."
                .to_owned()
        }
    }
}

/// What the stored reply says of the execution.
fn ended(reply: &Reply) -> &'static str {
    match (reply.status, &reply.resource_id) {
        (200..300, _) => "Executed once.",
        (402, Some(_)) => "Executed once, and declined: nothing was charged. The answer is stored.",
        // A checkout that could not be completed.
        (_, Some(_)) => {
            "Executed once, and refused at the end: what was charged was given back. The answer is stored."
        }
        (_, None) => "Refused: nothing was executed, and nothing charged. The answer is stored.",
    }
}

fn many(count: usize, one: &str, more: &str) -> String {
    let noun = if count == 1 { one } else { more };
    format!("{count} {noun}")
}

fn what_is_stored(found: &Inspected) -> Markup {
    match found {
        Inspected::Completed(record) => completed(record),
        Inspected::InFlight(Some(request)) => in_flight(request),
        Inspected::InFlight(None) => html! {
            p { "Another process works on it. Nothing of it is committed yet." }
        },
        Inspected::Nothing => html! {},
    }
}

fn completed(record: &Record) -> Markup {
    html! {
        dl {
            dt { "State" } dd { (state("completed")) }
            dt { "First request" } dd { (record.method) " " (record.path) ", " code { (record.request_id) } }
            dt { "First use (UTC)" } dd { (time(record.created_at)) }
            dt { "Expires (UTC)" } dd { (time(record.expires_at)) }
            dt { "Fingerprint" } dd { (fingerprint(&record.fingerprint)) }
            @if let Some(id) = &record.reply.resource_id { dt { "About" } dd { (resource(id)) } }
            @if let Some(name) = &record.label { dt { "Workflow" } dd { (name) } }
        }
    }
}

fn stored_reply(record: &Record) -> Markup {
    let reply = &record.reply;
    html! {
        h2 { "Stored reply" }
        p { "Every retry gets this, to the byte. Values of " code { "secret" } ", " code { "client_secret" } " and " code { "api_key" } " are masked here only." }
        pre role="group" tabindex="0" aria-label="Headers of the stored reply" {
            "HTTP " (reply.status)
            @for (name, value) in &reply.headers { "\n" (name) ": " (value) }
        }
        @match masked::pretty(&reply.body) {
            Some(body) => { pre role="group" tabindex="0" aria-label="Body of the stored reply" { (body) } }
            None => { p { (reply.body.len()) " bytes that are not JSON, and not shown." } }
        }
    }
}

fn in_flight(request: &KnownRequest) -> Markup {
    html! {
        dl {
            dt { "State" } dd { (state("pending")) }
            dt { "First request" } dd { (request.method) " " (request.path) ", " code { (request.request_id) } }
            @if let Some(at) = request.created_at { dt { "First use (UTC)" } dd { (time(at)) } }
            dt { "Fingerprint" } dd { (fingerprint(&request.fingerprint)) }
            @if let Some(id) = &request.resource_id { dt { "About" } dd { (resource(id)) } }
            @if let Some(name) = &request.label { dt { "Workflow" } dd { (name) } }
        }
        p { a href="/console/in-flight" { "How long, and why" } }
    }
}

fn fingerprint(bytes: &[u8]) -> Markup {
    let digits = hex::encode(bytes);
    html! { code { (digits.get(..FINGERPRINT_DIGITS).unwrap_or_default()) "…" } }
}

fn row(request: &Logged) -> Markup {
    html! {
        tr {
            td { (time(request.came_at)) }
            td { code { (request.id) } }
            td .wide { (request.method) " " (request.path) }
            td { @if let Some(status) = request.status { (status) } }
            td { (state(request.outcome)) }
            td .number { (milliseconds(request)) }
        }
    }
}

fn told(events: &[Happened]) -> Markup {
    html! {
        @if events.is_empty() {
            p { "None among the thousand events that followed the first request." }
        } @else {
            (happened_table(events))
        }
    }
}
