//! The requests of an account, the newest first, and those of them that are looked for.

use actix_web::HttpRequest;
use maud::{Markup, html};

use super::{
    Asked, FoundRequests, Logged, OUTCOMES, Page, WantedOutcome, WantedRequests,
    error::ConsoleError,
    form::{Problem, below, described_by, invalid, text_field},
    layout::{self, Section, age, head, key_link, resource, short, state, table_with_heads, time},
    locale::Locale,
    masked::Shown,
    members::{Members, used},
    noun::OF_PAYMENT,
    query_value,
    timeline::milliseconds,
    visitor::Visitor,
};

const PAGE_ROWS: usize = 50;

/// Longest text that is looked for, in bytes.
pub(super) const SOUGHT_MAX: usize = 255;

pub(super) const SOUGHT_MUST_BE: &str = "It has at most 255 bytes, and no NUL.";

/// Whether a text can be looked for.
pub(super) fn is_sought(text: &str) -> bool {
    text.len() <= SOUGHT_MAX && !text.contains('\0')
}

const PATH: &str = "/console/requests";

/// The form, as the address has it.
struct Filter {
    outcome: String,
    status: String,
    path: String,
    key: String,
    object: String,
}

impl Filter {
    fn of(request: &HttpRequest) -> Self {
        let value = |name| {
            let value = query_value(request, name).unwrap_or_default();
            value.trim().to_owned()
        };
        Self {
            outcome: value("outcome"),
            status: value("status"),
            path: value("path"),
            key: value("key"),
            object: value("object"),
        }
    }

    /// What is looked for; or the field that can't be read, and what it must be.
    fn wanted(&self) -> Result<WantedRequests, Problem> {
        let outcome = match self.outcome.as_str() {
            "" => None,
            "any" => Some(WantedOutcome::Any),
            name => {
                let known = OUTCOMES.into_iter().find(|known| *known == name);
                let unknown = ("outcome", "No request ends with such an outcome.");
                Some(WantedOutcome::One(known.ok_or(unknown)?))
            }
        };
        let status = match self.status.as_str() {
            "" => None,
            text => Some(statuses(text).ok_or((
                "status",
                "A status is three digits such as 402, or a class of them such as 4xx.",
            ))?),
        };
        let sought = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        for (field, text) in [
            ("path", &self.path),
            ("key", &self.key),
            ("object", &self.object),
        ] {
            if !is_sought(text) {
                return Err((field, SOUGHT_MUST_BE));
            }
        }
        Ok(WantedRequests {
            outcome,
            status,
            path: sought(&self.path),
            key: sought(&self.key),
            object: sought(&self.object),
        })
    }

    /// The address of a page of these requests: `path`, the filter, and where the page begins.
    fn address(&self, path: &str, before: Option<&str>) -> String {
        let members = [
            ("outcome", self.outcome.as_str()),
            ("status", &self.status),
            ("path", &self.path),
            ("key", &self.key),
            ("object", &self.object),
            ("before", before.unwrap_or_default()),
        ];
        layout::address(path, &members)
    }

    fn is_empty(&self) -> bool {
        self.address("", None).is_empty()
    }
}

/// `402`, or `4xx`.
fn statuses(text: &str) -> Option<(u16, u16)> {
    let class = text.strip_suffix("xx").filter(|class| class.len() == 1);
    if let Some(class) = class {
        let class: u16 = class.parse().ok().filter(|class| (1..=5).contains(class))?;
        return Some((class * 100, class * 100 + 99));
    }
    let status = text.parse().ok();
    let status = status.filter(|status| (100..=599).contains(status))?;
    Some((status, status))
}

/// Where the list is, for an address of the time when it was the first page.
pub(super) fn moved(request: &HttpRequest) -> Option<String> {
    let before = query_value(request, "before");
    let address = Filter::of(request).address(PATH, before.as_deref());
    (address != PATH).then_some(address)
}

/// A page of requests, before the one that the address names.
pub(super) async fn show(server: Asked, visitor: Visitor, request: HttpRequest) -> Page {
    let before = query_value(&request, "before");
    let filter = Filter::of(&request);
    let wanted = filter.wanted();
    let problem = wanted.as_ref().err().copied();
    let rows = match wanted {
        Ok(wanted) => Some(rows(&server, &visitor, &filter, &wanted, before.as_deref()).await?),
        Err(_) => None,
    };
    let body = html! {
        h1 { "Requests" }
        p {
            "Requests of this account, the newest first. A key leads to its story. The log may miss \
             requests, because no request waits for it."
        }
        (form(&filter, problem))
        @match rows {
            Some(rows) if before.is_none() => {
                div #live data-live=(filter.address("/console/live", None)) { (rows) }
            }
            Some(rows) => {
                p { a href=(filter.address(PATH, None)) { "Back to the newest" } }
                (rows)
            }
            None => {}
        }
    };
    let (section, has_mistake) = (Section::Requests, problem.is_some());
    Ok(layout::section_page(&visitor, section, has_mistake, &body))
}

/// The first page's rows, for the script that keeps them current.
pub(super) async fn live(server: Asked, visitor: Visitor, request: HttpRequest) -> Page {
    let filter = Filter::of(&request);
    let wanted = filter.wanted();
    let wanted = wanted.map_err(|(_, problem)| ConsoleError::Unreadable(problem))?;
    let rows = rows(&server, &visitor, &filter, &wanted, None).await?;
    Ok(layout::fragment(rows))
}

/// The form; the field at fault says so, and has what it must be below it.
fn form(filter: &Filter, problem: Option<Problem>) -> Markup {
    let text = |name, label, value: &str, example| {
        text_field(problem, (name, label), value, example, SOUGHT_MAX)
    };
    html! {
        form .filter method="get" action=(PATH) role="search" {
            div {
                label for="outcome" { "Outcome" }
                select #outcome name="outcome"
                    aria-invalid=[invalid(problem, "outcome")]
                    aria-describedby=[described_by(problem, "outcome")] {
                    option value="" { "all but reads" }
                    option value="any" selected[filter.outcome == "any"] { "all" }
                    @for outcome in OUTCOMES {
                        option value=(outcome) selected[filter.outcome == outcome] {
                            (outcome.replace('_', " "))
                        }
                    }
                }
                (below(problem, "outcome"))
            }
            (text("status", "Status", &filter.status, "402 or 4xx"))
            (text("path", "Path", &filter.path, "/refunds"))
            (text("key", "Key", &filter.key, "a part of it"))
            (text("object", "Object", &filter.object, "ch_…"))
            div .actions {
                button type="submit" { "Filter" }
                @if !filter.is_empty() { a href=(PATH) { "Show all" } }
            }
        }
    }
}

async fn rows(
    server: &Asked,
    visitor: &Visitor,
    filter: &Filter,
    wanted: &WantedRequests,
    before: Option<&str>,
) -> Result<Markup, ConsoleError> {
    let found = server.requests(visitor.account, wanted, before, PAGE_ROWS + 1);
    let FoundRequests {
        requests,
        ended_at,
        payments,
    } = found
        .await?
        .ok_or(ConsoleError::Unreadable("No request has such an id."))?;
    let shown = requests.get(..PAGE_ROWS).unwrap_or(&requests);
    let is_full = requests.len() > PAGE_ROWS;
    let last = shown.last().filter(|_| is_full);
    let last = last.map(|last| last.id.as_str());
    let payment = |one: &Logged| {
        let json = payments.get(one.resource_id.as_deref()?)?;
        Shown::parse(json)
    };
    let payments: Vec<_> = shown.iter().map(payment).collect();
    let columns = used(OF_PAYMENT, payments.iter().flatten());
    let members = Members {
        server: &***server,
        elsewhere: &[],
        locale: visitor.locale,
    };
    let heads = html! {
        @for name in ["Key", "Time (UTC)", "Outcome", "Request", "About"] { (head(name)) }
        @for (name, _) in &columns { (head(name)) }
        @for name in ["Replays", "ms"] { (head(name)) }
    };
    let rows = html! {
        @for (request, payment) in shown.iter().zip(&payments) {
            (row(request, &members.cells(&columns, payment.as_ref()), visitor.locale))
        }
    };
    Ok(html! {
        @if !shown.is_empty() {
            (table_with_heads("Requests", Some("lines"), &heads, &rows))
        } @else if filter.is_empty() && ended_at.is_none() {
            p {
                "No request yet, but for reads. " a href="/console/playground" { "Send one" }
                ", or send one with curl, and it appears here."
            }
        } @else {
            p { "No request fits, among those that were searched. Reads are found only if you ask for them." }
        }
        @if let Some(last) = last.or(ended_at.as_deref()) {
            p { a href=(filter.address(PATH, Some(last))) { "Older requests" } }
        }
    })
}

/// A line; `payment` has the cells of the payment that the request is about.
fn row(request: &Logged, payment: &Markup, locale: Locale) -> Markup {
    let key = request.idempotency_key.as_deref();
    html! {
        tr {
            td { @if let Some(key) = key { (key_link(key)) } }
            td { (time(request.came_at)) " " (age(request.came_at)) }
            td { (state(outcome(request))) @if let Some(status) = request.status { " " (status) } }
            td { (request.method) " " (short(&request.path)) }
            td { @if let Some(id) = &request.resource_id { (resource(id)) } }
            (payment)
            td .number { @if key.is_some() && request.replays != "0" { (request.replays) } }
            td .number { (took(request, locale)) }
        }
    }
}

/// What became of a request, in a word: a declined card has executed, and moved no money.
pub(super) fn outcome(request: &Logged) -> &'static str {
    match (request.outcome, request.status) {
        ("executed", Some(402)) => "declined",
        ("replayed", Some(409)) if request.is_given_up => "abandoned",
        (outcome, _) => outcome,
    }
}

pub(super) fn took(request: &Logged, locale: Locale) -> String {
    let micros = i64::try_from(request.duration.as_micros());
    milliseconds(micros.unwrap_or(i64::MAX), locale)
}

#[cfg(test)]
mod tests {
    use super::statuses;

    #[test]
    fn a_status_is_a_number_or_a_class() {
        assert_eq!(statuses("402"), Some((402, 402)));
        assert_eq!(statuses("4xx"), Some((400, 499)));
        for wrong in ["", "4", "44xx", "9xx", "xx", "600", "-1", "4x", "402 "] {
            assert_eq!(statuses(wrong), None, "{wrong}");
        }
    }
}
