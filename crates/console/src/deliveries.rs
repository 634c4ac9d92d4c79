//! Deliveries of webhooks with their attempts, and sending one again now.

use actix_web::HttpRequest;
use maud::{Markup, html};

use super::{
    Asked, Delivery, FoundDeliveries, Page, WantedDeliveries, WebhookEndpoint,
    error::ConsoleError,
    form::Form,
    layout::{self, Section, folded, heading, resource, second, shortened, state, table, time},
    masked, query_value,
    visitor::Visitor,
};

const PAGE_ROWS: usize = 50;

const STATUSES: [&str; 3] = ["pending", "failed", "succeeded"];

/// Which deliveries an address asks for.
fn wanted(request: &HttpRequest) -> Result<WantedDeliveries, ConsoleError> {
    let value = |name| query_value(request, name).filter(|value| !value.is_empty());
    let status = value("status");
    let is_unknown = |status: &str| !STATUSES.contains(&status);
    if status.as_deref().is_some_and(is_unknown) {
        return Err(ConsoleError::Unreadable("A delivery has no such state."));
    }
    Ok(WantedDeliveries {
        status,
        endpoint: value("endpoint"),
    })
}

/// The address of the page of these deliveries before the one with this id.
fn older(wanted: &WantedDeliveries, before: &str) -> String {
    let members = [
        ("status", wanted.status.as_deref().unwrap_or_default()),
        ("endpoint", wanted.endpoint.as_deref().unwrap_or_default()),
        ("before", before),
    ];
    layout::address("/console/deliveries", &members)
}

/// A page of deliveries, the newest first.
pub(super) async fn show(server: Asked, visitor: Visitor, request: HttpRequest) -> Page {
    let (before, wanted) = (query_value(&request, "before"), wanted(&request)?);
    let (account, rows) = (visitor.account, PAGE_ROWS + 1);
    let found = server.deliveries(account, &wanted, before.as_deref(), rows);
    let unknown = ConsoleError::Unreadable("No delivery, or no endpoint, has such an id.");
    let FoundDeliveries {
        deliveries,
        ended_at,
    } = found.await?.ok_or(unknown)?;
    let endpoints = server.webhook_endpoints(account).await?;
    let shown = deliveries.get(..PAGE_ROWS).unwrap_or(&deliveries);
    let last = shown.last().filter(|_| deliveries.len() > PAGE_ROWS);
    let last = last.map(|last| &last.id).or(ended_at.as_ref());
    let is_filtered = wanted.status.is_some() || wanted.endpoint.is_some();
    let body = html! {
        h1 { "Webhooks" }
        @if let Some(problem) = retried(&request) { p .says role="status" { (problem) } }
        @if before.is_none() {
            h2 { "Endpoints" }
            @if !endpoints.is_empty() { (endpoints_table(&endpoints)) }
            p { a href="/console/webhook_endpoints/new" { "Make an endpoint" } }
        }
        h2 { "Deliveries" }
        (filter_form(&wanted, &endpoints))
        @if shown.is_empty() && (is_filtered || last.is_some()) {
            p { "No delivery fits, among those that were searched." }
        } @else {
            (deliveries_table(shown))
        }
        @if let Some(last) = last { p { a href=(older(&wanted, last)) { "Older deliveries" } } }
    };
    let (section, has_mistake) = (Section::Webhooks, false);
    Ok(layout::section_page(&visitor, section, has_mistake, &body))
}

fn filter_form(wanted: &WantedDeliveries, endpoints: &[WebhookEndpoint]) -> Markup {
    html! {
        form .filter method="get" action="/console/deliveries" role="search" {
            div {
                label for="status" { "State" }
                select #status name="status" {
                    option value="" { "all" }
                    @for status in STATUSES {
                        option value=(status) selected[wanted.status.as_deref() == Some(status)] { (status) }
                    }
                }
            }
            div {
                label for="endpoint" { "Endpoint" }
                select #endpoint name="endpoint" {
                    option value="" { "all" }
                    @for one in endpoints {
                        option value=(one.id) selected[wanted.endpoint.as_ref() == Some(&one.id)] { (one.url) }
                    }
                }
            }
            div .actions {
                button type="submit" { "Filter" }
                a href="/console/deliveries?status=failed" { "Failed" }
                a href="/console/deliveries?status=pending" { "Pending" }
            }
        }
    }
}

/// One delivery, with all of its attempts.
pub(super) async fn one(server: Asked, visitor: Visitor, request: HttpRequest) -> Page {
    let id = request.match_info().query("id");
    let found = server.delivery(visitor.account, id).await?;
    let (delivery, attempts) = found.ok_or(ConsoleError::Missing)?;
    let columns = ["#", "Time (UTC)", "State", "Answer", "ms", "Reply"];
    let rows = html! {
        @for (attempt, number) in attempts.iter().zip(1..) {
            tr {
                td .number { (number) }
                td { (second(attempt.at)) }
                td { (state(if attempt.succeeded { "succeeded" } else { "failed" })) }
                td .wide { (attempt.answer) }
                td .number { (attempt.milliseconds) }
                td .wide {
                    @if let Some(reply) = &attempt.reply {
                        (folded(&format!("Reply {number}"), &masked::reply(reply)))
                    }
                }
            }
        }
    };
    let body = html! {
        h1 { "Delivery of " (delivery.event_type) " " (state(delivery.status)) }
        p { code { (delivery.id) } }
        dl {
            dt { "Event" } dd { (resource(&delivery.event)) }
            dt { "Endpoint" } dd { (resource(&delivery.endpoint)) }
            dt { (heading("Created (UTC)")) } dd { (time(delivery.created_at)) }
            @if let Some(at) = delivery.next_attempt_at {
                dt { (heading("Next attempt (UTC)")) } dd { (time(at)) }
            }
        }
        (retry_form(&delivery))
        h2 { "Attempts" }
        @if attempts.is_empty() { p { "None has ended yet." } } @else { (table("Attempts", &columns, &rows)) }
        p { "Of a reply, the first KiB is shown, as long as the log of requests is kept." }
    };
    let section = Some(Section::Webhooks);
    Ok(layout::page(&visitor, &delivery.id, section, &body))
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
                "There is none. " a href="/console/webhook_endpoints/new" { "Make a webhook endpoint" }
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

fn endpoints_table(endpoints: &[WebhookEndpoint]) -> Markup {
    let columns = ["Endpoint", "URL", "State", "Acknowledged", "Events"];
    let rows = html! {
        @for one in endpoints {
            tr {
                td { (resource(&one.id)) }
                td .wide { (one.url) }
                td { (state(health(one))) }
                td { a href={ "/console/deliveries?endpoint=" (one.id) } { (rate(one)) } }
                td .wide {
                    (one.enabled_events.join(", "))
                    @if !one.never_sent.is_empty() {
                        br; "Never sent here: " (one.never_sent.join(", "))
                    }
                }
            }
        }
    };
    table("Webhook endpoints", &columns, &rows)
}

/// An endpoint's state, in a word: `enabled` only if no attempt failed.
pub(super) fn health(endpoint: &WebhookEndpoint) -> &'static str {
    match endpoint.attempts - endpoint.succeeded {
        _ if endpoint.status == "disabled" => "disabled",
        0 => endpoint.status,
        _ if endpoint.succeeded == 0 => "all_fail",
        _ => "some_fail",
    }
}

/// The share of the newest attempts that were acknowledged.
pub(super) fn rate(endpoint: &WebhookEndpoint) -> String {
    let (of, all) = (endpoint.succeeded, endpoint.attempts);
    match all {
        0 => "no attempt yet".to_owned(),
        _ => format!("{of} of {all}, {} %", of * 100 / all),
    }
}

fn retry_form(delivery: &Delivery) -> Markup {
    html! {
        @if delivery.status != "succeeded" {
            form method="post" action={ "/console/deliveries/" (delivery.id) "/retry" } {
                button type="submit" .quiet aria-label={ "Retry now: " (delivery.id) } { "Retry now" }
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
            td { (link("deliveries", &delivery.id, time(delivery.created_at))) }
            td { (link("events", &delivery.event, html! { (delivery.event_type) })) }
            td .mono { (link("webhook_endpoints", &delivery.endpoint, html! { (shortened(&delivery.endpoint)) })) }
            td { (state(delivery.status)) }
            td .wide { (answers(delivery)) }
            td { @if let Some(at) = delivery.next_attempt_at { (time(at)) } }
            td { (retry_form(delivery)) }
        }
    }
}
