//! The card processor across a network.

use std::time::Duration;

use charge_once_service::settings::Source;

use super::{
    Values,
    values::ProcessorUrl,
    variables::{
        IDEMPOTENCY_LEASE, PROCESSOR_KEY_WINDOW, PROCESSOR_NAME, PROCESSOR_TIMEOUT, PROCESSOR_URL,
    },
};

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
}

impl ProcessorConfig {
    /// `None` simulates the processor in this process.
    pub(super) fn read(source: &Source<'_>, values: &Values) -> Option<Self> {
        source.text(PROCESSOR_URL.name)?;
        let at = source.optional(&PROCESSOR_URL);
        let name = source.optional(&PROCESSOR_NAME);
        let ProcessorUrl { url, origin } = at?;
        let (timeout, key_window) = (values.processor_timeout, values.processor_key_window);
        let margin = values.lease + timeout + key_window / KEY_WINDOW_MARGIN;
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
        })
    }
}
