//! An object as people read it: its members by name, amounts as money, ids as links.
//!
//! Promise: what is empty and what is secret is left out, and the JSON beside it has the rest. What
//! a client named keeps its name.

use chrono::{DateTime, Utc};
use maud::{Markup, html};

use super::{
    Server,
    layout::{UTC, age, heading, is_number, key_link, resource, second, short, state, table},
    locale::Locale,
    masked::{Shown, is_secret},
    noun::Column,
};

/// Members that hold a moment, in unix seconds, beside those that end with `_at`.
const TIMES: [&str; 4] = ["created", "updated", "delivered", "at"];

/// Members that every object has alike, or that the page's title says.
const LEFT_OUT: [&str; 3] = ["id", "object", "livemode"];

/// The member whose own members a client has named.
const METADATA: &str = "metadata";

/// Members that hold what a client wrote, of any length.
const OF_CLIENTS: [&str; 5] = [
    "client_order_id",
    "customer",
    "description",
    "email",
    "name",
];

/// Longest list in a table, in rows.
const ROWS_MAX: usize = 100;

pub(super) struct Members<'a> {
    pub(super) server: &'a dyn Server,
    pub(super) elsewhere: &'a [&'a str],
    pub(super) locale: Locale,
}

impl Members<'_> {
    /// The object's own members, and below them those of each object and list in it.
    pub(super) fn of(&self, object: &Shown) -> Markup {
        self.section("", object, None)
    }

    fn section(&self, title: &str, object: &Shown, currency: Option<&str>) -> Markup {
        let Shown::Object(members) = object else {
            return html! {};
        };
        let currency = object.text("currency").or(currency);
        let is_shown = |name: &str, value: &Shown| {
            let is_top = title.is_empty();
            let is_left_out =
                is_top && (LEFT_OUT.contains(&name) || self.elsewhere.contains(&name));
            let is_empty = match name {
                METADATA => of_client(value).next().is_none(),
                _ => is_empty(value),
            };
            !is_left_out && !is_noun(name, value) && !is_secret(name) && !is_empty
        };
        let shown = members.iter().filter(|(name, value)| is_shown(name, value));
        let (inner, own): (Vec<_>, Vec<_>) = shown.partition(|(_, value)| is_inner(value));
        html! {
            @if !own.is_empty() {
                @if !title.is_empty() { h2 { (title) } }
                dl {
                    @for (name, value) in own {
                        dt { (heading(&label(name))) }
                        dd { (self.value(name, value, currency)) }
                    }
                }
            }
            @for (name, value) in inner {
                @let label = label(name);
                @let title = if title.is_empty() { label } else { format!("{title}: {label}") };
                @match elements(value) {
                    _ if name == METADATA => {
                        h2 { (title) }
                        dl .written { @for (name, text) in of_client(value) { dt { (name) } dd { (text) } } }
                    }
                    Some(elements) => (self.list(&title, elements, currency)),
                    None => (self.section(&title, value, currency)),
                }
            }
        }
    }

    /// A table with a column for each member that one of them has.
    fn list(&self, title: &str, elements: &[Shown], currency: Option<&str>) -> Markup {
        let mut columns: Vec<&str> = Vec::new();
        for element in elements {
            if let Shown::Object(members) = element {
                let shown = members.iter().filter(|(name, value)| {
                    !is_noun(name, value)
                        && !is_secret(name)
                        && !is_empty(value)
                        && !is_inner(value)
                });
                for (name, _) in shown {
                    if !columns.contains(&name.as_str()) {
                        columns.push(name);
                    }
                }
            }
        }
        let labels: Vec<_> = columns.iter().map(|name| label(name)).collect();
        let labels: Vec<_> = labels.iter().map(String::as_str).collect();
        let rows = html! {
            @for element in elements.iter().take(ROWS_MAX) {
                @let currency = element.text("currency").or(currency);
                tr {
                    @for (name, label) in columns.iter().zip(&labels) {
                        td .number[is_number(label)] {
                            @if let Some(value) = element.member(name) { (self.value(name, value, currency)) }
                        }
                    }
                }
            }
        };
        html! {
            h2 { (title) }
            (table(title, &labels, &rows))
            @if elements.len() > ROWS_MAX { p { "The JSON has all " (elements.len()) " of them." } }
        }
    }

    /// What a line of a list shows of an object, in these columns.
    pub(super) fn cells(&self, columns: &[Column], object: Option<&Shown>) -> Markup {
        html! {
            @for (head, paths) in columns {
                td .number[is_number(head)] {
                    @if let Some((of, name, value)) = object.and_then(|object| first(object, paths)) {
                        @let own = value.as_text().filter(|text| OF_CLIENTS.contains(&name) && !is_id(text));
                        @if name == "status" {
                            (state(standing(of).unwrap_or_default()))
                        } @else if let Some(own) = own {
                            (short(own))
                        } @else {
                            (self.value(name, value, of.text("currency")))
                        }
                        @if let Some(at) = moment(name, value) { " " (age(at)) }
                    }
                }
            }
        }
    }

    fn value(&self, name: &str, value: &Shown, currency: Option<&str>) -> Markup {
        match value {
            Shown::Null => html! {},
            Shown::Object(_) => match (value.text("last4"), value.text("id")) {
                (Some(last4), _) => {
                    html! { (value.text("brand").unwrap_or_default()) " •••• " (last4) }
                }
                (None, Some(id)) => resource(id),
                (None, None) => html! {},
            },
            Shown::Truth(truth) => html! { (if *truth { "yes" } else { "no" }) },
            Shown::Text(text) if name == "idempotency_key" => key_link(text),
            Shown::Text(text) if matches!(name, "status" | "state") => state(text),
            Shown::Text(text) if is_id(text) => resource(text),
            Shown::Text(text) => html! { (text) },
            Shown::Number(number) => {
                let whole = number.as_i64();
                let read = whole.and_then(|value| match name {
                    "quantity" => Some(self.locale.count(value)),
                    _ => {
                        let read = self.server.number(name, value, currency)?;
                        Some(self.locale.written(&read))
                    }
                });
                match (moment(name, value), read) {
                    (Some(moment), _) => second(moment),
                    (None, Some(read)) => html! { (read) },
                    (None, None) => html! { (number) },
                }
            }
            Shown::List(values) => html! {
                @for (place, value) in values.iter().enumerate() {
                    @if place > 0 { ", " }
                    (self.value(name, value, currency))
                }
            },
        }
    }
}

/// The columns in which one of these objects has something.
pub(super) fn used<'a>(
    columns: &[Column],
    objects: impl Iterator<Item = &'a Shown> + Clone,
) -> Vec<Column> {
    let is_used = |(_, paths): &&Column| objects.clone().any(|one| first(one, paths).is_some());
    columns.iter().filter(is_used).copied().collect()
}

/// The first of these members that an object has.
fn first<'a>(object: &'a Shown, paths: &'a str) -> Option<(&'a Shown, &'a str, &'a Shown)> {
    let mut found = paths.split('|').filter_map(|path| object.at(path));
    found.find(|(_, _, value)| !is_empty(value))
}

/// Where an object stands: of a charge, also that its money was only promised, or went back.
pub(super) fn standing(object: &Shown) -> Option<&str> {
    let status = object.text("status")?;
    let is = |name| matches!(object.member(name), Some(Shown::Truth(true)));
    Some(match object.number("amount_refunded") {
        Some(1..) if is("refunded") => "refunded",
        Some(1..) => "partly_refunded",
        Some(_) if status == "succeeded" && !is("captured") => "authorized",
        Some(_) | None => status,
    })
}

/// The moment that such a member holds.
fn moment(name: &str, value: &Shown) -> Option<DateTime<Utc>> {
    let Shown::Number(seconds) = value else {
        return None;
    };
    let seconds = seconds.as_i64().filter(|_| is_time(name));
    DateTime::from_timestamp(seconds?, 0)
}

/// Names and values as a client wrote them, but for secrets. Nothing is read into them.
fn of_client(metadata: &Shown) -> impl Iterator<Item = (&str, &str)> {
    let members: &[_] = match metadata {
        Shown::Object(members) => members,
        Shown::Null | Shown::Truth(_) | Shown::Number(_) | Shown::Text(_) | Shown::List(_) => &[],
    };
    let shown = members.iter().filter(|(name, _)| !is_secret(name));
    shown.filter_map(|(name, _)| Some((name.as_str(), metadata.text(name)?)))
}

/// What kind of object has this member.
fn is_noun(name: &str, value: &Shown) -> bool {
    name == "object" && matches!(value, Shown::Text(_))
}

fn is_time(name: &str) -> bool {
    TIMES.contains(&name) || name.ends_with("_at")
}

/// Such as `ch_` and 26 characters.
fn is_id(text: &str) -> bool {
    let rest = text.split_once('_').map(|(_, rest)| rest);
    rest.is_some_and(|rest| {
        rest.len() == 26 && rest.bytes().all(|byte| byte.is_ascii_alphanumeric())
    })
}

/// `amount_refunded` as `Amount refunded`.
fn label(name: &str) -> String {
    let mut words = name.replace('_', " ");
    if let Some(first) = words.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    if is_time(name) { words + UTC } else { words }
}

/// What says nothing.
fn is_empty(value: &Shown) -> bool {
    match value {
        Shown::Null => true,
        Shown::Text(text) => text.is_empty(),
        Shown::List(values) => values.is_empty(),
        Shown::Object(members) => {
            let only_empty = members
                .iter()
                .all(|(name, value)| is_noun(name, value) || is_empty(value));
            only_empty || elements(value).is_some_and(<[_]>::is_empty)
        }
        Shown::Truth(_) | Shown::Number(_) => false,
    }
}

/// What has members of its own, or elements that have.
fn is_inner(value: &Shown) -> bool {
    match value {
        Shown::Object(_) => true,
        Shown::List(values) => values.iter().any(|value| matches!(value, Shown::Object(_))),
        Shown::Null | Shown::Truth(_) | Shown::Number(_) | Shown::Text(_) => false,
    }
}

/// The elements of a list, or of an object that is a page of one.
fn elements(value: &Shown) -> Option<&[Shown]> {
    let list = match value.text("object") {
        Some("list") => value.member("data")?,
        Some(_) | None => value,
    };
    match list {
        Shown::List(values) => Some(values),
        Shown::Object(_) | Shown::Null | Shown::Truth(_) | Shown::Number(_) | Shown::Text(_) => {
            None
        }
    }
}
