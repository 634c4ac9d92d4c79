//! How much memory stored replies may take.

use bytesize::ByteSize;

use super::source::Source;

/// More is a slip: a million small replies take less than a gigabyte.
const BYTES_MAX: ByteSize = ByteSize::gib(64);

/// 0 keeps none.
pub(super) fn bytes(source: &Source<'_>) -> Option<u64> {
    const VARIABLE: &str = "REPLAY_CACHE";
    match source.value(VARIABLE).trim().parse::<ByteSize>() {
        Ok(size) if size <= BYTES_MAX => Some(size.as_u64()),
        Ok(_) | Err(_) => source.bad(VARIABLE, "a size such as 32MiB, at most 64GiB, or 0"),
    }
}
