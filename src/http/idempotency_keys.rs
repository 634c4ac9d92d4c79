//! `/idempotency-keys`: what is known about a key.

use charge_once_service::edge::{last_segment, segment_from_the_end};

use super::{prelude::*, request::forbidden_key};
use crate::{
    idempotency::{
        Expired, Failure, IdempotencyKey, Inspected, KnownRequest, Reply, Request, Step,
    },
    work::AbandonKey,
};

/// The parameter that names a key.
const PARAM: &str = "key";

/// The message of a 404.
const NOTHING_FINISHED: &str = "There is no finished record under this key now. That does not mean \
                                that the operation may be sent under a new key: the first request \
                                may still arrive. The safe question is to retry it with this key.";

views! {
    /// An idempotency key, as clients see it.
    pub struct KeyObject as IdempotencyKey of(key: String, request: Option<KnownRequest>) where {
        // Without one, another replica works on it, and nothing is known.
        let request = request.as_ref();
        let outcome = request.and_then(|request| request.outcome);
        let text = |field: fn(&KnownRequest) -> &String| request.map(field).cloned();
    } {
        /// Always `idempotency_key`.
        always object: &'static str = "idempotency_key";
        /// The key, without quotes.
        key: String [example = "8e03978e-40d5-43dd-bc93-6894a57f9324"] = key;
        /// `completed`; `abandoned`: it was given up; `expired`: its outcome is no longer kept;
        /// `in_flight`; or `in_doubt`: an attempt may have been executed, and its answer is not
        /// known.
        status: &'static str [example = "completed"] =
            request.map_or("in_flight", KnownRequest::status);
        /// Of the first request; null while another replica works on it.
        maybe method: String [example = "POST"] = text(|request| &request.method);
        /// Of the first request; null while another replica works on it.
        maybe path: String [example = "/charges"] = text(|request| &request.path);
        /// SHA-256 of the first request, in hexadecimal.
        maybe fingerprint: String = request.map(|request| hex::encode(&request.fingerprint));
        /// The status that every retry gets.
        maybe response_status: u16 [example = 201] = outcome.map(|outcome| outcome.status);
        /// The id of what was made or changed; of what is being made where that takes several
        /// transactions.
        maybe resource: String [example = "ch_01kar2w7n9e4xt8f5mq0v3z6yd"] =
            request.and_then(|request| request.resource_id.clone());
        /// The `req_…` that executed.
        maybe request: String = text(|request| &request.request_id);
        /// What the first request named in Idempotency-Workflow; null if it named nothing.
        maybe workflow: String [example = "checkout-6735"] =
            request.and_then(|request| request.label.clone());
        /// Unix seconds; null while nothing of the first request is committed.
        maybe created: i64 [example = 1_795_000_000] =
            request.and_then(|request| request.created_at).map(|at| at.timestamp());
        /// Unix seconds; null while it is in flight.
        maybe expires: i64 [example = 1_795_086_400] =
            outcome.map(|outcome| outcome.expires_at.timestamp());
    }
}

impl KeyObject {
    /// Of a key whose outcome is no longer kept.
    #[must_use]
    pub fn expired(self, expired: Expired) -> Self {
        Self {
            status: "expired",
            resource: expired.answer.resource_id,
            expires: expired.at.map(|at| at.timestamp()),
            ..self
        }
    }
}

impl From<Step> for KeyObject {
    fn from(step: Step) -> Self {
        Self::of(step.key, Some(step.request))
    }
}

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
    let known = KeyObject::of(text, found.request());
    Ok(HttpResponse::Ok().json(match found {
        Inspected::Expired(remembered) => known.expired(remembered),
        Inspected::Completed(_) | Inspected::InFlight(_) | Inspected::Nothing => known,
    }))
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
    // The reply shows the key, whose own record may be sealed.
    extensions(("x-idempotency" = json!({"secret": true}))),
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
    // It is stored and shown as that of any request.
    if let Some(forbidden) = forbidden_key(&key) {
        return Err(forbidden.into());
    }
    let account = request.origin.account;
    let usual = app.keyed_routes.longest();
    let ended = run(&app, request, |request, origin, params| {
        let given_up = Request {
            key: key.clone(),
            // A late request with it may be of any route.
            retention: Some(usual.max(request.retention.unwrap_or_default())),
            ..request.clone()
        };
        let command = AbandonKey {
            origin,
            params,
            given_up,
            idempotency: app.idempotency.clone(),
            show,
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

/// The answer to a request that has given a key up, or has found out what became of it.
fn show(key: &str, known: KnownRequest) -> Result<Reply, Failure> {
    Reply::json(200, &KeyObject::of(key.to_owned(), Some(known)))
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
