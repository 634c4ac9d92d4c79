//! What is refused at once because too many requests are in progress.
//!
//! Promise: a request that is refused here was never claimed, so its key is as free as before, and it is
//! told so within [`LOOK_UP_WAIT`], however the database is doing. Duplicates of a request in progress are
//! not counted and still follow it. A key that has a record is still answered by it. That takes one read, on
//! the connection that [`FairPool`](crate::FairPool) keeps from new work, and [`LOOK_UPS_MAX`] requests read at
//! a time.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout},
};
use tracing::Instrument;

use crate::{Failure, Idempotency, Outcome, Request, claim, in_flight::Conclusion};

/// How long a request that is to be refused looks for a record of its key. Reads take less than a hundredth of
/// it.
const LOOK_UP_WAIT: Duration = Duration::from_millis(100);

/// Requests that look at a time. What comes beyond them is refused without a look.
const LOOK_UPS_MAX: usize = 32;

/// How long no request looks after a look without an answer: the database is slower than its clients' patience,
/// and each look that is cut off costs a connection.
const NO_LOOK_UPS_FOR: Duration = Duration::from_secs(1);

/// How many requests may be in progress in this process, from the moment that they begin to wait for a connection
/// until they have an outcome. Duplicates are not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InProgressLimits {
    /// Of one account.
    pub per_account: usize,
    /// In all.
    pub in_all: usize,
}

impl InProgressLimits {
    /// No limits.
    pub const NONE: Self = Self {
        per_account: usize::MAX,
        in_all: usize::MAX,
    };
}

/// The limit that a refused request met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InProgressLimit {
    /// [`InProgressLimits::per_account`]
    Account,
    /// [`InProgressLimits::in_all`]
    All,
}

/// Who may look for a record of its key. Cheap to clone; all clones are one.
#[derive(Clone)]
pub(crate) struct LookUps {
    places: Arc<Semaphore>,
    none_until: Arc<Mutex<Option<Instant>>>,
}

impl LookUps {
    pub(crate) fn new() -> Self {
        Self {
            places: Arc::new(Semaphore::new(LOOK_UPS_MAX)),
            none_until: Arc::default(),
        }
    }

    /// `None`: refuse the request without a look.
    fn begin(&self) -> Option<OwnedSemaphorePermit> {
        let none_until = *self
            .none_until
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if none_until.is_some_and(|until| Instant::now() < until) {
            return None;
        }
        Arc::clone(&self.places).try_acquire_owned().ok()
    }

    /// One had no answer.
    fn pause(&self) {
        let until = Instant::now() + NO_LOOK_UPS_FOR;
        *self
            .none_until
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(until);
    }
}

impl Idempotency {
    /// The same, with limits on the requests in progress. Beyond them a request is answered at once with a
    /// [`Failure`] of the kind [`Unavailable`](crate::FailureKind::Unavailable), unless its key has a record.
    /// All clones count together, and each one keeps to the limits it has.
    #[must_use]
    pub fn limited_to(self, limits: InProgressLimits) -> Self {
        Self {
            in_flight: self.in_flight.limited_to(limits),
            ..self
        }
    }

    /// Answers a request that met a limit: from its key's record, or else with a failure.
    pub(crate) async fn shed(&self, request: &Request, limit: InProgressLimit) -> Outcome {
        if let Some(outcome) = self.recorded_outcome(request).await {
            return outcome;
        }
        self.pool.observer().shed(limit);
        let cause = match limit {
            InProgressLimit::Account => "too many requests of the account are in progress",
            InProgressLimit::All => "too many requests are in progress",
        };
        let failure = Failure::unavailable(cause);
        tracing::warn!(request_id = request.request_id, %cause, "not begun");
        Outcome::Failed(failure)
    }

    /// What the key's record says, if there is one and the database tells in time.
    async fn recorded_outcome(&self, request: &Request) -> Option<Outcome> {
        let place = self.look_ups.begin()?;
        let (this, wanted) = (self.clone(), request.clone());
        let look = async move {
            let _place = place;
            let reading = async {
                let mut connection = this.pool.acquire(wanted.account_id).await?;
                let found = claim::read(&mut connection, &wanted).await?;
                connection.release();
                Ok::<_, sqlx::Error>(found)
            };
            timeout(LOOK_UP_WAIT, reading).await
        };
        // In a task of its own, as all work: a client that leaves closes no connection.
        match self.runtime.spawn(look.in_current_span()).await {
            Ok(Ok(Ok(Some(claim::Found::Completed(record))))) => Outcome::of(request, record),
            // The first request may be at work elsewhere, or in doubt: to say that nothing was executed
            // would be a guess.
            Ok(Ok(Ok(Some(claim::Found::Unfinished(row))))) => match row.compare(request).ok()? {
                Conclusion::Reused => Some(Outcome::Reused),
                Conclusion::Unfinished => Some(Outcome::InUse),
                Conclusion::Stored { .. } | Conclusion::HeldElsewhere | Conclusion::Failed(_) => {
                    None
                }
            },
            Ok(Ok(Ok(None | Some(claim::Found::Expired)))) => None,
            Ok(Ok(Err(_)) | Err(_)) | Err(_) => {
                self.look_ups.pause();
                None
            }
        }
    }
}
