//! How many requests may be in progress before others are refused.

use super::source::Source;
use crate::idempotency::InProgressLimits;

/// For each connection of the pool, unless another limit is set. With 5 ms for a transaction, so many take as
/// long as a request waits for a connection.
const PER_CONNECTION: usize = 200;

const IN_ALL: &str = "IN_PROGRESS_LIMIT";
const PER_ACCOUNT: &str = "IN_PROGRESS_LIMIT_PER_ACCOUNT";

/// Both limits, of which that of an account is half of the other unless it is set. 0 is none.
pub(super) fn limits(
    source: &Source<'_>,
    pool_connections: Option<u32>,
) -> Option<InProgressLimits> {
    let in_all = read(source, IN_ALL);
    let per_account = read(source, PER_ACCOUNT);
    let (in_all, per_account) = (in_all?, per_account?);
    let connections = usize::try_from(pool_connections?).unwrap_or(usize::MAX);
    let in_all = in_all.unwrap_or(connections.saturating_mul(PER_CONNECTION));
    let half = match in_all {
        usize::MAX => usize::MAX,
        in_all => in_all.div_ceil(2),
    };
    let per_account = per_account.unwrap_or(half);
    if per_account > in_all && per_account != usize::MAX {
        return source.bad(
            PER_ACCOUNT,
            format!("at most {IN_ALL}, which is {in_all}, or 0"),
        );
    }
    Some(InProgressLimits {
        per_account,
        in_all,
    })
}

/// `Some(None)` where none is set.
#[allow(clippy::option_option, reason = "the outer one says that it is usable")]
fn read(source: &Source<'_>, variable: &'static str) -> Option<Option<usize>> {
    if source.optional(variable).is_none() {
        return Some(None);
    }
    let expected = "a number of requests, 0 to 1000000";
    let limit: usize = source.number(variable, 0..=1_000_000, expected)?;
    Some(Some(if limit == 0 { usize::MAX } else { limit }))
}
