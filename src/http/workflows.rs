//! `/workflows`: the requests that a client has linked, so that it finds out where to go on.

use actix_web::{HttpRequest, HttpResponse, web};
use charge_once_strict_params::{Fields, card_numbers::holds_card_number};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use utoipa::IntoParams;

use super::{
    app::App,
    error::HttpError,
    error_responses::errors,
    idempotency_keys::KeyObject,
    list::LIMIT_MAX,
    request::{Caller, last_segment, query_params},
};
use crate::{
    api::{
        error::{ApiError, ErrorCode},
        list::List,
    },
    idempotency::{IdempotencyKey, KEY_MAX_BYTES, WorkflowName},
};

/// Everything but the unreserved characters of RFC 3986, section 2.3.
const IN_A_SEGMENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Which part of a workflow.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "describes a query; `page` reads it")]
struct StepsQuery {
    /// Keys on a page.
    #[param(minimum = 1, maximum = 100, default = 100)]
    limit: Option<i64>,
    /// The page after this key: later ones.
    #[param(pattern = r"^[\x21\x23-\x2b\x2d-\x5b\x5d-\x7e]{1,255}$")]
    starting_after: Option<String>,
}

errors! {
    ListWorkflowErrors: Reading []
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
        ListWorkflowErrors,
    ),
)]
pub async fn list(
    app: web::Data<App>,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, HttpError> {
    let params = query_params(&request)?;
    let name = last_segment(&request);
    page(&app, caller, &name, params.fields()?).await
}

errors! {
    LookUpWorkflowErrors: Reading [ParameterMissing]
}

/// List a workflow, by query
///
/// For names that hold `/` or `?`.
#[utoipa::path(
    get, path = "/workflows", tag = "Workflows", operation_id = "lookUpWorkflow",
    params(
        (
            "name" = String, Query, description = "The name, without quotes.",
            pattern = r"^[\x21\x23-\x2b\x2d-\x5b\x5d-\x7e]{1,255}$",
        ),
        StepsQuery,
    ),
    responses(
        (status = 200, description = "A page, oldest first.", body = List<KeyObject>),
        LookUpWorkflowErrors,
    ),
)]
pub async fn look_up(
    app: web::Data<App>,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, HttpError> {
    let params = query_params(&request)?;
    let mut fields = params.fields()?;
    let Some(name) = fields.text("name", KEY_MAX_BYTES)? else {
        return Err(fields.missing("name").into());
    };
    page(&app, caller, name.as_bytes(), fields).await
}

async fn page(
    app: &App,
    caller: Caller,
    name: &[u8],
    mut fields: Fields<'_>,
) -> Result<HttpResponse, HttpError> {
    let name = WorkflowName::parse(name).map_err(|error| {
        ApiError::new(ErrorCode::ParameterInvalid, error.to_string()).with_param("name".to_owned())
    })?;
    // The reply repeats the name.
    if holds_card_number(name.as_str()) {
        return Err(ApiError::explained(ErrorCode::CardNumberForbidden).into());
    }
    // A workflow is read to see its progress, so the default is the largest page.
    let limit = fields.integer("limit", 1..=LIMIT_MAX)?;
    let limit = usize::try_from(limit.unwrap_or(LIMIT_MAX)).unwrap_or(usize::MAX);
    let no_step = fields.invalid("starting_after", "Must be a key in this workflow.");
    let after = match fields.text("starting_after", KEY_MAX_BYTES)? {
        None => None,
        Some(key) => match IdempotencyKey::parse(key.as_bytes()) {
            Ok(key) => Some(key),
            Err(_) => return Err(no_step.into()),
        },
    };
    fields.finish()?;

    let encoded = utf8_percent_encode(name.as_str(), IN_A_SEGMENT);
    let url = format!("{}/workflows/{encoded}", caller.dialect.prefix());
    let account = caller.account.0;
    let read = app.idempotency.workflow(account, name, after, limit).await;
    let steps = read
        .map_err(HttpError::failed_without_key)?
        .ok_or(no_step)?;
    let keys = steps.steps.into_iter().map(KeyObject::of_step).collect();
    Ok(HttpResponse::Ok().json(List::new(keys, steps.has_more, url)))
}
