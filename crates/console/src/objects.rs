//! Objects by their kinds: a list of most, and a page for one.

use actix_web::HttpRequest;
use charge_once_idempotency::LeasedKey;
use maud::{Markup, html};

use super::{
    Asked, Kind, Listed, Object, Page,
    deliveries::{deliveries_table, health},
    endpoints,
    error::ConsoleError,
    in_flight::KEYS_MAX,
    keys::happened_table,
    last_segment,
    layout::{self, Section, encoded, folded, head, key_link, state, table_with_heads},
    masked::Shown,
    members::{Members, standing, used},
    noun::Noun,
    query_value, steps,
    visitor::Visitor,
};

const PAGE_ROWS: i64 = 25;

pub(super) async fn list(
    kind: Kind,
    server: Asked,
    visitor: Visitor,
    request: HttpRequest,
) -> Page {
    let after = query_value(&request, "after");
    let listed = server.objects(visitor.account, kind, after.as_deref(), PAGE_ROWS);
    let Listed { objects, has_more } = listed.await?.ok_or(ConsoleError::Unreadable(
        "The list has no object with such an id.",
    ))?;
    let noun = Noun::of(kind);
    let (title, path) = (noun.many, format!("/console/{}", noun.path));
    let objects: Vec<_> = objects
        .iter()
        .filter_map(|json| Shown::parse(json))
        .collect();
    let columns = used(noun.columns, objects.iter());
    let members = Members {
        server: &**server,
        elsewhere: &[],
        locale: visitor.locale,
    };
    let heads = html! {
        (head(if kind == Kind::Inventory { "Sku" } else { "Id" }))
        @for (name, _) in &columns { (head(name)) }
    };
    let rows = html! {
        @for one in &objects {
            @let id = name_of(one);
            tr {
                td { a .mono href={ (path) "/" (encoded(id)) } { (id) } }
                (members.cells(&columns, Some(one)))
            }
        }
    };
    let body = html! {
        h1 { (title) }
        @if objects.is_empty() {
            (nothing(kind))
        } @else {
            (table_with_heads(title, Some("lines"), &heads, &rows))
        }
        @if let (true, Some(last)) = (has_more, objects.last()) {
            p { a href={ (path) "?after=" (encoded(name_of(last))) } { "More" } }
        }
    };
    Ok(layout::page(
        &visitor,
        title,
        Some(Section::Objects(kind)),
        &body,
    ))
}

/// An object's id, or the name of a level of the inventory.
fn name_of(object: &Shown) -> &str {
    let id = object.text("id").or_else(|| object.text("sku"));
    id.unwrap_or_default()
}

/// What makes one, where there is none.
fn nothing(kind: Kind) -> Markup {
    let noun = Noun::of(kind);
    html! {
        p {
            "There is none yet. "
            @if kind == Kind::Charges {
                a href="/console/playground" { "Charge a test card" } ", and it appears here."
            } @else if kind == Kind::Events {
                "Each change of an object makes one."
            } @else {
                "Make one with "
                code { @if kind == Kind::Inventory { "PUT" } @else { "POST" } " /" (noun.path) }
                ", in " a href={ "/swagger-ui/#/" (noun.many) } { "Swagger UI" } " for example."
            }
        }
    }
}

pub(super) async fn one(kind: Kind, server: Asked, visitor: Visitor, request: HttpRequest) -> Page {
    let id = String::from_utf8(last_segment(&request)).map_err(|_| ConsoleError::Missing)?;
    let found = server.object(visitor.account, kind, &id).await?;
    let Object {
        json,
        events,
        deliveries,
    } = found.ok_or(ConsoleError::Missing)?;
    let object = Shown::parse(&json).ok_or(ConsoleError::Missing)?;
    let noun = Noun::of(kind);
    // The first event tells of its making, unless the object is older than events are kept.
    let first = events.first();
    let key = first.and_then(|event| event.idempotency_key.as_deref());
    // A request without an outcome has made no event, and may be why a person looks.
    let (_, leased) = server.in_flight(visitor.account, KEYS_MAX).await?;
    let is_of_it = |one: &&LeasedKey| one.request.resource_id.as_ref() == Some(&id);
    let leased = leased.iter().filter(is_of_it);
    let amount = object.number("amount");
    let amount = amount.and_then(|amount| server.number("amount", amount, object.text("currency")));
    let amount = amount.map(|amount| visitor.locale.written(&amount));
    let members = Members {
        server: &**server,
        elsewhere: &["amount", "currency", "status", steps::MEMBER],
        locale: visitor.locale,
    };
    let is_endpoint = kind == Kind::WebhookEndpoints;
    let section = match is_endpoint {
        true => Section::Webhooks,
        false => Section::Objects(kind),
    };
    let endpoint = match is_endpoint {
        true => Some(endpoints::find(&server, &visitor, &id).await?),
        false => None,
    };
    let standing = endpoint.as_ref().map(health).or_else(|| standing(&object));
    let body = html! {
        h1 {
            (noun.one)
            @if let Some(amount) = &amount { " of " (amount) }
            @if let (Kind::Events, Some(event_type)) = (kind, object.text("type")) { " " (event_type) }
            @if let Some(standing) = standing { " " (state(standing)) }
        }
        p { code data-copy { (id) } }
        @for one in leased { p { "Now " (state(one.request.status())) " under the key " (key_link(&one.key)) "." } }
        @if let Some(key) = key {
            p { "Made or first changed under the key " (key_link(key)) "." }
        }
        (steps::line(&object, &events))
        (members.of(&object))
        @if let Some(endpoint) = &endpoint { (endpoints::forms(endpoint, &visitor, &request)) }
        @if is_endpoint || !deliveries.is_empty() {
            h2 { "Deliveries" }
            (deliveries_table(&deliveries))
        }
        @if !matches!(kind, Kind::Events | Kind::WebhookEndpoints | Kind::Inventory) {
            h2 { "Events" }
            @if events.is_empty() {
                p { "None among those around its creation, and none among the newest." }
            } @else {
                (happened_table(&events))
            }
        }
        h2 { "As the API shows it" }
        p { a href=(noun.swagger_ui()) { "Retrieve it in Swagger UI" } }
        @if let Some(json) = object.pretty() { (folded("JSON", &json)) }
    };
    Ok(layout::page(&visitor, &id, Some(section), &body))
}
