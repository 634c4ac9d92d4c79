//! `/workflows`: the requests that a client has linked, so that it finds out where to go on.

use charge_once_service::edge::{encode_segment, last_segment};
use charge_once_strict_params::pages::{LIMIT_MAX, Limit, STARTING_AFTER};
use charge_once_strict_params::{Error, card_numbers::holds_card_number};

use super::idempotency_keys::KeyObject;
use super::prelude::*;
use crate::idempotency::{IdempotencyKey, WorkflowName};

parameters! {
    /// Which part of a workflow. It is read to see its progress, so the default is the largest
    /// page.
    struct StepsQuery {
        /// Keys on a page.
        limit: Limit<LIMIT_MAX>,
        /// The page after this key: later ones.
        starting_after: Option<KeyText>,
    }
}

parameters! {
    /// Which workflow.
    struct WorkflowQuery {
        /// The name, without quotes.
        name: KeyText,
    }
}

/// List a workflow, by path
///
/// The requests that were sent with this name in `Idempotency-Workflow`, in the order of their
/// first use, as long as their keys live: a client that has lost its state sees where to go on. An
/// empty list says that nothing is recorded now, not that nothing may still arrive.
#[utoipa::path(
    get, path = "/workflows/{name}", tag = "Workflows", operation_id = "listWorkflow",
    params(
        (
            "name" = String, Path, description = "The name, percent-encoded, without quotes.",
            pattern = r"^[\x21\x23-\x2b\x2d-\x5b\x5d-\x7e]{1,255}$",
        ),
        StepsQuery,
    ),
    responses(
        (status = 200, description = "A page, oldest first.", body = List<KeyObject>),
        ReadErrors,
    ),
)]
pub async fn list(app: Data<App>, caller: Caller, request: HttpRequest) -> HttpResult {
    let query = query_params(&request)?;
    page(&app, caller, &last_segment(&request), query).await
}

errors! { LookUpWorkflowErrors: Reading [ParameterMissing] }

/// List a workflow, by query
///
/// For names that hold `/` or `?`.
#[utoipa::path(
    get, path = "/workflows", tag = "Workflows", operation_id = "lookUpWorkflow",
    params(WorkflowQuery, StepsQuery),
    responses(
        (status = 200, description = "A page, oldest first.", body = List<KeyObject>),
        LookUpWorkflowErrors,
    ),
)]
pub async fn look_up(app: Data<App>, caller: Caller, request: HttpRequest) -> HttpResult {
    let (WorkflowQuery { name }, query) = query_params(&request)?;
    page(&app, caller, name.as_bytes(), query).await
}

async fn page(app: &App, caller: Caller, name: &[u8], query: StepsQuery) -> HttpResult {
    let name = WorkflowName::parse(name);
    let name = name.map_err(|error| ApiError::invalid("name", error.to_string()))?;
    // The reply repeats the name.
    if holds_card_number(name.as_str()) {
        return Err(ApiError::explained(ErrorCode::CardNumberForbidden).into());
    }
    let limit = usize::try_from(query.limit).unwrap_or(usize::MAX);
    let message = "Must be a key in this workflow.";
    let no_step = || Error::invalid(Some(STARTING_AFTER.to_owned()), message);
    let after = query.starting_after;
    let after = after.map(|key| match key.strip_prefix(',') {
        // What stands in place of a key whose reply is sealed.
        Some(rest) => IdempotencyKey::reserved(rest),
        None => IdempotencyKey::parse(key.as_bytes()),
    });
    let after = after.transpose().map_err(|_| no_step())?;

    let encoded = encode_segment(name.as_str());
    let url = format!("{}/workflows/{encoded}", caller.dialect.prefix());
    let account = caller.account.0;
    let read = app.idempotency.workflow(account, name, after, limit).await;
    let found = read.map_err(HttpError::failed_without_key)?;
    let steps = found.ok_or_else(no_step)?;
    let keys = steps.steps.into_iter().map(KeyObject::from).collect();
    Ok(HttpResponse::Ok().json(List::new(keys, steps.has_more, url)))
}
