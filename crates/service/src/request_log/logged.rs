//! A request as the log keeps it: never its body.

use std::time::Duration;

use strum::{EnumString, IntoStaticStr, VariantArray};
use uuid::Uuid;

/// An authenticated request that ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedRequest {
    /// A UUIDv7 of when it came, by the clock of the machine that answered it.
    pub id: Uuid,
    /// Whose it is.
    pub account: Uuid,
    /// `GET`, `POST` …
    pub method: String,
    /// The pattern of its route, such as `/charges/{id}`.
    pub route: String,
    /// Its path as it was sent, without a query; `None` if that must not be kept.
    pub path: Option<String>,
    /// Its idempotency key, if that passed its checks.
    pub idempotency_key: Option<String>,
    /// The status of the reply; `None` if the client left before.
    pub status: Option<u16>,
    /// How it ended.
    pub outcome: LoggedOutcome,
    /// How long it took until the reply, to the microsecond.
    pub duration: Duration,
    /// The id of what the reply is about.
    pub resource_id: Option<String>,
    /// What it asked for, as a digest: two requests with one digest ask for the same.
    pub fingerprint: Option<Vec<u8>>,
    /// The fault that a test had act on it.
    pub fault: Option<String>,
}

/// How a request ended. The counts of minutes know an outcome by its place, so a new one comes
/// last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum LoggedOutcome {
    /// It did what it asked for.
    Executed,
    /// It got the stored reply of an earlier request.
    Replayed,
    /// It was answered with a 4xx, and nothing came of it.
    Refused,
    /// Its key belongs to another request.
    Reused,
    /// An earlier request with its key was still at work.
    InUse,
    /// It was not executed, or that is not known: it ended with a 5xx, for example.
    Failed,
    /// It changed nothing: a GET or a HEAD.
    Read,
    /// Its client left before the reply.
    Unanswered,
}

impl LoggedOutcome {
    /// All of them.
    pub const ALL: &'static [Self] = <Self as VariantArray>::VARIANTS;

    /// What a reply's status tells: `Executed`, `Refused`, `Failed` or `Read`. An application that
    /// knows more of the reply says one of the others itself.
    pub fn of(method: &str, status: u16) -> Self {
        match (method, status) {
            (_, 500..) => Self::Failed,
            ("GET" | "HEAD", _) => Self::Read,
            (_, 200..=299) => Self::Executed,
            (_, _) => Self::Refused,
        }
    }

    /// Its name in the table, such as `in_use`.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}
