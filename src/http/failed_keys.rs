//! How often a client may come with API keys that are no one's.
//!
//! Promise: from one address, so many are refused with 401 in a second, and the rest with 429 before they
//! are looked up. A key that is known to be an account's is never among them, wherever it comes from.
//! Memory and counting are the process's own.

use std::{
    net::{IpAddr, Ipv6Addr},
    num::NonZeroU32,
    time::Duration,
};

use moka::sync::Cache;

use super::{error::HttpError, rate_limit::RateLimit};
use crate::api::error::{ApiError, ErrorCode};

/// Failures in a second, and in a burst. A client with a wrong setting stays below; who guesses keys gets
/// nowhere.
const FAILURES: NonZeroU32 = NonZeroU32::new(20).unwrap();

/// How long no unknown key of an address is looked up once it has failed too often: as long as
/// `Retry-After` says.
const PAUSE: Duration = Duration::from_secs(1);

/// Addresses that are in a pause. Who has more of them than this is not held up by it.
const PAUSED_MAX: u64 = 10_000;

/// Counts failures by the address of the client. Cheap to clone; all clones share the counts.
#[derive(Clone)]
pub(super) struct FailedKeys {
    limit: RateLimit<IpAddr>,
    paused: Cache<IpAddr, ()>,
}

impl FailedKeys {
    /// `None` in `rate_limit`, which is no limit for accounts, is none here either.
    pub(super) fn new(rate_limit: Option<NonZeroU32>) -> Self {
        Self {
            limit: RateLimit::new(rate_limit.map(|_| FAILURES)),
            paused: Cache::builder()
                .max_capacity(PAUSED_MAX)
                .time_to_live(PAUSE)
                .build(),
        }
    }

    /// Refuses a key that isn't known to be an account's, if its client has failed too often.
    pub(super) fn check(&self, client: Option<IpAddr>) -> Result<(), HttpError> {
        match client {
            Some(client) if self.paused.contains_key(&network(client)) => Err(too_many()),
            Some(_) | None => Ok(()),
        }
    }

    /// Counts a key that is no one's, and returns what its client is told.
    pub(super) fn failed(&self, client: Option<IpAddr>) -> HttpError {
        let Some(client) = client.map(network) else {
            return invalid();
        };
        if self.limit.has_room(client) {
            return invalid();
        }
        self.paused.insert(client, ());
        too_many()
    }
}

/// All addresses that one client may take: an IPv6 network of 64 bits, and a single IPv4 address.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let network = u128::from(address) & !u128::from(u64::MAX);
            IpAddr::V6(Ipv6Addr::from(network))
        }
        address @ IpAddr::V4(_) => address,
    }
}

fn too_many() -> HttpError {
    ApiError::new(
        ErrorCode::RateLimited,
        "Too many requests with an API key that doesn't exist or was revoked came from this address. Check the key, \
         and retry after Retry-After. Nothing was done.",
    )
    .into()
}

fn invalid() -> HttpError {
    ApiError::explained(ErrorCode::ApiKeyInvalid).into()
}

#[cfg(test)]
mod tests {
    use super::network;

    #[test]
    fn an_address_stands_for_what_one_client_may_take() -> Result<(), std::net::AddrParseError> {
        for (address, expected) in [
            ("192.0.2.7", "192.0.2.7"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ] {
            assert_eq!(network(address.parse()?).to_string(), expected);
        }
        Ok(())
    }
}
