//! One key's story: its requests as bars in time, and what was committed under it.

use actix_web::HttpRequest;
use charge_once_idempotency::{IdempotencyKey, Inspected, LeasedKey, Record, Reply};
use chrono::{DateTime, TimeDelta, Utc};
use maud::{Markup, html};

use super::{
    Asked, Happened, Logged, Page, Story,
    deliveries::answers,
    error::ConsoleError,
    last_segment,
    layout::{self, Section, encoded, heading, kind_of, mood, resource, short, state, table, time},
    locale::Locale,
    masked::{self, Shown},
    members::standing,
    requests::{outcome, took},
    timeline::{Axis, Span},
    visitor::Visitor,
};

/// Requests with one key that are shown, the last ones.
const REQUESTS_MAX: usize = 200;

/// Digits of the fingerprint that are shown: enough to tell two requests apart.
const FINGERPRINT_DIGITS: usize = 12;

/// How long after its first use a story is expected to be in the log, which no request waits for.
const LOGGED_WITHIN: TimeDelta = TimeDelta::minutes(1);

/// The story. The script keeps one current that has not ended.
pub(super) async fn show(server: Asked, visitor: Visitor, request: HttpRequest) -> Page {
    let (key, story, now) = read(&server, &visitor, &request).await?;
    let live = (!has_ended(&story)).then(|| format!("/console/live/keys/{}", encoded(&key)));
    let body = html! {
        h1 { "The story of " code data-copy { (key) } }
        div #live data-live=[live] { (told(&key, &story, now.as_deref(), visitor.locale)) }
    };
    let section = Some(Section::Requests);
    Ok(layout::page(&visitor, "The story of a key", section, &body))
}

/// What the page tells, for the script that keeps it current.
pub(super) async fn live(server: Asked, visitor: Visitor, request: HttpRequest) -> Page {
    let (key, story, now) = read(&server, &visitor, &request).await?;
    Ok(layout::fragment(told(
        &key,
        &story,
        now.as_deref(),
        visitor.locale,
    )))
}

/// The key, its story, and what became of its object.
async fn read(
    server: &Asked,
    visitor: &Visitor,
    request: &HttpRequest,
) -> Result<(String, Story, Option<String>), ConsoleError> {
    let key = IdempotencyKey::parse(&last_segment(request)).map_err(|_| ConsoleError::Missing)?;
    let text = key.as_str().to_owned();
    let story = server.story(visitor.account, key, REQUESTS_MAX).await?;
    if story.requests.is_empty() && matches!(story.found, Inspected::Nothing) {
        return Err(ConsoleError::Missing);
    }
    let now = standing_of(server, visitor, &story).await?;
    Ok((text, story, now))
}

/// What became of the object that the key made or changed, in a word: a holder may have paid since.
async fn standing_of(
    server: &Asked,
    visitor: &Visitor,
    story: &Story,
) -> Result<Option<String>, ConsoleError> {
    let first = story.found.request();
    let id = first
        .as_ref()
        .and_then(|first| first.resource_id.as_deref());
    let Some((id, kind)) = id.and_then(|id| Some((id, kind_of(id)?))) else {
        return Ok(None);
    };
    let object = server.object(visitor.account, kind, id).await?;
    let object = object.and_then(|object| Shown::parse(&object.json));
    Ok(object.as_ref().and_then(standing).map(str::to_owned))
}

/// Whether there is an outcome, and the request that executed is in the log, if it will ever be.
fn has_ended(story: &Story) -> bool {
    match &story.found {
        Inspected::InFlight(_) => false,
        Inspected::Expired(_) | Inspected::Nothing => true,
        // Its record is of a request with another key.
        Inspected::Completed(record) if record.is_of_any_request() => true,
        Inspected::Completed(record) => {
            let is_logged = story.requests.iter().any(|one| one.id == record.request_id);
            is_logged || Utc::now() - record.created_at > LOGGED_WITHIN
        }
    }
}

fn told(key: &str, story: &Story, now: Option<&str>, locale: Locale) -> Markup {
    let (found, requests) = (&story.found, &story.requests);
    let leader = found.request().map(|first| first.request_id);
    let is_assigned = IdempotencyKey::parse(key.as_bytes()).is_ok_and(|key| key.is_assigned());
    let nothing = match found {
        Inspected::InFlight(_) => "None has been answered yet.",
        Inspected::Completed(_) | Inspected::Expired(_) | Inspected::Nothing => {
            "None is in the log. It keeps requests for a day unless it was told otherwise."
        }
    };
    html! {
        (headline(story))
        @if is_assigned {
            p { "The request came without a key, and the server assigned this one. A retry of it is another "
                "request, which does the work again." }
        }
        h2 { "Requests with this key" }
        @if requests.is_empty() {
            p { (nothing) }
        } @else {
            (picture(requests, leader.as_deref(), locale))
            p .quiet { "What their bodies held is never kept." }
        }
        h2 { "Committed under this key" }
        (committed(story, key, now))
        (facts(found))
        @if let Inspected::Completed(record) = found { (stored_reply(record)) }
    }
}

fn picture(requests: &[Logged], leader: Option<&str>, locale: Locale) -> Markup {
    let span = |request: &Logged| -> Span {
        let from = request.came_at.timestamp_micros();
        let took = i64::try_from(request.duration.as_micros()).unwrap_or(i64::MAX);
        (from, from.saturating_add(took))
    };
    let spans: Vec<_> = requests.iter().map(span).collect();
    let axis = Axis::of(&spans, locale);
    let led = requests.iter().find(|one| Some(one.id.as_str()) == leader);
    let led = led.map(span);
    let begun_before = |place: usize| spans.get(place.checked_sub(1)?).map(|span| span.0);
    let rows = html! {
        @for (place, (request, span)) in requests.iter().zip(spans.iter().copied()).enumerate() {
            @if begun_before(place) != Some(span.0) && let Some(pause) = axis.pause_before(span.0) {
                tr { td .quiet colspan="7" { (pause) " without a request" } }
            }
            @let is_leader = Some(request.id.as_str()) == leader;
            @let waited = led.filter(|led| !is_leader && waits(request, span, *led)).map(|led| led.1);
            tr {
                td { (time(request.came_at)) }
                td .picture { (axis.bar(span, waited, mood(outcome(request)))) }
                td { (role(request, is_leader, waited.is_some())) }
                td { @if let Some(status) = request.status { (status) } }
                td .number { (took(request, locale)) }
                td { (request.method) " " (short(&request.path)) }
                td .mono { (short(&request.id)) }
            }
        }
    };
    let columns = ["What it did", "Status", "ms", "Path", "Request"];
    let label = "Requests with this key";
    axis.table(label, None, "Time (UTC)", &columns, &rows)
}

/// Whether a duplicate came while the leader was at work, and got its reply.
fn waits(request: &Logged, span: Span, led: Span) -> bool {
    request.outcome == "replayed" && span.0 < led.1
}

/// What a request did, in words.
fn role(request: &Logged, is_leader: bool, waited: bool) -> Markup {
    let outcome = outcome(request);
    match outcome {
        "unanswered" if is_leader => html! { "led, and its reply was " (state("lost")) },
        "unanswered" => html! { "got no reply: " (state("lost")) },
        _ if is_leader => html! { "led: " (state(outcome)) },
        "replayed" if waited => html! { "waited, then " (state(outcome)) },
        "in_use" => html! { "came too early: " (state(outcome)) },
        _ => state(outcome),
    }
}

/// The state of the key, and whether it is good news.
fn headline(story: &Story) -> Markup {
    let (mood, says) = match &story.found {
        Inspected::Completed(record) if record.is_of_any_request() => {
            let says = "Given up: nothing is executed with this key. A request gets 409.";
            ("warn", html! { (says) (counts(&story.requests)) })
        }
        Inspected::Completed(record) => {
            let (mood, says) = ended(&record.reply);
            let untold = untold(&record.request_id, &story.requests);
            (mood, html! { (says) (counts(&story.requests)) (untold) })
        }
        Inspected::InFlight(Some(first)) => {
            let state = match first.in_doubt {
                true => {
                    html! { "In doubt: the processor may have " (may_have_done(&first.path)) "." }
                }
                false => html! { "In flight: there is no outcome yet." },
            };
            let says = html! {
                (state) " Its request is " (first.method) " " (first.path) ". "
                @if let Some(leased) = &story.leased { (asked_again(leased)) }
                "A retry with this key is safe."
            };
            (if first.in_doubt { "bad" } else { "warn" }, says)
        }
        Inspected::InFlight(None) => (
            "warn",
            html! { "In flight: there is no outcome yet. A retry with this key is safe." },
        ),
        Inspected::Expired(expired) => (
            "warn",
            html! {
                "Expired: its outcome is no longer kept. "
                @if let Some(id) = &expired.answer.resource_id { "It made " (resource(id)) ". " }
                "A request with this key is refused."
            },
        ),
        Inspected::Nothing => (
            "warn",
            html! {
                "No outcome is stored now. That does not mean that a new key is safe: retry with this one."
            },
        ),
    };
    html! { p class={ "says " (mood) } data-ended[has_ended(story)] { (says) } }
}

/// What a processor that was asked by a request to this path may have done.
fn may_have_done(path: &str) -> &'static str {
    match path.rsplit('/').next() {
        Some("refunds") => "given money back",
        Some("capture") => "taken the money",
        Some("cancel") => "released the money",
        Some("checkouts") => "charged, or given the charge back",
        Some(_) | None => "charged",
    }
}

/// Who goes on with a request that takes several transactions, and when.
fn asked_again(leased: &LeasedKey) -> Markup {
    let at = leased.recover_after;
    let asks = match leased.request.in_doubt {
        true => "asks for its answer",
        false => "goes on with it",
    };
    html! {
        @if leased.is_held {
            "A process " (asks) " now. "
        } @else if at > Utc::now() {
            "The reconciler " (asks) " at " (time(at)) " " span .zone { "(UTC)" } ". "
        } @else {
            "The reconciler " (asks) " next. "
        }
    }
}

/// What there is to say if the request that executed was not answered with the outcome, and none
/// has been since.
fn untold(leader: &str, requests: &[Logged]) -> &'static str {
    let led = requests.iter().find(|one| one.id == leader);
    let is_lost = led.is_some_and(|led| matches!(outcome(led), "failed" | "unanswered"));
    match is_lost && requests.iter().all(|one| one.outcome != "replayed") {
        true => " No reply has told it yet: a retry with this key gets it.",
        false => "",
    }
}

/// What came of the other requests; nothing of what there was none of.
fn counts(requests: &[Logged]) -> String {
    let told = [
        (
            "replayed",
            "retry got the stored reply again.",
            "retries got the stored reply again.",
        ),
        (
            "reused",
            "reuse of the key was refused.",
            "reuses of the key were refused.",
        ),
        ("in_use", "retry came too early.", "retries came too early."),
        (
            "unanswered",
            "request got no reply.",
            "requests got no reply.",
        ),
    ];
    let told = told.map(|(outcome, one, more)| {
        let ended_so = requests.iter().filter(|one| one.outcome == outcome);
        match ended_so.count() {
            0 => String::new(),
            1 => format!(" 1 {one}"),
            count => format!(" {count} {more}"),
        }
    });
    told.concat()
}

/// What the stored reply says of the execution, and whether that is good news.
fn ended(reply: &Reply) -> (&'static str, &'static str) {
    let says = match (reply.status, &reply.resource_id) {
        (200..300, _) => return ("good", "Executed once."),
        (402, Some(_)) => "Executed once, and declined: nothing was charged. The answer is stored.",
        // A checkout that could not be completed.
        (_, Some(_)) => {
            "Executed once, and refused at the end: what was charged was given back. The answer is stored."
        }
        (_, None) => "Refused: nothing was executed, and nothing charged. The answer is stored.",
    };
    ("warn", says)
}

/// The key with its reply, what it is about, and what was told of that, in one list.
fn committed(story: &Story, key: &str, now: Option<&str>) -> Markup {
    let (found, events, deliveries) = (&story.found, &story.events, &story.deliveries);
    let first = found.request();
    let made = first.as_ref();
    let made = made.and_then(|first| first.resource_id.as_deref());
    let row = |what: &str, which: Markup, word: Markup, at: Option<DateTime<Utc>>| {
        html! {
            tr {
                td { (what) }
                td { (which) }
                td { (word) }
                td { @if let Some(at) = at { (time(at)) } }
            }
        }
    };
    let stored = match found {
        Inspected::Completed(record) => html! { "its reply: " (record.reply.status) },
        Inspected::InFlight(Some(first)) if first.created_at.is_some() => state(first.status()),
        Inspected::InFlight(_) => html! { "nothing yet" },
        Inspected::Expired(_) => html! { "remembered" },
        Inspected::Nothing => html! { "nothing" },
    };
    let at = first.as_ref().and_then(|first| first.created_at);
    let no_event = match found {
        Inspected::InFlight(_) => "No event yet.",
        Inspected::Completed(_) | Inspected::Expired(_) | Inspected::Nothing => {
            "No event among the thousand that followed the first request."
        }
    };
    let rows = html! {
        (row("Key", html! { span .mono { (short(key)) } }, stored, at))
        @if let Some(id) = made {
            @let word = html! { @if let Some(now) = now { (state(now)) } };
            (row("Object", html! { (resource(id)) " as it is now" }, word, None))
        }
        @for event in events {
            @let which = html! {
                (resource(&event.id)) @if let Some(id) = &event.object_id { " of " (resource(id)) }
            };
            (row("Event", which, html! { (event.event_type) }, Some(event.created_at)))
            @for delivery in deliveries.iter().filter(|one| one.event == event.id) {
                @let which = html! { span .mono { (short(&delivery.id)) } " to " (resource(&delivery.endpoint)) };
                @let word = html! { (state(delivery.status)) " " (answers(delivery)) };
                (row("Delivery", which, word, Some(delivery.created_at)))
            }
        }
    };
    html! {
        (table("Committed under this key", &["What", "Which", "State", "Time (UTC)"], &rows))
        @if events.is_empty() {
            p { (no_event) }
        }
    }
}

fn facts(found: &Inspected) -> Markup {
    let Some(first) = found.request() else {
        return match found {
            Inspected::InFlight(None) => html! {
                p { "Another process works on it. Nothing of it is committed yet." }
            },
            Inspected::InFlight(Some(_))
            | Inspected::Completed(_)
            | Inspected::Expired(_)
            | Inspected::Nothing => html! {},
        };
    };
    let fingerprint = hex::encode(&first.fingerprint);
    html! {
        h2 { "The key" }
        dl {
            dt { @if first.status() == "abandoned" { "Given up by" } @else { "First request" } }
            dd { (first.method) " " (first.path) ", " code data-copy { (first.request_id) } }
            @if let Some(at) = first.created_at { dt { (heading("First use (UTC)")) } dd { (time(at)) } }
            @if let Some(outcome) = first.outcome {
                dt { (heading("Expires (UTC)")) } dd { (time(outcome.expires_at)) }
            }
            dt { "Fingerprint" }
            dd { code { (fingerprint.get(..FINGERPRINT_DIGITS).unwrap_or_default()) "…" } }
            @if let Some(name) = &first.label {
                dt { "Workflow" }
                dd { a href={ "/console/workflows?name=" (encoded(name)) } { (name) } }
            }
        }
        @if matches!(found, Inspected::InFlight(_)) {
            p { a href="/console/in-flight" { "How long, and why" } }
        }
    }
}

fn stored_reply(record: &Record) -> Markup {
    let reply = &record.reply;
    html! {
        h2 { "Stored reply" }
        p { "Every retry gets this, to the byte. Values of " code { "secret" } ", " code { "client_secret" } " and " code { "api_key" } ", and what completes a payment, are masked here only." }
        pre role="group" tabindex="0" aria-label="Headers of the stored reply" {
            "HTTP " (reply.status)
            @for (name, value) in &reply.headers { "\n" (name) ": " (masked::text(value)) }
        }
        @match masked::pretty(&reply.body).filter(|_| !record.is_sealed) {
            _ if record.is_sealed => {
                p { "The body is " (state("sealed")) ": " (reply.body.len()) " bytes, which a retry with the key opens." }
            },
            Some(body) => {
                pre data-copy role="group" tabindex="0" aria-label="Body of the stored reply" { (body) }
            },
            None => { p { (reply.body.len()) " bytes that are not JSON, and not shown." } }
        }
    }
}

pub(super) fn happened_table(events: &[Happened]) -> Markup {
    let rows = html! {
        @for event in events {
            tr {
                td { (time(event.created_at)) }
                td { (event.event_type) }
                td { @if let Some(id) = &event.object_id { (resource(id)) } }
                td { (resource(&event.id)) }
                td { @if let Some(key) = &event.idempotency_key { (layout::key_link(key)) } }
            }
        }
    };
    let columns = ["Time (UTC)", "Type", "About", "Event", "Key"];
    table("Events", &columns, &rows)
}
