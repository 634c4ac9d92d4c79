//! This module lets a client ask a test server for faults with a header, `<kind>[; seconds=N][;
//! requests=N]`, to test the client's retries.
//!
//! - `Fault: reply_lost`: the work is done, and the client gets no reply.
//! - `Fault: request_lost`: the connection ends, and no work is done.
//! - `Fault: delay; seconds=2`: the work begins two seconds later.
//! - `Fault: 503; requests=3`, or `500`, or `429`: that status for the first three attempts, and no
//!   work.
//! - `Fault: in_use; seconds=2`: a key in use, until two seconds after the first attempt.
//!
//! ```rust
//! use charge_once_service::faults::{Fault, FaultKind, Faults, Malformed};
//! use tokio::sync::watch;
//!
//! /// The status of an attempt, `None` for a reply that is lost.
//! async fn answer(
//!     faults: &Faults<&'static str>,
//!     header: &str,
//!     key: &'static str,
//! ) -> Result<Option<u16>, Malformed> {
//!     let (_stop, stopping) = watch::channel(false);
//!     let fault = faults.of_request([header.as_bytes()], key)?;
//!     if let Some(fault) = fault {
//!         fault.delay(&stopping).await;
//!         match fault.kind {
//!             FaultKind::InternalError => return Ok(Some(500)),
//!             FaultKind::Unavailable => return Ok(Some(503)),
//!             FaultKind::RateLimited => return Ok(Some(429)),
//!             FaultKind::InUse => return Ok(Some(409)),
//!             FaultKind::RequestLost => return Ok(None),
//!             FaultKind::Delay | FaultKind::ReplyLost => {}
//!         }
//!     }
//!     // The work is here.
//!     let is_lost = fault.is_some_and(Fault::loses_the_reply);
//!     Ok((!is_lost).then_some(201))
//! }
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() {
//!     let faults = Faults::default();
//!     let header = "503; requests=2";
//!     for expected in [503, 503, 201] {
//!         assert_eq!(answer(&faults, header, "order-1").await, Ok(Some(expected)));
//!     }
//!     assert_eq!(answer(&faults, header, "order-2").await, Ok(Some(503)));
//!     assert_eq!(answer(&faults, "reply_lost", "order-1").await, Ok(None));
//!     assert_eq!(answer(&faults, "delay; seconds=0", "order-1").await, Ok(Some(201)));
//!     assert!(answer(&faults, "delay", "order-1").await.is_err());
//! }
//! ```
//!
//! Each attempt sends the header. One process counts attempts by key. A fault has at most 30
//! seconds or 100 requests. Decide who may ask: charge-once requires `FAULTS=true`, and a test
//! account or that of `DEV_API_KEY`. With Actix, `connections::NoReply` loses a reply.

use std::{
    hash::Hash,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use moka::{policy::EvictionPolicy, sync::Cache};
use strum::{EnumString, IntoStaticStr, VariantArray};
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};

/// Longest delay, and longest time that a key is in use, in seconds.
const SECONDS_MAX: u64 = 30;

/// Most requests that one fault acts on.
const REQUESTS_MAX: u64 = 100;

/// Faults that are counted at a time, some hundreds of bytes each. Beyond it, the one that was
/// asked for the longest ago is forgotten.
const COUNTED_MAX: u64 = 10_000;

/// How long after its last request a fault is forgotten.
const COUNTED_FOR: Duration = Duration::from_secs(3600);

/// What happens to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum FaultKind {
    /// The work is done, and its reply does not reach the client.
    ReplyLost,
    /// The request does not reach the work: the connection ends.
    RequestLost,
    /// The work begins later.
    Delay,
    /// 500 instead of the work.
    #[strum(serialize = "500")]
    InternalError,
    /// 503 instead of the work.
    #[strum(serialize = "503")]
    Unavailable,
    /// 429 instead of the work.
    #[strum(serialize = "429")]
    RateLimited,
    /// The answer of a key whose first request has not ended, for some seconds.
    InUse,
}

impl FaultKind {
    /// Every kind of fault.
    pub const ALL: &'static [Self] = <Self as VariantArray>::VARIANTS;

    /// As the header names it.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// A fault that acts on one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// What happens.
    pub kind: FaultKind,
    seconds: Duration,
}

impl Fault {
    /// A fault that the program itself decides on, of so many seconds.
    pub fn new(kind: FaultKind, seconds: Duration) -> Self {
        Self { kind, seconds }
    }

    /// Waits as long as a [`FaultKind::Delay`] says, and not at all for another kind. It ends early
    /// when `stopping` turns true, so that no fault keeps a process from ending.
    pub async fn delay(self, stopping: &watch::Receiver<bool>) {
        if self.kind == FaultKind::Delay {
            let mut stopping = stopping.clone();
            tokio::select! {
                () = sleep(self.seconds) => {}
                _ = stopping.wait_for(|stopping| *stopping) => {}
            }
        }
    }

    /// Whether the client is not to see the reply, whatever it is.
    pub fn loses_the_reply(self) -> bool {
        self.kind == FaultKind::ReplyLost
    }
}

/// Decides which faults act on which requests. Cheap to clone; all clones share the counts, which
/// are this process's own. `K` is what makes several requests the attempts of one: a key with its
/// tenant.
#[derive(Clone)]
pub struct Faults<K> {
    asked: Cache<(K, FaultKind), Arc<Asked>>,
}

/// What was asked for under one key.
struct Asked {
    first: Instant,
    requests: AtomicU64,
}

impl<K: Hash + Eq + Send + Sync + 'static> Default for Faults<K> {
    fn default() -> Self {
        Self {
            asked: Cache::builder()
                .max_capacity(COUNTED_MAX)
                .time_to_idle(COUNTED_FOR)
                // The other policy may refuse a new entry, and its fault would act forever.
                .eviction_policy(EvictionPolicy::lru())
                .build(),
        }
    }
}

impl<K: Hash + Eq + Send + Sync + 'static> Faults<K> {
    /// The fault that acts on a request with these values of the header, which is counted for
    /// `key`.
    pub fn of_request<'a>(
        &self,
        values: impl IntoIterator<Item = &'a [u8]>,
        key: K,
    ) -> Result<Option<Fault>, Malformed> {
        let mut values = values.into_iter();
        let Some(value) = values.next() else {
            return Ok(None);
        };
        if values.next().is_some() {
            return Err(Malformed("The header was sent twice."));
        }
        let wanted = Wanted::parse(value)?;
        let asked = self.asked.get_with((key, wanted.kind), || {
            Arc::new(Asked {
                first: Instant::now(),
                requests: AtomicU64::new(0),
            })
        });
        let before = asked.requests.fetch_add(1, Ordering::Relaxed);
        let seconds = Duration::from_secs(wanted.seconds);
        let kind = wanted.kind;
        let acts = match kind {
            FaultKind::InUse => asked.first.elapsed() < seconds,
            FaultKind::ReplyLost
            | FaultKind::RequestLost
            | FaultKind::Delay
            | FaultKind::InternalError
            | FaultKind::Unavailable
            | FaultKind::RateLimited => before < wanted.requests,
        };
        Ok(acts.then_some(Fault { kind, seconds }))
    }
}

/// The header can't be understood. Says to a client what it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(&'static str);

const UNKNOWN: Malformed = Malformed(
    "The Fault header is one of reply_lost, request_lost, delay, 500, 503, 429 and in_use, \
     with parameters behind semicolons: `delay; seconds=2`, `503; requests=3`.",
);
const NO_SECONDS: Malformed = Malformed(
    "The faults delay and in_use need seconds, and no other fault takes any: a number \
     from 0 to 30, as in `delay; seconds=2`.",
);
const NO_REQUESTS: Malformed = Malformed(
    "The parameter requests of the Fault header is a number from 1 to 100, and in_use \
     takes none: it lasts for its seconds.",
);

/// A header as it was understood: `<kind>[; seconds=N][; requests=N]`.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    kind: FaultKind,
    seconds: u64,
    requests: u64,
}

impl Wanted {
    fn parse(value: &[u8]) -> Result<Self, Malformed> {
        let value = str::from_utf8(value).map_err(|_| UNKNOWN)?;
        let mut parts = value.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let kind = name.parse().map_err(|_| UNKNOWN)?;
        let (mut seconds, mut requests) = (None, None);
        for part in parts {
            let (name, number) = part.split_once('=').ok_or(UNKNOWN)?;
            let (given, range, wrong) = match name {
                "seconds" => (&mut seconds, 0..=SECONDS_MAX, NO_SECONDS),
                "requests" => (&mut requests, 1..=REQUESTS_MAX, NO_REQUESTS),
                _ => return Err(UNKNOWN),
            };
            // A number may not begin with a sign here.
            let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
            let number = number.parse().ok().filter(|_| is_number);
            let number = number.filter(|number| range.contains(number));
            if given.replace(number.ok_or(wrong)?).is_some() {
                return Err(UNKNOWN);
            }
        }
        let lasts = matches!(kind, FaultKind::Delay | FaultKind::InUse);
        if lasts != seconds.is_some() {
            return Err(NO_SECONDS);
        }
        if kind == FaultKind::InUse && requests.is_some() {
            return Err(NO_REQUESTS);
        }
        Ok(Self {
            kind,
            seconds: seconds.unwrap_or(0),
            requests: requests.unwrap_or(1),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_a_kind_with_its_parameters() {
        for (value, kind, seconds, requests) in [
            ("reply_lost", FaultKind::ReplyLost, 0, 1),
            (" request_lost ; requests=2", FaultKind::RequestLost, 0, 2),
            ("delay; seconds=30; requests=100", FaultKind::Delay, 30, 100),
            ("delay;requests=1;seconds=0", FaultKind::Delay, 0, 1),
            ("500", FaultKind::InternalError, 0, 1),
            ("503;requests=7", FaultKind::Unavailable, 0, 7),
            ("429", FaultKind::RateLimited, 0, 1),
            ("in_use; seconds=3", FaultKind::InUse, 3, 1),
        ] {
            let expected = Wanted {
                kind,
                seconds,
                requests,
            };
            assert_eq!(Wanted::parse(value.as_bytes()), Ok(expected), "{value}");
        }
    }

    #[test]
    fn anything_else_is_refused_with_what_it_should_be() {
        for (value, why) in [
            ("", UNKNOWN),
            ("502", UNKNOWN),
            ("Reply_Lost", UNKNOWN),
            ("reply_lost, 503", UNKNOWN),
            ("503;", UNKNOWN),
            ("503; times=2", UNKNOWN),
            ("503; requests=2; requests=2", UNKNOWN),
            ("503; requests", UNKNOWN),
            ("503; requests=0", NO_REQUESTS),
            ("503; requests=101", NO_REQUESTS),
            ("503; requests=+2", NO_REQUESTS),
            ("503; requests=", NO_REQUESTS),
            ("503; seconds=1", NO_SECONDS),
            ("delay", NO_SECONDS),
            ("delay; seconds=31", NO_SECONDS),
            ("delay; seconds=-1", NO_SECONDS),
            ("delay; seconds=99999999999999999999", NO_SECONDS),
            ("in_use", NO_SECONDS),
            ("in_use; seconds=1; requests=2", NO_REQUESTS),
        ] {
            assert_eq!(Wanted::parse(value.as_bytes()), Err(why), "{value}");
        }
        assert_eq!(Wanted::parse(b"\xff"), Err(UNKNOWN));
    }
}
