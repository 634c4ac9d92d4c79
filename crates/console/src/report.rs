//! The report on the client that uses a test account, and the faults that are planned for it.
//!
//! Promise: it shows what `/test/report` and `/test/faults` answer, asked over loopback with the
//! session's own API key, and its forms change what the API lets them change.

use actix_web::{HttpRequest, HttpResponse, http::StatusCode, web};
use charge_once_service::faults::FaultKind;
use chrono::DateTime;
use maud::{Markup, html};
use reqwest::Method;
use serde_json::{Value, json};

use super::{
    Console, Page, Refusal,
    endpoints::FAULTS,
    error::ConsoleError,
    form::Form,
    layout::{self, Section, key_link, resource, short, state, table, time},
    locale::Locale,
    masked::Shown,
    playground::fresh_key,
    visitor::Visitor,
};

const PLANS: &str = "/test/faults";

/// How a plan chooses, as the API names it, and as the form does.
const OFTEN: [(&str, &str); 3] = [
    ("first", "the first N"),
    ("every", "every Nth"),
    ("percent", "N percent, by chance"),
];

/// The address may fill in the form.
pub(super) async fn show(
    console: web::Data<Console>,
    visitor: Visitor,
    request: HttpRequest,
) -> Page {
    page(&console, &visitor, &Form::of_query(&request), None).await
}

/// Plans the fault that a form describes.
pub(super) async fn add(console: web::Data<Console>, visitor: Visitor, form: Form) -> Page {
    let fault = form.field("fault");
    let about = if fault.starts_with("webhook_") {
        "event"
    } else {
        "route"
    };
    let mut plan = json!({"fault": fault});
    if let Value::Object(members) = &mut plan {
        members.insert(about.to_owned(), form.field("target").into());
        let often = OFTEN.iter().find(|(name, _)| *name == form.field("often"));
        let often = often.ok_or(ConsoleError::Unreadable("A plan chooses in no such way."))?;
        let count = form.field("count");
        // What is no number is sent as it is, and refused.
        let count = count
            .parse::<i64>()
            .map_or_else(|_| count.into(), Value::from);
        members.insert(often.0.to_owned(), count);
    }
    let (status, reply) = ask(&console, &visitor, Method::POST, PLANS, Some(plan)).await?;
    if status.is_success() {
        return Ok(layout::redirect("/console/report"));
    }
    page(&console, &visitor, &form, Some(reply.error_message())).await
}

pub(super) async fn delete(
    console: web::Data<Console>,
    visitor: Visitor,
    request: HttpRequest,
    _: Form,
) -> Page {
    let id = request.match_info().query("id");
    let is_id = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if !id.bytes().all(is_id) {
        return Err(ConsoleError::Missing);
    }
    let plan = format!("{PLANS}/{id}");
    let (status, _) = ask(&console, &visitor, Method::DELETE, &plan, None).await?;
    match status.is_success() {
        true => Ok(layout::redirect("/console/report")),
        false => Err(ConsoleError::Missing),
    }
}

async fn ask(
    console: &Console,
    visitor: &Visitor,
    method: Method,
    path: &str,
    body: Option<Value>,
) -> Result<(StatusCode, Shown), ConsoleError> {
    if !visitor.may_lose_replies {
        return Err(ConsoleError::Missing);
    }
    let body = body.map(|body| (fresh_key(), body));
    let asked = console.playground.ask(&visitor.api_key, method, path, body);
    asked.await
}

async fn read(console: &Console, visitor: &Visitor, path: &str) -> Result<Shown, ConsoleError> {
    match ask(console, visitor, Method::GET, path, None).await? {
        (status, reply) if status.is_success() => Ok(reply),
        (status, _) => Err(Refusal(status).into()),
    }
}

async fn page(
    console: &Console,
    visitor: &Visitor,
    form: &Form,
    problem: Option<&str>,
) -> Result<HttpResponse, ConsoleError> {
    let report = read(console, visitor, "/test/report").await?;
    let plans = read(console, visitor, PLANS).await?;
    let plans = plans.list("data");
    let body = html! {
        h1 { "Report" }
        p .says role="status" { (report.text("summary").unwrap_or_default()) }
        p {
            "What the requests of this account tell of its client: where a retry charges twice, or would. "
            "Plan a fault, run your program, and load this page again."
        }
        @for found in report.list("findings") { (finding(found, visitor.locale)) }
        h2 { "Planned faults" }
        @if !plans.is_empty() {
            (table("Planned faults", &["What", "About", "When", "Acted", "Action"], &html! {
                @for one in plans { (plan(one)) }
            }))
        }
        (fields(form, problem))
    };
    let (section, has_mistake) = (Section::Report, problem.is_some());
    Ok(layout::section_page(visitor, section, has_mistake, &body))
}

fn finding(found: &Shown, locale: Locale) -> Markup {
    let text = |name| found.text(name).unwrap_or_default();
    let (shown, all) = (found.list("requests"), found.number("count").unwrap_or(0));
    let columns = ["Time (UTC)", "Outcome", "Request", "Key", "Fault"];
    let texts = |list: &str| found.list(list).iter().filter_map(Shown::as_text);
    html! {
        article .card {
            h2 { (state(text("severity"))) " " (text("title")) }
            (table(text("title"), &columns, &html! { @for one in shown { (row(one)) } }))
            @if all > i64::try_from(shown.len()).unwrap_or(i64::MAX) { p { (locale.count(all)) " requests in all." } }
            p { (text("why")) }
            p { strong { "Change: " } (text("change")) }
            @for id in texts("objects").chain(found.text("event")) { p { (resource(id)) } }
        }
    }
}

fn row(request: &Shown) -> Markup {
    let text = |name| request.text(name).unwrap_or_default();
    let at = DateTime::from_timestamp_millis(request.number("at").unwrap_or(0));
    html! {
        tr {
            td { (time(at.unwrap_or_default())) }
            td {
                (state(text("outcome")))
                @if let Some(status) = request.number("status") { " " (status) }
            }
            td { (text("method")) " " (short(text("path"))) }
            td { @if let Some(key) = request.text("idempotency_key") { (key_link(key)) } }
            td { (text("fault")) }
        }
    }
}

fn plan(plan: &Shown) -> Markup {
    let text = |name| plan.text(name).unwrap_or_default();
    let often = OFTEN
        .iter()
        .find_map(|(name, _)| Some((name, plan.number(name)?)));
    let number = |name| plan.number(name).unwrap_or(0);
    html! {
        tr {
            td { (text("fault")) }
            td { @if let Some(event) = plan.text("event") { "event " (event) } (text("route")) }
            td { @if let Some((name, count)) = often { (name) " " (count) } }
            td { (number("acted")) " of " (number("matched")) }
            td {
                form method="post" action={ "/console/report/plans/" (text("id")) "/delete" } {
                    button type="submit" .quiet aria-label={ "Delete: " (text("id")) } { "Delete" }
                }
            }
        }
    }
}

fn fields(form: &Form, problem: Option<&str>) -> Markup {
    let of_webhooks = FAULTS.map(|(fault, _)| fault);
    let faults = FaultKind::ALL
        .iter()
        .map(|fault| fault.as_str())
        .chain(of_webhooks);
    let option = |field: &str, value: &str, name: &str| {
        html! { option value=(value) selected[form.field(field) == value] { (name) } }
    };
    html! {
        form method="post" action="/console/report" {
            div .fields {
                div {
                    label for="fault" { "Fault" }
                    select #fault name="fault" {
                        @for fault in faults { (option("fault", fault, fault)) }
                    }
                }
                div {
                    label for="target" { "Route, or event of a webhook" }
                    input #target name="target" required maxlength="255" value=(form.field("target"))
                        placeholder="POST /refunds, or *" spellcheck="false" autocomplete="off";
                }
                div {
                    label for="often" { "It acts on" }
                    select #often name="often" {
                        @for (name, told) in OFTEN { (option("often", name, told)) }
                    }
                }
                div {
                    label for="count" { "N" }
                    input #count name="count" inputmode="numeric" required maxlength="5"
                        value=(if form.field("count").is_empty() { "1" } else { form.field("count") });
                }
            }
            @if let Some(problem) = problem { p .problem role="alert" { (problem) } }
            div .actions { button type="submit" { "Plan this fault" } }
        }
    }
}
