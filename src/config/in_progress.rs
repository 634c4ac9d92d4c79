//! How many requests may be in progress before others are refused.

use charge_once_service::settings::Source;

use super::variables::{IN_PROGRESS_LIMIT, IN_PROGRESS_LIMIT_PER_ACCOUNT, POOL_CONNECTIONS};
use crate::idempotency::InProgressLimits;

/// For each connection of the pool, unless another limit is set. With 5 ms for a transaction, so
/// many take as long as a request waits for a connection.
const PER_CONNECTION: usize = 200;

/// Both limits, of which that of an account is half of the other unless it is set.
pub(super) fn limits(source: &Source<'_>, pool_connections: u32) -> InProgressLimits {
    let in_all = source.optional(&IN_PROGRESS_LIMIT);
    let per_account = source.optional(&IN_PROGRESS_LIMIT_PER_ACCOUNT);
    let connections = usize::try_from(pool_connections).unwrap_or(usize::MAX);
    let in_all = in_all.unwrap_or(connections.saturating_mul(PER_CONNECTION));
    let half = match in_all {
        usize::MAX => usize::MAX,
        in_all => in_all.div_ceil(2),
    };
    let per_account = per_account.unwrap_or(half);
    let are_good = source.are_good(&[IN_PROGRESS_LIMIT.name, POOL_CONNECTIONS.name]);
    if are_good && per_account > in_all && per_account != usize::MAX {
        let expected = format!("at most IN_PROGRESS_LIMIT, which is {in_all}, or 0");
        source.bad(IN_PROGRESS_LIMIT_PER_ACCOUNT.name, expected);
    }
    InProgressLimits {
        per_account,
        in_all,
    }
}
