//! Faults on demand: what a network and a service can do to a request, when a client's test wants
//! it. `charge_once_service::faults` reads and counts them.
//!
//! Promise: nothing here acts without `FAULTS=true`, and on no account but test accounts and the
//! one of `DEV_API_KEY`. A fault never changes what is stored: it acts before the work, or on the
//! reply after it.

use actix_web::{
    HttpResponse,
    http::header::{HeaderMap, HeaderValue},
};
use charge_once_service::connections::NoReply;
pub use charge_once_service::faults::Fault;
use charge_once_service::faults::{self as faults, FaultKind};
use tokio::sync::watch;
use uuid::Uuid;

use super::error::{FAULT, HttpError};
use crate::{
    domain::{account::Account, ids::AccountId},
    idempotency::{FailureKind, Idempotency, IdempotencyKey},
    wire::error::{ApiError, ErrorCode},
};

/// Acts before the work: `Some` is sent instead of doing it. A delay ends early when the process is
/// asked to stop, and takes a seat of those that wait, without which it is 503.
pub async fn before_the_work(
    fault: Fault,
    idempotency: &Idempotency,
    account: Uuid,
    stopping: &watch::Receiver<bool>,
) -> Result<Option<HttpResponse>, HttpError> {
    let name = fault.kind.as_str();
    tracing::info!(fault = name, "a fault acts");
    if fault.kind == FaultKind::Delay {
        let seat = idempotency.seat(account);
        let _seat = seat.ok_or_else(|| HttpError::failed(FailureKind::Unavailable))?;
        fault.delay(stopping).await;
    }
    let error = match fault.kind {
        FaultKind::ReplyLost | FaultKind::Delay => return Ok(None),
        FaultKind::RequestLost => return Ok(Some(lost(HttpResponse::NoContent().finish()))),
        FaultKind::InternalError => HttpError::failed(FailureKind::Internal),
        FaultKind::Unavailable => HttpError::failed(FailureKind::Unavailable),
        FaultKind::RateLimited => ApiError::explained(ErrorCode::RateLimited).into(),
        FaultKind::InUse => HttpError::key_in_use(),
    };
    Err(error.asked_for(name))
}

/// A reply that no client gets: its connection ends instead.
pub fn lost(mut reply: HttpResponse) -> HttpResponse {
    reply.extensions_mut().insert(NoReply);
    reply
}

/// Decides which faults act on which requests. Cheap to clone; all clones share the counts, which
/// are this process's own.
#[derive(Clone)]
pub struct Faults {
    /// The account of DEV_API_KEY, if faults act on it.
    pub dev_account: Option<AccountId>,
    counted: faults::Faults<(AccountId, IdempotencyKey)>,
}

impl Faults {
    /// They act on test accounts, and on `dev_account`.
    pub fn new(dev_account: Option<Account>) -> Self {
        Self {
            dev_account: dev_account.map(|account| account.id),
            counted: faults::Faults::default(),
        }
    }

    /// Whether they act on an account.
    pub fn act_on(&self, account: Account) -> bool {
        account.is_test || self.dev_account == Some(account.id)
    }

    /// The fault that acts on a request with these headers, which is counted. Refuses a header that
    /// can't be understood, and any from an account that faults do not act on.
    pub fn of_request(
        &self,
        headers: &HeaderMap,
        account: Account,
        key: &IdempotencyKey,
    ) -> Result<Option<Fault>, HttpError> {
        if !headers.contains_key(FAULT) {
            return Ok(None);
        }
        if !self.act_on(account) {
            return Err(for_test_accounts_only("Fault"));
        }
        let values = headers.get_all(FAULT).map(HeaderValue::as_bytes);
        let fault = self.counted.of_request(values, (account.id, key.clone()));
        fault.map_err(|malformed| ApiError::invalid("Fault", malformed.to_string()).into())
    }
}

/// Refuses what is for test accounts only.
pub fn must_be_allowed(is_allowed: bool) -> Result<(), HttpError> {
    match is_allowed {
        true => Ok(()),
        false => Err(for_test_accounts_only("Authorization")),
    }
}

/// The refusal of an account that is no test account; `what` it sent.
fn for_test_accounts_only(what: &str) -> HttpError {
    let message = "Faults act on test accounts and on the account of DEV_API_KEY only. With its key, POST \
                   /test/accounts makes a test account.";
    ApiError::invalid(what, message).into()
}
