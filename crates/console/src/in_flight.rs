//! Keys in flight or in doubt: how long, and why.

use charge_once_idempotency::{KnownRequest, LeasedKey};
use chrono::{DateTime, Utc};
use maud::{Markup, html};

use super::{
    Asked, Page,
    layout::{self, Section, key_link, resource, short, state, table, time},
    timeline::lasted,
    visitor::Visitor,
};

/// Keys that are shown of each kind.
pub(super) const KEYS_MAX: usize = 100;

pub(super) async fn show(server: Asked, visitor: Visitor) -> Page {
    let (mut here, leased) = server.in_flight(visitor.account, KEYS_MAX).await?;
    here.retain(|(key, _)| leased.iter().all(|one| one.key != *key));
    here.truncate(KEYS_MAX);
    let now = Utc::now();
    let rows = html! {
        @for one in &leased { (row(&one.key, &one.request, &why(one), now)) }
        @for (key, request) in &here { (row(key, request, "This process works on it.", now)) }
    };
    let columns = [
        "Key",
        "Request",
        "State",
        "Since (UTC)",
        "For",
        "About",
        "Why",
    ];
    let body = html! {
        h1 { "In flight" }
        p {
            "Keys that have no outcome yet: a request is at work in this process, or takes several \
             transactions, wherever it runs. A retry with the same key is safe at any time."
        }
        @if leased.is_empty() && here.is_empty() {
            p {
                "There is none. A charge with the card " code { "tok_slow" } " is in flight for a moment: send one \
                 in the playground, and open this page meanwhile."
            }
        } @else {
            (table("Keys in flight", &columns, &rows))
        }
    };
    let (section, has_mistake) = (Section::InFlight, false);
    Ok(layout::section_page(&visitor, section, has_mistake, &body))
}

fn row(key: &str, request: &KnownRequest, why: &str, now: DateTime<Utc>) -> Markup {
    let since = request.created_at;
    let lasts = |since: DateTime<Utc>| lasted((now - since).num_seconds().max(0));
    html! {
        tr {
            td { (key_link(key)) }
            td { (request.method) " " (short(&request.path)) }
            td { (state(request.status())) }
            td { @if let Some(since) = since { (time(since)) } }
            td .number { @if let Some(since) = since { (lasts(since)) } }
            td { @if let Some(id) = &request.resource_id { (resource(id)) } }
            td .wide { (why) }
        }
    }
}

fn why(one: &LeasedKey) -> String {
    let takeovers = match one.takeovers {
        0 => String::new(),
        1 => " Taken over once so far.".to_owned(),
        count => format!(" Taken over {count} times so far."),
    };
    let why = match (one.is_held, one.request.in_doubt) {
        (true, false) => {
            "A process works on it, and waits for an answer from outside the database."
        }
        (true, true) => {
            "An earlier attempt may have been executed. A process asks for its outcome."
        }
        (false, true) => {
            "An attempt may have been executed, and no process works on it now. A retry with the same \
             key asks for its outcome, and so does the reconciler."
        }
        (false, false) => {
            "Its process is gone. A retry with the same key continues it, and so does the reconciler."
        }
    };
    format!("{why}{takeovers}")
}
