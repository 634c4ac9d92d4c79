//! Whether requests share transactions, and on how many connections.

use super::source::Source;

/// 0 where batches are off.
pub(super) fn connections(source: &Source<'_>) -> Option<u32> {
    let connections = source.number("BATCH_CONNECTIONS", 1..=100, "a number from 1 to 100");
    match source.value("BATCH").trim() {
        "on" => connections,
        "off" => Some(0),
        _ => source.bad("BATCH", "on or off"),
    }
}
