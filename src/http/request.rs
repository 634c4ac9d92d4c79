//! What a handler gets: the caller, and for a mutating request everything that `idempotency::run`
//! needs.
//!
//! Promise: the checks before the claim run here, in the contract's order: API key, rate, media
//! type, size and time, idempotency key, workflow, API version, card numbers. Nothing that fails
//! here is stored. What may not be stored is refused only if it is not: the key may have the record
//! of this very request, from a release with other rules, and its retry gets the answer.

use std::{borrow::Cow, net::IpAddr, time::Duration};

use actix_web::{
    FromRequest, HttpMessage, HttpRequest,
    dev::Payload,
    http::header::{HeaderMap, HeaderValue},
    web,
};
use charge_once_service::edge::{decoded_path, read_body, routed_path};
use charge_once_strict_params::{
    Encoding, Error, ParameterSet, Params, Reason,
    card_numbers::{bytes_hold_card_number, find_card_number, holds_card_number},
};
use futures_util::{FutureExt, TryFutureExt, future::LocalBoxFuture};
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::{
    app::App,
    body,
    error::HttpError,
    faults::{Fault, must_be_allowed},
    middleware::{AssignedKey, IDEMPOTENCY_KEY, KeptFor, preferred_wait, usual_wait},
    request_log,
    retention::KeyRules,
};
use crate::{
    commands::Origin,
    domain::{
        account::Account,
        api_key::{holds_secret, is_secret},
        ids::{AccountId, ObjectId, RequestId},
        operation::AskedBy,
        order::ITEM_TEXT_MAX_CHARS,
    },
    idempotency::{
        Failure, FailureKind, Fingerprint, FingerprintInput, HeaderError, IdempotencyKey,
        Inspected, Parameters, Request, Seal, WorkflowName,
    },
    telemetry::{requests::Observation, traces},
    wire::{
        api_version::{MUST_BE_A_VERSION, STRIPE_VERSION, version_of_header},
        dialect::Dialect,
        error::{ApiError, ErrorCode},
        metadata::MAPS,
        not_offered,
        parameter::STRIPES_WORDS,
        source::{CARD_FIELDS, LOST_REPLIES},
        webhook_endpoints::PRIVATE_URLS,
    },
};

/// Who sends an authenticated request, and sees the objects that it asks for. The dialect is that
/// of the prefix which the request came through.
pub use crate::work::expansions::Audience as Caller;

impl Caller {
    /// The origin of what a request without an idempotency key does: a DELETE.
    pub fn origin_without_key(self, request: &HttpRequest) -> Result<Origin, HttpError> {
        Ok(Origin {
            account: self.account,
            asked_by: AskedBy {
                dialect: self.dialect,
                api_version: api_version(request.headers())?,
                request_id: request_id(request),
                idempotency_key: String::new(),
            },
            traceparent: traces::traceparent(),
            path_id: String::new(),
        })
    }
}

/// The headers by which Stripe's clients act for another account. Some send them with their own.
const OTHER_ACCOUNTS: [&str; 2] = ["Stripe-Account", "Stripe-Context"];

/// The account that sends a request.
async fn caller(app: &App, request: &HttpRequest) -> Result<Account, HttpError> {
    let (client, until) = (client_of(request), work_begins(app, request));
    let look_up = app.api_keys.authenticate(request.headers(), client, until);
    let account = look_up.await?;
    // It was found only now, or it moves: `shards::at_home` had another answer a moment ago.
    if account.database != app.number {
        return Err(HttpError::failed(FailureKind::Unavailable));
    }
    tracing::Span::current().record("account", tracing::field::display(account.id));
    request_log::authenticated(request, account.id);
    app.api_keys.check_rate(account.id)?;
    let is_own = |named: &HeaderValue| named.as_bytes() == account.id.to_string().as_bytes();
    let mut others = OTHER_ACCOUNTS.iter();
    if let Some(name) = others.find(|name| !request.headers().get_all(**name).all(is_own)) {
        let message = format!(
            "{name} names another account than that of the API key, {}. Ignoring it would charge the wrong \
             account.",
            account.id
        );
        return Err(ApiError::new(ErrorCode::ParameterInvalid, message).into());
    }
    Ok(account)
}

impl FromRequest for Caller {
    type Error = HttpError;
    type Future = LocalBoxFuture<'static, Result<Self, HttpError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let request = request.clone();
        Box::pin(async move {
            let app = app(&request)?;
            let account = caller(app, &request).await?;
            Ok(Self {
                account: account.id,
                dialect: dialect_of(&request),
            })
        })
    }
}

/// A caller whose account is one for tests, on a server where faults are allowed.
pub struct Tester(pub Caller);

impl FromRequest for Tester {
    type Error = HttpError;
    type Future = LocalBoxFuture<'static, Result<Self, HttpError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let request = request.clone();
        Box::pin(async move {
            let app = app(&request)?;
            let account = caller(app, &request).await?;
            let faults = app.faults.as_ref();
            must_be_allowed(faults.is_some_and(|faults| faults.act_on(account)))?;
            Ok(Self(Caller {
                account: account.id,
                dialect: dialect_of(&request),
            }))
        })
    }
}

/// A request that changes something, ready to run.
pub struct MutatingRequest {
    /// The account and the request that the command runs for.
    pub origin: Origin,
    /// The decoded parameters, unchecked.
    pub params: Params,
    /// What `idempotency::run` needs.
    pub request: Request,
    /// What tests of retries may do to it.
    pub testing: Testing,
    /// Where its outcome is noted.
    pub observation: Option<Observation>,
}

/// What tests of retries may do to a request.
#[derive(Debug, Clone, Copy)]
pub struct Testing {
    /// Whether faults act on its account, on this server.
    pub is_allowed: bool,
    /// Whether the account may let its keys expire at any time. Other replicas would not notice, so
    /// its replays come from the database.
    pub expires_keys: bool,
    /// Whether the account may make test accounts: those of it may not, or a test in a loop would
    /// use up all that there may be.
    pub makes_accounts: bool,
    /// The fault that acts on this request.
    pub fault: Option<Fault>,
}

impl FromRequest for MutatingRequest {
    type Error = HttpError;
    type Future = LocalBoxFuture<'static, Result<Self, HttpError>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let request = request.clone();
        let payload = web::Payload::from_request(&request, payload).into_inner();
        Box::pin(async move {
            let payload = payload.map_err(|_| HttpError::failed_without_key(no_app()))?;
            Self::of(app(&request)?, &request, payload).await
        })
    }
}

/// A DELETE: its idempotency key is optional.
pub enum Deletion {
    /// It is claimed and replayed like a POST.
    WithKey(Box<MutatingRequest>),
    /// Its retry is another request, and finds nothing.
    WithoutKey(Caller),
}

impl FromRequest for Deletion {
    type Error = HttpError;
    type Future = LocalBoxFuture<'static, Result<Self, HttpError>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        if !request.headers().contains_key(IDEMPOTENCY_KEY) {
            let caller = Caller::from_request(request, payload);
            return caller.map_ok(Self::WithoutKey).boxed_local();
        }
        let request = MutatingRequest::from_request(request, payload);
        let request = request.map_ok(|request| Self::WithKey(Box::new(request)));
        request.boxed_local()
    }
}

/// Longest path of a mutating request, in bytes. It is stored with the key; the longest is that of
/// a level of inventory, whose sku may be all characters of four bytes.
const PATH_MAX_BYTES: usize = "/v1/inventory/".len() + 4 * ITEM_TEXT_MAX_CHARS;

impl MutatingRequest {
    async fn of(
        app: &App,
        request: &HttpRequest,
        payload: web::Payload,
    ) -> Result<Self, HttpError> {
        let account = caller(app, request).await?;
        let dialect = dialect_of(request);
        let Some(decoded_path) = storable_path(request) else {
            return Err(ApiError::explained(ErrorCode::RouteNotFound).into());
        };
        let headers = request.headers();
        let encoding = body::encoding(headers)?;
        let limit = app.values.body_limit;
        let bytes = read_body(headers, payload, limit, work_begins(app, request)).await?;
        let key = idempotency_key(app, request)?;
        let seal = seal(app, request);
        let stored_key = Seal::stored_key(seal.as_ref(), account.id.0, key.as_str());
        let mut forbidden = forbidden_key(&key);
        let observation = Observation::of(request);
        if forbidden.is_none() {
            request_log::has_key(request, &stored_key);
            if let Some(observation) = &observation {
                observation.has_key(account.id, &key);
                if key.is_assigned() {
                    observation.key_assigned();
                }
            }
        }
        let workflow = idempotency_workflow(request)?;
        forbidden = forbidden.or_else(|| forbidden_workflow(workflow.as_ref()?));
        let api_version = api_version(headers)?;
        let mut tree = body::decode(encoding, &bytes);
        forbidden = forbidden.or_else(|| body::forbidden(&tree, &bytes));
        // The path is stored with the key, for key look-ups; an id in it may be stored too.
        ensure_no_card_number(routed_path(request))?;
        ensure_no_card_number(&decoded_path)?;
        let query = query(request)?;
        // The query is part of it although parameters in it are refused, because the refusal is
        // stored too.
        let fingerprint = Fingerprint::of(&FingerprintInput {
            method: request.method().as_str(),
            path: routed_path(request),
            query: identity(
                canonical(query.as_ref().ok())?.as_deref(),
                request.query_string().as_bytes(),
            ),
            media_type: encoding.as_str(),
            parameters: identity(canonical(tree.as_ref().ok())?.as_deref(), &bytes),
        });
        if let Some(forbidden) = forbidden {
            ensure_recorded(app, account.id, &key, &fingerprint, forbidden).await?;
            // The record answers. If it expires now, there is nothing to execute.
            tree = Err(Error::invalid(None, "It may not be stored."));
        }
        let testing = testing(app, request, account, &key).await?;
        if testing.is_allowed {
            let fault = testing.fault.map(|fault| fault.kind.as_str());
            request_log::is_tested(request, &fingerprint, fault);
        }
        let mut params = Params::new(encoding, refuse_query(query).map_or(tree, Err));
        params.not_offered(not_offered::parameters(resource(request)));
        params.grant(LOST_REPLIES, testing.is_allowed);
        params.grant(STRIPES_WORDS, dialect == Dialect::Stripe);
        params.grant(PRIVATE_URLS, app.values.webhook_allow_private);
        for scheme in app.values.return_url_schemes.iter().flatten() {
            params.grant(scheme.clone(), true);
        }
        let request_id = request_id(request);
        Ok(Self {
            origin: Origin {
                account: account.id,
                asked_by: AskedBy {
                    dialect,
                    api_version,
                    request_id: request_id.clone(),
                    idempotency_key: stored_key,
                },
                traceparent: traces::traceparent(),
                path_id: request.match_info().query("id").to_owned(),
            },
            params,
            request: Request {
                account_id: account.id.0,
                key,
                fingerprint,
                method: request.method().to_string(),
                path: stored_path(app, request, &decoded_path),
                label: workflow.as_ref().map(WorkflowName::to_label),
                request_id,
                wait: preferred_wait(headers).unwrap_or_else(|| usual_wait(&app.values, dialect)),
                retention: Some(retention(app, request)),
                is_step: false,
                seal,
            },
            testing,
            observation,
        })
    }
}

/// How the request's record is sealed. What takes several transactions may be completed by another
/// process, which has only what is stored of the key, so it is not sealed.
fn seal(app: &App, request: &HttpRequest) -> Option<Seal> {
    let seal = app.seal.clone()?;
    let route = request.match_pattern().unwrap_or_default();
    let is_one_transaction = app.phases.is_none() && below_prefix(&route) != "/checkouts";
    Some(Seal {
        seals: key_rules(app, request).shows_secret || (app.values.seals_all && is_one_transaction),
        ..seal
    })
}

fn key_rules(app: &App, request: &HttpRequest) -> KeyRules {
    let route = request.match_pattern().unwrap_or_default();
    let method = request.method().as_str();
    app.keyed_routes.rules(method, below_prefix(&route))
}

/// Lets a request go on that may not be stored, if its key has the record of this very request.
/// `forbidden` tells a client that nothing was done, which would be wrong then.
async fn ensure_recorded(
    app: &App,
    account: AccountId,
    key: &IdempotencyKey,
    fingerprint: &Fingerprint,
    forbidden: ApiError,
) -> Result<(), HttpError> {
    let inspected = app.idempotency.inspect(account.0, key.clone()).await;
    let found = inspected.map_err(HttpError::failed_without_key)?;
    if matches!(found, Inspected::InFlight(None)) {
        return Err(HttpError::key_in_use());
    }
    match found.request() {
        Some(known) if known.fingerprint == fingerprint.bytes() => Ok(()),
        Some(_) | None => Err(forbidden.into()),
    }
}

/// What the account's tests of retries do to a request. Without FAULTS, the header that asks for a
/// fault is an unknown one like any other.
async fn testing(
    app: &App,
    request: &HttpRequest,
    account: Account,
    key: &IdempotencyKey,
) -> Result<Testing, HttpError> {
    let faults = app.faults.as_ref();
    let is_allowed = faults.is_some_and(|faults| faults.act_on(account));
    let mut fault = match faults {
        Some(faults) => faults.of_request(request.headers(), account, key)?,
        None => None,
    };
    if is_allowed && fault.is_none() {
        let route = request.match_pattern().unwrap_or_default();
        let (method, route) = (request.method().as_str(), below_prefix(&route));
        fault = app.planned_fault(account.id, method, route).await?;
    }
    Ok(Testing {
        is_allowed,
        expires_keys: is_allowed || account.is_test,
        makes_accounts: is_allowed && !account.is_test,
        fault,
    })
}

/// The account that an API key speaks for, if it may ask now: for pages that are no requests to the
/// API.
pub async fn authenticate(
    app: &App,
    api_key: &str,
    client: Option<IpAddr>,
) -> Result<Account, HttpError> {
    let look_up = app.api_keys.account_of(api_key, client, before_work(app));
    let account = look_up.await?;
    app.api_keys.check_rate(account.id)?;
    Ok(account)
}

/// Who sends a request: the other end of the connection. Behind a proxy, that is the proxy.
pub fn client_of(request: &HttpRequest) -> Option<IpAddr> {
    request.peer_addr().map(|address| address.ip())
}

/// When the work of a request that begins now must begin at the latest, so that it can end within
/// the request's time.
pub fn before_work(app: &App) -> Instant {
    Instant::now() + app.values.before_work()
}

/// When the work of a request must begin, noted in the request by the first that asks.
struct WorkBegins(Instant);

/// As [`before_work`], and the same moment for all who ask about this request: what looks for its
/// database, and what reads its API key and its body, share the time.
pub(super) fn work_begins(app: &App, request: &HttpRequest) -> Instant {
    let mut extensions = request.extensions_mut();
    if let Some(WorkBegins(until)) = extensions.get() {
        return *until;
    }
    let until = before_work(app);
    extensions.insert(WorkBegins(until));
    until
}

/// The parameters of a read, from its query.
pub(super) fn query_params<Q: ParameterSet>(request: &HttpRequest) -> Result<Q, HttpError> {
    let mut params = Params::new(Encoding::Form, query(request)?);
    params.not_offered(not_offered::parameters(resource(request)));
    params.grant(STRIPES_WORDS, dialect_of(request) == Dialect::Stripe);
    let query = Q::parse(&params)?;
    params.must_not_be_empty()?;
    Ok(query)
}

/// A path as both dialects have it.
pub(super) fn below_prefix(path: &str) -> &str {
    let prefix = Dialect::of_path(path).prefix();
    path.strip_prefix(prefix).unwrap_or(path)
}

/// The first segment of the path, without its dialect: what its objects are called.
fn resource(request: &HttpRequest) -> &str {
    let path = below_prefix(routed_path(request)).trim_start_matches('/');
    path.split('/').next().unwrap_or_default()
}

/// Refuses parameters on a read that has none.
pub fn no_query(request: &HttpRequest) -> Result<(), HttpError> {
    query_params(request)
}

/// The decoded query, or why it can't be decoded; a card number in it ends the request.
fn query(request: &HttpRequest) -> Result<Result<Map<String, Value>, Error>, HttpError> {
    let raw = request.query_string().as_bytes();
    let decoded = Encoding::Form.decode(raw, MAPS);
    let forbidden = match &decoded {
        Ok(tree) => find_card_number(tree, CARD_FIELDS, |_| false).is_some(),
        Err(_) => bytes_hold_card_number(raw),
    };
    if forbidden {
        return Err(ApiError::explained(ErrorCode::CardNumberForbidden).into());
    }
    Ok(decoded.map_err(|error| Error {
        reason: Reason::Invalid,
        ..error
    }))
}

/// The parameters of a mutating request go in its body; some in its query would be ignored, so they
/// are refused, and the command stores the refusal.
fn refuse_query(query: Result<Map<String, Value>, Error>) -> Option<Error> {
    let refusal = <()>::parse(&Params::new(Encoding::Form, query)).err()?;
    Some(match (&refusal.reason, &refusal.param) {
        (Reason::Unknown, Some(param)) => Error {
            message: format!("Send {param} in the body of this request, and not in its query."),
            ..refusal
        },
        _ => refusal,
    })
}

/// Exactly one key (draft-ietf-httpapi-idempotency-key-header, section 2.1), or one that is
/// assigned where the request may go without.
fn idempotency_key(app: &App, request: &HttpRequest) -> Result<IdempotencyKey, HttpError> {
    let invalid_key = |message: String| ApiError::new(ErrorCode::IdempotencyKeyInvalid, message);
    let key = IdempotencyKey::of_headers(request.headers().get_all(IDEMPOTENCY_KEY));
    let error = match key {
        Ok(key) => return Ok(key),
        Err(HeaderError::Missing) if app.values.keys.assigns(routed_path(request)) => {
            let key = IdempotencyKey::assigned();
            let mut extensions = request.extensions_mut();
            extensions.insert(AssignedKey(key.clone()));
            return Ok(key);
        }
        Err(HeaderError::Missing) => ApiError::explained(ErrorCode::IdempotencyKeyRequired),
        Err(HeaderError::Repeated) => {
            invalid_key("The Idempotency-Key header was sent twice.".to_owned())
        }
        Err(error @ (HeaderError::Assigned | HeaderError::Invalid(_))) => {
            invalid_key(error.to_string())
        }
    };
    Err(error.into())
}

/// How long the key is kept. A preference that counts is noted in the request for its reply.
fn retention(app: &App, request: &HttpRequest) -> Duration {
    let retention = key_rules(app, request).times;
    let Some(preferred) = retention.preferred(request.headers()) else {
        return retention.usual;
    };
    request.extensions_mut().insert(KeptFor(preferred));
    preferred
}

/// The refusal of a key that may not be stored, or shown by look-ups.
pub(super) fn forbidden_key(key: &IdempotencyKey) -> Option<ApiError> {
    if let Err(card_number) = ensure_no_card_number(key.as_str()) {
        return Some(card_number);
    }
    is_secret(key.as_str()).then(|| {
        let message = format!("The idempotency key {LOOKS_SECRET}");
        ApiError::new(ErrorCode::IdempotencyKeyInvalid, message)
    })
}

/// The version that an SDK was made for. It is no part of what makes two requests the same: a retry
/// may come from another process, with another release of the SDK.
fn api_version(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    let Some(value) = headers.get(STRIPE_VERSION) else {
        return Ok(None);
    };
    let version = value.to_str().ok().and_then(version_of_header);
    let refusal = || ApiError::invalid(STRIPE_VERSION, MUST_BE_A_VERSION);
    version.map(Some).ok_or_else(refusal)
}

/// What is said of a key or a name that would be stored and shown.
const LOOKS_SECRET: &str = "looks like a secret, such as an API key. It was not stored. If it is \
                            one, replace it; a UUID is a good key.";

/// The header with a client's name for the requests that belong together.
const WORKFLOW: &str = "Idempotency-Workflow";

/// At most one workflow, which would be stored and shown like the key.
fn idempotency_workflow(request: &HttpRequest) -> Result<Option<WorkflowName>, HttpError> {
    let mut values = request.headers().get_all(WORKFLOW);
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        return Err(ApiError::invalid(WORKFLOW, "The header was sent twice.").into());
    }
    let name = WorkflowName::parse(value.as_bytes());
    let name = name.map_err(|error| ApiError::invalid(WORKFLOW, error.to_string()))?;
    Ok(Some(name))
}

/// The refusal of a name that may not be stored or shown.
fn forbidden_workflow(name: &WorkflowName) -> Option<ApiError> {
    if let Err(card_number) = ensure_no_card_number(name.as_str()) {
        return Some(card_number);
    }
    let is_secret = is_secret(name.as_str());
    is_secret.then(|| ApiError::invalid(WORKFLOW, format!("The workflow's name {LOOKS_SECRET}")))
}

fn ensure_no_card_number(text: &str) -> Result<(), ApiError> {
    if holds_card_number(text) {
        return Err(ApiError::explained(ErrorCode::CardNumberForbidden));
    }
    Ok(())
}

/// Canonical JSON of what was decoded, if it was.
fn canonical(decoded: Option<&Map<String, Value>>) -> Result<Option<Vec<u8>>, HttpError> {
    let canonical = decoded.map(serde_json_canonicalizer::to_vec).transpose();
    // Another identity on failure would make a retry another request.
    canonical.map_err(|error| HttpError::failed_without_key(Failure::internal(error)))
}

/// By canonical JSON, or by the raw bytes of what could not be decoded.
fn identity<'a>(canonical: Option<&'a [u8]>, raw: &'a [u8]) -> Parameters<'a> {
    canonical.map_or(Parameters::Raw(raw), Parameters::Canonical)
}

/// What key look-ups show of the path: without the API key that a client has put there, and without
/// a key that may be that of a sealed record.
fn stored_path(app: &App, request: &HttpRequest, decoded: &str) -> String {
    let route = request.match_pattern().unwrap_or_default();
    if holds_secret(decoded) || request_log::names_key(app, &route) {
        return route;
    }
    routed_path(request).to_owned()
}

/// The whole path, decoded, or `None` if it can't be stored.
fn storable_path(request: &HttpRequest) -> Option<Cow<'_, str>> {
    decoded_path(request).filter(|_| routed_path(request).len() <= PATH_MAX_BYTES)
}

/// The id that the path names as `{id}`. 404 for text that is no id of that kind.
pub fn path_id<Id: ObjectId>(request: &HttpRequest) -> Result<Id, HttpError> {
    let text = request.match_info().query("id");
    let missing = || HttpError::missing_id::<Id>(dialect_of(request), text);
    Id::parse(text).ok_or_else(missing)
}

/// The dialect of the prefix that the request came through.
pub(super) fn dialect_of(request: &HttpRequest) -> Dialect {
    Dialect::of_path(routed_path(request))
}

/// The request's own id, as the outermost middleware made it.
pub fn request_id(request: &HttpRequest) -> String {
    let extensions = request.extensions();
    let id = extensions.get::<RequestId>();
    id.map(ToString::to_string).unwrap_or_default()
}

pub(super) fn app(request: &HttpRequest) -> Result<&App, HttpError> {
    let data = request.app_data::<web::Data<App>>();
    let app = data.map(|data| data.get_ref());
    app.ok_or_else(|| HttpError::failed_without_key(no_app()))
}

fn no_app() -> Failure {
    Failure::internal("the server was started without its App")
}
