//! Whether requests share transactions, and on how many connections.

use super::source::Source;

/// `Some(None)` where batches are off.
pub(super) fn connections(source: &Source<'_>) -> Option<Option<u32>> {
    let connections = source.number("BATCH_CONNECTIONS", 1..=100, "a number from 1 to 100");
    match source.value("BATCH").trim() {
        "on" => connections.map(Some),
        "off" => Some(None),
        _ => source.bad("BATCH", "on or off"),
    }
}
