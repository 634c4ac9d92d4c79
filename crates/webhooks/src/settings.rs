//! How webhooks are sent.

use std::{pin::Pin, time::Duration};

use sqlx::{Postgres, Transaction};

use crate::{Event, Pauses};

/// Commits a transaction, or fails where its outcome is not known.
pub type Commit = for<'c> fn(
    Transaction<'c, Postgres>,
) -> Pin<Box<dyn Future<Output = sqlx::Result<()>> + Send + 'c>>;

/// How webhooks are sent.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Whether they may go to addresses that are not public: for development.
    pub allow_private: bool,
    /// The longest that an attempt may take.
    pub timeout: Duration,
    /// The pauses between attempts.
    pub pauses: Pauses,
    /// How often the worker looks for what it was not woken for: retries, and events of other
    /// replicas.
    pub poll_interval: Duration,
    /// The longest that the worker waits for the database to answer.
    pub database_deadline: Duration,
    /// Which replies are stored, for people who look at attempts, by the first KiB of the body.
    /// `None`: no body is read.
    pub keeps_replies: Option<fn(&str) -> bool>,
    /// The value of `User-Agent`.
    pub user_agent: &'static str,
    /// The header that holds the signature `t=…,v1=…`, in lower case.
    pub signature_header: &'static str,
    /// The `webhook-id` of an event, for endpoints with the headers of Standard Webhooks.
    pub standard_id: fn(&Event) -> String,
    /// The value of `traceparent` for what is sent in the current span, if there is a trace.
    pub traceparent: fn() -> Option<String>,
    /// Commits what the worker has claimed. Nothing is sent if it fails: of what a synchronous
    /// standby may lack, no receiver is told.
    pub commit: Commit,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            allow_private: false,
            timeout: Duration::from_secs(10),
            pauses: Pauses {
                min: Duration::from_secs(5),
                max: Duration::from_secs(8 * 3600),
            },
            poll_interval: Duration::from_secs(1),
            database_deadline: Duration::from_secs(5),
            keeps_replies: None,
            user_agent: "webhooks",
            signature_header: "stripe-signature",
            standard_id: |event| event.id.to_string(),
            traceparent: || None,
            commit: |tx| Box::pin(tx.commit()),
        }
    }
}
