//! What the pages of the console have in common.

use std::borrow::Cow;

use actix_web::{
    HttpResponse,
    http::{
        StatusCode,
        header::{
            CACHE_CONTROL, CONTENT_SECURITY_POLICY, ContentType, HeaderName, HeaderValue, LOCATION,
            REFERRER_POLICY, VARY,
        },
    },
};
use chrono::{DateTime, SecondsFormat, Utc};
use maud::{DOCTYPE, Markup, html};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::{Kind, noun::Noun, requests::SOUGHT_MAX, visitor::Visitor};

/// Nothing but this service's own files, and forms to itself only.
const POLICY: &str = "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'self'; \
                      img-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

/// Under a policy of `no-referrer`, browsers send `Origin: null` with a form, and the console could
/// not tell its own forms from those of other sites. Other sites still get no referrer.
const REFERRER: &str = "same-origin";

/// For files that change with a release only.
const AN_HOUR: &str = "public, max-age=3600";

/// Everything but the unreserved characters of RFC 3986, section 2.3.
const IN_A_SEGMENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Longest text that stands whole in a line of a table, in characters. Of a longer one, so many are
/// left of its beginning and its end.
const WHOLE_MAX: usize = 26;
const HEAD: usize = 14;
const TAIL: usize = 8;

/// The pages that every page links to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Section {
    /// What became of the last requests, in numbers.
    Overview,
    /// The page that sends requests.
    Playground,
    /// The requests that came, the newest first.
    Requests,
    /// The list of a kind, or one of its objects.
    Objects(Kind),
    /// Webhook endpoints and deliveries.
    Webhooks,
    /// Requests that belong together.
    Workflows,
    /// Keys that have no outcome yet.
    InFlight,
    /// What the protocol does, step by step.
    Protocol,
    /// What is wrong with the client, for accounts on which faults act.
    Report,
}

impl Section {
    const BAR: &'static [Self] = &[
        Self::Overview,
        Self::Playground,
        Self::Requests,
        Self::Objects(Kind::Charges),
        Self::Objects(Kind::Events),
        Self::Webhooks,
        Self::Workflows,
        Self::InFlight,
        Self::Report,
        Self::Protocol,
    ];

    fn link(self) -> (&'static str, &'static str) {
        match self {
            Self::Overview => ("Overview", "/console"),
            Self::Playground => ("Playground", "/console/playground"),
            Self::Requests => ("Requests", "/console/requests"),
            Self::Objects(Kind::Events) => ("Events", "/console/events"),
            Self::Objects(_) => ("Objects", "/console/charges"),
            Self::Webhooks => ("Webhooks", "/console/deliveries"),
            Self::Workflows => ("Workflows", "/console/workflows"),
            Self::InFlight => ("In flight", "/console/in-flight"),
            Self::Report => ("Report", "/console/report"),
            Self::Protocol => ("Protocol", "/console/protocol"),
        }
    }

    /// The kind whose list is linked beside those of the others.
    fn kind(self) -> Option<Kind> {
        match self {
            Self::Objects(Kind::Events) => None,
            Self::Objects(Kind::PaymentMethods) => Some(Kind::Customers),
            Self::Objects(kind) => Some(kind),
            Self::Overview
            | Self::Playground
            | Self::Requests
            | Self::Webhooks
            | Self::Workflows
            | Self::InFlight
            | Self::Report
            | Self::Protocol => None,
        }
    }
}

/// The lists of objects, in a line of their own.
fn kinds(current: Kind) -> Markup {
    html! {
        nav .kinds aria-label="Objects" {
            ul {
                @for kind in Kind::ALL {
                    @let noun = Noun::of(*kind);
                    @if noun.has_list() && *kind != Kind::Events {
                        li {
                            a href={ "/console/" (noun.path) }
                                aria-current=[(*kind == current).then_some("page")] { (noun.many) }
                        }
                    }
                }
            }
        }
    }
}

/// The page that a section's link leads to. A mistake in its form or address is a 400.
pub(super) fn section_page(
    visitor: &Visitor,
    section: Section,
    has_mistake: bool,
    body: &Markup,
) -> HttpResponse {
    let status = match has_mistake {
        true => StatusCode::BAD_REQUEST,
        false => StatusCode::OK,
    };
    page_with_status(visitor, status, section.link().0, Some(section), body)
}

/// A page for a visitor; `section` is the link that leads to it.
pub(super) fn page(
    visitor: &Visitor,
    title: &str,
    section: Option<Section>,
    body: &Markup,
) -> HttpResponse {
    page_with_status(visitor, StatusCode::OK, title, section, body)
}

/// As [`page`], with another status.
pub(super) fn page_with_status(
    visitor: &Visitor,
    status: StatusCode,
    title: &str,
    section: Option<Section>,
    body: &Markup,
) -> HttpResponse {
    let current = section.map(|section| section.link().1);
    let is_linked = |one: &&Section| visitor.may_lose_replies || **one != Section::Report;
    let bar = html! {
        nav aria-label="Console" {
            ul {
                @for one in Section::BAR.iter().filter(is_linked) {
                    @let (name, path) = one.link();
                    li { a href=(path) aria-current=[(current == Some(path)).then_some("page")] { (name) } }
                }
                li { a href="/swagger-ui/" { "Swagger UI" } }
            }
        }
        form .search method="get" action="/console/search" {
            input name="q" type="search" aria-label="Search" aria-keyshortcuts="/" required
                maxlength=(SOUGHT_MAX) placeholder="Key, id, e-mail" spellcheck="false" autocomplete="off";
        }
        span .account title=(visitor.name) { (visitor.name) }
        @if visitor.is_test { strong .test { "test data" } }
        form method="post" action="/console/sign-out" {
            button type="submit" .quiet { "Sign out" }
        }
    };
    let kind = section.and_then(Section::kind);
    let body = html! {
        @if let Some(kind) = kind { (kinds(kind)) }
        (body)
    };
    html_page(status, title, &bar, &body)
}

/// A page without a session.
pub(super) fn bare_page(status: StatusCode, title: &str, body: &Markup) -> HttpResponse {
    html_page(status, title, &html! {}, body)
}

fn html_page(status: StatusCode, title: &str, bar: &Markup, body: &Markup) -> HttpResponse {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) " · charge-once" }
                link rel="icon" href="/favicon.svg" type="image/svg+xml";
                link rel="stylesheet" href="/console/style.css";
                script src="/console/script.js" defer {}
            }
            body {
                a .skip href="#main" { "Skip to the content" }
                header {
                    a .home href="/" { "charge-once" }
                    (bar)
                }
                main #main tabindex="-1" { (body) }
            }
        }
    };
    respond(status, page)
}

/// A part of a page, for its script.
pub(super) fn fragment(part: Markup) -> HttpResponse {
    respond(StatusCode::OK, part)
}

fn respond(status: StatusCode, body: Markup) -> HttpResponse {
    HttpResponse::build(status)
        .content_type(ContentType::html())
        .insert_header((CONTENT_SECURITY_POLICY, POLICY))
        .insert_header((REFERRER_POLICY, REFERRER))
        .insert_header((VARY, "Accept-Language"))
        .body(body.into_string())
}

/// To another page, which is then asked for with GET.
pub(super) fn redirect(path: &str) -> HttpResponse {
    HttpResponse::SeeOther()
        .insert_header((LOCATION, path))
        .insert_header((REFERRER_POLICY, REFERRER))
        .finish()
}

/// Adds a header, if it is one.
pub(super) fn add_header(response: &mut HttpResponse, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::try_from(value) {
        response.headers_mut().append(name, value);
    }
}

/// A table that scrolls by itself where it is wider than the screen, with the keyboard too. The
/// name of a column of times ends with [`UTC`].
pub(super) fn table(label: &str, columns: &[&str], rows: &Markup) -> Markup {
    let heads = html! { @for column in columns { (head(column)) } };
    table_with_heads(label, None, &heads, rows)
}

/// As [`table`], with heads that are not only names.
pub(super) fn table_with_heads(
    label: &str,
    class: Option<&str>,
    heads: &Markup,
    rows: &Markup,
) -> Markup {
    html! {
        div .scroll tabindex="0" role="region" aria-label=(label) {
            table class=[class] {
                thead { tr { (heads) } }
                tbody { (rows) }
            }
        }
    }
}

/// Columns whose cells are numbers, which stand to the right, with their heads.
const NUMBERS: [&str; 8] = [
    "#",
    "ms",
    "Amount",
    "For",
    "Left to sell",
    "Quantity",
    "Replays",
    "Unit amount",
];

pub(super) fn is_number(column: &str) -> bool {
    NUMBERS.contains(&column)
}

pub(super) fn head(column: &str) -> Markup {
    html! { th .number[is_number(column)] scope="col" { (heading(column)) } }
}

/// What stands behind the name of a time. The script writes the zone of the person there.
pub(super) const UTC: &str = " (UTC)";

/// A name, of a time too.
pub(super) fn heading(name: &str) -> Markup {
    match name.strip_suffix(UTC) {
        Some(name) => html! { (name) " " span .zone { "(UTC)" } },
        None => html! { (name) },
    }
}

/// A moment, to the millisecond. The script shows it in the zone of the person.
pub(super) fn time(at: DateTime<Utc>) -> Markup {
    html! {
        time datetime=(at.to_rfc3339_opts(SecondsFormat::Millis, true)) {
            (at.format("%Y-%m-%d %H:%M:%S%.3f"))
        }
    }
}

/// A moment that is known to the second.
pub(super) fn second(at: DateTime<Utc>) -> Markup {
    html! {
        time datetime=(at.to_rfc3339_opts(SecondsFormat::Secs, true)) { (at.format("%Y-%m-%d %H:%M:%S")) }
    }
}

/// How long ago a moment was, behind its time. The script keeps it current.
pub(super) fn age(at: DateTime<Utc>) -> Markup {
    let ago = match (Utc::now() - at).num_seconds().max(0) {
        seconds @ ..60 => format!("{seconds} s ago"),
        seconds @ ..3600 => format!("{} min ago", seconds / 60),
        seconds @ ..86_400 => format!("{} h ago", seconds / 3600),
        seconds => format!("{} d ago", seconds / 86_400),
    };
    html! { small .age { (ago) } }
}

/// A word for a state, colored by whether it is good news. The word says it as well.
pub(super) fn state(word: &str) -> Markup {
    html! { span class={ "state " (mood(word)) } { (word.replace('_', " ")) } }
}

pub(super) fn mood(word: &str) -> &'static str {
    match word {
        "executed" | "replayed" | "succeeded" | "paid" | "completed" | "done" | "enabled" => "good",
        "failed"
        | "reused"
        | "in_doubt"
        | "unanswered"
        | "lost"
        | "critical"
        | "all_fail"
        | "requires_payment_method" => "bad",
        "refused"
        | "declined"
        | "abandoned"
        | "in_use"
        | "in_flight"
        | "pending"
        | "in_progress"
        | "authorized"
        | "processing"
        | "disabled"
        | "some_fail"
        | "warning"
        | "requires_action"
        | "requires_capture"
        | "requires_confirmation" => "warn",
        _ => "plain",
    }
}

/// A text for a line of a table: of a long one, its beginning and its end.
pub(super) fn shortened(text: &str) -> Cow<'_, str> {
    let count = text.chars().count();
    if count <= WHOLE_MAX {
        return Cow::Borrowed(text);
    }
    let head = text.chars().take(HEAD);
    let tail = text.chars().skip(count - TAIL);
    Cow::Owned(head.chain(['…']).chain(tail).collect())
}

/// As [`shortened`], with the whole text in the title.
pub(super) fn short(text: &str) -> Markup {
    let shown = shortened(text);
    html! { span title=[(shown != text).then_some(text)] { (shown) } }
}

/// A key, which leads to its story.
pub(super) fn key_link(key: &str) -> Markup {
    // A hash stands in place of the key, and leads nowhere.
    if key.starts_with(',') {
        return state("sealed");
    }
    let shown = shortened(key);
    html! { a .mono href=(key_path(key)) title=[(shown != key).then_some(key)] { (shown) } }
}

pub(super) fn key_path(key: &str) -> String {
    format!("/console/keys/{}", encoded(key))
}

/// A text as a segment of a path, or as a value in a query.
pub(super) fn encoded(text: &str) -> String {
    utf8_percent_encode(text, IN_A_SEGMENT).to_string()
}

/// A path with those members of a query that aren't empty.
pub(super) fn address(path: &str, members: &[(&str, &str)]) -> String {
    let used = members.iter().filter(|(_, value)| !value.is_empty());
    let query = form_urlencoded::Serializer::new(String::new())
        .extend_pairs(used)
        .finish();
    match &*query {
        "" => path.to_owned(),
        query => format!("{path}?{query}"),
    }
}

/// The id of an object, which leads to its page if it has one.
pub(super) fn resource(id: &str) -> Markup {
    match kind_of(id) {
        Some(kind) => {
            html! { a .mono href={ "/console/" (Noun::of(kind).path) "/" (id) } { (id) } }
        }
        None => html! { code { (id) } },
    }
}

pub(super) fn kind_of(id: &str) -> Option<Kind> {
    let prefix = id.split_once('_').map(|(prefix, _)| prefix);
    let mut kinds = Kind::ALL.iter().copied();
    kinds.find(|kind| Some(Noun::of(*kind).prefix) == prefix)
}

pub(super) fn folded(title: &str, json: &str) -> Markup {
    html! {
        details {
            summary { (title) }
            pre role="group" tabindex="0" aria-label=(title) { (json) }
        }
    }
}

pub(super) async fn style() -> HttpResponse {
    HttpResponse::Ok()
        .content_type("text/css; charset=utf-8")
        .insert_header((CACHE_CONTROL, AN_HOUR))
        .body(include_str!("style.css"))
}

pub(super) async fn script() -> HttpResponse {
    HttpResponse::Ok()
        .content_type("text/javascript; charset=utf-8")
        .insert_header((CACHE_CONTROL, AN_HOUR))
        .body(include_str!("script.js"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_keeps_its_beginning_and_its_end() {
        let whole = "checkout-7";
        assert_eq!(shortened(whole), whole);
        let long = "playground-ec268329-28b8-47b6-b5d9-836cea1053ff";
        assert_eq!(shortened(long), "playground-ec2…ea1053ff");
        assert_eq!(shortened(&"é".repeat(40)).chars().count(), HEAD + 1 + TAIL);
    }
}
