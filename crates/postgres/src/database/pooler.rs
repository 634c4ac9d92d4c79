//! Whether a connection is a session of PostgreSQL's own, with what was asked of it at its start.
//!
//! A connection pooler between may give each transaction another session, and drop what a
//! connection asks for. Prepared statements, the locks of migrations and time limits would then be
//! another client's, or none.
//!
//! Promise: the start says so before anything relies on it. Only simple queries are sent, because a
//! prepared statement would fail first.

use std::collections::HashMap;

use charge_once_idempotency::{self as idempotency, SessionLimits};
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row, postgres::PgConnectOptions};
use uuid::Uuid;

use super::{BYTES, SchemaName, StartError, is_restarting};

/// Connections that hold a transaction open meanwhile. A pooler that takes sessions in turn could
/// give one of them another session than the one that was marked, and the second none but that one.
const OTHERS: usize = 2;

/// Refuses a pooler that shares sessions, and one that dropped the pinned settings.
pub(super) async fn ensure_own_session(
    connection: &mut PgConnection,
    options: &PgConnectOptions,
    limits: SessionLimits,
) -> Result<(), StartError> {
    let is_own = is_own_session(connection, options).await;
    if !is_own.map_err(StartError::Unreachable)? {
        return Err(StartError::SharedSessions);
    }
    let dropped = dropped_settings(connection, limits).await;
    let dropped = dropped.map_err(StartError::Unreachable)?;
    if dropped.is_empty() {
        return Ok(());
    }
    let statements = dropped
        .iter()
        .map(|(name, needed)| set_for_the_role(options, name, &format!("'{needed}'")));
    Err(StartError::NotPinned {
        remedy: statements.collect::<Vec<_>>().join(" "),
    })
}

/// The statement that gives the role's sessions a setting, whose value is quoted: text as text, and
/// the name of a schema as an identifier.
pub(super) fn set_for_the_role(options: &PgConnectOptions, name: &str, value: &str) -> String {
    format!("ALTER ROLE {} SET {name} = {value};", role(options))
}

fn role(options: &PgConnectOptions) -> String {
    format!("\"{}\"", options.get_username().replace('"', "\"\""))
}

/// Refuses a pooler that drops the `search_path` of the URL: tables would be made elsewhere.
pub(super) async fn ensure_search_path_arrives(
    connection: &mut PgConnection,
    options: &PgConnectOptions,
) -> Result<(), StartError> {
    let asked = options.get_options().unwrap_or_default();
    if !asked.contains("search_path") {
        return Ok(());
    }
    let source = "SELECT source = 'client' FROM pg_settings WHERE name = 'search_path'";
    let arrives = sqlx::query_scalar(source).fetch_one(connection).await;
    match arrives.map_err(StartError::Unreachable)? {
        true => Ok(()),
        false => Err(StartError::SearchPathDropped(role(options))),
    }
}

/// Refuses a pooler that drops the schema of the tables, unless sessions have it by themselves.
pub(super) async fn ensure_pinned_to(
    schema: &SchemaName,
    pinned: &PgConnectOptions,
) -> Result<(), StartError> {
    let looking = async {
        let mut connection = PgConnection::connect_with(pinned).await?;
        let is_current = schema.is_current(&mut connection).await?;
        let _ = connection.close().await;
        Ok(is_current)
    };
    match looking.await.map_err(StartError::Unreachable)? {
        true => Ok(()),
        false => Err(StartError::NotPinned {
            remedy: set_for_the_role(pinned, "search_path", schema.as_str()),
        }),
    }
}

/// Marks the session, and looks whether others see the mark, or this connection does not.
pub(super) async fn is_own_session(
    connection: &mut PgConnection,
    options: &PgConnectOptions,
) -> Result<bool, sqlx::Error> {
    let mark = Uuid::now_v7().to_string();
    let set = AssertSqlSafe(format!("SET charge_once.session = '{mark}'"));
    sqlx::raw_sql(set).execute(&mut *connection).await?;
    let mut others = Vec::new();
    let mut is_own = true;
    while is_own && others.len() < OTHERS {
        let mut other = PgConnection::connect_with(options).await?;
        match sqlx::raw_sql("BEGIN").execute(&mut other).await {
            Ok(_) => {}
            Err(error) if is_restarting(&error) => return Err(error),
            // With pool_mode = statement, PgBouncer refuses transactions.
            Err(sqlx::Error::Database(_)) => return Ok(false),
            Err(error) => return Err(error),
        }
        let theirs = mark_of(&mut other).await?;
        let ours = mark_of(connection).await?;
        is_own = theirs.as_ref() != Some(&mark) && ours.as_ref() == Some(&mark);
        others.push(other);
    }
    for mut other in others {
        sqlx::raw_sql("ROLLBACK").execute(&mut other).await?;
        other.close().await?;
    }
    Ok(is_own)
}

async fn mark_of(connection: &mut PgConnection) -> Result<Option<String>, sqlx::Error> {
    let look = sqlx::raw_sql("SELECT current_setting('charge_once.session', true)");
    look.fetch_one(connection).await?.try_get(0)
}

/// The pinned settings that the session doesn't have, with the values that it should.
pub(super) async fn dropped_settings(
    connection: &mut PgConnection,
    limits: SessionLimits,
) -> Result<Vec<(&'static str, String)>, sqlx::Error> {
    let mut pinned = Vec::from(idempotency::pinned_settings(limits));
    pinned.push((BYTES.0, BYTES.1.to_owned()));
    let names: Vec<_> = pinned.iter().map(|(name, _)| format!("'{name}'")).collect();
    // Times are in milliseconds here, as they are pinned.
    let look = format!(
        "SELECT name, setting FROM pg_settings WHERE name IN ({})",
        names.join(", ")
    );
    let rows = sqlx::raw_sql(AssertSqlSafe(look))
        .fetch_all(connection)
        .await?;
    let found = rows
        .iter()
        .map(|row| Ok((row.try_get(0)?, row.try_get(1)?)));
    let found = found.collect::<Result<HashMap<String, String>, sqlx::Error>>()?;
    let dropped = pinned
        .into_iter()
        .filter(|(name, needed)| found.get(*name) != Some(needed));
    Ok(dropped.collect())
}
