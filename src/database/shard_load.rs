//! What a database keeps, and what it has to do, by account.
//!
//! Promise: no table that grows with the number of requests is read whole. An account costs one
//! look into an index, and at most [`EVENTS_READ_MAX`] of its events. How many rows there are is
//! what PostgreSQL's statistics say, which ANALYZE and autovacuum write.

use sqlx::PgConnection;
use uuid::Uuid;

use super::move_account::{KnownMove, known_moves};

/// Newest events of an account that are read.
pub const EVENTS_READ_MAX: i32 = 1_000;

/// What is in a database, and what happens there.
#[derive(Debug)]
pub struct ShardLoad {
    /// Its size on the disk.
    pub bytes: i64,
    /// Rows of all tables: an estimate.
    pub rows: i64,
    /// Those of them that are idempotency keys: an estimate.
    pub keys: i64,
    /// Accounts that are open, and have not left.
    pub accounts: Vec<AccountLoad>,
    /// Replicas of the whole server.
    pub standbys: Vec<Standby>,
    /// Accounts that are on their way.
    pub moves: Vec<KnownMove>,
}

/// What an account has and does.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct AccountLoad {
    /// Which account.
    pub id: Uuid,
    /// What it is called.
    pub name: String,
    /// Whether it was made for a test.
    pub is_test: bool,
    /// Its events of the last hour. If it had [`EVENTS_READ_MAX`] or more, as many as there would
    /// be in an hour at the pace of the newest ones.
    pub events: i64,
    /// Its rows in all tables: an estimate. `None`: it is not among the hundred largest of a table.
    pub rows: Option<i64>,
}

/// A replica of the server that a database is in.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct Standby {
    /// `None`: the role needs `pg_read_all_stats` to see more than that there is one.
    pub name: Option<String>,
    /// What its connection does: `streaming`, as a rule.
    pub state: Option<String>,
    /// What it has not replayed yet.
    pub behind_bytes: Option<i64>,
    /// How long its last replay took. `None`: nothing was written since.
    pub behind_ms: Option<i64>,
}

/// What accounts have and do; `$1` is [`EVENTS_READ_MAX`]. `pg_stats` has the most common accounts
/// of each table, with their shares of its rows.
pub const ACCOUNTS: &str = "
    WITH common AS (
        SELECT account_id, sum(share * reltuples)::bigint AS rows
          FROM pg_stats
          JOIN pg_class ON relname = tablename AND relnamespace = current_schema()::regnamespace
         CROSS JOIN unnest(most_common_vals::text::uuid[], most_common_freqs) AS common (account_id, share)
         WHERE schemaname = current_schema() AND attname = 'account_id' AND reltuples > 0
         GROUP BY account_id)
    SELECT accounts.id, name, test_until IS NOT NULL AS is_test, events, rows
      FROM accounts
      LEFT JOIN common ON common.account_id = accounts.id
     CROSS JOIN LATERAL (
         SELECT CASE WHEN count(*) < $1 THEN count(*)
                     ELSE (count(*) * 3600000 / greatest(1000, extract(epoch FROM now()) * 1000 - min(made)))::bigint
                END AS events
           -- An id begins with its time, in milliseconds, so the index is all that is read.
           FROM (SELECT ('x' || left(replace(id::text, '-', ''), 12))::bit(48)::bigint AS made
                   FROM events
                  WHERE account_id = accounts.id
                    AND id >= (lpad(to_hex((extract(epoch FROM now() - interval '1 hour') * 1000)::bigint), 12, '0')
                               || repeat('0', 20))::uuid
                  ORDER BY id DESC
                  LIMIT $1) AS newest) AS recent
     WHERE closed_at IS NULL";

/// A subscriber, such as the new home of an account that moves, is no standby.
const STANDBYS: &str = "
    SELECT application_name AS name, state,
           pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn)::bigint AS behind_bytes,
           (extract(epoch FROM replay_lag) * 1000)::bigint AS behind_ms
      FROM pg_stat_replication
      LEFT JOIN pg_replication_slots ON active_pid = pid
     WHERE slot_type IS DISTINCT FROM 'logical'
     ORDER BY application_name";

const SIZES: &str = "
    SELECT pg_database_size(current_database()),
           coalesce(sum(reltuples) FILTER (WHERE reltuples > 0), 0)::bigint,
           coalesce(sum(reltuples) FILTER (WHERE reltuples > 0 AND relname = 'idempotency_keys'), 0)::bigint
      FROM pg_class
     WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'";

impl ShardLoad {
    /// Of this database, which may be one of several. Takes no lock.
    pub async fn read(
        connection: &mut PgConnection,
        is_one_of_several: bool,
    ) -> Result<Self, sqlx::Error> {
        let sizes = sqlx::query_as(SIZES).fetch_one(&mut *connection);
        let (bytes, rows, keys) = sizes.await?;
        let accounts = sqlx::query_as(ACCOUNTS).bind(EVENTS_READ_MAX);
        let mut accounts: Vec<AccountLoad> = accounts.fetch_all(&mut *connection).await?;
        let standbys = sqlx::query_as(STANDBYS).fetch_all(&mut *connection).await?;
        let moves = match is_one_of_several {
            true => known_moves(connection).await?,
            false => Vec::new(),
        };
        // It is its new home's.
        let has_left = |id| {
            let mut moves = moves.iter();
            moves.any(|one| one.account_id == id && one.state == "leaving")
        };
        accounts.retain(|account| !has_left(account.id));
        Ok(Self {
            bytes,
            rows,
            keys,
            accounts,
            standbys,
            moves,
        })
    }

    /// The events of all its accounts.
    pub fn events(&self) -> i64 {
        self.accounts.iter().map(|account| account.events).sum()
    }
}
