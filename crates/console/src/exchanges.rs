//! What became of the requests that the playground sent: a sentence, bars on one axis, the replies,
//! and the same with curl.
//!
//! Promise: nothing is called a success in which nothing was charged.

use std::collections::BTreeSet;

use charge_once_service::faults::FaultKind;
use maud::{Markup, html};
use serde_json::Value;

use super::{
    layout::{key_path, mood, state},
    locale::Locale,
    masked,
    playground::{Action, PaidBy, RACER_WAIT, RACERS, asking_for},
    timeline::{Axis, Span, milliseconds},
};

/// Where the commands of this program that are clients find an API key.
const API_KEY_VARIABLE: &str = "CHARGE_ONCE_API_KEY";

pub(super) struct Exchange {
    /// `None`: it got no reply.
    pub(super) reply: Option<Received>,
    /// In microseconds since the first request was sent.
    pub(super) span: Span,
}

pub(super) struct Received {
    pub(super) status: u16,
    pub(super) is_replay: bool,
    pub(super) original: String,
    pub(super) body: Vec<u8>,
}

pub(super) struct Sent<'a> {
    pub(super) action: Action,
    pub(super) kind: PaidBy,
    pub(super) public_url: &'a str,
    pub(super) key: &'a str,
    pub(super) body: &'a Value,
    pub(super) locale: Locale,
}

impl Exchange {
    /// What became of it, in a word.
    fn outcome(&self) -> &'static str {
        let status = self.reply.as_ref();
        match status.map(|reply| (reply.status, reply.is_replay)) {
            None => "lost",
            Some((_, true)) => "replayed",
            Some((201, false)) => "executed",
            Some((402, false)) => "declined",
            Some((409, false)) => "in_use",
            Some((500.., false)) => "failed",
            Some((_, false)) => "refused",
        }
    }
}

impl Received {
    /// What was made: the object itself, or the charge that a decline names.
    fn made(&self) -> Option<String> {
        let body: Value = serde_json::from_slice(&self.body).ok()?;
        let id = body.get("id").or_else(|| body.get("error")?.get("charge"));
        id.and_then(Value::as_str).map(str::to_owned)
    }

    /// Where an intent's holder authenticates.
    fn holder_page(&self) -> Option<String> {
        let body: Value = serde_json::from_slice(&self.body).ok()?;
        let page = body.pointer("/next_action/redirect_to_url/url")?;
        let page = page.as_str().filter(|page| page.starts_with("http"));
        page.map(str::to_owned)
    }
}

/// What happened, in one sentence, and whether that is good news.
fn sentence(sent: &Sent<'_>, exchanges: &[Exchange]) -> (String, &'static str) {
    let replies = exchanges.iter().filter_map(|one| one.reply.as_ref());
    let replies: Vec<_> = replies.collect();
    // After a fault, that of the retry.
    let Some(reply) = replies.last() else {
        let says = "No reply came. A retry with the same key is safe.";
        return (says.to_owned(), "warn");
    };
    let charged = replies.iter().filter(|one| one.status == 201);
    let made: BTreeSet<_> = charged.filter_map(|one| one.made()).collect();
    let noun = sent.kind.noun();
    let charges = match made.len() {
        1 => format!("1 {noun}"),
        count => format!("{count} {noun}s"),
    };
    let (says, mood) = match (sent.action, reply.status, reply.is_replay) {
        (Action::Race, _, _) => return race_sentence(&charges, made.is_empty(), &replies),
        (_, 409, false) => (
            "Not known yet: the key or a row is in use. Retry with the same key.",
            "warn",
        ),
        (_, 201, false) if reply.holder_page().is_some() => {
            let says = "Nothing is charged until its holder authenticates.";
            return (format!("Executed: {charges}. {says}"), "warn");
        }
        (Action::Fail(FaultKind::Delay), 201, true) => {
            let says = "The first request was executed late. The retry got its reply";
            return (
                format!("{says}, and nothing was executed again: {charges}."),
                "good",
            );
        }
        (Action::Fail(FaultKind::ReplyLost), 201, true) => {
            let says = "The first reply was lost. The retry got it, and nothing was executed again";
            return (format!("{says}: {charges}."), "good");
        }
        (Action::Fail(FaultKind::ReplyLost), _, true) => (
            "The first reply was lost. The retry got it, and nothing was charged.",
            "warn",
        ),
        (Action::Fail(_), 201, false) => {
            let says = "The first request was not executed. The retry was";
            return (format!("{says}: {charges}."), "good");
        }
        (_, 201, false) => return (format!("Executed: {charges}."), "good"),
        (_, _, true) => (
            "Nothing was executed again: the stored reply came back.",
            "good",
        ),
        (_, 402, false) => (
            "Declined: nothing was charged, and the failed charge is kept.",
            "warn",
        ),
        (Action::Change, 400..=499, false) => (
            "Refused: the key belongs to another request, and nothing was charged.",
            "warn",
        ),
        (_, 500.., _) => (
            "Not executed, or not known: retry with the same key.",
            "bad",
        ),
        (_, status, _) => {
            return (
                format!("Refused with {status}, and nothing was charged."),
                "warn",
            );
        }
    };
    (says.to_owned(), mood)
}

/// A race is won where something was charged, and only then.
fn race_sentence(charges: &str, is_nothing: bool, replies: &[&Received]) -> (String, &'static str) {
    let bodies: BTreeSet<_> = replies.iter().map(|one| &one.body).collect();
    let same = match bodies.len() {
        1 => "all the same bytes".to_owned(),
        count => format!("{count} different bodies"),
    };
    let count = replies.len();
    if !is_nothing {
        let waits = replies.iter().any(|one| one.holder_page().is_some());
        let mood = if waits { "warn" } else { "good" };
        return (format!("{charges}, {count} replies, {same}"), mood);
    }
    let statuses: BTreeSet<_> = replies.iter().map(|one| one.status).collect();
    let statuses: Vec<_> = statuses.iter().map(u16::to_string).collect();
    let statuses = statuses.join(" and ");
    let says = format!("No charge is known: {count} replies with {statuses}, {same}.");
    (says, "warn")
}

pub(super) fn results(sent: &Sent<'_>, exchanges: &[Exchange]) -> Markup {
    let (says, mood) = sentence(sent, exchanges);
    html! {
        h2 #result { "What happened" }
        p class={ "says " (mood) } role="status" { (says) }
        @if let Some(page) = exchanges.iter().find_map(|one| one.reply.as_ref()?.holder_page()) {
            p {
                "Its holder is asked to authenticate: "
                a href=(page) target="_blank" rel="noopener" { "open the holder's page" }
                ", and come back here by the story of the key."
            }
        }
        p { a href=(key_path(sent.key)) { "The story of this key" } }
        (picture(exchanges, sent.locale))
        @for (reply, count) in distinct(exchanges) {
            (shown(reply, count, exchanges.len() == 1))
        }
        h2 { "The same with curl" }
        (command(&curl(sent)))
    }
}

/// A command that needs an API key.
pub(super) fn command(command: &str) -> Markup {
    html! {
        p { "Set " code { (API_KEY_VARIABLE) } " to the API key that you signed in with." }
        pre data-copy role="group" tabindex="0" aria-label="The same with curl" { (command) }
    }
}

/// The requests as bars, the one that executed marked.
fn picture(exchanges: &[Exchange], locale: Locale) -> Markup {
    let spans: Vec<_> = exchanges.iter().map(|one| one.span).collect();
    let axis = Axis::of(&spans, locale);
    let executed = |one: &Exchange| matches!(one.outcome(), "executed" | "declined");
    let winner = exchanges.iter().position(executed);
    let won = winner.and_then(|place| spans.get(place)).map(|span| span.1);
    let rows = html! {
        @for (place, one) in exchanges.iter().enumerate() {
            @let outcome = one.outcome();
            @let is_winner = winner == Some(place) && exchanges.len() > 1;
            @let waited = won.filter(|won| outcome == "replayed" && one.span.0 < *won);
            tr class=[is_winner.then_some("winner")] {
                td .number { (place + 1) }
                td .picture { (axis.bar(one.span, waited, mood(outcome))) }
                td {
                    @if is_winner { "won: " }
                    @if waited.is_some() { "waited, then " }
                    (state(outcome))
                }
                td { @if let Some(reply) = &one.reply { (reply.status) } @else { "none" } }
                td .number { (milliseconds(one.span.1 - one.span.0, locale)) }
            }
        }
    };
    let columns = ["What it did", "Status", "ms"];
    axis.table("Requests", Some("race"), "#", &columns, &rows)
}

/// Replies that differ in their bodies, with how often each came.
fn distinct(exchanges: &[Exchange]) -> Vec<(&Received, usize)> {
    let mut found: Vec<(&Received, usize)> = Vec::new();
    for reply in exchanges.iter().filter_map(|one| one.reply.as_ref()) {
        match found.iter_mut().find(|(known, _)| known.body == reply.body) {
            Some((_, count)) => *count += 1,
            None => found.push((reply, 1)),
        }
    }
    found
}

fn shown(reply: &Received, count: usize, is_open: bool) -> Markup {
    html! {
        details open[is_open] {
            summary {
                "The reply: " (reply.status)
                @if count > 1 { ", " (count) " times" }
                @if count == 1 && reply.is_replay { ", " code { "Idempotent-Replayed: true" } }
            }
            @if !reply.original.is_empty() {
                p { code { "Original-Request: " (reply.original) } }
            }
            @if let Some(body) = masked::pretty(&reply.body) {
                pre role="group" tabindex="0" aria-label="Body of the reply" { (body) }
            }
        }
    }
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

fn header(text: &str) -> String {
    format!("  -H {} \\\n", quoted(text))
}

/// A POST with curl, with more headers. A failure is told, and replies stand on lines of their own.
pub(super) fn post_with_curl(url: &str, key: &str, body: &Value, more: &str) -> String {
    format!(
        "curl -sS -i -w '\\n' {} \\\n  -H \"Authorization: Bearer ${API_KEY_VARIABLE}\" \\\n{}{}{more}  -d {}",
        quoted(url),
        header("Content-Type: application/json"),
        header(&format!("Idempotency-Key: {key}")),
        quoted(&body.to_string()),
    )
}

fn curl(sent: &Sent<'_>) -> String {
    let url = format!("{}{}", sent.public_url, sent.kind.path());
    let once = |more: &str| post_with_curl(&url, sent.key, sent.body, more);
    match sent.action {
        Action::Send | Action::Retry | Action::Change => once(""),
        Action::Race => {
            let waiting = header(&format!("Prefer: {RACER_WAIT}"));
            format!(
                "for i in $(seq {RACERS}); do\n{} &\ndone; wait",
                once(&waiting)
            )
        }
        Action::Fail(fault) => {
            let fault = header(&format!("Fault: {}", asking_for(fault)));
            format!("{}\n{}", once(&fault), once(""))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(action: Action, key: &str) -> Sent<'_> {
        Sent {
            action,
            kind: PaidBy::Charge,
            public_url: "http://localhost:8080",
            key,
            body: &Value::Null,
            locale: Locale::default(),
        }
    }

    fn race(status: u16, body: &str) -> (String, &'static str) {
        let exchange = |is_replay| Exchange {
            reply: Some(Received {
                status,
                is_replay,
                original: String::new(),
                body: body.as_bytes().to_vec(),
            }),
            span: (0, 1),
        };
        sentence(
            &sent(Action::Race, "key-1"),
            &[exchange(false), exchange(true)],
        )
    }

    #[test]
    fn a_race_in_which_nothing_was_charged_is_no_success() {
        let (says, mood) = race(201, r#"{"id":"ch_1"}"#);
        assert_eq!(says, "1 charge, 2 replies, all the same bytes");
        assert_eq!(mood, "good");
        for (status, body) in [
            (402, r#"{"error":{"charge":"ch_1"}}"#),
            (503, "{}"),
            (401, "{}"),
        ] {
            let (says, mood) = race(status, body);
            let told = "No charge is known: 2 replies with";
            assert!(says.starts_with(told), "{says}");
            assert_eq!(mood, "warn");
        }
    }

    #[test]
    fn a_reply_that_came_back_was_not_executed_again_also_where_its_holder_is_to_authenticate() {
        let waits =
            r#"{"id":"pi_1","next_action":{"redirect_to_url":{"url":"http://localhost/"}}}"#;
        for (is_replay, begin) in [
            (false, "Executed: 1 charge. Nothing is charged"),
            (true, "Nothing was executed"),
        ] {
            let exchange = Exchange {
                reply: Some(Received {
                    status: 201,
                    is_replay,
                    original: String::new(),
                    body: waits.as_bytes().to_vec(),
                }),
                span: (0, 1),
            };
            let (says, _) = sentence(&sent(Action::Retry, "key-1"), &[exchange]);
            assert!(says.starts_with(begin), "{says}");
        }
    }

    #[test]
    fn what_the_shell_gets_stays_in_its_quotes() {
        let shown = curl(&sent(Action::Send, "a';id;'"));
        let quoted = r"'Idempotency-Key: a'\'';id;'\'''";
        assert!(shown.contains(quoted), "{shown}");
    }
}
