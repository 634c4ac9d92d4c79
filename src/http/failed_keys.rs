//! How often a client may come with API keys that are no one's.
//!
//! Promise: from one address, so many are refused with 401 in a second, and the rest with 429. An
//! account's key is never among them, wherever it comes from: it is looked up first, and what
//! look-ups cost is bounded apart (`unknown_api_keys`). Counting is the process's own.

use std::{
    net::{IpAddr, Ipv6Addr},
    num::NonZeroU32,
};

use super::{error::HttpError, rate_limit::RateLimit};
use crate::wire::error::{ApiError, ErrorCode};

/// Failures in a second, and in a burst. A client with a wrong setting stays below it, and a
/// program that guesses keys gets nowhere.
const FAILURES: NonZeroU32 = NonZeroU32::new(20).unwrap();

/// Counts failures by the address of the client. Cheap to clone; all clones share the counts.
#[derive(Clone)]
pub(super) struct FailedKeys(RateLimit<IpAddr>);

impl FailedKeys {
    /// `None` in `rate_limit`, which is no limit for accounts, is none here either.
    pub(super) fn new(rate_limit: Option<NonZeroU32>) -> Self {
        Self(RateLimit::new(rate_limit.map(|_| FAILURES)))
    }

    /// Counts a key that is no one's, and returns what its client is told.
    pub(super) fn failed(&self, client: Option<IpAddr>) -> HttpError {
        match client.map(network) {
            Some(client) if !self.0.has_room(client) => too_many(),
            Some(_) | None => invalid(),
        }
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

/// What the first failures of a client are told.
pub(super) fn invalid() -> HttpError {
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
