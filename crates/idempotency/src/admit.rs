//! Who may begin, who may wait, and who gets a connection: the seam for an add-on.
//!
//! Promise: at most once does not depend on it. It decides when a request runs, never how often.

use std::{fmt, future::Future, pin::Pin};

use uuid::Uuid;

use crate::{Outcome, Request};

/// A right, for as long as it lives.
pub(crate) type Held = Box<dyn Send + Sync>;

/// A wait for a right.
pub(crate) type Turn<'a> = Pin<Box<dyn Future<Output = Held> + Send + 'a>>;

/// Answers a request, and its duplicates with it.
pub(crate) type Answering = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// What each question is answered with here is what the core does alone.
pub(crate) trait Admit: fmt::Debug + Send + Sync {
    /// Lets the first request with a key begin, or answers it. One whose key `was_in_use` is told
    /// so, and not that it failed. Its duplicates ask nothing: they follow it.
    fn begin(&self, request: &Request, was_in_use: bool) -> Result<Held, Answering> {
        let _ = (request, was_in_use);
        Ok(Box::new(()))
    }

    /// Whether one more request may wait, such as a duplicate for the work of the first one.
    fn follow(&self, account: Uuid) -> Option<Held> {
        let _ = account;
        Some(Box::new(()))
    }

    /// The account's turn to take a connection: to claim a key with it, or for anything else.
    fn connect(&self, account: Uuid, to_claim: bool) -> Turn<'_> {
        let _ = (account, to_claim);
        Box::pin(async { Box::new(()) as Held })
    }

    /// Whether one more claim may wait for another process, with the connection that it has.
    fn wait_for_key(&self) -> Option<Held> {
        Some(Box::new(()))
    }
}

/// Every request begins, and takes the connection that the pool gives it.
#[derive(Debug)]
pub(crate) struct Everyone;

impl Admit for Everyone {}
