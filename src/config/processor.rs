//! The card processor: how it is asked, and how its simulator runs as a process of its own.

use std::{net::SocketAddr, time::Duration};

use charge_once_postgres::embedded::DatabaseLocation;
use charge_once_service::settings::Source;

use super::{
    database::processor_location,
    timeouts::Timeouts,
    values::ProcessorUrl,
    variables::{
        DATABASE_DEADLINE, IDEMPOTENCY_LEASE, PROCESSOR_BIND_ADDRESS, PROCESSOR_KEY_WINDOW,
        PROCESSOR_NAME, PROCESSOR_TIMEOUT, PROCESSOR_URL,
    },
};
use crate::idempotency::COMPLETION_RESERVE;

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
    pub(super) fn read(source: &Source<'_>, timeouts: &Timeouts) -> Self {
        let calls = Self {
            timeout: source.read(&PROCESSOR_TIMEOUT),
            lease: source.read(&IDEMPOTENCY_LEASE),
            key_window: source.read(&PROCESSOR_KEY_WINDOW),
        };
        // Longer than one call of the processor and the transaction after it, so that the holder of
        // a lease can use it.
        let least = calls.timeout + timeouts.database_deadline + COMPLETION_RESERVE;
        let compared = [
            PROCESSOR_TIMEOUT.name,
            IDEMPOTENCY_LEASE.name,
            DATABASE_DEADLINE.name,
        ];
        if calls.lease <= least && source.are_good(&compared) {
            let least = humantime::format_duration(least);
            let expected = format!(
                "longer than PROCESSOR_TIMEOUT, DATABASE_DEADLINE and 5s together: {least}"
            );
            source.bad(IDEMPOTENCY_LEASE.name, expected);
        }
        calls
    }
}

impl ProcessorService {
    pub(super) fn read(source: &Source<'_>, calls: &Calls) -> Self {
        Self {
            bind_address: source.read(&PROCESSOR_BIND_ADDRESS),
            database: processor_location(source),
            key_window: calls.key_window,
        }
    }
}

impl ProcessorConfig {
    /// `None` simulates the processor in this process.
    pub(super) fn read(source: &Source<'_>, calls: &Calls) -> Option<Self> {
        source.text(PROCESSOR_URL.name)?;
        let at = source.optional(&PROCESSOR_URL);
        let name = source.optional(&PROCESSOR_NAME);
        let ProcessorUrl { url, origin } = at?;
        let &Calls {
            timeout,
            key_window,
            lease,
        } = calls;
        let margin = lease + timeout + key_window / KEY_WINDOW_MARGIN;
        let compared = [
            PROCESSOR_KEY_WINDOW.name,
            IDEMPOTENCY_LEASE.name,
            PROCESSOR_TIMEOUT.name,
        ];
        if key_window <= margin && source.are_good(&compared) {
            let expected = "the time that the processor remembers keys, much longer than \
                            IDEMPOTENCY_LEASE and PROCESSOR_TIMEOUT together";
            source.bad(PROCESSOR_KEY_WINDOW.name, expected);
        }
        Some(Self {
            url,
            name: name.unwrap_or(origin),
            send_again_within: key_window.saturating_sub(margin),
            timeout,
        })
    }
}
