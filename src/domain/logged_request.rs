//! A request as the request log keeps it: never its body, and no secret.

use std::time::Duration;

use chrono::{DateTime, Utc};
use strum::{EnumString, IntoStaticStr, VariantArray};

use super::ids::{AccountId, RequestId};

/// An authenticated request that ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedRequest {
    /// Its id, which begins with the time at which it came.
    pub id: RequestId,
    /// Whose it is.
    pub account: AccountId,
    /// Its method.
    pub method: String,
    /// The pattern of its route.
    pub route: String,
    /// Its path as it was sent, without a query; `None` if that may hold a card number.
    pub path: Option<String>,
    /// Its idempotency key, if that passed its checks.
    pub idempotency_key: Option<String>,
    /// The status of the reply; `None` if the client left before.
    pub status: Option<u16>,
    /// How it ended.
    pub outcome: LoggedOutcome,
    /// How long it took until the reply.
    pub duration: Duration,
    /// What the stored reply is about.
    pub resource_id: Option<String>,
}

impl LoggedRequest {
    /// When it came, by the clock of the machine that answered it.
    pub fn came_at(&self) -> DateTime<Utc> {
        self.id.made_at()
    }
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum LoggedOutcome {
    /// It did what it asked for. A declined card counts: the failed charge is kept.
    Executed,
    /// It got the stored reply of an earlier request.
    Replayed,
    /// It was answered with a 4xx, and nothing came of it.
    Refused,
    /// Its key belongs to another request.
    Reused,
    /// An earlier request with its key was still at work.
    InUse,
    /// It ended with a 5xx or `resource_busy`: it was not executed, or that is not known.
    Failed,
    /// It changed nothing: a GET or a HEAD.
    Read,
    /// Its client left before the reply.
    Unanswered,
}

named!(LoggedOutcome);
