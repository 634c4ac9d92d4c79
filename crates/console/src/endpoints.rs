//! Forms that make, pause and test webhook endpoints, and that retry failed deliveries.
//!
//! Promise: the API makes and changes them, asked over loopback with the session's own API key and
//! with the key of the form, so a form that is sent twice makes one. No page shows a secret.

use actix_web::{HttpRequest, HttpResponse, http::StatusCode, web};
use chrono::{DateTime, Datelike as _, NaiveDateTime, Utc};
use maud::{Markup, html};
use reqwest::Method;
use serde_json::{Value, json};

use super::{
    Asked, Console, Page, Refusal, WebhookEndpoint,
    deliveries::rate,
    error::ConsoleError,
    exchanges::{command, post_with_curl},
    form::{Form, text_field},
    layout::{self, Section, resource},
    masked::Shown,
    playground::{fresh_key, sent_key},
    query_value,
    visitor::Visitor,
};

const ENDPOINTS: &str = "/webhook_endpoints";

/// Deliveries that one form makes due: a minute of a server's work.
const RETRIED_MAX: usize = 1000;

/// Objects that a test makes, by the event that tells of it. None of them moves money.
const TESTS: [(&str, &str); 3] = [
    ("customer.created", "/customers"),
    ("setup_intent.created", "/setup_intents"),
    ("payment_intent.created", "/payment_intents"),
];

const NO_KEY: &str = "The form has no key. Open its page again.";

/// Faults of deliveries, and how each makes one arrive.
pub(super) const FAULTS: [(&str, &str); 4] = [
    ("webhook_twice", "twice"),
    ("webhook_late", "late"),
    ("webhook_out_of_order", "out of order"),
    ("webhook_lost", "never"),
];

/// The account's endpoint with this id.
pub(super) async fn find(
    server: &Asked,
    visitor: &Visitor,
    id: &str,
) -> Result<WebhookEndpoint, ConsoleError> {
    let all = server.webhook_endpoints(visitor.account).await?;
    let found = all.into_iter().find(|one| one.id == id);
    found.ok_or(ConsoleError::Missing)
}

/// The form that makes an endpoint.
pub(super) async fn new(visitor: Visitor) -> HttpResponse {
    let page = (StatusCode::OK, fields(&Form::default(), &fresh_key(), None));
    make_page(&visitor, page)
}

/// Makes the endpoint that a form describes.
pub(super) async fn make(console: web::Data<Console>, visitor: Visitor, form: Form) -> Page {
    let events = form.field("events").split([',', ' ', '\r', '\n']);
    let events: Vec<_> = events.filter(|name| !name.is_empty()).collect();
    let mut body = json!({"url": form.field("url"), "enabled_events": events});
    let about = form.field("description");
    if let (Value::Object(members), false) = (&mut body, about.is_empty()) {
        members.insert("description".to_owned(), about.into());
    }
    let key = sent_key(&form, NO_KEY)?;
    let (status, reply) = ask(&console, &visitor, ENDPOINTS, &key, &body).await?;
    let shown = match reply.text("id").filter(|_| status.is_success()) {
        Some(id) => (StatusCode::OK, made(&console, id, &key, &body)),
        None => {
            // A refusal that stays uses the key up. After any other answer, the first request may
            // have made the endpoint.
            let may_change = matches!(status.as_u16(), 408 | 409 | 429 | 500..);
            let next = if may_change { key } else { fresh_key() };
            let again = fields(&form, &next, Some(reply.error_message()));
            (StatusCode::BAD_REQUEST, again)
        }
    };
    Ok(make_page(&visitor, shown))
}

fn make_page(visitor: &Visitor, (status, shown): (StatusCode, Markup)) -> HttpResponse {
    let title = "New webhook endpoint";
    let body = html! { h1 { (title) } (shown) };
    layout::page_with_status(visitor, status, title, Some(Section::Webhooks), &body)
}

/// The secret is in the stored reply, which a retry with the key gets.
fn made(console: &Console, id: &str, key: &str, body: &Value) -> Markup {
    let url = console.playground.public(ENDPOINTS);
    html! {
        p .says .good role="status" { "It is made: " (resource(id)) }
        h2 { "Its secret" }
        p {
            "No page shows it. This is the same request with the same key: it makes nothing, and its reply \
             has the secret."
        }
        (command(&post_with_curl(&url, key, body, "")))
    }
}

fn fields(form: &Form, key: &str, problem: Option<&str>) -> Markup {
    let text =
        |name, label, value: &str, example| text_field(None, (name, label), value, example, 2048);
    let events = match form.field("events") {
        "" => "*",
        events => events,
    };
    html! {
        form method="post" action="/console/webhook_endpoints/new" data-progress="Making…" {
            input type="hidden" name="key" value=(key);
            div .fields {
                (text("url", "URL", form.field("url"), "where events are sent"))
                (text("events", "Events, or * for all", events, "charge.succeeded, charge.refunded"))
                (text("description", "Description", form.field("description"), ""))
            }
            @if let Some(problem) = problem { p .problem role="alert" { (problem) } }
            div .actions { button type="submit" { "Make it" } }
        }
    }
}

/// Pauses an endpoint, or ends its pause.
pub(super) async fn pause(
    console: web::Data<Console>,
    server: Asked,
    visitor: Visitor,
    request: HttpRequest,
    form: Form,
) -> Page {
    let endpoint = named(&server, &visitor, &request).await?;
    let disabled = match form.field("disabled") {
        "true" => true,
        "false" => false,
        _ => return Err(ConsoleError::Unreadable("It is paused, or it is not.")),
    };
    let path = format!("{ENDPOINTS}/{}", endpoint.id);
    let body = json!({"disabled": disabled});
    match ask(&console, &visitor, &path, &fresh_key(), &body).await? {
        (status, _) if status.is_success() => Ok(back(&endpoint, "")),
        (StatusCode::NOT_FOUND, _) => Err(ConsoleError::Missing),
        (status, _) => Err(Refusal(status).into()),
    }
}

/// Makes an event of a type that the endpoint enables.
pub(super) async fn test(
    console: web::Data<Console>,
    server: Asked,
    visitor: Visitor,
    request: HttpRequest,
    form: Form,
) -> Page {
    let endpoint = named(&server, &visitor, &request).await?;
    let key = sent_key(&form, NO_KEY)?;
    let (event, path) = tested(&endpoint).ok_or(ConsoleError::Unreadable(
        "The console makes no event that this endpoint enables.",
    ))?;
    let mut body = json!({"description": "Made to test a webhook endpoint"});
    if let ("payment_intent.created", Value::Object(members)) = (event, &mut body) {
        members.extend([
            ("amount".to_owned(), 100.into()),
            ("currency".to_owned(), "usd".into()),
        ]);
    }
    match ask(&console, &visitor, path, &key, &body).await? {
        (status, _) if status.is_success() => Ok(back(&endpoint, "?did=tested")),
        (status, _) => Err(Refusal(status).into()),
    }
}

/// Makes failed deliveries due that were made in the form's range of time.
pub(super) async fn retry(
    server: Asked,
    visitor: Visitor,
    request: HttpRequest,
    form: Form,
) -> Page {
    let endpoint = named(&server, &visitor, &request).await?;
    let made = moment(form.field("from"))?..moment(form.field("to"))?;
    if endpoint.status == "disabled" {
        return Ok(back(&endpoint, "?did=nothing"));
    }
    let retrying = server.retry_failed(visitor.account, &endpoint.id, made, RETRIED_MAX);
    let due = retrying.await?.ok_or(ConsoleError::Missing)?;
    Ok(back(&endpoint, &format!("?due={due}")))
}

/// The endpoint that the path names.
async fn named(
    server: &Asked,
    visitor: &Visitor,
    request: &HttpRequest,
) -> Result<WebhookEndpoint, ConsoleError> {
    find(server, visitor, request.match_info().query("id")).await
}

fn back(endpoint: &WebhookEndpoint, query: &str) -> HttpResponse {
    layout::redirect(&format!("/console{ENDPOINTS}/{}{query}", endpoint.id))
}

async fn ask(
    console: &Console,
    visitor: &Visitor,
    path: &str,
    key: &str,
    body: &Value,
) -> Result<(StatusCode, Shown), ConsoleError> {
    let with_key = Some((key.to_owned(), body.clone()));
    let playground = &console.playground;
    let asked = playground.ask(&visitor.api_key, Method::POST, path, with_key);
    asked.await
}

/// A moment of a form, in UTC. An empty field is no bound.
fn moment(text: &str) -> Result<Option<DateTime<Utc>>, ConsoleError> {
    if text.is_empty() {
        return Ok(None);
    }
    let formats = ["%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"];
    let mut read = formats.iter();
    let read = read.find_map(|format| NaiveDateTime::parse_from_str(text, format).ok());
    let read = read.filter(|at| (1970..=9999).contains(&at.year()));
    let unreadable = ConsoleError::Unreadable("A time is written as 2026-11-29T12:00, in UTC.");
    Ok(Some(read.ok_or(unreadable)?.and_utc()))
}

/// The event of a test that the endpoint enables, and the path that makes it.
fn tested(endpoint: &WebhookEndpoint) -> Option<(&'static str, &'static str)> {
    let is_sent = |event: &str| {
        let mut enabled = endpoint.enabled_events.iter();
        enabled.any(|one| one == "*" || one == event)
    };
    TESTS.into_iter().find(|(event, _)| is_sent(event))
}

/// The forms of an endpoint, and what the last one did.
pub(super) fn forms(
    endpoint: &WebhookEndpoint,
    visitor: &Visitor,
    request: &HttpRequest,
) -> Markup {
    let path = format!("/console{ENDPOINTS}/{}", endpoint.id);
    let is_paused = endpoint.status == "disabled";
    let (pause, verb) = match is_paused {
        true => ("false", "Enable it"),
        false => ("true", "Pause it"),
    };
    let time = |name: &str, label: &str| {
        html! {
            div {
                label for=(name) { (label) }
                input id=(name) name=(name) type="datetime-local" step="1";
            }
        }
    };
    html! {
        @if let Some(says) = done(request) { p .says role="status" { (says) } }
        p {
            "Acknowledged attempts of its newest deliveries: " (rate(endpoint)) ". "
            a href={ "/console/deliveries?status=failed&endpoint=" (endpoint.id) } { "Failed" } " "
            a href={ "/console/deliveries?status=pending&endpoint=" (endpoint.id) } { "Pending" }
        }
        form method="post" action={ (path) "/pause" } {
            input type="hidden" name="disabled" value=(pause);
            @if is_paused { p { "What falls due meanwhile fails for good. Enable it, and retry what failed." } }
            div .actions { button type="submit" .quiet { (verb) } }
        }
        @if !is_paused {
            h2 { "Test it" }
            @if let Some((event, _)) = tested(endpoint) {
                form method="post" action={ (path) "/test" } {
                    input type="hidden" name="key" value=(fresh_key());
                    p { "This makes an object, and each endpoint that enables " code { (event) } " is told of it." }
                    div .actions { button type="submit" { "Send a test event" } }
                }
            } @else {
                p {
                    code { "charge-once trigger" } " makes events of the types that it enables, and so does the "
                    a href="/console/playground" { "playground" } "."
                }
            }
            @if visitor.may_lose_replies {
                p {
                    "Plan how the next event arrives: "
                    @for (fault, how) in FAULTS {
                        a href={ "/console/report?target=*&count=1&fault=" (fault) } { (how) } " "
                    }
                }
            }
            h2 { "Send again what failed" }
            form method="post" action={ (path) "/retry" } {
                div .fields { (time("from", "Made from, in UTC")) (time("to", "Made before, in UTC")) }
                p {
                    "Without times, this looks at its newest 20,000 deliveries. Each time, at most "
                    (RETRIED_MAX) " are made due."
                }
                div .actions { button type="submit" .quiet { "Retry what failed" } }
            }
        }
    }
}

fn done(request: &HttpRequest) -> Option<String> {
    let due = query_value(request, "due").and_then(|due| due.parse::<u64>().ok());
    match due {
        Some(0) => {
            let says = "None of them has failed for good: what is pending is sent by itself, or by its button.";
            return Some(says.to_owned());
        }
        Some(due) => return Some(format!("{due} failed deliveries are due now.")),
        None => {}
    }
    let says = match query_value(request, "did")?.as_str() {
        "tested" => "The event was made, and is being sent. Load this page again for its answer.",
        "nothing" => "Nothing was made due: what is sent to a paused endpoint fails.",
        _ => return None,
    };
    Some(says.to_owned())
}
