//! The card processor: how it is asked, and how its simulator runs as a process of its own.

use std::{net::SocketAddr, time::Duration};

use super::{
    database::{DatabaseLocation, processor_location},
    source::Source,
    timeouts::{Timeouts, at_most_400_days},
};
use crate::idempotency::COMPLETION_RESERVE;

/// Longest PROCESSOR_NAME; one that is made of a URL is about as long as a host name may be.
const NAME_MAX_CHARS: usize = 255;

/// What part of the processor's key window is left unused: an hour of a day, for clocks that
/// differ.
const KEY_WINDOW_MARGIN: u32 = 24;

/// The card processor across a network.
#[derive(Debug, Clone)]
pub struct ProcessorConfig {
    /// `PROCESSOR_URL`
    pub url: String,
    /// `PROCESSOR_NAME`, or scheme, host and port: what operations and charges remember of it.
    pub name: String,
    /// `PROCESSOR_KEY_WINDOW` less a margin: how old an operation may be to be sent again.
    pub send_again_within: Duration,
    /// `PROCESSOR_TIMEOUT`
    pub timeout: Duration,
}

/// The card processor's simulator as a process of its own.
#[derive(Debug, Clone)]
pub struct ProcessorService {
    /// `PROCESSOR_BIND_ADDRESS`
    pub bind_address: SocketAddr,
    /// `PROCESSOR_DATABASE_URL` or `PROCESSOR_DATA_DIR`
    pub database: DatabaseLocation,
    /// `PROCESSOR_KEY_WINDOW`
    pub key_window: Duration,
}

/// What both ends of the network have to agree on, and the lease that depends on it.
#[derive(Debug)]
pub(super) struct Calls {
    timeout: Duration,
    key_window: Duration,
    pub(super) lease: Duration,
}

impl Calls {
    pub(super) fn read(source: &Source<'_>, timeouts: Option<&Timeouts>) -> Option<Self> {
        let timeout = source.duration("PROCESSOR_TIMEOUT");
        let lease = source.duration("IDEMPOTENCY_LEASE");
        let key_window = source
            .duration("PROCESSOR_KEY_WINDOW")
            .and_then(|window| at_most_400_days(source, "PROCESSOR_KEY_WINDOW", window));
        let (timeout, lease) = (timeout?, lease?);
        // Longer than one call of the processor and the transaction after it, so that the holder of
        // a lease can use it.
        let least = timeout + timeouts?.database_deadline + COMPLETION_RESERVE;
        if lease <= least {
            let least = humantime::format_duration(least);
            let expected = format!(
                "longer than PROCESSOR_TIMEOUT, DATABASE_DEADLINE and 5s together: {least}"
            );
            return source.bad("IDEMPOTENCY_LEASE", expected);
        }
        Some(Self {
            timeout,
            key_window: key_window?,
            lease,
        })
    }
}

impl ProcessorService {
    pub(super) fn read(source: &Source<'_>, calls: Option<&Calls>) -> Option<Self> {
        let bind_address = source.address("PROCESSOR_BIND_ADDRESS");
        let database = processor_location(source);
        Some(Self {
            bind_address: bind_address?,
            database: database?,
            key_window: calls?.key_window,
        })
    }
}

impl ProcessorConfig {
    /// `Some(None)` simulates the processor in this process.
    #[allow(clippy::option_option, reason = "the outer one says that it is usable")]
    pub(super) fn read(source: &Source<'_>, calls: Option<&Calls>) -> Option<Option<Self>> {
        let Some(url) = source.optional("PROCESSOR_URL") else {
            return Some(None);
        };
        let origin = match url::Url::parse(&url) {
            Ok(parsed) if ["http", "https"].contains(&parsed.scheme()) => {
                Some(parsed.origin().ascii_serialization())
            }
            Ok(_) | Err(_) => source.bad("PROCESSOR_URL", "a URL such as http://processor:8081"),
        };
        let name = match source.optional("PROCESSOR_NAME") {
            None => origin,
            Some(given) if given.chars().count() <= NAME_MAX_CHARS => origin.and(Some(given)),
            Some(_) => source.bad("PROCESSOR_NAME", "at most 255 characters"),
        };
        let &Calls {
            timeout,
            key_window,
            lease,
        } = calls?;
        let margin = lease + timeout + key_window / KEY_WINDOW_MARGIN;
        if key_window <= margin {
            let expected = "the time that the processor remembers keys, much longer than \
                            IDEMPOTENCY_LEASE and PROCESSOR_TIMEOUT together";
            return source.bad("PROCESSOR_KEY_WINDOW", expected);
        }
        Some(Some(Self {
            url,
            name: name?,
            send_again_within: key_window - margin,
            timeout,
        }))
    }
}
