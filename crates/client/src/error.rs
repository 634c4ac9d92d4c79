//! Why a call has no object to return.
//!
//! Promise: an error says whether anything happened. After [`Error::GaveUp`] and [`Error::Expired`]
//! it is not known, and [`Error::Unreadable`] means that it did. After all others nothing was
//! charged, or, by a checkout that ran out of stock, all of it was given back. After
//! [`Error::Abandoned`], nothing ever will be under the key.

use std::fmt;

use serde::Deserialize;

use super::{key_store::KeyStoreError, keyed_request::KeyedRequest, sending::Reply};

pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call has no object to return. Boxed, so that the path without an error stays small.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// 402: the card was declined, for good. The service keeps the failed charge, unless what was
    /// typed can't be a card. Another attempt is another operation, with a key of its own.
    #[error("declined: {0}")]
    Declined(Box<Refusal>),
    /// The request can't be done as it is: a parameter, an unknown id, a charge refunded already,
    /// items that are out of stock. Its code says which.
    #[error("refused: {0}")]
    Invalid(Box<Refusal>),
    /// 401 or 403: the API key is missing, unknown or revoked.
    #[error("not authenticated: {0}")]
    Unauthenticated(Box<Refusal>),
    /// The key was used before, for another request.
    #[error("the idempotency key was used for another request: {0}")]
    KeyReused(Box<Refusal>),
    /// The key was given up before anything was executed under it, and nothing will be: also no
    /// attempt that is still on its way.
    #[error("nothing was executed under the idempotency key, and nothing will be: it was given up")]
    Abandoned,
    /// **Unknown.** Retry with the same key, and only with the same key.
    #[error("{0}")]
    GaveUp(Box<GaveUp>),
    /// Too old to be sent again: its key may be forgotten, and the retry would be a new request. Or
    /// the service says that its outcome is no longer kept. A person must look it up.
    #[error(
        "the operation with key {} is too old to be sent again: look up what became of it", .0.key()
    )]
    Expired(Box<KeyedRequest>),
    /// Done, but what came back isn't what this version of the client reads.
    #[error("it was done (HTTP {}), but the answer can't be read: {error}", reply.status)]
    Unreadable {
        /// What came back.
        reply: Box<Reply>,
        /// What is wrong with it.
        error: serde_json::Error,
    },
    /// The operation could not be written down, so it was not sent.
    #[error(transparent)]
    Store(#[from] KeyStoreError),
    /// A setting or a parameter that can't be used. Nothing was sent.
    #[error("{0}")]
    Unusable(String),
}

impl Error {
    /// Whether the outcome of the operation is definite. If not, the operation must be kept, and
    /// may only be sent again with its own key.
    pub fn is_outcome(&self) -> bool {
        match self {
            Self::Declined(_)
            | Self::Invalid(_)
            | Self::Unauthenticated(_)
            | Self::KeyReused(_)
            | Self::Abandoned
            | Self::Unreadable { .. } => true,
            Self::GaveUp(_) | Self::Expired(_) | Self::Store(_) | Self::Unusable(_) => false,
        }
    }

    /// The error of an operation whose key could not be given up: it decides nothing.
    pub(super) fn of_giving_up(self, operation: &KeyedRequest) -> Self {
        // The key that was to be given up has expired.
        if let Self::Expired(_) = self {
            return Self::Expired(Box::new(operation.clone()));
        }
        let (attempts, reason, last) = if let Self::GaveUp(why) = self {
            (why.attempts, why.reason, why.last)
        } else {
            let last = AttemptFailure::NoAnswer(self.to_string());
            (1, Reason::EarlierAttempt, last)
        };
        Self::GaveUp(Box::new(GaveUp {
            key: Some(operation.key().to_owned()),
            attempts,
            sent: true,
            reason,
            last,
        }))
    }
}

/// What the service says of a request that it refused.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct Refusal {
    /// The HTTP status.
    #[serde(skip)]
    pub status: u16,
    /// For programs: `card_declined`, `out_of_stock`, `parameter_invalid`, …
    pub code: String,
    /// For people.
    pub message: String,
    /// What to do about the idempotency key, for the developer.
    pub advice: Option<String>,
    /// The field at fault.
    pub param: Option<String>,
    /// The issuer's reason for a decline.
    pub decline_code: Option<String>,
    /// The failed charge that a decline leaves.
    pub charge: Option<String>,
    /// `req_…`, to ask about it.
    #[serde(skip)]
    pub request_id: Option<String>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HTTP {}", self.status)?;
        for part in [&self.code, &self.message] {
            if !part.is_empty() {
                write!(f, ", {part}")?;
            }
        }
        if let Some(param) = &self.param {
            write!(f, " ({param})")?;
        }
        if let Some(advice) = &self.advice {
            write!(f, "; {advice}")?;
        }
        Ok(())
    }
}

/// There is no outcome: it is not known what happened, unless nothing was [`sent`](Self::sent).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GaveUp {
    /// The operation's key; `None` where something was read or deleted, which needs none.
    pub key: Option<String>,
    /// Number of attempts.
    pub attempts: u32,
    /// Whether any attempt left this machine, here or in an earlier process. If none did, nothing
    /// has happened, and nothing will before it is sent again.
    pub sent: bool,
    /// Why there was no further attempt.
    pub reason: Reason,
    /// How the last attempt ended.
    pub last: AttemptFailure,
}

impl fmt::Display for GaveUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "no definite answer after {} attempts ({}), the last one: {}",
            self.attempts, self.reason, self.last
        )?;
        match &self.key {
            Some(key) if self.sent => {
                write!(f, "; it may have happened: retry with the same key, {key}")
            }
            Some(key) => write!(f, "; nothing was sent: retry with the same key, {key}"),
            None => Ok(()),
        }
    }
}

/// Why there was no further attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// The next one would begin after the deadline.
    #[error("the deadline is over")]
    Deadline,
    /// Too many retries lately, of all calls of this client together.
    #[error("the retry budget is used up")]
    Budget,
    /// The service said that a retry now makes no sense.
    #[error("the service said not to retry")]
    ToldNotTo,
    /// The last attempt was refused without a stored outcome, and that says nothing about an
    /// earlier one that may still have arrived.
    #[error("a refusal doesn't decide an earlier attempt")]
    EarlierAttempt,
}

/// How an attempt ended that decided nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AttemptFailure {
    /// No connection: this attempt wasn't received.
    #[error("{0}")]
    NotConnected(String),
    /// The answer was lost, or didn't come in time.
    #[error("{0}")]
    NoAnswer(String),
    /// An answer that is no outcome.
    #[error("{0}")]
    Answered(Refusal),
}

impl Refusal {
    /// Reads the envelope; what a proxy in between has made up has none.
    pub(super) fn of(reply: &Reply) -> Self {
        #[derive(Deserialize)]
        struct Envelope {
            error: Refusal,
        }
        let envelope = serde_json::from_slice::<Envelope>(&reply.body);
        Self {
            status: reply.status,
            request_id: reply.request_id.clone(),
            ..envelope.map(|envelope| envelope.error).unwrap_or_default()
        }
    }

    /// The error for a refusal that is definite.
    pub(super) fn into_error(self) -> Error {
        let refusal = Box::new(self);
        match refusal.status {
            _ if refusal.code == "idempotency_key_reused" => Error::KeyReused(refusal),
            _ if refusal.code == "idempotency_key_abandoned" => Error::Abandoned,
            401 | 403 => Error::Unauthenticated(refusal),
            402 => Error::Declined(refusal),
            _ => Error::Invalid(refusal),
        }
    }
}
