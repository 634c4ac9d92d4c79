//! `/idempotency-keys`: what is known about a key.

use charge_once_service::edge::{last_segment, segment_from_the_end};

use super::prelude::*;
use crate::{
    idempotency::{IdempotencyKey, Inspected, Request},
    wire::idempotency_keys::KeyObject,
    work::AbandonKey,
};

/// The parameter that names a key.
const PARAM: &str = "key";

/// The message of a 404.
const NOTHING_FINISHED: &str = "There is no finished record under this key now. That does not mean \
                                that the operation may be sent under a new key: the first request \
                                may still arrive. The safe question is to retry it with this key.";

/// Look an idempotency key up, by path
#[utoipa::path(
    get, path = "/idempotency-keys/{key}", tag = "Idempotency keys",
    operation_id = "retrieveIdempotencyKey",
    params((
        "key" = String, Path, description = "The key, percent-encoded, without quotes.",
        pattern = r"^[\x21\x23-\x2b\x2d-\x5b\x5d-\x7e]{1,255}$",
    )),
    responses(
        (status = 200, description = "What is known about the key.", body = KeyObject),
        ObjectErrors,
    ),
)]
pub async fn retrieve(app: Data<App>, caller: Caller, request: HttpRequest) -> HttpResult {
    no_query(&request)?;
    inspect(&app, caller, &last_segment(&request)).await
}

parameters! {
    /// Which key.
    struct KeyQuery {
        /// The key, without quotes.
        key: KeyText,
    }
}

errors! { LookUpIdempotencyKeyErrors: Reading [ParameterMissing, ResourceMissing] }

/// Look an idempotency key up, by query
///
/// For keys that hold `/` or `?`.
#[utoipa::path(
    get, path = "/idempotency-keys", tag = "Idempotency keys",
    operation_id = "lookUpIdempotencyKey",
    params(KeyQuery),
    responses(
        (status = 200, description = "What is known about the key.", body = KeyObject),
        LookUpIdempotencyKeyErrors,
    ),
)]
pub async fn look_up(app: Data<App>, caller: Caller, request: HttpRequest) -> HttpResult {
    let KeyQuery { key } = query_params(&request)?;
    inspect(&app, caller, key.as_bytes()).await
}

async fn inspect(app: &App, caller: Caller, key: &[u8]) -> HttpResult {
    let key = parse(key)?;
    let text = key.as_str().to_owned();
    let inspected = app.idempotency.inspect(caller.account.0, key).await;
    let found = inspected.map_err(HttpError::failed_without_key)?;
    if matches!(found, Inspected::Nothing) {
        let refusal = ApiError::new(ErrorCode::ResourceMissing, NOTHING_FINISHED);
        return Err(refusal.with_param(PARAM.to_owned()).into());
    }
    Ok(HttpResponse::Ok().json(KeyObject::of(text, found.request())))
}

/// Give an idempotency key up
///
/// From then on, a request that comes with the key is not executed: it gets 409
/// `idempotency_key_abandoned`. If a request with it ended before, that outcome stays, and is the
/// answer: nothing is undone. A request with it that is at work is not stopped: 409, to be asked
/// again with the same `Idempotency-Key`, which is this request's own.
#[utoipa::path(
    post, path = "/idempotency-keys/{key}/abandon", tag = "Idempotency keys",
    operation_id = "abandonIdempotencyKey",
    params(
        ("key" = String, Path, description = "The key to give up, percent-encoded, without quotes.",
         pattern = r"^[\x21\x23-\x2b\x2d-\x5b\x5d-\x7e]{1,255}$"),
        MutatingHeaders,
    ),
    responses(
        (status = 200, description = "The key: `abandoned`, or `completed` by a request.", body = KeyObject),
        MutatingErrors,
    ),
)]
pub async fn abandon(app: Data<App>, http: HttpRequest, request: MutatingRequest) -> HttpResult {
    let key = parse(&segment_from_the_end(&http, 1))?;
    let account = request.origin.account;
    let retention = app.values.idempotency_ttl;
    let ended = run(&app, request, |request, origin, params| {
        let given_up = Request {
            key: key.clone(),
            ..request.clone()
        };
        let command = AbandonKey {
            origin,
            params,
            given_up,
            retention,
        };
        app.idempotency.run(request, command)
    })
    .await;
    match ended {
        Err(error) if error.is_busy() => {
            let why = in_flight(&app, account, key).await;
            Err(why.after(error.retry_after))
        }
        ended => ended,
    }
}

/// Why a key can't be given up now.
async fn in_flight(app: &App, account: AccountId, key: IdempotencyKey) -> HttpError {
    const IN_DOUBT: &str = "A request with the key that you give up may have been executed. The \
         server asks for its outcome until it is known. Give the key up again then, with the \
         Idempotency-Key of this request.";
    const IN_FLIGHT: &str = "A request with the key that you give up is at work. Give the key up \
         again after Retry-After, with the Idempotency-Key of this request.";
    let found = app.idempotency.inspect(account.0, key).await;
    let in_doubt = found.is_ok_and(|found| found.status() == Some("in_doubt"));
    let message = if in_doubt { IN_DOUBT } else { IN_FLIGHT };
    ApiError::new(ErrorCode::IdempotencyKeyInUse, message).into()
}

fn parse(key: &[u8]) -> Result<IdempotencyKey, ApiError> {
    IdempotencyKey::parse(key).map_err(|error| ApiError::invalid(PARAM, error.to_string()))
}
