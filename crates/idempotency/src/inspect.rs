//! What is known about a key, for a person or a program that asks.
//!
//! Promise: looking changes nothing. An answer describes one moment: "nothing finished now" never
//! means that the operation may be sent under a new key; only a retry is safe.

use std::{collections::BTreeMap, future::Future, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::{
    Expired, Failure, FingerprintInput, Idempotency, IdempotencyKey, Parameters, Record, Request,
    claim::{self, Claim, Found},
    fingerprint::NO_FINGERPRINT,
    in_flight::{EntryId, InFlight, InFlightEntry},
};

/// What a look at a key found.
#[derive(Debug)]
pub enum Inspected {
    /// A stored outcome.
    Completed(Arc<Record>),
    /// A request is in flight: `Some` if it is in this process, or has a committed row without an
    /// outcome, so that more is known of it.
    InFlight(Option<KnownRequest>),
    /// The record has expired, and is remembered.
    Expired(Expired),
    /// No finished record, and no request at work, at this moment.
    Nothing,
}

impl Inspected {
    /// The first request, if it is known.
    #[must_use]
    pub fn request(&self) -> Option<KnownRequest> {
        match self {
            Self::Completed(record) => Some((&**record).into()),
            Self::InFlight(request) => request.clone(),
            Self::Expired(_) | Self::Nothing => None,
        }
    }

    /// Where the key stands, as [`KnownRequest::status`] says, or `expired`. `None`: nothing is
    /// known of it.
    #[must_use]
    pub fn status(&self) -> Option<&'static str> {
        match self {
            Self::Completed(record) if record.is_of_any_request() => Some("abandoned"),
            Self::Completed(_) => Some("completed"),
            Self::InFlight(request) => {
                Some(request.as_ref().map_or("in_flight", KnownRequest::status))
            }
            Self::Expired(_) => Some("expired"),
            Self::Nothing => None,
        }
    }
}

/// What is known of the request that a key belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownRequest {
    /// Its method.
    pub method: String,
    /// Its path.
    pub path: String,
    /// Its `req_…`.
    pub request_id: String,
    /// Its fingerprint; 32 zero bytes where the request gave the key up.
    pub fingerprint: Vec<u8>,
    /// What the first use of the key was labeled with.
    pub label: Option<String>,
    /// The id of what it makes or changes, if that is committed already.
    pub resource_id: Option<String>,
    /// When the key was first used, by the database's clock; `None` while nothing is committed.
    pub created_at: Option<DateTime<Utc>>,
    /// `None` while it is in flight.
    pub outcome: Option<KnownOutcome>,
    /// An attempt may have been executed, and its answer is not known.
    pub in_doubt: bool,
}

/// The stored outcome of a request, without its reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownOutcome {
    /// The status that every retry gets.
    pub status: u16,
    /// When this is forgotten.
    pub expires_at: DateTime<Utc>,
    /// Whether its body is stored encrypted.
    pub is_sealed: bool,
}

impl KnownRequest {
    /// Where its key stands: `completed`, `abandoned`, `in_doubt` or `in_flight`. Everything that
    /// shows a key uses these words.
    #[must_use]
    pub fn status(&self) -> &'static str {
        match (self.outcome, self.in_doubt) {
            (Some(_), _) if self.fingerprint == NO_FINGERPRINT => "abandoned",
            (Some(_), _) => "completed",
            (None, true) => "in_doubt",
            (None, false) => "in_flight",
        }
    }

    /// Of a request that this process works on.
    pub(crate) fn of(request: &Request) -> Self {
        Self {
            method: request.method.clone(),
            path: request.path.clone(),
            request_id: request.request_id.clone(),
            fingerprint: request.fingerprint.bytes().to_vec(),
            label: request.label.clone(),
            resource_id: None,
            created_at: None,
            outcome: None,
            in_doubt: false,
        }
    }
}

impl From<&Record> for KnownRequest {
    fn from(record: &Record) -> Self {
        // The reply of a record that is not completed says nothing.
        let is_completed = record.reply.status > 0;
        Self {
            method: record.method.clone(),
            path: record.path.clone(),
            request_id: record.request_id.clone(),
            fingerprint: record.fingerprint.clone(),
            label: record.label.clone(),
            resource_id: record.reply.resource_id.clone(),
            created_at: Some(record.created_at),
            outcome: is_completed.then_some(KnownOutcome {
                status: record.reply.status,
                expires_at: record.expires_at,
                is_sealed: record.is_sealed,
            }),
            in_doubt: false,
        }
    }
}

/// What the lease says of a key in flight.
#[allow(dead_code, reason = "add-ons make it, and read it")]
pub(crate) struct KeyLease {
    pub(crate) key: String,
    pub(crate) in_doubt: bool,
    /// How long until a reconciler continues the request.
    pub(crate) continued_in: Duration,
}

/// The leases of those of these keys that have one. Takes no lock.
#[cfg(feature = "phases")]
pub(crate) async fn leases_of(
    connection: &mut PgConnection,
    account_id: Uuid,
    keys: &[String],
) -> Result<Vec<KeyLease>, sqlx::Error> {
    let leases = sqlx::query!(
        r#"
        SELECT key, in_doubt, extract(epoch FROM recover_after - now())::float8 AS "seconds!"
          FROM idempotency_leases
         WHERE account_id = $1 AND key = ANY ($2)
        "#,
        account_id,
        keys,
    )
    .fetch_all(connection)
    .await?;
    let leases = leases.into_iter().map(|lease| KeyLease {
        key: lease.key,
        in_doubt: lease.in_doubt,
        continued_in: crate::phases::lease::wait(lease.seconds),
    });
    Ok(leases.collect())
}

/// Only an effect outside the database takes several transactions.
#[cfg(not(feature = "phases"))]
pub(crate) async fn leases_of(
    _: &mut PgConnection,
    _: Uuid,
    _: &[String],
) -> Result<Vec<KeyLease>, sqlx::Error> {
    Ok(Vec::new())
}

/// How much this process has in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InFlightCounts {
    /// Keys that it works on.
    pub keys: usize,
    /// Duplicates that wait for them.
    pub waiters: usize,
}

/// What a probe asks for.
const NOTHING: FingerprintInput<'_> = FingerprintInput {
    method: "",
    path: "",
    query: Parameters::Raw(b""),
    media_type: "",
    parameters: Parameters::Raw(b""),
};

/// The requests of one account. They lie together in the map, which is locked meanwhile.
fn of_account(
    entries: &BTreeMap<EntryId, InFlightEntry>,
    account_id: Uuid,
) -> impl Iterator<Item = &InFlightEntry> {
    entries
        .range((account_id, IdempotencyKey(String::new()))..)
        .take_while(move |((account, _), _)| *account == account_id)
        .map(|(_, entry)| entry)
}

fn counts(in_flight: &InFlight) -> InFlightCounts {
    InFlightCounts {
        keys: in_flight.lock().len(),
        waiters: in_flight.stopping.receiver_count(),
    }
}

/// What is known of a key, which is not claimed any more.
struct Probed {
    found: Claim,
    in_doubt: bool,
    expired: Option<Expired>,
}

impl Idempotency {
    /// Looks a key up: first among the requests in flight here, then in the database.
    ///
    /// What is committed is only read. A key that is first used now on another replica shows itself
    /// only by its lock, so where nothing is committed the look is a claim with a short lock wait
    /// that is always rolled back.
    pub async fn inspect(
        &self,
        account_id: Uuid,
        key: IdempotencyKey,
    ) -> Result<Inspected, Failure> {
        let id = (account_id, key.clone());
        let known = |entry: &InFlightEntry| KnownRequest::of(&entry.request);
        let in_flight = self.in_flight.lock().get(&id).map(known);
        let probe = Request::new(account_id, key, &NOTHING);
        let this = self.clone();
        let probed = self.look(async move { this.probe(&probe).await }).await?;
        let in_doubt = probed.in_doubt;
        Ok(match probed.found {
            Claim::Completed(record) => Inspected::Completed(record),
            Claim::HeldElsewhere => Inspected::InFlight(in_flight),
            Claim::Unfinished(record) => Inspected::InFlight(Some(KnownRequest {
                in_doubt,
                ..(&*record).into()
            })),
            Claim::Mine(_) | Claim::Vanished => match (probed.expired, in_flight) {
                (Some(expired), _) => Inspected::Expired(expired),
                (None, Some(in_flight)) => Inspected::InFlight(Some(in_flight)),
                (None, None) => Inspected::Nothing,
            },
        })
    }

    /// The requests of one account that this process works on, in the order they came. For display
    /// only, and never a reason to use a new key: other replicas have requests of their own.
    pub fn requests_in_flight(&self, account_id: Uuid) -> Vec<Request> {
        let mut found: Vec<_> = of_account(&self.in_flight.lock(), account_id)
            .map(|entry| (entry.since, entry.request.clone()))
            .collect();
        found.sort_by_key(|(since, _)| *since);
        found.into_iter().map(|(_, request)| request).collect()
    }

    /// How many keys this process works on, and how many duplicates wait for them. Costs two
    /// numbers.
    pub fn in_flight_counts(&self) -> InFlightCounts {
        counts(&self.in_flight)
    }

    /// The keys of an account that this process works on, with their requests, in the order they
    /// came.
    pub fn in_flight_here(&self, account_id: Uuid) -> Vec<(String, KnownRequest)> {
        let here = self.requests_in_flight(account_id);
        here.iter()
            .map(|request| (request.key.as_str().to_owned(), KnownRequest::of(request)))
            .collect()
    }

    /// Looks under the database deadline, and in a task of its own, like every use of a connection
    /// that a disconnect must not cut.
    pub(crate) async fn look<T: Send + 'static>(
        &self,
        looking: impl Future<Output = Result<T, Failure>> + Send + 'static,
    ) -> Result<T, Failure> {
        let looking = tokio::time::timeout(self.settings.database_deadline, looking);
        match self.runtime.spawn(looking).await {
            Ok(Ok(found)) => found,
            Ok(Err(_)) => Err(Failure::unavailable("the database deadline is over")),
            Err(panicked) => Err(Failure::internal(panicked)),
        }
    }

    async fn probe(&self, probe: &Request) -> Result<Probed, Failure> {
        let mut connection = self.pool.acquire(probe.account_id).await?;
        let mut tx = connection.open(claim::BEGIN_BRIEFLY).await?;
        let mut found = match claim::read(&mut tx, probe).await? {
            Some(Found::Completed(record)) => Claim::Completed(record),
            Some(Found::Unfinished(record)) => Claim::Unfinished(record),
            Some(Found::Expired(_)) | None => claim::claim(&mut tx, probe, self.retention).await?,
        };
        let (mut in_doubt, mut expired) = (false, None);
        match &mut found {
            Claim::Unfinished(_) => {
                let key = [probe.key.as_str().to_owned()];
                let leases = leases_of(&mut tx, probe.account_id, &key).await?;
                in_doubt = leases.iter().any(|lease| lease.in_doubt);
            }
            Claim::Mine(record) => {
                let claimed = (probe, record.take());
                expired = self.look_back(&mut tx, "", claimed).await?;
            }
            Claim::Completed(_) | Claim::HeldElsewhere | Claim::Vanished => {}
        }
        found.end(tx).await?;
        let found = found.release(connection).await?;
        Ok(Probed {
            found,
            in_doubt,
            expired,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;
    use crate::{
        Outcome,
        in_flight::{InFlight, Place},
    };

    const ROUNDS: u128 = 20_000;

    fn join(in_flight: &InFlight, account: u128, key: &str) -> Place {
        let key = IdempotencyKey::parse(key.as_bytes()).unwrap();
        in_flight.join(&Request::new(Uuid::from_u128(account), key, &NOTHING))
    }

    /// The lock is held meanwhile, so what one account has in flight must not be another one's
    /// wait.
    #[test]
    fn a_look_at_an_account_visits_no_request_of_another() {
        let in_flight = InFlight::new();
        let mut places = Vec::new();
        for (account, keys) in [(1, 100), (2, 1), (3, 100)] {
            for number in 0..keys {
                places.push(join(&in_flight, account, &format!("key-{number}")));
            }
        }
        let entries = in_flight.lock();
        let visited = of_account(&entries, Uuid::from_u128(2));
        let accounts: Vec<_> = visited.map(|entry| entry.request.account_id).collect();
        assert_eq!(accounts, [Uuid::from_u128(2)]);
    }

    /// Two locks that are taken in different orders by two threads stop both forever.
    #[test]
    fn counting_never_stops_a_request() {
        let in_flight = InFlight::new();
        let (ended, has_ended) = std::sync::mpsc::channel();
        for account in [1, 2] {
            let (in_flight, ended) = (in_flight.clone(), ended.clone());
            std::thread::spawn(move || {
                for _ in 0..ROUNDS {
                    if let Place::Leader(leadership) = join(&in_flight, account, "a") {
                        leadership.conclude(Outcome::Reused);
                    }
                }
                ended.send(()).unwrap();
            });
        }
        let counting = in_flight.clone();
        std::thread::spawn(move || {
            for _ in 0..ROUNDS {
                assert!(counts(&counting).keys <= 2);
            }
            ended.send(()).unwrap();
        });
        for _ in 0..3 {
            let end = has_ended.recv_timeout(Duration::from_secs(60));
            assert!(
                end.is_ok(),
                "a thread waits forever, or has panicked: {end:?}"
            );
        }
        assert_eq!(counts(&in_flight).keys, 0);
    }
}
