//! Deliveries of webhooks, and sending one again now.

use actix_web::{HttpRequest, HttpResponse, web};
use maud::{Markup, html};
use uuid::Uuid;

use super::{
    error::ConsoleError,
    form::Form,
    layout::{self, Section, state, table, time},
    visitor::Visitor,
};
use crate::{
    domain::{
        ids::WebhookDeliveryId,
        webhook_delivery::{DeliveryStatus, WebhookDelivery},
    },
    http::{App, request::query_value},
    store, webhooks,
};

/// Deliveries on a page.
const PAGE_ROWS: usize = 50;

/// A page of deliveries, the newest first.
pub(super) async fn show(
    app: web::Data<App>,
    visitor: Visitor,
    request: HttpRequest,
) -> Result<HttpResponse, ConsoleError> {
    let account = visitor.account;
    let below = match query_value(&request, "before") {
        None => Uuid::max(),
        Some(id) => {
            WebhookDeliveryId::parse(&id)
                .ok_or(ConsoleError::Unreadable("No delivery has such an id."))?
                .0
        }
    };
    let deliveries = app
        .read(account, move |connection| {
            let limit = i64::try_from(PAGE_ROWS + 1).unwrap_or(i64::MAX);
            Box::pin(store::webhook_deliveries::list_of_account(
                connection, account, below, limit,
            ))
        })
        .await?;
    let older = deliveries.len() > PAGE_ROWS;
    let shown = deliveries.get(..PAGE_ROWS).unwrap_or(&deliveries);
    let columns = [
        "Created (UTC)",
        "Event",
        "Endpoint",
        "State",
        "Attempts",
        "Last answer",
        "Next attempt (UTC)",
        "Action",
    ];
    let body = html! {
        h1 { "Webhook deliveries" }
        @if let Some(problem) = retried(&request) { p role="status" { (problem) } }
        @if shown.is_empty() {
            p {
                "There is none. Make a webhook endpoint with " code { "POST /webhook_endpoints" }
                ", and events are sent to it."
            }
        } @else {
            (table("Webhook deliveries", &columns, &html! { @for one in shown { (row(one)) } }))
        }
        @if let (true, Some(last)) = (older, shown.last()) {
            p { a href={ "/console/deliveries?before=" (last.id) } { "Older deliveries" } }
        }
    };
    Ok(layout::page(
        "Webhook deliveries",
        Some(Section::Deliveries),
        &body,
    ))
}

/// Makes a delivery due now.
pub(super) async fn retry(
    app: web::Data<App>,
    visitor: Visitor,
    request: HttpRequest,
    _: Form,
) -> Result<HttpResponse, ConsoleError> {
    let account = visitor.account;
    let id = WebhookDeliveryId::parse(request.match_info().query("id"));
    let id = id.ok_or(ConsoleError::Missing)?;
    let is_due = app
        .write(account, move |tx| {
            Box::pin(webhooks::retry_now(tx, account.0, id.0))
        })
        .await?;
    match is_due {
        None => Err(ConsoleError::Missing),
        Some(true) => {
            app.wake_webhooks.notify_one();
            Ok(layout::redirect("/console/deliveries?retry=due"))
        }
        Some(false) => Ok(layout::redirect("/console/deliveries?retry=not_due")),
    }
}

fn retried(request: &HttpRequest) -> Option<&'static str> {
    match query_value(request, "retry")?.as_str() {
        "due" => Some("It is due now, and is being sent."),
        "not_due" => Some(
            "It was left as it is: it has been delivered, it is being sent now, or its endpoint is \
             deleted.",
        ),
        _ => None,
    }
}

fn row(delivery: &WebhookDelivery) -> Markup {
    let last = delivery.attempts.last();
    let answer = last.map(|attempt| match (attempt.response_status, &attempt.error) {
        (Some(status), None) => status.to_string(),
        (Some(status), Some(error)) => format!("{status}, {error}"),
        (None, error) => error.clone().unwrap_or_default(),
    });
    html! {
        tr {
            td { (time(delivery.created_at)) }
            td { (delivery.event_type) br; code { (delivery.event) } }
            td { code { (delivery.endpoint) } }
            td { (state(delivery.status.as_str())) }
            td .number { (delivery.attempts.len()) }
            td .wide { @if let Some(answer) = answer { (answer) } }
            td { @if let Some(at) = delivery.next_attempt_at { (time(at)) } }
            td {
                @if delivery.status != DeliveryStatus::Succeeded {
                    form method="post" action={ "/console/deliveries/" (delivery.id) "/retry" } {
                        button type="submit" .quiet aria-label={ "Retry now: " (delivery.id) } { "Retry now" }
                    }
                }
            }
        }
    }
}
