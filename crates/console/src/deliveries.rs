//! Deliveries of webhooks, and sending one again now.

use actix_web::HttpRequest;
use maud::{Markup, html};

use super::{
    Asked, Delivery, Page, WebhookEndpoint,
    error::ConsoleError,
    form::Form,
    layout::{self, Section, resource, shortened, state, table, time},
    query_value,
    visitor::Visitor,
};

const PAGE_ROWS: usize = 50;

/// A page of deliveries, the newest first.
pub(super) async fn show(server: Asked, visitor: Visitor, request: HttpRequest) -> Page {
    let before = query_value(&request, "before");
    let found = server.deliveries(visitor.account, before.as_deref(), PAGE_ROWS + 1);
    let unknown = ConsoleError::Unreadable("No delivery has such an id.");
    let deliveries = found.await?.ok_or(unknown)?;
    let endpoints = match before {
        None => server.webhook_endpoints(visitor.account).await?,
        Some(_) => Vec::new(),
    };
    let older = deliveries.len() > PAGE_ROWS;
    let shown = deliveries.get(..PAGE_ROWS).unwrap_or(&deliveries);
    let body = html! {
        h1 { "Webhooks" }
        @if let Some(problem) = retried(&request) { p .says role="status" { (problem) } }
        @if !endpoints.is_empty() {
            h2 { "Endpoints" }
            (table("Webhook endpoints", &["Endpoint", "URL", "State", "Events"], &html! {
                @for one in &endpoints { (endpoint(one)) }
            }))
        }
        h2 { "Deliveries" }
        (deliveries_table(shown))
        @if let (true, Some(last)) = (older, shown.last()) {
            p { a href={ "/console/deliveries?before=" (last.id) } { "Older deliveries" } }
        }
    };
    Ok(layout::page(
        &visitor,
        "Webhooks",
        Some(Section::Webhooks),
        &body,
    ))
}

/// Deliveries, each with a button that makes it due, unless it was delivered.
pub(super) fn deliveries_table(deliveries: &[Delivery]) -> Markup {
    let columns = [
        "Created (UTC)",
        "Event",
        "Endpoint",
        "State",
        "Answers",
        "Next attempt (UTC)",
        "Action",
    ];
    html! {
        @if deliveries.is_empty() {
            p {
                "There is none. Make a webhook endpoint with " code { "POST /webhook_endpoints" }
                ", and events are sent to it from then on. Or let "
                code { "charge-once webhooks listen" } " show them in a terminal."
            }
        } @else {
            (table("Webhook deliveries", &columns, &html! { @for one in deliveries { (row(one)) } }))
        }
    }
}

pub(super) fn answers(delivery: &Delivery) -> Markup {
    html! {
        @if let Some(answer) = &delivery.last_answer {
            @if delivery.attempts > 1 { (delivery.attempts) " attempts, the last: " }
            (answer)
        }
    }
}

pub(super) async fn retry(server: Asked, visitor: Visitor, request: HttpRequest, _: Form) -> Page {
    let id = request.match_info().query("id");
    let is_due = server.retry_delivery(visitor.account, id).await?;
    match is_due {
        None => Err(ConsoleError::Missing),
        Some(true) => Ok(layout::redirect("/console/deliveries?retry=due")),
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

fn endpoint(endpoint: &WebhookEndpoint) -> Markup {
    html! {
        tr {
            td { (resource(&endpoint.id)) }
            td .wide { (endpoint.url) }
            td { (state(endpoint.status)) }
            td .wide {
                (endpoint.enabled_events.join(", "))
                @if !endpoint.never_sent.is_empty() {
                    br; "Never sent here: " (endpoint.never_sent.join(", "))
                }
            }
        }
    }
}

fn row(delivery: &Delivery) -> Markup {
    let link = |path: &str, id: &str, shown: Markup| {
        html! { a href={ "/console/" (path) "/" (id) } title=(id) { (shown) } }
    };
    html! {
        tr {
            td { (time(delivery.created_at)) }
            td { (link("events", &delivery.event, html! { (delivery.event_type) })) }
            td .mono { (link("webhook_endpoints", &delivery.endpoint, html! { (shortened(&delivery.endpoint)) })) }
            td { (state(delivery.status)) }
            td .wide { (answers(delivery)) }
            td { @if let Some(at) = delivery.next_attempt_at { (time(at)) } }
            td {
                @if delivery.status != "succeeded" {
                    form method="post" action={ "/console/deliveries/" (delivery.id) "/retry" } {
                        button type="submit" .quiet aria-label={ "Retry now: " (delivery.id) } { "Retry now" }
                    }
                }
            }
        }
    }
}
