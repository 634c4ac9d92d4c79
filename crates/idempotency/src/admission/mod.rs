//! Add-on: who may begin, who may wait, and who gets a connection, when more is asked for than the
//! pool can do.
//!
//! Promise: a request that is refused here was never claimed, so its key is as free as before. It
//! is told so at once, however the database is doing.

mod fair_places;
mod look_ups;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use sqlx::PgPool;
use tokio::sync::Semaphore;
use uuid::Uuid;

use crate::{
    Connections, Failure, Idempotency, Observer, Outcome, Request,
    admit::{Admit, Answering, Held, Turn},
    lock,
    observer::Unobserved,
};
use fair_places::FairPlaces;
use look_ups::LookUps;

/// How many requests may wait for something else than a connection: duplicates for the work of
/// other requests, and those whose key another process has. They bound what all of them hold, and
/// one tenant can't fill the process with waiters. A client with more retries in the air is broken.
const SEATS: InProgressLimits = InProgressLimits {
    per_account: 1_000,
    in_all: 2_000,
};

/// Seats that an account has before those of others count: two that wait with all their requests
/// must not keep the others from waiting.
const FIRST_SEATS: usize = 20;

/// Seats that are left to accounts with fewer than [`FIRST_SEATS`].
const SEATS_FOR_FEW: usize = 500;

/// Connections that transactions which claim a key leave alone: while all of those wait for locks,
/// others still read, replay, and complete what was begun. A pool of less than [`SPARING`] can't
/// spare any.
const NOT_FOR_CLAIMS: usize = 1;

/// Connections of the smallest pool that spares some.
const SPARING: usize = 4;

/// The account of the connection that reads the records of refused requests, of all accounts: it
/// waits behind no worker.
const LOOK_UPS: Uuid = Uuid::max();

/// How many requests may be in progress in this process, from the moment that they begin to wait
/// for a connection until they have an outcome. Duplicates are not counted.
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

/// Is told as well what admission decides.
pub trait AdmissionObserver: Observer {
    /// A request was refused because too many are in progress. Its duplicates meanwhile share the
    /// refusal.
    fn shed(&self, limit: InProgressLimit) {
        let _ = limit;
    }
}

impl AdmissionObserver for Unobserved {}

/// A pool whose connections are dealt to accounts, with limits on what is in progress: for
/// [`Idempotency::new`](crate::Idempotency::new), in place of the pool. Cheap to clone; all clones
/// admit together.
///
/// The order of precedence, as a request meets it:
///
/// 1. A duplicate of a request in progress begins nothing and takes no connection: it follows. Of
///    one account, 1,000 may wait for work, and 2,000 in all, 500 of them only for accounts with
///    fewer than 20. The others wait for the claim, which takes moments.
/// 2. A request beyond a limit does not begin. The limit of its account counts first, then that of
///    all. If its key has a record, the record answers. Otherwise it gets a [`Failure`] of the kind
///    [`Unavailable`](crate::FailureKind::Unavailable), at once. If another process had its key
///    before, it gets [`Outcome::InUse`]. A part of a request that has begun is neither counted
///    nor refused.
/// 3. What begins waits for its account's turn to claim a key. An account that is alone may have
///    every place. While others ask, it has half of them at most, and of those that wait the
///    account with the fewest is next.
/// 4. Then it waits for a connection, as reads do and what ends work: by turns of the same kind. Of
///    four connections or more, claims have one fewer, and while other accounts ask, those of one
///    account have one fewer than its half, so that what it does beside them never waits for a
///    claim.
/// 5. With its connection, a claim waits for another process that has its key. Half of the
///    connections may do so. A claim beyond them hardly waits.
#[derive(Debug, Clone)]
pub struct Admission {
    pool: PgPool,
    observer: Arc<dyn AdmissionObserver>,
    limits: InProgressLimits,
    in_progress: Tally,
    look_ups: LookUps,
    seats: Tally,
    /// All connections, and those of them that may be used to claim keys.
    connections: FairPlaces,
    claims: FairPlaces,
    patient_claims: Arc<Semaphore>,
}

impl Admission {
    /// What is taken from the pool directly counts for no account.
    pub fn new(pool: PgPool, limits: InProgressLimits) -> Self {
        let places = usize::try_from(pool.options().get_max_connections()).unwrap_or(usize::MAX);
        let spared = if places < SPARING { 0 } else { NOT_FOR_CLAIMS };
        Self {
            pool,
            observer: Arc::new(Unobserved),
            limits,
            in_progress: Tally::default(),
            look_ups: LookUps::default(),
            seats: Tally::default(),
            connections: FairPlaces::new(places, (places / 2).max(1)),
            claims: FairPlaces::new(places - spared, (places / 2 - spared).max(1)),
            patient_claims: Arc::new(Semaphore::new(
                (places / 2).clamp(1, Semaphore::MAX_PERMITS),
            )),
        }
    }

    /// The same, and `observer` is told of it and of all that is done with this clone's
    /// connections.
    #[must_use]
    pub fn observed_by(self, observer: Arc<dyn AdmissionObserver>) -> Self {
        Self { observer, ..self }
    }

    /// Answers a request that met a limit: from its key's record, or else with a failure.
    async fn refuse(self, request: Request, was_in_use: bool, limit: InProgressLimit) -> Outcome {
        let request_id = request.request_id.clone();
        let looked_up = self.look_ups.recorded_outcome(self.clone().into(), request);
        if let Some(outcome) = looked_up.await {
            return outcome;
        }
        // It waited for another process, and others took its place meanwhile.
        if was_in_use {
            return Outcome::IN_USE;
        }
        self.observer.shed(limit);
        let cause = match limit {
            InProgressLimit::Account => "too many requests of the account are in progress",
            InProgressLimit::All => "too many requests are in progress",
        };
        tracing::warn!(request_id, %cause, "not begun");
        Outcome::Failed(Failure::unavailable(cause))
    }
}

impl From<Admission> for Connections {
    fn from(admission: Admission) -> Self {
        Self {
            pool: admission.pool.clone(),
            observer: admission.observer.clone(),
            admit: Arc::new(admission),
        }
    }
}

impl Admit for Admission {
    fn begin(&self, request: &Request, was_in_use: bool) -> Result<Held, Answering> {
        if request.is_step {
            return Ok(Box::new(()));
        }
        match self.in_progress.take(request.account_id, self.limits) {
            Ok(counted) => Ok(Box::new(counted)),
            Err(limit) => {
                let refusal = self.clone().refuse(request.clone(), was_in_use, limit);
                Err(Box::pin(refusal))
            }
        }
    }

    fn follow(&self, account: Uuid) -> Option<Held> {
        let left_alone = match self.seats.of(account) {
            ..FIRST_SEATS => 0,
            FIRST_SEATS.. => SEATS_FOR_FEW,
        };
        let limits = InProgressLimits {
            in_all: SEATS.in_all - left_alone,
            ..SEATS
        };
        Some(Box::new(self.seats.take(account, limits).ok()?))
    }

    fn connect(&self, account: Uuid, to_claim: bool) -> Turn<'_> {
        Box::pin(async move {
            let claim = match to_claim {
                true => Some(self.claims.take(account).await),
                false => {
                    self.claims.note(account);
                    None
                }
            };
            Box::new((self.connections.take(account).await, claim)) as Held
        })
    }

    fn wait_for_key(&self) -> Option<Held> {
        let patient = Arc::clone(&self.patient_claims).try_acquire_owned().ok()?;
        Some(Box::new(patient))
    }
}

/// A request that waits, for as long as this lives.
pub struct Seat(#[allow(dead_code, reason = "it is kept until it is dropped")] Held);

impl Idempotency {
    /// A place among the account's requests that wait, for one that waits before it is run. `None`:
    /// too many wait already.
    pub fn seat(&self, account: Uuid) -> Option<Seat> {
        self.pool.admit.follow(account).map(Seat)
    }
}

/// How many of something each account has. Cheap to clone; all clones count together.
#[derive(Debug, Clone, Default)]
struct Tally(Arc<Mutex<Counts>>);

#[derive(Debug, Default)]
struct Counts {
    by_account: HashMap<Uuid, usize>,
    in_all: usize,
}

impl Tally {
    fn of(&self, account: Uuid) -> usize {
        let counts = lock(&self.0);
        counts.by_account.get(&account).copied().unwrap_or_default()
    }

    /// Counts one more, unless a limit is met.
    fn take(&self, account: Uuid, limits: InProgressLimits) -> Result<Counted, InProgressLimit> {
        let mut counts = lock(&self.0);
        let of_account = counts.by_account.get(&account).copied().unwrap_or_default();
        if of_account >= limits.per_account {
            return Err(InProgressLimit::Account);
        }
        if counts.in_all >= limits.in_all {
            return Err(InProgressLimit::All);
        }
        counts.by_account.insert(account, of_account + 1);
        counts.in_all += 1;
        Ok(Counted {
            tally: self.clone(),
            account,
        })
    }
}

/// One that is counted, until it is dropped.
struct Counted {
    tally: Tally,
    account: Uuid,
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut counts = lock(&self.tally.0);
        counts.in_all -= 1;
        if let Some(of_account) = counts.by_account.get_mut(&self.account) {
            *of_account -= 1;
            if *of_account == 0 {
                counts.by_account.remove(&self.account);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::panic,
        reason = "a test may stop at the first surprise"
    )]

    use std::time::Duration;

    use sqlx::{
        PgConnection,
        postgres::{PgConnectOptions, PgPoolOptions},
    };
    use tokio::time::timeout;

    use super::*;
    use crate::{
        Command, Rejection, Reply, Settings,
        in_flight::{Place, tests::request},
    };

    const ALICE: Uuid = Uuid::from_u128(1);
    const BOB: Uuid = Uuid::from_u128(2);

    /// A pool of a server that is not there.
    fn nowhere(connections: u32) -> PgPool {
        let pool = PgPoolOptions::new().max_connections(connections);
        pool.connect_lazy_with(PgConnectOptions::new().host("nowhere.invalid"))
    }

    #[tokio::test]
    async fn claims_leave_one_connection_of_their_account_s_share_on_odd_pools_too() {
        // While another account claims, or only reads: then her share of the claims is one of five,
        // and of her two connections, one is for reads.
        for (connections, others_claim, claims_of_an_account) in
            [(5, true, 1), (7, true, 2), (5, false, 1)]
        {
            let admission = Admission::new(nowhere(connections), InProgressLimits::NONE);
            let at_once = |to_claim| timeout(Duration::ZERO, admission.connect(ALICE, to_claim));
            let _others = admission.connect(BOB, others_claim).await;
            let mut claims = Vec::new();
            while let Ok(claim) = at_once(true).await {
                claims.push(claim);
            }
            assert_eq!(
                claims.len(),
                claims_of_an_account,
                "of {connections} connections"
            );
            let read = at_once(false).await;
            assert!(read.is_ok(), "of {connections} connections");
        }
    }

    /// A request that waited for another one, which failed, is answered as one that never waited.
    #[tokio::test]
    async fn what_follows_a_failure_past_the_limit_is_shed_and_not_in_use() {
        struct Unreached;
        impl Command for Unreached {
            async fn execute(&self, _: &mut PgConnection) -> Result<Reply, Rejection> {
                Err(Failure::internal("it began").into())
            }
        }
        let limits = InProgressLimits {
            per_account: 0,
            in_all: 0,
        };
        let admission = Admission::new(nowhere(4), limits);
        for (ended, is_shed) in [
            (Outcome::Failed(Failure::internal("the first one")), true),
            (Outcome::IN_USE, false),
        ] {
            let idempotency = Idempotency::new(admission.clone(), Settings::default()).unwrap();
            let [first, second] = ["/first", "/second"].map(|path| Request {
                wait: Duration::from_secs(60),
                ..request(1, path)
            });
            let Place::Leader(leadership) = idempotency.in_flight.join(&first) else {
                panic!("it follows");
            };
            let running = idempotency.run(second, Unreached);
            let mut running = std::pin::pin!(running);
            assert!(timeout(Duration::ZERO, &mut running).await.is_err());
            leadership.conclude(ended);
            let outcome = running.await;
            assert_eq!(
                matches!(outcome, Outcome::Failed(_)),
                is_shed,
                "{outcome:?}"
            );
            let is_in_use = matches!(outcome, Outcome::InUse { .. });
            assert_eq!(is_in_use, !is_shed, "{outcome:?}");
        }
    }

    #[test]
    fn what_is_in_progress_is_limited_by_account_and_in_all_until_it_ends() {
        let tally = Tally::default();
        let limits = InProgressLimits {
            per_account: 2,
            in_all: 3,
        };
        let met = |account| tally.take(account, limits).err();
        let first = tally.take(ALICE, limits);
        let _second = tally.take(ALICE, limits);
        assert_eq!(met(ALICE), Some(InProgressLimit::Account));
        let _other = tally.take(BOB, limits);
        assert_eq!(met(BOB), Some(InProgressLimit::All));
        drop(first);
        let _third = tally.take(ALICE, limits);
        // One end is one place.
        assert_eq!(met(ALICE), Some(InProgressLimit::Account));
    }

    #[tokio::test]
    async fn those_that_wait_are_limited_by_account_and_in_all() {
        let admission = Admission::new(nowhere(4), InProgressLimits::NONE);
        let seats = |account: u128| {
            let seat = || admission.follow(Uuid::from_u128(account));
            std::iter::from_fn(seat).collect::<Vec<_>>()
        };
        let (first, second) = (seats(1), seats(2));
        assert_eq!((first.len(), second.len()), (1_000, 500));
        let few: Vec<_> = (3..28).map(seats).collect();
        assert!(few.iter().all(|few| few.len() == FIRST_SEATS));
        assert!(seats(28).is_empty(), "all seats are taken");
        drop(first);
        assert_eq!(seats(28).len(), 500);
    }

    #[test]
    fn what_was_counted_is_forgotten() {
        let tally = Tally::default();
        for account in 0..1_000 {
            let counted = tally.take(Uuid::from_u128(account), InProgressLimits::NONE);
            assert!(counted.is_ok());
        }
        let counts = lock(&tally.0);
        assert!(counts.by_account.is_empty() && counts.in_all == 0);
    }
}
