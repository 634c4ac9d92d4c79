//! Whether this machine's clock and the database's agree.
//!
//! Ids are made by the one, `created_at` and every expiry by the other. Lists find what was created at a
//! time by the ids, so clocks that are far apart would hide objects from them.

use chrono::{DateTime, TimeDelta, Utc};
use sqlx::PgConnection;

/// How far the two clocks may be apart.
pub const CLOCKS_APART_MAX: TimeDelta = TimeDelta::seconds(30);

/// How far they are apart now, at least: the answer's way through the network is not counted.
pub(super) async fn clocks_apart(connection: &mut PgConnection) -> Result<TimeDelta, sqlx::Error> {
    let asked = Utc::now();
    let theirs = sqlx::query_scalar("SELECT clock_timestamp()")
        .fetch_one(connection)
        .await?;
    Ok(apart(asked, theirs, Utc::now()))
}

/// How far `theirs` is from the time between `asked` and `answered`.
fn apart(asked: DateTime<Utc>, theirs: DateTime<Utc>, answered: DateTime<Utc>) -> TimeDelta {
    let behind = asked - theirs;
    let ahead = theirs - answered;
    behind.max(ahead).max(TimeDelta::zero())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_way_through_the_network_cannot_explain_counts() {
        let at = |seconds| DateTime::from_timestamp(seconds, 0).unwrap_or_default();
        for (theirs, seconds) in [(70, 30), (99, 1), (100, 0), (107, 0), (110, 0), (145, 35)] {
            let found = apart(at(100), at(theirs), at(110));
            assert_eq!(found, TimeDelta::seconds(seconds), "{theirs}");
        }
    }
}
