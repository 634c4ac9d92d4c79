//! Objects by their kinds: a list of most, and a page for one.

use actix_web::{HttpRequest, HttpResponse, web};
use maud::{Markup, html};

use super::{
    Happened, Kind, Listed, Object, Server,
    error::ConsoleError,
    layout::{self, Section, key_path, resource, state, table, time},
    masked, query_value,
    visitor::Visitor,
};

/// Objects on a page.
const PAGE_ROWS: i64 = 25;

/// The list of a kind.
pub(super) async fn list(
    kind: Kind,
    server: web::Data<dyn Server>,
    visitor: Visitor,
    request: HttpRequest,
) -> Result<HttpResponse, ConsoleError> {
    let after = query_value(&request, "after");
    let listed = server.objects(visitor.account, kind, after.as_deref(), PAGE_ROWS);
    let Listed { lines, has_more } = listed.await?.ok_or(ConsoleError::Unreadable(
        "The list has no object with such an id.",
    ))?;
    let section = section(kind);
    let (title, path) = section.link();
    let about = match kind {
        Kind::Customers => "E-mail address",
        Kind::SetupIntents => "For payments",
        Kind::Charges
        | Kind::PaymentIntents
        | Kind::PaymentMethods
        | Kind::Orders
        | Kind::Refunds
        | Kind::Checkouts => "Minor units",
    };
    let rows = html! {
        @for line in &lines {
            tr {
                td { (time(line.created_at)) }
                td { a href={ (path) "/" (line.id) } { (line.id) } }
                td .wide { (line.about) }
                td { (state(line.state)) }
            }
        }
    };
    let body = html! {
        h1 { (title) }
        @if lines.is_empty() {
            p { "There is none." }
        } @else {
            (table(title, &["Created (UTC)", "Id", about, "State"], &rows))
        }
        @if let (true, Some(last)) = (has_more, lines.last()) {
            p { a href={ (path) "?after=" (last.id) } { "Older ones" } }
        }
    };
    Ok(layout::page(title, Some(section), &body))
}

/// One object.
pub(super) async fn one(
    kind: Kind,
    server: web::Data<dyn Server>,
    visitor: Visitor,
    request: HttpRequest,
) -> Result<HttpResponse, ConsoleError> {
    let id = request.match_info().query("id");
    let found = server.object(visitor.account, kind, id).await?;
    let Object { json, events } = found.ok_or(ConsoleError::Missing)?;
    let shown = masked::pretty(&json).ok_or(ConsoleError::Missing)?;
    // The first event tells of its making, unless the object is older than events are kept.
    let key = events
        .first()
        .and_then(|event| event.idempotency_key.as_deref());
    let body = html! {
        h1 { code { (id) } }
        @if let Some(key) = key {
            p { "Made or first changed under the key " a href=(key_path(key)) { (key) } "." }
        }
        p { a href=(swagger_ui(kind)) { "Retrieve it in Swagger UI" } }
        pre role="group" tabindex="0" aria-label="As the API shows it" { (shown) }
        h2 { "Events" }
        @if events.is_empty() {
            p { "None among those around its creation, and none among the newest." }
        } @else {
            (happened_table(&events))
        }
    };
    Ok(layout::page(id, Some(section(kind)), &body))
}

fn section(kind: Kind) -> Section {
    match kind {
        Kind::Charges => Section::Charges,
        Kind::PaymentIntents => Section::PaymentIntents,
        Kind::Customers | Kind::PaymentMethods => Section::Customers,
        Kind::SetupIntents => Section::SetupIntents,
        Kind::Orders => Section::Orders,
        Kind::Refunds => Section::Refunds,
        Kind::Checkouts => Section::Checkouts,
    }
}

/// The operation in Swagger UI that retrieves such an object.
fn swagger_ui(kind: Kind) -> String {
    let (tag, operation) = match kind {
        Kind::Charges => ("Charges", "retrieveCharge"),
        Kind::PaymentIntents => ("Payment intents", "retrievePaymentIntent"),
        Kind::Customers => ("Customers", "retrieveCustomer"),
        Kind::PaymentMethods => ("Payment methods", "retrievePaymentMethod"),
        Kind::SetupIntents => ("Setup intents", "retrieveSetupIntent"),
        Kind::Orders => ("Orders", "retrieveOrder"),
        Kind::Refunds => ("Refunds", "retrieveRefund"),
        Kind::Checkouts => ("Checkouts", "retrieveCheckout"),
    };
    format!("/swagger-ui/#/{tag}/{operation}")
}

/// What happened, in the order it happened.
pub(super) fn happened_table(events: &[Happened]) -> Markup {
    let rows = html! {
        @for event in events {
            tr {
                td { (time(event.created_at)) }
                td { (event.event_type) }
                td { code { (event.id) } }
                td { @if let Some(id) = &event.object_id { (resource(id)) } }
                td .wide {
                    @if let Some(key) = &event.idempotency_key { a href=(key_path(key)) { (key) } }
                }
            }
        }
    };
    table(
        "Events",
        &["Time (UTC)", "Type", "Event", "About", "Key"],
        &rows,
    )
}
