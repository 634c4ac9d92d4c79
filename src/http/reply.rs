//! From a committed record to a reply.
//!
//! Promise: the first reply and every replay are rendered here, from the same record, and differ
//! only in the headers of delivery.

use actix_web::{
    HttpResponse, ResponseError,
    http::{
        StatusCode,
        header::{HeaderName, HeaderValue},
    },
};
use charge_once_strict_params::{Expansion, ParameterSet, Params};
use chrono::SecondsFormat;

use super::{
    app::App,
    error::{HttpError, HttpResult},
    faults::{Fault, before_the_work, lost},
    reply_headers::{EXPIRES, ORIGINAL_REQUEST, REPLAYED},
    request::MutatingRequest,
    request_log::AboutResource,
};
use crate::{
    commands::{NO_PROCESSOR, Origin, Rules},
    idempotency::{Failure, Outcome, Record, Request},
    wire::{dialect::Dialect, source::loses_its_reply},
};

/// Runs a command at most once and renders how it ended: the whole of every mutating handler. `by`
/// says how it runs, which is the shape of its request:
///
/// | shape | `by` |
/// |---|---|
/// | a function over rows | `app.run_rules`, by [`run_verb`] |
/// | one transaction | `app.idempotency.run` |
/// | in phases | `app.checkouts.run` |
pub async fn run<F: Future<Output = Outcome>>(
    app: &App,
    request: MutatingRequest,
    by: impl FnOnce(Request, Origin, Params) -> F,
) -> HttpResult {
    let MutatingRequest {
        origin,
        params,
        request,
        testing,
        observation,
    } = request;
    if let Some(fault) = testing.fault {
        let account = request.account_id;
        let instead = before_the_work(fault, &app.idempotency, account, &app.stopping);
        if let Some(instead) = instead.await? {
            return Ok(instead);
        }
    }
    app.refuse_new_work_when_stopping()?;
    let dialect = origin.asked_by.dialect;
    let loses_its_reply = loses_its_reply(&params);
    let run = |request| by(request, origin, params);
    let replay_cache = app.replay_cache.as_ref();
    let outcome = match replay_cache.filter(|_| !testing.expires_keys) {
        Some(replay_cache) => replay_cache.run(request, run).await,
        None => run(request).await,
    };
    if may_have_written(&outcome) {
        app.wake_webhooks.notify_one();
    }
    if let Some(observation) = observation {
        observation.key_ended(&outcome);
    }
    let is_lost = testing.fault.is_some_and(Fault::loses_the_reply)
        || (loses_its_reply && is_executed(&outcome));
    let reply = answer(app, outcome, dialect);
    if is_lost {
        return Ok(lost(reply.unwrap_or_else(|error| error.error_response())));
    }
    reply
}

/// Runs the verb that `with` makes of the request's parameters, as [`run`] does.
pub async fn run_verb<P: ParameterSet, V: Rules>(
    app: &App,
    request: MutatingRequest,
    with: impl FnOnce(P) -> V,
) -> HttpResult {
    let by = async |request, origin, params: Params| {
        let (verb, expand) = match P::parse_expanding(&params) {
            Ok((params, expand)) => (Ok(with(params)), expand),
            Err(error) => (Err(error.into()), Expansion::default()),
        };
        let cost = (params.weight(), expand);
        app.run_rules((request, origin), verb, cost).await
    };
    run(app, request, by).await
}

/// Whether something may be committed that was not before. What failed counts too: a COMMIT without
/// an answer, or a checkout that has run some of its steps.
fn may_have_written(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Stored {
            replayed,
            taken_over,
            ..
        } => !replayed || *taken_over,
        Outcome::Failed(_) => true,
        Outcome::Reused | Outcome::InUse { .. } | Outcome::Unfinished => false,
    }
}

/// Whether this very request did what it asked for.
fn is_executed(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Stored {
            record, replayed, ..
        } => !replayed && record.reply.status < 300,
        Outcome::Reused | Outcome::InUse { .. } | Outcome::Unfinished | Outcome::Failed(_) => false,
    }
}

fn answer(app: &App, outcome: Outcome, dialect: Dialect) -> HttpResult {
    match outcome {
        Outcome::Stored {
            record, replayed, ..
        } => {
            let mut reply = render(&record, replayed)?;
            if app.request_log.is_some()
                && let Some(resource) = &record.reply.resource_id
            {
                reply
                    .extensions_mut()
                    .insert(AboutResource(resource.clone()));
            }
            Ok(reply)
        }
        Outcome::Reused => Err(HttpError::key_reused(dialect)),
        Outcome::InUse { retry_after } => Err(HttpError::key_in_use().after(retry_after)),
        // Left in flight by a process that asked a processor across a network. This one doesn't.
        Outcome::Unfinished => Err(HttpError::failed_without_key(Failure::unsupported(
            format!(
                "the key is in flight with a processor across a network, and {NO_PROCESSOR}, or see \
             `charge-once operations list`"
            ),
        ))),
        Outcome::Failed(failure) => Err(HttpError::failed(failure.kind).after(failure.retry_after)),
    }
}

/// Status, body bytes and every header of the record, repeated names included.
pub fn render(record: &Record, replayed: bool) -> HttpResult {
    let unreadable =
        || HttpError::failed_without_key(Failure::internal("a stored reply can't be rendered"));
    let status = StatusCode::from_u16(record.reply.status).map_err(|_| unreadable())?;
    let mut response = HttpResponse::build(status);
    for (name, value) in &record.reply.headers {
        let name = HeaderName::try_from(name.as_str()).map_err(|_| unreadable())?;
        let value = HeaderValue::try_from(value.as_str()).map_err(|_| unreadable())?;
        response.append_header((name, value));
    }
    // Whole seconds, rounded down: the record lives at least as long as the header says.
    let expires = record.expires_at.to_rfc3339_opts(SecondsFormat::Secs, true);
    response
        .insert_header((ORIGINAL_REQUEST, record.request_id.as_str()))
        .insert_header((EXPIRES, expires));
    if status.is_client_error() {
        response.insert_header(("stripe-should-retry", "false"));
    }
    if replayed {
        response.insert_header((REPLAYED, "true"));
    }
    Ok(response.body(record.reply.body.clone()))
}
