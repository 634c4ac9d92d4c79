//! What is known of a key whose record is gone: the seam for an add-on.
//!
//! Promise: it never decides which transaction has a key. It is asked by one that has claimed the
//! key, and only whether its request may be executed.

use std::{fmt, future::Future, pin::Pin};

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use crate::{Record, Reply, Request};

/// A request whose key a transaction has claimed, and the expired record whose place it took.
pub(crate) type Claimed<'a> = (&'a Request, Option<Box<Record>>);

/// A key that is not new, though no record answers for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expired {
    /// When its record died. `None`: the time in the key is all that is known.
    pub at: Option<DateTime<Utc>>,
    /// What its request is refused with. It names what the key's first request created, if that is
    /// known.
    pub answer: Reply,
}

/// For each key, in order, whether it has expired. `None`: its request is executed.
pub(crate) type Looking<'a> =
    Pin<Box<dyn Future<Output = Result<Vec<Option<Expired>>, sqlx::Error>> + Send + 'a>>;

pub(crate) trait Recall: fmt::Debug + Send + Sync {
    /// Runs `first`, which may be empty, and then looks, in the same round trip. A look before the
    /// claim would miss what the claim waits for: a sweep that is about to commit.
    fn look<'a>(
        &'a self,
        tx: &'a mut PgConnection,
        first: &'static str,
        claimed: Vec<Claimed<'a>>,
    ) -> Looking<'a>;
}
