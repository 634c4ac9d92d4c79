//! What a command answers, and what is kept of it.
//!
//! Promise: a [`Record`] is all that a reply is rendered from, the first time and every time after,
//! so a replay can't differ from the original.

use std::{borrow::Cow, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use crate::{Request, fingerprint::OF_ANY_REQUEST, sqlstate};

/// A definite answer: status, end-to-end headers and body, as bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// 200 to 499: what a command decides for good. A 5xx is a [`Failure`], never a reply.
    pub status: u16,
    /// Names and values in order; a name may occur more than once.
    pub headers: Vec<(String, String)>,
    /// The exact bytes of the body.
    pub body: Vec<u8>,
    /// The id of what the request created, if it created anything.
    pub resource_id: Option<String>,
}

impl Reply {
    /// A reply whose body is JSON, written already. It names no resource.
    pub fn raw_json(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self {
            status,
            headers: vec![("content-type".to_owned(), "application/json".to_owned())],
            body: body.into(),
            resource_id: None,
        }
    }
}

/// The outcome of one key, completed and committed. Immutable until it expires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// What to answer.
    pub reply: Reply,
    /// The request that executed; every replay names it.
    pub request_id: String,
    /// Method of that request.
    pub method: String,
    /// Path of that request.
    pub path: String,
    /// What the first use of the key was labeled with.
    pub label: Option<String>,
    /// Version of the rule the fingerprint was made by.
    pub fingerprint_version: i16,
    /// The 32 bytes of the fingerprint.
    pub fingerprint: Vec<u8>,
    /// When the key was first used, by the database's clock.
    pub created_at: DateTime<Utc>,
    /// When the record dies, by the database's clock.
    pub expires_at: DateTime<Utc>,
    /// Whether the body is as it is stored, encrypted: a look at a key opens nothing.
    pub is_sealed: bool,
}

impl Record {
    /// Whether it answers each request with its key, whatever that asks for: the key was given up.
    pub fn is_of_any_request(&self) -> bool {
        self.fingerprint_version == OF_ANY_REQUEST
    }

    /// Whether it belongs to `request`. On a row that exists, the fingerprint is compared before
    /// anything else. Fails where this build doesn't know the rule that it was made by.
    pub(crate) fn is_of(&self, request: &Request) -> Result<bool, Failure> {
        let (version, fingerprint) = (self.fingerprint_version, &self.fingerprint);
        let same = request.fingerprint.matches(version, fingerprint);
        same.map_err(Failure::unavailable)
    }
}

/// What was decided: a definite answer, or what is left to do until there is one.
#[derive(Debug)]
pub enum Verdict<A, P> {
    /// The answer.
    Answered(A),
    /// What is left to do. The key stays in flight meanwhile.
    Pending(P),
}

/// Why a command ended without success.
#[derive(Debug)]
pub enum Rejection {
    /// A deterministic 4xx: everything the command wrote is undone, the reply is stored.
    Refused(Reply),
    /// Not executed: everything is undone and the key is free.
    Failed(Failure),
}

/// What kind of failure it was: it decides the status that the edge answers with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// Rows that the work needs stayed locked by others for too long.
    Busy,
    /// The database, or something else the work needs, can't be reached or is overloaded.
    Unavailable,
    /// This process is not set up for the work, so waiting doesn't help; another process may be.
    Unsupported,
    /// A defect.
    Internal,
}

/// Not executed, or not known to be. Cheap to clone, because waiters share it.
#[derive(Debug, Clone)]
pub struct Failure {
    /// Decides the status.
    pub kind: FailureKind,
    /// For the log, once; never for the client.
    pub cause: Arc<str>,
    /// Whether the same transaction may succeed if it runs again.
    pub run_again: RunAgain,
    /// Whether the request may have been executed all the same.
    pub is_unknown: bool,
    /// How long what is in the way lasts, where that is known.
    pub retry_after: Option<Duration>,
}

/// Whether a transaction that failed may succeed if it runs again. All that it did is undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunAgain {
    /// Not within this request.
    Never,
    /// At once: it was a deadlock's victim, or failed to serialize.
    AtOnce,
    /// At once, in a session that is made anew: this one would fail again.
    InAnotherSession,
    /// When the row that it waited for is no longer locked.
    WhenUnlocked,
}

impl Failure {
    /// Something the work needs is not available now.
    pub fn unavailable(cause: impl ToString) -> Self {
        Self::new(FailureKind::Unavailable, cause)
    }

    /// Another request holds something the work needs.
    pub fn busy(cause: impl ToString) -> Self {
        Self::new(FailureKind::Busy, cause)
    }

    /// This process is not set up for the work.
    pub fn unsupported(cause: impl ToString) -> Self {
        Self::new(FailureKind::Unsupported, cause)
    }

    /// A defect of this program.
    pub fn internal(cause: impl ToString) -> Self {
        Self::new(FailureKind::Internal, cause)
    }

    /// A COMMIT that was answered with an error. Postgres answers with one of class 23 or 40 only
    /// after it has rolled back: the key is free. Everything else, silence included, says nothing
    /// about what happened: unknown.
    pub(crate) fn of_commit(error: sqlx::Error) -> Self {
        let (is_rolled_back, failure) = (is_rolled_back(&error), Self::from(error));
        if is_rolled_back {
            let kind = FailureKind::Unavailable;
            return Self { kind, ..failure };
        }
        let cause = failure.cause;
        let cause = format!("COMMIT was not acknowledged, the outcome is unknown: {cause}");
        Self {
            is_unknown: true,
            ..Self::unavailable(cause)
        }
    }

    /// No answer in time. After COMMIT was sent the outcome is unknown.
    pub(crate) fn deadline(committing: bool) -> Self {
        let cause = match committing {
            true => "no answer to COMMIT within the database deadline, the outcome is unknown",
            false => "the database deadline is over",
        };
        Self {
            is_unknown: committing,
            ..Self::unavailable(cause)
        }
    }

    /// No transaction could be opened: nothing has been done, whatever the reason is. Another
    /// connection may be alive, but not where the server's settings are the reason (22023, see
    /// `begin!`).
    pub(crate) fn of_begin(error: sqlx::Error) -> Self {
        let is_refused = sqlstate(&error).is_some_and(|code| code == "22023");
        Self {
            run_again: match is_refused {
                true => RunAgain::Never,
                false => RunAgain::AtOnce,
            },
            ..Self::unavailable(Self::from(error).cause)
        }
    }

    /// Logs the cause: as a warning if it passes by itself. Once for each request: its duplicates
    /// share the failure and log nothing.
    pub(crate) fn log(&self, request_id: &str) {
        let Self { kind, cause, .. } = self;
        match kind {
            FailureKind::Busy | FailureKind::Unavailable => {
                tracing::warn!(request_id, %cause, "no definite outcome");
            }
            FailureKind::Unsupported | FailureKind::Internal => {
                tracing::error!(request_id, ?kind, %cause, "no definite outcome");
            }
        }
    }

    fn new(kind: FailureKind, cause: impl ToString) -> Self {
        Self {
            kind,
            cause: cause.to_string().into(),
            run_again: RunAgain::Never,
            is_unknown: false,
            retry_after: None,
        }
    }
}

/// Whether a COMMIT that failed so has surely rolled back. 25P02: an earlier error aborted it.
pub(crate) fn is_rolled_back(error: &sqlx::Error) -> bool {
    sqlstate(error)
        .is_some_and(|code| code.starts_with("23") || code.starts_with("40") || code == "25P02")
}

/// The five characters by which PostgreSQL names an error, if the error is PostgreSQL's.
pub(crate) fn sqlstate(error: &sqlx::Error) -> Option<Cow<'_, str>> {
    error.as_database_error()?.code()
}

impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        #[expect(
            clippy::wildcard_enum_match_arm,
            reason = "sqlx's errors are open-ended; whatever is not known to pass is a defect"
        )]
        let error = match &error {
            sqlx::Error::Database(error) => error,
            sqlx::Error::Io(_)
            | sqlx::Error::Tls(_)
            | sqlx::Error::Protocol(_)
            | sqlx::Error::PoolTimedOut
            | sqlx::Error::PoolClosed
            | sqlx::Error::WorkerCrashed => return Self::unavailable(error),
            _ => return Self::internal(error),
        };
        let (kind, run_again) = sqlstate::meaning(&error.code().unwrap_or_default());
        // With its own words alone: sqlx adds a line of PostgreSQL's source.
        Self {
            run_again,
            ..Self::new(kind, error.message())
        }
    }
}

/// A [`Failure`], or an error of sqlx.
impl<E: Into<Failure>> From<E> for Rejection {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// The database's own check names what is saved; a status that doesn't fit i16 can't pass it.
pub(crate) fn status(reply: &Reply) -> i16 {
    i16::try_from(reply.status).unwrap_or(i16::MAX)
}

/// Saves the outcome in the row that this transaction claimed, or may complete, and gives back the
/// whole record. An outcome that took long lives as long as any other with its retention. `key` is
/// as it is stored, and so is the body, if it is `sealed`.
///
/// This must be the transaction's last statement: `COMMIT` of a transaction that an earlier,
/// swallowed error has aborted answers "ok" and rolls back, but a statement in it fails.
pub(crate) async fn save(
    tx: &mut PgConnection,
    account_id: uuid::Uuid,
    key: &str,
    (reply, sealed): (Reply, Option<Vec<u8>>),
) -> Result<Record, sqlx::Error> {
    let row = sqlx::query!(
        r#"
        UPDATE idempotency_keys
           SET status = $3, headers = $4, body = $5, resource_id = $6,
               expires_at = greatest(expires_at, expires_at + (now() - created_at))
         WHERE account_id = $1 AND key = $2 AND status IS NULL
        RETURNING request_id, method, path, fingerprint_version, fingerprint, created_at,
                  expires_at, label
        "#,
        account_id,
        key,
        status(&reply),
        sqlx::types::Json(&reply.headers) as _,
        sealed.as_ref().unwrap_or(&reply.body),
        reply.resource_id,
    )
    .fetch_one(tx)
    .await?;
    Ok(Record {
        reply,
        request_id: row.request_id,
        method: row.method,
        path: row.path,
        label: row.label,
        fingerprint_version: row.fingerprint_version,
        fingerprint: row.fingerprint,
        created_at: row.created_at,
        expires_at: row.expires_at,
        is_sealed: false,
    })
}
