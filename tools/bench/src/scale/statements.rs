//! What single statements take, by PostgreSQL's own count.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use sqlx::PgConnection;

use crate::{postgres::execute, stats::median};

/// Pause between two looks: some batches of the sweep.
pub(crate) const LOOK_INTERVAL: Duration = Duration::from_millis(50);

const WATCH_LIMIT: Duration = Duration::from_secs(60);

/// A statement of the program's workers, by words that no other statement has.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Statement {
    /// The expiry sweep deletes a batch.
    Sweep,
    /// A reconciler looks for abandoned requests.
    Look,
    /// The webhook worker claims what is next, for many endpoints at once.
    Claim,
}

/// Records that one statement of the sweep deletes while there are so many. Its own result is one
/// row.
const SWEEP_BATCH_ROWS: i64 = 500;

#[derive(Debug, Clone, Copy, Default, sqlx::FromRow)]
pub(crate) struct Counted {
    pub(crate) calls: i64,
    pub(crate) rows: i64,
    /// All calls together, in nanoseconds.
    pub(crate) total_ns: i64,
}

/// A statement that is looked at again and again. PostgreSQL counts sums only, so one call that
/// waited for a core would spoil a mean: the median of what was counted between two looks is told
/// instead.
#[derive(Debug)]
pub(crate) struct Watched {
    statement: Statement,
    pub(crate) counted: Counted,
    ns_per_call: Vec<u64>,
    ns_per_row: Vec<u64>,
}

impl Statement {
    /// A pattern for `LIKE`. It holds no constant: PostgreSQL replaces those.
    fn pattern(self) -> &'static str {
        match self {
            Self::Sweep => "%DELETE FROM idempotency_keys AS record%USING dead%",
            Self::Look => "%SELECT EXISTS%FROM idempotency_leases%recover_after <= now()%",
            Self::Claim => "%UPDATE webhook_deliveries%claim = CASE WHEN next_attempt_at <= now()%",
        }
    }

    /// What PostgreSQL has counted since the last [`reset`].
    async fn counted(self, connection: &mut PgConnection) -> anyhow::Result<Counted> {
        let counted = sqlx::query_as(
            "SELECT coalesce(sum(calls), 0)::bigint AS calls, coalesce(sum(rows), 0)::bigint AS rows,
                    coalesce(sum(total_exec_time) * 1000000, 0)::bigint AS total_ns
               FROM pg_stat_statements
              WHERE query LIKE $1 AND query NOT LIKE '%pg_stat_statements%'",
        )
        .bind(self.pattern());
        let mut counted: Counted = counted.fetch_one(connection).await?;
        if let Self::Sweep = self {
            counted.rows = counted.calls * SWEEP_BATCH_ROWS;
        }
        Ok(counted)
    }
}

impl Watched {
    pub(crate) fn new(statement: Statement) -> Self {
        Self {
            statement,
            counted: Counted::default(),
            ns_per_call: Vec::new(),
            ns_per_row: Vec::new(),
        }
    }

    /// Forgets all counts of the server, and goes on from there.
    pub(crate) async fn begin(&mut self, connection: &mut PgConnection) -> anyhow::Result<()> {
        self.counted = Counted::default();
        Ok(reset(connection).await?)
    }

    pub(crate) async fn look(&mut self, connection: &mut PgConnection) -> anyhow::Result<()> {
        let now = self.statement.counted(connection).await?;
        self.add(now);
        Ok(())
    }

    fn add(&mut self, now: Counted) {
        let last = std::mem::replace(&mut self.counted, now);
        let since = |now: i64, last: i64| (now - last).unsigned_abs();
        let ns = since(now.total_ns, last.total_ns);
        self.ns_per_call
            .extend(ns.checked_div(since(now.calls, last.calls)));
        self.ns_per_row
            .extend(ns.checked_div(since(now.rows, last.rows)));
    }

    pub(crate) fn ns_per_call(&self) -> u64 {
        median(self.ns_per_call.clone())
    }

    pub(crate) fn ns_per_row(&self) -> u64 {
        median(self.ns_per_row.clone())
    }
}

/// Watches a statement that the idle service runs by itself, until it was counted so often.
pub(crate) async fn watch(
    statement: Statement,
    calls: i64,
    connection: &mut PgConnection,
) -> anyhow::Result<Watched> {
    let mut watched = Watched::new(statement);
    watched.begin(connection).await?;
    let until = Instant::now() + WATCH_LIMIT;
    while watched.counted.calls < calls {
        ensure!(
            Instant::now() < until,
            "{statement:?} ran {} times in {WATCH_LIMIT:?}",
            watched.counted.calls
        );
        tokio::time::sleep(LOOK_INTERVAL).await;
        watched.look(connection).await?;
    }
    Ok(watched)
}

/// Pages of tables and indexes, as statements use them: the measure of work that no other load on
/// the machine changes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, sqlx::FromRow)]
pub(crate) struct Pages {
    /// Looked at or written, each time.
    pub(crate) touched: i64,
    /// Those of them that were not in shared_buffers.
    pub(crate) read: i64,
}

impl Pages {
    /// What all statements together have used since the last [`reset`].
    pub(crate) async fn used(connection: &mut PgConnection) -> anyhow::Result<Self> {
        let used = sqlx::query_as(
            "SELECT coalesce(sum(shared_blks_hit + shared_blks_read), 0)::bigint AS touched,
                    coalesce(sum(shared_blks_read), 0)::bigint AS read
               FROM pg_stat_statements",
        );
        Ok(used.fetch_one(connection).await?)
    }

    pub(crate) fn add(&mut self, before: Self, after: Self) {
        self.touched += after.touched - before.touched;
        self.read += after.read - before.read;
    }
}

/// Begins to count. The server was started with the extension's library.
pub(crate) async fn begin(connection: &mut PgConnection) -> anyhow::Result<()> {
    let available: bool = sqlx::query_scalar(
        "SELECT EXISTS (SELECT FROM pg_available_extensions WHERE name = 'pg_stat_statements')",
    )
    .fetch_one(&mut *connection)
    .await?;
    ensure!(
        available,
        "PostgreSQL lacks the extension pg_stat_statements; it is in the package postgresql-contrib"
    );
    let create = "CREATE EXTENSION IF NOT EXISTS pg_stat_statements";
    let created = execute(create, connection).await;
    created.context("pg_stat_statements can't be used")
}

pub(crate) async fn reset(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    execute("SELECT pg_stat_statements_reset()", connection).await
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    /// What the macros of sqlx noted of each query.
    #[derive(serde::Deserialize)]
    struct Noted {
        query: String,
    }

    #[test]
    fn a_pattern_finds_one_statement_of_the_program() -> anyhow::Result<()> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut queries = Vec::new();
        for folder in [
            ".sqlx",
            "crates/idempotency/.sqlx",
            "crates/service/.sqlx",
            "crates/webhooks/.sqlx",
        ] {
            for file in fs::read_dir(root.join(folder))? {
                let noted: Noted = serde_json::from_slice(&fs::read(file?.path())?)?;
                queries.push(noted.query);
            }
        }
        for statement in [Statement::Sweep, Statement::Look, Statement::Claim] {
            let matches = |query: &&String| {
                let mut rest = query.as_str();
                statement
                    .pattern()
                    .split('%')
                    .all(|part| match rest.split_once(part) {
                        Some((_, after)) => {
                            rest = after;
                            true
                        }
                        None => false,
                    })
            };
            assert_eq!(queries.iter().filter(matches).count(), 1, "{statement:?}");
        }
        Ok(())
    }

    #[test]
    fn one_slow_call_does_not_move_the_median_and_a_pause_is_no_look() {
        let mut watched = Watched::new(Statement::Sweep);
        let counted = |calls, rows, total_ns| Counted {
            calls,
            rows,
            total_ns,
        };
        for now in [
            counted(1, 500, 1_000),
            counted(1, 500, 1_000),
            counted(3, 1_500, 3_000),
            counted(4, 1_500, 900_000),
            counted(5, 2_000, 901_000),
        ] {
            watched.add(now);
        }
        assert_eq!(watched.ns_per_call(), 1_000);
        assert_eq!(watched.ns_per_row(), 2);
        assert_eq!(watched.counted.rows, 2_000);
    }
}
