//! Charges, orders, refunds and checkouts: a list of each, and a page for one.

use actix_web::{HttpRequest, HttpResponse, web};
use chrono::{DateTime, Utc};
use maud::{Markup, html};
use serde::Serialize;
use uuid::Uuid;

use super::{
    error::ConsoleError,
    layout::{self, Section, key_path, resource, state, table, time},
    masked,
    visitor::Visitor,
};
use crate::{
    database::{PgConnection, Reading},
    domain::{
        ids::{AccountId, ChargeId, CheckoutId, OrderId, RefundId},
        money::Money,
    },
    http::{App, request::query_value},
    store::{
        self,
        events::Happened,
        page::{Cursor, Listed, Page},
    },
    wire::{charges::ChargeView, checkouts::CheckoutView, orders::OrderView, refunds::RefundView},
};

/// Objects on a page.
const PAGE_ROWS: i64 = 25;

/// An object in a list.
struct Line {
    id: String,
    created_at: DateTime<Utc>,
    amount: Money,
    state: &'static str,
}

/// The list of charges.
pub(super) async fn charges(
    app: web::Data<App>,
    visitor: Visitor,
    request: HttpRequest,
) -> Result<HttpResponse, ConsoleError> {
    let (account, page) = (
        visitor.account,
        page(&request, |id| Some(ChargeId::parse(id)?.0))?,
    );
    let filter = store::charges::Filter::default();
    let listed = app
        .read(account, move |connection| {
            Box::pin(async move { store::charges::list(connection, account, &page, &filter).await })
        })
        .await?;
    list(Section::Charges, listed, |charge| Line {
        id: charge.id.to_string(),
        created_at: charge.created_at,
        amount: charge.amount,
        state: if charge.amount_refunded > 0 {
            "refunded"
        } else {
            charge.status.as_str()
        },
    })
}

/// The list of orders.
pub(super) async fn orders(
    app: web::Data<App>,
    visitor: Visitor,
    request: HttpRequest,
) -> Result<HttpResponse, ConsoleError> {
    let (account, page) = (
        visitor.account,
        page(&request, |id| Some(OrderId::parse(id)?.0))?,
    );
    let filter = store::orders::Filter::default();
    let listed = app
        .read(account, move |connection| {
            Box::pin(async move { store::orders::list(connection, account, &page, &filter).await })
        })
        .await?;
    list(Section::Orders, listed, |order| Line {
        id: order.id.to_string(),
        created_at: order.created_at,
        amount: order.amount,
        state: order.status.as_str(),
    })
}

/// The list of refunds.
pub(super) async fn refunds(
    app: web::Data<App>,
    visitor: Visitor,
    request: HttpRequest,
) -> Result<HttpResponse, ConsoleError> {
    let (account, page) = (
        visitor.account,
        page(&request, |id| Some(RefundId::parse(id)?.0))?,
    );
    let filter = store::refunds::Filter::default();
    let listed = app
        .read(account, move |connection| {
            Box::pin(async move { store::refunds::list(connection, account, &page, &filter).await })
        })
        .await?;
    list(Section::Refunds, listed, |refund| Line {
        id: refund.id.to_string(),
        created_at: refund.created_at,
        amount: refund.amount,
        state: refund.status.as_str(),
    })
}

/// The list of checkouts.
pub(super) async fn checkouts(
    app: web::Data<App>,
    visitor: Visitor,
    request: HttpRequest,
) -> Result<HttpResponse, ConsoleError> {
    let (account, page) = (
        visitor.account,
        page(&request, |id| Some(CheckoutId::parse(id)?.0))?,
    );
    let listed = app
        .read(account, move |connection| {
            Box::pin(async move { store::checkouts::list(connection, account, &page, None).await })
        })
        .await?;
    list(Section::Checkouts, listed, |checkout| Line {
        id: checkout.id.to_string(),
        created_at: checkout.created_at,
        amount: checkout.amount,
        state: checkout.status.as_str(),
    })
}

/// One charge.
pub(super) async fn charge(
    app: web::Data<App>,
    visitor: Visitor,
    request: HttpRequest,
) -> Result<HttpResponse, ConsoleError> {
    let (account, id) = (visitor.account, path_id(&request, ChargeId::parse)?);
    let name = id.to_string();
    let (charge, events) = with_events(&app, account, id.0, name.clone(), move |connection| {
        Box::pin(store::charges::find(connection, account, id))
    })
    .await?;
    one(Section::Charges, &name, &ChargeView::from(&charge), &events)
}

/// One order.
pub(super) async fn order(
    app: web::Data<App>,
    visitor: Visitor,
    request: HttpRequest,
) -> Result<HttpResponse, ConsoleError> {
    let (account, id) = (visitor.account, path_id(&request, OrderId::parse)?);
    let name = id.to_string();
    let (order, events) = with_events(&app, account, id.0, name.clone(), move |connection| {
        Box::pin(store::orders::find(connection, account, id))
    })
    .await?;
    one(Section::Orders, &name, &OrderView::from(&order), &events)
}

/// One refund.
pub(super) async fn refund(
    app: web::Data<App>,
    visitor: Visitor,
    request: HttpRequest,
) -> Result<HttpResponse, ConsoleError> {
    let (account, id) = (visitor.account, path_id(&request, RefundId::parse)?);
    let name = id.to_string();
    let (refund, events) = with_events(&app, account, id.0, name.clone(), move |connection| {
        Box::pin(store::refunds::find(connection, account, id))
    })
    .await?;
    one(Section::Refunds, &name, &RefundView::from(&refund), &events)
}

/// One checkout.
pub(super) async fn checkout(
    app: web::Data<App>,
    visitor: Visitor,
    request: HttpRequest,
) -> Result<HttpResponse, ConsoleError> {
    let (account, id) = (visitor.account, path_id(&request, CheckoutId::parse)?);
    let name = id.to_string();
    let (run, events) = with_events(&app, account, id.0, name.clone(), move |connection| {
        Box::pin(store::checkouts::find(connection, account, id))
    })
    .await?;
    one(
        Section::Checkouts,
        &name,
        &CheckoutView::from(&run.checkout),
        &events,
    )
}

/// An object of the account with its events, as of one moment.
async fn with_events<T, F>(
    app: &App,
    account: AccountId,
    id: Uuid,
    name: String,
    find: F,
) -> Result<(T, Vec<Happened>), ConsoleError>
where
    T: Send + 'static,
    F: for<'c> FnOnce(&'c mut PgConnection) -> Reading<'c, Option<T>> + Send + 'static,
{
    let (object, events) = app
        .snapshot(account, move |connection| {
            Box::pin(async move {
                let object = find(&mut *connection).await?;
                let events = store::events::list_of_object(connection, account, id, &name).await?;
                Ok((object, events))
            })
        })
        .await?;
    Ok((object.ok_or(ConsoleError::Missing)?, events))
}

/// The page after the object that the address names.
fn page(request: &HttpRequest, parse: impl Fn(&str) -> Option<Uuid>) -> Result<Page, ConsoleError> {
    let cursor = match query_value(request, "after") {
        None => Cursor::Start,
        Some(id) => Cursor::StartingAfter(parse(&id).ok_or(NO_OBJECT)?),
    };
    Ok(Page {
        limit: PAGE_ROWS,
        cursor,
        created_from: None,
        created_before: None,
    })
}

const NO_OBJECT: ConsoleError = ConsoleError::Unreadable("The list has no object with such an id.");

fn path_id<T>(request: &HttpRequest, parse: impl Fn(&str) -> Option<T>) -> Result<T, ConsoleError> {
    parse(request.match_info().query("id")).ok_or(ConsoleError::Missing)
}

fn list<T>(
    section: Section,
    listed: Option<Listed<T>>,
    line: impl Fn(&T) -> Line,
) -> Result<HttpResponse, ConsoleError> {
    let Listed { data, has_more } = listed.ok_or(NO_OBJECT)?;
    let lines: Vec<_> = data.iter().map(line).collect();
    let (title, path) = section.link();
    let rows = html! {
        @for line in &lines {
            tr {
                td { (time(line.created_at)) }
                td { a href={ (path) "/" (line.id) } { (line.id) } }
                td .number { (line.amount.minor_units) " " (line.amount.currency) }
                td { (state(line.state)) }
            }
        }
    };
    let body = html! {
        h1 { (title) }
        @if lines.is_empty() {
            p { "There is none." }
        } @else {
            (table(title, &["Created (UTC)", "Id", "Minor units", "State"], &rows))
        }
        @if let (true, Some(last)) = (has_more, lines.last()) {
            p { a href={ (path) "?after=" (last.id) } { "Older ones" } }
        }
    };
    Ok(layout::page(title, Some(section), &body))
}

fn one<T: Serialize>(
    section: Section,
    id: &str,
    view: &T,
    events: &[Happened],
) -> Result<HttpResponse, ConsoleError> {
    let json = serde_json::to_vec(view).unwrap_or_default();
    let shown = masked::pretty(&json).ok_or(ConsoleError::Missing)?;
    let swagger_ui = swagger_ui(section);
    // The first event tells of its making, unless the object is older than events are kept.
    let key = events.first().map(|event| event.idempotency_key.as_str());
    let body = html! {
        h1 { code { (id) } }
        @if let Some(key) = key {
            p { "Made or first changed under the key " a href=(key_path(key)) { (key) } "." }
        }
        @if let Some(place) = swagger_ui {
            p { a href=(place) { "Retrieve it in Swagger UI" } }
        }
        pre role="group" tabindex="0" aria-label="As the API shows it" { (shown) }
        h2 { "Events" }
        @if events.is_empty() {
            p { "None among those around its creation, and none among the newest." }
        } @else {
            (happened_table(events))
        }
    };
    Ok(layout::page(id, Some(section), &body))
}

/// The operation in Swagger UI that retrieves such an object.
fn swagger_ui(section: Section) -> Option<String> {
    let (tag, operation) = match section {
        Section::Charges => ("Charges", "retrieveCharge"),
        Section::Orders => ("Orders", "retrieveOrder"),
        Section::Refunds => ("Refunds", "retrieveRefund"),
        Section::Checkouts => ("Checkouts", "retrieveCheckout"),
        Section::Requests | Section::Deliveries | Section::InFlight | Section::Playground => {
            return None;
        }
    };
    Some(format!("/swagger-ui/#/{tag}/{operation}"))
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
                td .wide { a href=(key_path(&event.idempotency_key)) { (event.idempotency_key) } }
            }
        }
    };
    table(
        "Events",
        &["Time (UTC)", "Type", "Event", "About", "Key"],
        &rows,
    )
}
