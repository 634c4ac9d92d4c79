//! The moves that a database knows of, for `charge-once shards` and for metrics.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use uuid::Uuid;

use super::LOCK;

/// The states of the table `moving`, as a move goes through them. The first and the last one are
/// those of the new home.
pub const MOVE_STATES: [&str; 6] = [
    "arriving", "copying", "draining", "frozen", "leaving", "arrived",
];

/// An account that is on its way, as one of its two homes has it.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct KnownMove {
    /// Which account.
    pub account_id: Uuid,
    /// What it is called. `None`: only its other home knows.
    pub name: Option<String>,
    /// One of [`MOVE_STATES`].
    pub state: String,
    /// The shard that it goes to, or comes from.
    pub other: String,
    /// When it came into this state.
    pub since: DateTime<Utc>,
    /// The log that this database keeps until the new home has it.
    pub kept_bytes: Option<i64>,
    /// Whether a command moves an account of this database just now.
    pub is_worked_on: bool,
}

impl KnownMove {
    fn progress(&self) -> Option<usize> {
        MOVE_STATES.iter().position(|state| *state == self.state)
    }
}

/// The moves of a database that is one of several. Takes no lock.
pub async fn known_moves(connection: &mut PgConnection) -> Result<Vec<KnownMove>, sqlx::Error> {
    // The slot's name is that of `name_of`.
    let moves = sqlx::query_as(
        "SELECT account_id, name, state, other, since,
                pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint AS kept_bytes,
                EXISTS (SELECT FROM pg_locks
                         WHERE locktype = 'advisory' AND granted AND objsubid = 1
                           AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
                           AND (classid::bigint << 32) | objid::bigint = $1) AS is_worked_on
           FROM moving
           LEFT JOIN accounts ON id = account_id
           LEFT JOIN pg_replication_slots
             ON slot_name = format('charge_once_move_%s_%s', replace(account_id::text, '-', ''),
                                   left(encode(sha256(convert_to(other, 'UTF8')), 'hex'), 8))
          ORDER BY since",
    );
    moves.bind(LOCK).fetch_all(connection).await
}

/// Each account once. Of its two homes, the one whose state is further tells how far the move is:
/// an account that is `leaving` is closed until it has `arrived`.
pub fn furthest<'m>(moves: impl Iterator<Item = &'m KnownMove>) -> Vec<&'m KnownMove> {
    let mut furthest: HashMap<Uuid, &KnownMove> = HashMap::new();
    for one in moves {
        let known = furthest.entry(one.account_id).or_insert(one);
        if one.progress() > known.progress() {
            *known = one;
        }
    }
    furthest.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_that_left_is_closed_until_it_has_arrived() {
        for (homes, expected) in [
            (["arriving", "copying"], "copying"),
            (["leaving", "arriving"], "leaving"),
            (["arrived", "leaving"], "arrived"),
        ] {
            let moves = homes.map(|state| KnownMove {
                account_id: Uuid::nil(),
                name: None,
                state: state.to_owned(),
                other: "b".to_owned(),
                since: Utc::now(),
                kept_bytes: None,
                is_worked_on: false,
            });
            let found = furthest(moves.iter());
            let found: Vec<_> = found.iter().map(|one| &*one.state).collect();
            assert_eq!(found, [expected]);
        }
    }
}
