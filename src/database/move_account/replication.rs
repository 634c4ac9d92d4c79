//! The publication and the slot at the old home, and the subscription at the new one.
//!
//! The slot is made before the subscription, so that two databases of one PostgreSQL work, too. The
//! URL of the old home, with its password, goes to the new one as a row that is copied: no log has
//! it, as it may have statements and their parameters. PostgreSQL keeps it where only superusers
//! look.

use std::time::{Duration, Instant};

use sqlx::{AssertSqlSafe, Connection, PgConnection, postgres::types::Oid};
use url::Url;

use super::{Home, LOOK_PAUSE, Move, MoveError, MoveStep, Progress, Tell, refused, tables};

/// How far the new home may be behind when the account is closed for writes.
const LAG_MAX_BYTES: i64 = 1 << 20;

/// How long a database may take to notice that the other side has ended.
const END_LIMIT: Duration = Duration::from_secs(30);

/// How often progress is told.
const TELL_PAUSE: Duration = Duration::from_secs(1);

/// Parts of a URL that libpq knows by another name. What it doesn't know has no effect on a copy.
const RENAMED: [(&str, &str); 5] = [
    ("ssl-mode", "sslmode"),
    ("ssl-root-cert", "sslrootcert"),
    ("ssl-ca", "sslrootcert"),
    ("ssl-cert", "sslcert"),
    ("ssl-key", "sslkey"),
];

/// Parts of a URL that libpq knows.
const KNOWN: [&str; 10] = [
    "dbname",
    "host",
    "hostaddr",
    "password",
    "port",
    "sslcert",
    "sslkey",
    "sslmode",
    "sslrootcert",
    "user",
];

/// Of an error, a log has the statement that a function ran, and of a URL that can't be read, a
/// part. So this one ends with another error. deploy/postgres/mover.sql has such a function, too.
const SUBSCRIBE: &str = "
    CREATE FUNCTION pg_temp.charge_once_subscribe(name text, url text) RETURNS void LANGUAGE plpgsql AS $$
    BEGIN
        EXECUTE format('CREATE SUBSCRIPTION %I CONNECTION %L PUBLICATION %I WITH (create_slot = false,
                        slot_name = %L, disable_on_error = true)', name, url, name, name);
    EXCEPTION
        WHEN syntax_error THEN
            RAISE EXCEPTION 'PostgreSQL can''t read the URL of the old home';
        WHEN OTHERS THEN
            RAISE EXCEPTION USING ERRCODE = SQLSTATE, MESSAGE = SQLERRM;
    END
    $$";

/// What a role subscribes with. From PostgreSQL 16 on, it can be granted what needed a superuser.
/// Before, there may be a function of a superuser's.
const SUBSCRIBER: &str = "
    SELECT CASE WHEN rolsuper THEN 'pg_temp.charge_once_subscribe'
                WHEN NOT has_parameter_privilege(rolname, 'session_replication_role', 'SET') THEN NULL
                WHEN EXISTS (SELECT FROM pg_roles AS may WHERE may.rolname = 'pg_create_subscription'
                                AND pg_has_role(may.oid, 'USAGE')) THEN 'pg_temp.charge_once_subscribe'
                WHEN has_function_privilege(to_regprocedure('charge_once_subscribe(text, text)'), 'EXECUTE')
                THEN 'charge_once_subscribe' END
      FROM pg_roles
     WHERE rolname = current_user";

/// The URL as the new home's PostgreSQL takes it.
fn for_libpq(url: &str) -> Result<String, MoveError> {
    let Ok(mut parsed) = Url::parse(url) else {
        return refused("the URL of the old home can't be read");
    };
    let pairs: Vec<(String, String)> = parsed
        .query_pairs()
        .filter_map(|(name, value)| {
            let renamed = RENAMED.iter().find(|(other, _)| *other == name);
            let name = renamed.map_or(&*name, |(_, name)| *name);
            KNOWN
                .contains(&name)
                .then(|| (name.to_owned(), value.into_owned()))
        })
        .collect();
    parsed.set_query(None);
    let mut url = parsed.to_string();
    for (number, (name, value)) in pairs.iter().enumerate() {
        // libpq takes a plus sign as it is, and not as a space.
        let value: String = url::form_urlencoded::byte_serialize(value.as_bytes()).collect();
        let value = value.replace('+', "%20");
        let mark = if number == 0 { '?' } else { '&' };
        url.push_str(&format!("{mark}{name}={value}"));
    }
    Ok(url)
}

impl Home {
    /// Whether the slot of this name is here.
    pub(super) async fn keeps(&mut self, slot: &str) -> Result<bool, MoveError> {
        let is_here = "SELECT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = $1)";
        let is_here = sqlx::query_scalar(is_here).bind(slot);
        Ok(is_here.fetch_one(&mut self.session).await?)
    }

    /// The slot and the publication of an old home. The process that served the new home is ended:
    /// it notices only after a minute that a network is gone.
    pub(super) async fn drop_publication(&mut self, name: &str) -> Result<(), MoveError> {
        let until = Instant::now() + END_LIMIT;
        while self.keeps(name).await? {
            let end = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = $1";
            let end = sqlx::query(end).bind(name).execute(&mut self.session);
            if let Err(error) = end.await {
                if Instant::now() > until {
                    return Err(error.into());
                }
                let server = "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1";
                let server = sqlx::query(server).bind(name);
                server.execute(&mut self.session).await?;
                tokio::time::sleep(LOOK_PAUSE).await;
            }
        }
        let publication = format!("DROP PUBLICATION IF EXISTS {name}");
        self.run(&publication).await
    }
}

impl Move {
    /// The subscription at the new home, and whether it is enabled, if there is one.
    pub(super) async fn subscription(&mut self) -> Result<Option<(Oid, bool)>, MoveError> {
        let found = "SELECT oid, subenabled FROM pg_subscription
                      WHERE subname = $1 AND subdbid = (SELECT oid FROM pg_database WHERE datname = current_database())";
        let found = sqlx::query_as(found).bind(&self.name);
        Ok(found.fetch_optional(&mut self.target.session).await?)
    }

    /// The function by which the role at the new home may subscribe. Fails if there is none.
    pub(super) async fn subscriber(&mut self) -> Result<String, MoveError> {
        let subscriber = sqlx::query_scalar::<_, Option<String>>(SUBSCRIBER);
        let subscriber = subscriber.fetch_one(&mut self.target.session).await?;
        let target = &self.target.name;
        subscriber.map_or_else(
            || {
                refused(format!(
                    "the role at the shard {target} may not subscribe: deploy/postgres/mover.sql makes one that may"
                ))
            },
            Ok,
        )
    }

    /// Makes what is missing of publication, slot and subscription.
    pub(super) async fn subscribe(&mut self, tell: Tell<'_>) -> Result<(), MoveError> {
        self.publish().await?;
        tell(Progress::Done(MoveStep::Published))?;
        let subscription = self.subscription().await?;
        match (self.source.keeps(&self.name).await?, subscription.is_some()) {
            (false, true) => {
                return refused(
                    "the old home keeps no log for the copy any more: run it with --abort, and begin anew",
                );
            }
            (true, _) => {}
            (false, false) => {
                let slot = sqlx::query("SELECT pg_create_logical_replication_slot($1, 'pgoutput')");
                slot.bind(&self.name)
                    .execute(&mut self.source.session)
                    .await?;
            }
        }
        tell(Progress::Done(MoveStep::Kept))?;
        // A lost connection disables it, too.
        if let Some((_, false)) = subscription {
            let enable = format!("ALTER SUBSCRIPTION {} ENABLE", self.name);
            self.target.run(&enable).await?;
        }
        if subscription.is_none() {
            let url = for_libpq(&self.source.url)?;
            let subscriber = self.subscriber().await?;
            let mut tx = self.target.session.begin().await?;
            let row = "CREATE TEMPORARY TABLE old_home (url text) ON COMMIT DROP";
            sqlx::raw_sql(row).execute(&mut *tx).await?;
            let mut copy = tx.copy_in_raw("COPY old_home FROM STDIN").await?;
            copy.send(url.as_bytes()).await?;
            copy.finish().await?;
            sqlx::raw_sql(SUBSCRIBE).execute(&mut *tx).await?;
            let subscribe = AssertSqlSafe(format!(
                "SELECT {subscriber}($1, url) FROM pg_temp.old_home"
            ));
            let subscribe = sqlx::query(subscribe).bind(&self.name);
            subscribe.execute(&mut *tx).await?;
            sqlx::raw_sql("DROP FUNCTION pg_temp.charge_once_subscribe")
                .execute(&mut *tx)
                .await?;
            tx.commit().await?;
        }
        tell(Progress::Done(MoveStep::Subscribed))
    }

    async fn publish(&mut self) -> Result<(), MoveError> {
        let exists = "SELECT EXISTS (SELECT FROM pg_publication WHERE pubname = $1)";
        let exists = sqlx::query_scalar(exists).bind(&self.name);
        if exists.fetch_one(&mut self.source.session).await? {
            return Ok(());
        }
        let mut tables = Vec::new();
        for table in tables::PUBLISHED {
            let filter = tables::filter(&mut self.source.session, table, self.account).await?;
            tables.push(format!("{table} WHERE ({filter})"));
        }
        let publish = format!(
            "CREATE PUBLICATION {} FOR TABLE {}",
            self.name,
            tables.join(", ")
        );
        self.source.run(&publish).await
    }

    /// Waits until each table is copied and the new home is close behind.
    pub(super) async fn copy(&mut self, tell: Tell<'_>) -> Result<(), MoveError> {
        let counts = tables::counts(&mut self.source.session, self.account).await?;
        let all: i64 = counts.iter().map(|(_, rows)| rows).sum();
        let began = Instant::now();
        let mut told = Instant::now();
        loop {
            if !matches!(self.subscription().await?, Some((_, true))) {
                return refused(format!(
                    "the copy stopped: the log of the shard {} says why. Run the command again, or with --abort",
                    self.target.name
                ));
            }
            let (open, copied) = self.copied(&counts).await?;
            let lag = self.lag_bytes().await?;
            if open == 0 && lag.is_some_and(|lag| lag <= LAG_MAX_BYTES) {
                // Rows that are read for the first time are marked as committed. The count after
                // the freeze takes a fifth of the time then.
                tables::counts(&mut self.target.session, self.account).await?;
                return Ok(());
            }
            if told.elapsed() >= TELL_PAUSE {
                told = Instant::now();
                let left = time_left(began.elapsed(), copied, all);
                let lag = lag.map_or("unknown".to_owned(), |lag| format!("{} kB", lag / 1024));
                tell(Progress::Waits(format!(
                    "copied {copied} of {all} rows, {open} tables to go, {left}; the new home is behind by {lag}"
                )))?;
            }
            tokio::time::sleep(LOOK_PAUSE * 5).await;
        }
    }

    /// How many tables are not copied yet, and how many rows are.
    async fn copied(&mut self, counts: &[(String, i64)]) -> Result<(usize, i64), MoveError> {
        let states = sqlx::query_as::<_, (String, bool, bool, i64)>(
            "SELECT relname::text, srsubstate = 'r', srsubstate IN ('r', 's', 'f'),
                    coalesce((SELECT tuples_processed FROM pg_stat_progress_copy AS copy
                               WHERE copy.relid = pg_class.oid AND copy.datname = current_database()
                               LIMIT 1), 0)
               FROM pg_subscription_rel
               JOIN pg_subscription ON pg_subscription.oid = srsubid
               JOIN pg_class ON pg_class.oid = srrelid
              WHERE subname = $1",
        );
        let states = states
            .bind(&self.name)
            .fetch_all(&mut self.target.session)
            .await?;
        let copied = states.iter().map(|(table, _, is_copied, rows)| {
            let all = counts.iter().find(|(name, _)| name == table);
            if *is_copied {
                all.map_or(0, |(_, rows)| *rows)
            } else {
                *rows
            }
        });
        let copied = copied.sum();
        let ready = states.iter().filter(|(_, is_ready, ..)| *is_ready).count();
        Ok((tables::PUBLISHED.len() - ready, copied))
    }

    /// `None`: the new home is not connected.
    pub(super) async fn lag_bytes(&mut self) -> Result<Option<i64>, MoveError> {
        let lag = "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn)::bigint
                     FROM pg_stat_replication WHERE application_name = $1";
        let lag = sqlx::query_scalar::<_, Option<i64>>(lag).bind(&self.name);
        let lag = lag.fetch_optional(&mut self.source.session).await?;
        Ok(lag.flatten())
    }

    pub(super) async fn drop_subscription(&mut self) -> Result<(), MoveError> {
        let Some((id, _)) = self.subscription().await? else {
            return Ok(());
        };
        let disable = format!("ALTER SUBSCRIPTION {} DISABLE", self.name);
        self.target.run(&disable).await?;
        self.end_copies(id).await?;
        let mut tx = self.target.session.begin().await?;
        drop_subscription(&mut tx, &self.name).await?;
        tx.commit().await?;
        Ok(())
    }

    /// Ends the copies of single tables. To drop a subscription that copies, PostgreSQL waits for
    /// them. Where both databases are of one server, they may wait for that transaction, and
    /// nothing finds the deadlock.
    async fn end_copies(&mut self, subscription: Oid) -> Result<(), MoveError> {
        let copies = "SELECT count(pg_terminate_backend(active_pid)) FROM pg_replication_slots
                       WHERE starts_with(slot_name, format('pg_%s_sync_', $1)) AND active_pid IS NOT NULL";
        let workers =
            "SELECT count(*) FROM pg_stat_subscription WHERE subname = $1 AND pid IS NOT NULL";
        let until = Instant::now() + END_LIMIT;
        loop {
            let copies = sqlx::query_scalar(copies).bind(subscription);
            let copies: i64 = copies.fetch_one(&mut self.source.session).await?;
            let workers = sqlx::query_scalar(workers).bind(&self.name);
            let workers: i64 = workers.fetch_one(&mut self.target.session).await?;
            if copies + workers == 0 {
                return Ok(());
            }
            if Instant::now() > until {
                let limit = END_LIMIT.as_secs();
                return refused(format!("the copy did not end within {limit} s"));
            }
            tokio::time::sleep(LOOK_PAUSE).await;
        }
    }
}

/// Ends the copy, at once if the transaction commits. Nothing is asked of the old home.
pub(super) async fn drop_subscription(tx: &mut PgConnection, name: &str) -> Result<(), MoveError> {
    let end = format!(
        "ALTER SUBSCRIPTION {name} DISABLE; ALTER SUBSCRIPTION {name} SET (slot_name = NONE);
         DROP SUBSCRIPTION {name}"
    );
    sqlx::raw_sql(AssertSqlSafe(end)).execute(tx).await?;
    Ok(())
}

fn time_left(since: Duration, done: i64, all: i64) -> String {
    let left = all.saturating_sub(done).max(0).unsigned_abs();
    let micros = u64::try_from(since.as_micros()).unwrap_or(u64::MAX);
    match done.max(0).unsigned_abs() {
        0 => "no time known yet".to_owned(),
        done => format!(
            "about {} s left",
            (micros / done).saturating_mul(left) / 1_000_000
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libpq_gets_of_a_url_what_it_knows() {
        for (url, expected) in [
            ("postgres://u:p%40w@h:5433/b", "postgres://u:p%40w@h:5433/b"),
            (
                "postgres://u@localhost/b?host=%2Ftmp%2Fa+b&statement-cache-capacity=0&ssl-mode=verify-full",
                "postgres://u@localhost/b?host=%2Ftmp%2Fa%20b&sslmode=verify-full",
            ),
            (
                "postgres://h/b?options[search_path]=shop&schema=x",
                "postgres://h/b",
            ),
        ] {
            assert_eq!(for_libpq(url).ok().as_deref(), Some(expected), "{url}");
        }
    }
}
