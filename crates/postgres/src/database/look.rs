//! Long looks at the whole database, beside a running server.
//!
//! Promise: a look changes nothing, takes no connection from requests, sees one moment, and ends at
//! its limit, in the database too. Its snapshot keeps PostgreSQL from removing dead rows meanwhile.

use std::time::Duration;

use sqlx::{AssertSqlSafe, ConnectOptions, Connection, PgConnection, postgres::PgConnectOptions};

use super::Database;

/// The longest limit of a look: its snapshot delays vacuum for as long.
const LIMIT_MAX: Duration = Duration::from_secs(24 * 3600);

/// A look reached its limit. It was given on a command line.
#[derive(Debug, thiserror::Error)]
#[error("it was not done within {}: allow more with --timeout", humantime::format_duration(*.0))]
pub struct LookTimedOut(Duration);

/// Reads a limit from the command line: from 1s to 24h.
pub fn look_limit(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(limit) if (Duration::from_secs(1)..=LIMIT_MAX).contains(&limit) => Ok(limit),
        Ok(_) | Err(_) => Err("it must be a duration from 1s to 24h, such as 10m".to_owned()),
    }
}

/// Runs `look` in one snapshot that can only be read, for at most `limit` in all. Fails with the
/// errors of `look` and of the database, and with [`LookTimedOut`].
pub async fn look<T, E: From<sqlx::Error> + From<LookTimedOut>>(
    database: &Database,
    limit: Duration,
    look: impl AsyncFnOnce(&mut PgConnection) -> Result<T, E>,
) -> Result<T, E> {
    let looking = async {
        let options = PgConnectOptions::clone(&database.pool().connect_options());
        // That a statement reads whole tables and takes long is no reason for a warning.
        let mut connection = options.disable_statement_logging().connect().await?;
        // After a kill, the server stops by itself.
        let allowed = format!("SET statement_timeout = {}", limit.as_millis());
        let allowed = sqlx::raw_sql(AssertSqlSafe(allowed));
        allowed.execute(&mut connection).await?;
        let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY";
        let mut snapshot = connection.begin_with(begin).await?;
        let found = look(&mut snapshot).await?;
        snapshot.rollback().await?;
        connection.close().await?;
        Ok(found)
    };
    let ended = tokio::time::timeout(limit, looking).await;
    ended.unwrap_or_else(|_| Err(LookTimedOut(limit).into()))
}
