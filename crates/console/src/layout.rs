//! What the pages of the console have in common.

use actix_web::{
    HttpResponse,
    http::{
        StatusCode,
        header::{
            CACHE_CONTROL, CONTENT_SECURITY_POLICY, ContentType, HeaderName, HeaderValue, LOCATION,
            REFERRER_POLICY,
        },
    },
};
use chrono::{DateTime, SecondsFormat, Utc};
use maud::{DOCTYPE, Markup, html};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

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

/// The pages that every page links to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Section {
    /// The requests that came, the newest first.
    Requests,
    /// The list of charges.
    Charges,
    /// The list of payment intents.
    PaymentIntents,
    /// The list of customers.
    Customers,
    /// The list of setup intents.
    SetupIntents,
    /// The list of orders.
    Orders,
    /// The list of refunds.
    Refunds,
    /// The list of checkouts.
    Checkouts,
    /// Deliveries of webhooks.
    Deliveries,
    /// Keys that have no outcome yet.
    InFlight,
    /// The page that sends requests.
    Playground,
}

impl Section {
    const ALL: &'static [Self] = &[
        Self::Requests,
        Self::Playground,
        Self::Charges,
        Self::PaymentIntents,
        Self::Customers,
        Self::SetupIntents,
        Self::Orders,
        Self::Refunds,
        Self::Checkouts,
        Self::Deliveries,
        Self::InFlight,
    ];

    /// Its title and its path.
    pub(super) fn link(self) -> (&'static str, &'static str) {
        match self {
            Self::Requests => ("Requests", "/console"),
            Self::Charges => ("Charges", "/console/charges"),
            Self::PaymentIntents => ("Payment intents", "/console/payment_intents"),
            Self::Customers => ("Customers", "/console/customers"),
            Self::SetupIntents => ("Setup intents", "/console/setup_intents"),
            Self::Orders => ("Orders", "/console/orders"),
            Self::Refunds => ("Refunds", "/console/refunds"),
            Self::Checkouts => ("Checkouts", "/console/checkouts"),
            Self::Deliveries => ("Webhooks", "/console/deliveries"),
            Self::InFlight => ("In flight", "/console/in-flight"),
            Self::Playground => ("Playground", "/console/playground"),
        }
    }
}

/// A page of a session; `section` is the link that leads to it.
pub(super) fn page(title: &str, section: Option<Section>, body: &Markup) -> HttpResponse {
    page_with_status(StatusCode::OK, title, section, body)
}

/// As [`page`], with another status.
pub(super) fn page_with_status(
    status: StatusCode,
    title: &str,
    section: Option<Section>,
    body: &Markup,
) -> HttpResponse {
    let bar = html! {
        nav aria-label="Console" {
            ul {
                @for one in Section::ALL {
                    @let (name, path) = one.link();
                    li {
                        a href=(path) aria-current=[(section == Some(*one)).then_some("page")] { (name) }
                    }
                }
                li { a href="/swagger-ui/" { "Swagger UI" } }
            }
        }
        form method="post" action="/console/sign-out" {
            button type="submit" .quiet { "Sign out" }
        }
    };
    html_page(status, title, &bar, body)
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
                meta name="viewport" content="width=device-width";
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

/// A table that scrolls by itself where it is wider than the screen, with the keyboard too.
pub(super) fn table(label: &str, columns: &[&str], rows: &Markup) -> Markup {
    html! {
        div .scroll tabindex="0" role="region" aria-label=(label) {
            table {
                thead { tr { @for column in columns { th scope="col" { (column) } } } }
                tbody { (rows) }
            }
        }
    }
}

/// A moment, to the millisecond.
pub(super) fn time(at: DateTime<Utc>) -> Markup {
    html! {
        time datetime=(at.to_rfc3339_opts(SecondsFormat::Millis, true)) {
            (at.format("%Y-%m-%d %H:%M:%S%.3f"))
        }
    }
}

/// A word for a state, colored by whether it is good news. The word says it as well.
pub(super) fn state(word: &str) -> Markup {
    let kind = match word {
        "executed" | "replayed" | "succeeded" | "paid" | "completed" => "good",
        "failed" | "reused" | "in doubt" | "unanswered" | "requires_payment_method" => "bad",
        "refused"
        | "in_use"
        | "pending"
        | "in_progress"
        | "authorized"
        | "processing"
        | "requires_action"
        | "requires_capture"
        | "requires_confirmation" => "warn",
        _ => "plain",
    };
    html! { span class={ "state " (kind) } { (word.replace('_', " ")) } }
}

/// The story of a key.
pub(super) fn key_path(key: &str) -> String {
    format!("/console/keys/{}", encoded(key))
}

/// A text as a segment of a path, or as a value in a query.
pub(super) fn encoded(text: &str) -> String {
    utf8_percent_encode(text, IN_A_SEGMENT).to_string()
}

/// The id of an object, which leads to its page if it has one.
pub(super) fn resource(id: &str) -> Markup {
    let list = match id.split_once('_') {
        Some(("ch", _)) => "charges",
        Some(("or", _)) => "orders",
        Some(("re", _)) => "refunds",
        Some(("co", _)) => "checkouts",
        Some(("pi", _)) => "payment_intents",
        Some(("cus", _)) => "customers",
        Some(("pm", _)) => "payment_methods",
        Some(("seti", _)) => "setup_intents",
        _ => return html! { code { (id) } },
    };
    html! { a href={ "/console/" (list) "/" (id) } { (id) } }
}

/// The style of the pages.
pub(super) async fn style() -> HttpResponse {
    HttpResponse::Ok()
        .content_type("text/css; charset=utf-8")
        .insert_header((CACHE_CONTROL, AN_HOUR))
        .body(include_str!("style.css"))
}

/// The script of the pages.
pub(super) async fn script() -> HttpResponse {
    HttpResponse::Ok()
        .content_type("text/javascript; charset=utf-8")
        .insert_header((CACHE_CONTROL, AN_HOUR))
        .body(include_str!("script.js"))
}
