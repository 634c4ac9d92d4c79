//! What is known of a request while it is at work.
//!
//! Promise: only an authenticated request is logged, and once: when it is answered, or when it is
//! dropped without a reply.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;
use uuid::Uuid;

use crate::request_log::{LoggedOutcome, LoggedRequest, RequestLog};

/// Longest path that is kept, in bytes. What is longer is cut.
pub const PATH_MAX_BYTES: usize = 512;

/// The entry of one request, for its extensions. Clones are the same entry. It is written when the
/// request ends, or when the last clone is dropped.
#[derive(Debug, Clone)]
pub struct Entry(Arc<Mutex<Unwritten>>);

#[derive(Debug)]
struct Unwritten {
    log: RequestLog,
    began: Instant,
    id: Uuid,
    /// `None` until the request is authenticated, and after its end.
    request: Option<LoggedRequest>,
}

impl RequestLog {
    /// Begins the entry of a request whose head has come. `id` is a UUIDv7 of this moment.
    pub fn begin(&self, id: Uuid) -> Entry {
        Entry(Arc::new(Mutex::new(Unwritten {
            log: self.clone(),
            began: Instant::now(),
            id,
            request: None,
        })))
    }
}

impl Entry {
    /// The request is `account`'s: from now on, it will be logged. `route` is the pattern that its
    /// path matched. `path` is without a query, and `None` if it may hold what must not be kept.
    /// PostgreSQL's text has no NUL, and neither may these.
    pub fn authenticated(&self, account: Uuid, method: &str, route: String, path: Option<&str>) {
        let mut unwritten = self.lock();
        let cut = |path: &str| {
            let end = path.floor_char_boundary(PATH_MAX_BYTES);
            path.get(..end).unwrap_or_default().to_owned()
        };
        unwritten.request = Some(LoggedRequest {
            id: unwritten.id,
            account,
            method: method.to_owned(),
            route,
            path: path.map(cut),
            idempotency_key: None,
            status: None,
            outcome: LoggedOutcome::Unanswered,
            duration: unwritten.began.elapsed(),
            resource_id: None,
            fingerprint: None,
            fault: None,
        });
    }

    /// The request is logged in another log than the one in which its entry began.
    pub fn moves_to(&self, log: &RequestLog) {
        self.lock().log = log.clone();
    }

    /// The request has this idempotency key, which may be kept.
    pub fn has_key(&self, key: &str) {
        if let Some(request) = &mut self.lock().request {
            request.idempotency_key = Some(key.to_owned());
        }
    }

    /// The request is one of a test: what it asks for, and the fault that acts on it.
    pub fn is_tested(&self, fingerprint: &[u8], fault: Option<&str>) {
        if let Some(request) = &mut self.lock().request {
            request.fingerprint = Some(fingerprint.to_owned());
            request.fault = fault.map(str::to_owned);
        }
    }

    /// The request has its reply, which is about `resource_id`. Any outcome but `Unanswered`.
    pub fn end(&self, status: u16, outcome: LoggedOutcome, resource_id: Option<String>) {
        self.lock().end(|request| {
            request.status = Some(status);
            request.outcome = outcome;
            request.resource_id = resource_id;
        });
    }

    /// Ends the request at the moment at which its client left, before the reply, which is about
    /// `resource_id`.
    pub fn left(&self, at: Instant, resource_id: Option<String>) {
        let mut unwritten = self.lock();
        let waited = at.saturating_duration_since(unwritten.began);
        unwritten.end(|request| {
            request.duration = waited;
            request.resource_id = resource_id;
        });
    }

    fn lock(&self) -> MutexGuard<'_, Unwritten> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Unwritten {
    fn end(&mut self, how: impl FnOnce(&mut LoggedRequest)) {
        if let Some(mut request) = self.request.take() {
            request.duration = self.began.elapsed();
            how(&mut request);
            self.log.add(request);
        }
    }
}

/// A request that is dropped without a reply: its client reset the connection.
impl Drop for Unwritten {
    fn drop(&mut self) {
        self.end(|_| {});
    }
}
