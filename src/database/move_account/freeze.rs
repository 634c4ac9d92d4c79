//! From the last writes at the old home to the first ones at the new one.

use std::time::{Duration, Instant};

use serde_json::{Map, Value};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tokio::time::sleep;
use uuid::Uuid;

use super::{
    Home, LOOK_PAUSE, Move, MoveError, MoveStep, Progress, Tell, refused,
    replication::drop_subscription,
    tables::{self, HELD, IDENTITY, PUBLISHED},
};

/// How long an account may be closed while something is waited for. Then it is opened again.
const FREEZE_LIMIT: Duration = Duration::from_secs(10);

/// What the rows of a webhook's attempt look like while it is made.
const SENDING: &str = "SELECT EXISTS (SELECT FROM webhook_deliveries
    WHERE account_id = $1 AND status = 'pending' AND NOT ready AND claim IS NOT NULL AND next_attempt_at > now())";

impl Home {
    /// The transactions that write to one of the tables now. One that writes later sees what was
    /// committed before.
    async fn writers(&mut self) -> Result<Vec<String>, MoveError> {
        let writers = sqlx::query_scalar(
            "SELECT DISTINCT virtualtransaction
               FROM pg_locks
              WHERE locktype = 'relation' AND granted AND mode = 'RowExclusiveLock'
                AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
                AND relation = ANY (SELECT name::regclass FROM unnest($1::text[]) AS name)
                AND pid IS DISTINCT FROM pg_backend_pid()",
        );
        let tables = [&PUBLISHED[..], &HELD].concat();
        Ok(writers.bind(tables).fetch_all(&mut self.session).await?)
    }

    async fn are_any_left(&mut self, writers: &[String]) -> Result<bool, MoveError> {
        let left = "SELECT EXISTS (SELECT FROM pg_locks WHERE virtualtransaction = ANY ($1))";
        let left = sqlx::query_scalar(left).bind(writers);
        Ok(left.fetch_one(&mut self.session).await?)
    }

    /// Waits until no transaction is left that holds the account, as `hold_account` does.
    async fn wait_for_holders(&mut self, account: Uuid) -> Result<(), MoveError> {
        let wait = sqlx::query("SELECT FROM accounts WHERE id = $1 FOR NO KEY UPDATE");
        wait.bind(account).execute(&mut self.session).await?;
        Ok(())
    }

    /// Waits until no transaction is left that may have asked before the last COMMIT of this
    /// session.
    async fn wait_for_writers(&mut self, limit: Duration) -> Result<(), MoveError> {
        let writers = self.writers().await?;
        let until = Instant::now() + limit;
        while self.are_any_left(&writers).await? {
            if Instant::now() > until {
                return refused(format!(
                    "a transaction in the shard {} doesn't end: docs/runbook.md says how to find it",
                    self.name
                ));
            }
            sleep(LOOK_PAUSE).await;
        }
        Ok(())
    }

    /// Opens the account again at this old home, if it is closed.
    pub(super) async fn thaw(&mut self, account: Uuid) -> Result<(), MoveError> {
        let mut tx = self.session.begin().await?;
        let held = "SELECT held FROM moving WHERE account_id = $1 FOR UPDATE";
        let held = sqlx::query_scalar::<_, Option<Value>>(held).bind(account);
        let held = held.fetch_optional(&mut *tx).await?.flatten();
        let set =
            "UPDATE moving SET state = 'copying', since = now(), held = NULL WHERE account_id = $1";
        sqlx::query(set).bind(account).execute(&mut *tx).await?;
        if let Some(held) = held {
            let taken_out = HELD.into_iter().filter(|table| !IDENTITY.contains(table));
            put_back(&mut tx, &held, taken_out).await?;
        }
        tx.commit().await?;
        Ok(())
    }
}

impl Move {
    /// Workers begin nothing new for the account, and servers stop to remember its home. Waits for
    /// what was begun: a webhook that is being sent would be sent again by the new home.
    pub(super) async fn drain(&mut self, tell: Tell<'_>) -> Result<(), MoveError> {
        self.source.is(self.account, "draining").await?;
        let since = Instant::now();
        tell(Progress::Done(MoveStep::Draining))?;
        self.source.wait_for_writers(FREEZE_LIMIT).await?;
        let mut told = Instant::now();
        loop {
            let sending = sqlx::query_scalar(SENDING).bind(self.account);
            let sending: bool = sending.fetch_one(&mut self.source.session).await?;
            if !sending && since.elapsed() >= self.pauses.homes {
                break;
            }
            if sending && told.elapsed() > Duration::from_secs(1) {
                told = Instant::now();
                tell(Progress::Waits("webhooks are being sent".to_owned()))?;
            }
            sleep(LOOK_PAUSE).await;
        }
        tell(Progress::Done(MoveStep::Drained))
    }

    /// Closes the account for writes. What the new home's workers must not find yet, and the old
    /// home's no more, is put aside in the row of the move.
    pub(super) async fn freeze(&mut self, tell: Tell<'_>) -> Result<(), MoveError> {
        if !self.states().await?.source_is(&["frozen", "leaving"]) {
            self.frozen_at = Some(Instant::now());
            self.source.is(self.account, "frozen").await?;
        }
        tell(Progress::Done(MoveStep::Frozen))?;
        self.source.wait_for_holders(self.account).await?;
        self.source.wait_for_writers(FREEZE_LIMIT).await?;
        tell(Progress::Done(MoveStep::Quiet))?;
        let held = "SELECT held IS NOT NULL FROM moving WHERE account_id = $1";
        let held = sqlx::query_scalar(held).bind(self.account);
        let is_held: bool = held.fetch_one(&mut self.source.session).await?;
        if !is_held {
            let mut tx = self.source.session.begin().await?;
            let mut held = Map::new();
            for table in HELD {
                let filter = tables::filter(&mut tx, table, self.account).await?;
                let rows = AssertSqlSafe(match IDENTITY.contains(&table) {
                    true => format!(
                        "SELECT coalesce(jsonb_agg(to_jsonb(it)), '[]') FROM {table} AS it WHERE {filter}"
                    ),
                    false => format!(
                        "WITH it AS (DELETE FROM {table} WHERE {filter} RETURNING *)
                         SELECT coalesce(jsonb_agg(to_jsonb(it)), '[]') FROM it"
                    ),
                });
                let rows: Value = sqlx::query_scalar(rows).fetch_one(&mut *tx).await?;
                held.insert(table.to_owned(), rows);
            }
            let set = sqlx::query("UPDATE moving SET held = $2 WHERE account_id = $1");
            set.bind(self.account)
                .bind(Value::Object(held))
                .execute(&mut *tx)
                .await?;
            tx.commit().await?;
        }
        tell(Progress::Done(MoveStep::Held))
    }

    /// Waits until the new home has all that the old one has written until now.
    pub(super) async fn catch_up(&mut self) -> Result<(), MoveError> {
        let position = "SELECT pg_current_wal_lsn()::text";
        let position: String = sqlx::query_scalar(position)
            .fetch_one(&mut self.source.session)
            .await?;
        let until = Instant::now() + FREEZE_LIMIT;
        loop {
            let has_it = "SELECT replay_lsn >= $2::pg_lsn FROM pg_stat_replication WHERE application_name = $1";
            let has_it = sqlx::query_scalar::<_, Option<bool>>(has_it)
                .bind(&self.name)
                .bind(&position);
            let has_it = has_it.fetch_optional(&mut self.source.session).await?;
            if has_it.flatten() == Some(true) {
                return Ok(());
            }
            if Instant::now() > until {
                let limit = FREEZE_LIMIT.as_secs();
                return refused(format!(
                    "the new home did not catch up within {limit} s, so the account was opened again"
                ));
            }
            sleep(LOOK_PAUSE / 2).await;
        }
    }

    /// Makes the new home the account's own, in one transaction. Returns how many rows it has.
    pub(super) async fn switch(&mut self, tell: Tell<'_>) -> Result<i64, MoveError> {
        let held = "SELECT held FROM moving WHERE account_id = $1";
        let held: Value = sqlx::query_scalar(held)
            .bind(self.account)
            .fetch_one(&mut self.source.session)
            .await?;
        let mut tx = self.target.session.begin().await?;
        drop_subscription(&mut tx, &self.name).await?;
        let (rows, expected) = tokio::try_join!(
            tables::counts(&mut tx, self.account),
            tables::counts(&mut self.source.session, self.account),
        )?;
        for ((table, rows), (_, expected)) in rows.iter().zip(&expected) {
            // The old home may have removed old rows meanwhile.
            let is_more = rows > expected && tables::loses_old_rows(table);
            if rows != expected && !is_more && !tables::is_log(table) {
                return refused(format!(
                    "the new home has {rows} rows of {table}, and the old one {expected}"
                ));
            }
        }
        put_back(&mut tx, &held, HELD.into_iter()).await?;
        let arrive =
            "UPDATE moving SET state = 'arrived', since = now(), switched_by = pg_current_xact_id()
                       WHERE account_id = $1";
        sqlx::query(arrive)
            .bind(self.account)
            .execute(&mut *tx)
            .await?;
        self.source.is(self.account, "leaving").await?;
        tell(Progress::Done(MoveStep::Leaving))?;
        tx.commit().await?;
        Ok(rows.iter().map(|(_, rows)| rows).sum())
    }

    /// Compares what both homes have, and then has the old one forget the account.
    pub(super) async fn forget(&mut self, tell: Tell<'_>) -> Result<(), MoveError> {
        self.source.drop_publication(&self.name).await?;
        tell(Progress::Done(MoveStep::Released))?;
        if self.source.state(self.account).await?.is_some() {
            for table in PUBLISHED.into_iter().filter(|table| !tables::is_log(table)) {
                let sessions = [&mut self.source.session, &mut self.target.session];
                let differing = tables::differing(sessions, table, self.account).await?;
                if differing > 0 {
                    return refused(format!(
                        "{differing} rows of {table} are not at the new home as they were at the old one. The account \
                         is served by its new home, and the old one keeps its rows: nothing was deleted"
                    ));
                }
            }
            tell(Progress::Done(MoveStep::Compared))?;
            self.wait_for_look_ups().await?;
            let mut tx = self.source.session.begin().await?;
            for table in IDENTITY.into_iter().rev() {
                let filter = tables::filter(&mut tx, table, self.account).await?;
                let delete = AssertSqlSafe(format!("DELETE FROM {table} WHERE {filter}"));
                sqlx::raw_sql(delete).execute(&mut *tx).await?;
            }
            tx.commit().await?;
            tell(Progress::Done(MoveStep::Forgotten))?;
            tables::delete_all(&mut self.source.session, self.account).await?;
            tables::delete_state(&mut self.source.session, self.account).await?;
        }
        tell(Progress::Done(MoveStep::Emptied))?;
        tables::delete_state(&mut self.target.session, self.account).await
    }

    async fn wait_for_look_ups(&mut self) -> Result<(), MoveError> {
        let left = "SELECT greatest(0, $2 - extract(epoch FROM now() - since)::float8) FROM moving
                     WHERE account_id = $1";
        let left = sqlx::query_scalar(left)
            .bind(self.account)
            .bind(self.pauses.look_ups.as_secs_f64());
        let left: f64 = left.fetch_one(&mut self.target.session).await?;
        sleep(Duration::from_secs_f64(left)).await;
        Ok(())
    }
}

/// Inserts rows that were taken out of these tables.
async fn put_back(
    tx: &mut PgConnection,
    held: &Value,
    tables: impl Iterator<Item = &'static str>,
) -> Result<(), MoveError> {
    for table in tables {
        let Some(rows) = held.get(table) else {
            return refused(format!("the row of the move has nothing of {table}"));
        };
        let insert = AssertSqlSafe(format!(
            "INSERT INTO {table} SELECT * FROM jsonb_populate_recordset(NULL::{table}, $1)"
        ));
        sqlx::query(insert).bind(rows).execute(&mut *tx).await?;
    }
    Ok(())
}
