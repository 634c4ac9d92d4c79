//! A workflow: the requests that their client has linked, in the order of their first use.

use actix_web::HttpRequest;
use charge_once_idempotency::{IdempotencyKey, Step, WorkflowName};
use maud::{Markup, html};

use super::{
    Asked, Page,
    error::ConsoleError,
    form::{below, described_by, invalid},
    layout::{self, Section, encoded, key_link, resource, short, state, table, time},
    query_value,
    visitor::Visitor,
};

const NAME_MUST_BE: &str = "The name of a workflow is 1 to 255 characters of visible ASCII without \
                            spaces, quotes, backslashes and commas.";

const PAGE_ROWS: usize = 50;

/// The form, and the requests of the workflow that the address names.
pub(super) async fn show(server: Asked, visitor: Visitor, request: HttpRequest) -> Page {
    let value = |name| query_value(&request, name).filter(|value| !value.is_empty());
    let (name, after) = (value("name"), value("after"));
    let workflow = name.as_deref();
    let workflow = workflow.map(|name| WorkflowName::parse(name.as_bytes()));
    let problem = match workflow {
        Some(Err(_)) => Some(("name", NAME_MUST_BE)),
        Some(Ok(_)) | None => None,
    };
    let found = match workflow {
        Some(Ok(workflow)) => Some(steps(&server, &visitor, workflow, after).await?),
        Some(Err(_)) | None => None,
    };
    let body = html! {
        h1 { "Workflows" }
        p {
            "Requests that name the same workflow in " code { "Idempotency-Workflow" } " belong together. A \
             client that has lost its state sees here where to go on. The story of a key links its workflow."
        }
        form .filter method="get" action="/console/workflows" role="search" {
            div {
                label for="name" { "Name of the workflow" }
                input #name name="name" value=[name.as_deref()] required maxlength="255" spellcheck="false"
                    placeholder="order-7"
                    aria-invalid=[invalid(problem, "name")]
                    aria-describedby=[described_by(problem, "name")];
                (below(problem, "name"))
            }
            div .actions { button type="submit" { "Show" } }
        }
        @if let Some(found) = found { (found) }
    };
    let (section, has_mistake) = (Section::Workflows, problem.is_some());
    Ok(layout::section_page(&visitor, section, has_mistake, &body))
}

async fn steps(
    server: &Asked,
    visitor: &Visitor,
    workflow: WorkflowName,
    after: Option<String>,
) -> Result<Markup, ConsoleError> {
    let name = workflow.as_str().to_owned();
    let no_step = || ConsoleError::Unreadable("The workflow has no such key.");
    let after = after.map(|key| IdempotencyKey::parse(key.as_bytes()));
    let after = after.transpose().map_err(|_| no_step())?;
    let found = server.workflow(visitor.account, workflow, after, PAGE_ROWS);
    let found = found.await?.ok_or_else(no_step)?;
    let rows = html! { @for step in &found.steps { (row(step)) } };
    let columns = [
        "First use (UTC)",
        "Request",
        "State",
        "Status",
        "About",
        "Key",
    ];
    Ok(html! {
        @if found.steps.is_empty() {
            p {
                "Nothing is recorded under this name. Send a request with the header "
                code { "Idempotency-Workflow: " (name) } ", and it appears here. A record goes when its key expires."
            }
        } @else {
            (table("Requests of the workflow", &columns, &rows))
        }
        @if let (true, Some(last)) = (found.has_more, found.steps.last()) {
            p {
                a href={ "/console/workflows?name=" (encoded(&name)) "&after=" (encoded(&last.key)) } { "Later requests" }
            }
        }
    })
}

fn row(step: &Step) -> Markup {
    let request = &step.request;
    let word = match request.outcome.map(|outcome| outcome.status) {
        None => request.status(),
        Some(_) if request.status() == "abandoned" => "abandoned",
        Some(402) => "declined",
        Some(200..300) => "completed",
        Some(_) => "refused",
    };
    html! {
        tr {
            td { @if let Some(at) = request.created_at { (time(at)) } }
            td { (request.method) " " (short(&request.path)) }
            td { (state(word)) }
            td { @if let Some(outcome) = request.outcome { (outcome.status) } }
            td { @if let Some(id) = &request.resource_id { (resource(id)) } }
            td { (key_link(&step.key)) }
        }
    }
}
