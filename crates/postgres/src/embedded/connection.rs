//! Connecting through the socket, and creating the database on the first connection.

use std::path::Path;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgSslMode};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, PgConnection};

use super::data_dir::PORT;
use crate::has_code;

/// The database that every cluster has, for creating the caller's from.
const MAINTENANCE_DATABASE: &str = "postgres";

/// How long one attempt to connect through the socket may take. PostgreSQL answers in
/// milliseconds unless the machine is overloaded.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// Connects to the database, creating it if it does not exist. The error says what is missing.
pub(super) async fn ensure_database(socket_dir: &Path, name: &str) -> Result<(), String> {
    match tokio::time::timeout(CONNECT_LIMIT, connect_or_create(socket_dir, name)).await {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(_) => Err("it accepts connections but does not answer".to_owned()),
    }
}

async fn connect_or_create(socket_dir: &Path, name: &str) -> Result<(), sqlx::Error> {
    match options_for(socket_dir, name, name).connect().await {
        Ok(connection) => return connection.close().await,
        // 3D000 is invalid_catalog_name: there is none yet.
        Err(error) if has_code(&error, &["3D000"]) => {}
        Err(error) => return Err(error),
    }
    let options = options_for(socket_dir, name, MAINTENANCE_DATABASE);
    let mut connection = PgConnection::connect_with(&options).await?;
    let quoted = name.replace('"', "\"\"");
    let statement = AssertSqlSafe(format!("CREATE DATABASE \"{quoted}\""));
    match sqlx::raw_sql(statement).execute(&mut connection).await {
        Ok(_) => {}
        // 42P04 is duplicate_database, and 23505 unique_violation: another process that attached at
        // the same moment was faster, or is creating it just now.
        Err(error) if has_code(&error, &["42P04", "23505"]) => {}
        Err(error) => return Err(error),
    }
    connection.close().await
}

/// The options for one database, complete so that `PGHOST` and its siblings do not matter.
pub(super) fn options_for(socket_dir: &Path, role: &str, database: &str) -> PgConnectOptions {
    PgConnectOptions::new_without_pgpass()
        .socket(socket_dir)
        .port(PORT)
        .username(role)
        .database(database)
        .ssl_mode(PgSslMode::Disable)
}
