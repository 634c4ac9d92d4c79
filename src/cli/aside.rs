//! Long looks at the whole database, beside a running server.
//!
//! Promise: a look changes nothing, takes no connection from requests, sees one moment, and ends at
//! its limit, in the database too. Its snapshot keeps PostgreSQL from removing dead rows meanwhile.

use std::time::Duration;

use sqlx::{AssertSqlSafe, Connection, PgConnection};

use super::BoxError;
use crate::{config::Config, database::Database};

/// The longest limit of a look: its snapshot delays vacuum for as long.
const LIMIT_MAX: Duration = Duration::from_secs(24 * 3600);

/// Reads a limit from the command line: from 1s to 24h.
pub(super) fn limit(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(limit) if (Duration::from_secs(1)..=LIMIT_MAX).contains(&limit) => Ok(limit),
        Ok(_) | Err(_) => Err("it must be a duration from 1s to 24h, such as 10m".to_owned()),
    }
}

/// The configuration of a command that looks: it migrates nothing, whatever MIGRATE_ON_START says.
pub(super) fn config() -> Result<Config, BoxError> {
    let mut config = Config::from_env()?;
    config.migrate_on_start = false;
    Ok(config)
}

/// Runs `look` in one snapshot that can only be read, for at most `limit` in all.
pub(super) async fn look<T>(
    database: &Database,
    limit: Duration,
    look: impl AsyncFnOnce(&mut PgConnection) -> Result<T, BoxError>,
) -> Result<T, BoxError> {
    let looking = async {
        let mut connection = database.connect_for_long_statements().await?;
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
    ended.unwrap_or_else(|_| {
        let limit = humantime::format_duration(limit);
        Err(format!("it was not done within {limit}: allow more with --timeout").into())
    })
}
