//! The schema of PostgreSQL that has the tables: found once, and pinned in each session.
//!
//! PostgreSQL's `search_path` begins with a schema named after the role, and a role, a database or
//! a URL may set another one. A second set of tables would have no record of what the first one
//! executed.
//!
//! Promise: no migration makes a second set, and each pinned session sees the set that was found.

use sqlx::PgConnection;

use super::StartError;

/// A schema of PostgreSQL, as `search_path` names it: quoted where the name needs that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SchemaName(String);

/// What a session sees of schemas, each as `search_path` names it.
#[derive(sqlx::FromRow)]
struct Seen {
    /// Those that have the tables.
    having: Vec<String>,
    /// Where the session would make tables.
    current: Option<String>,
    /// Those of its `search_path` that exist.
    selected: Vec<String>,
    search_path: String,
    /// Whether the connection asked for this `search_path`, and not a default of the role, the
    /// database or the server.
    is_asked_for: bool,
}

async fn look(connection: &mut PgConnection, tables: &[&str]) -> Result<Seen, sqlx::Error> {
    // All schemas, also those that the role may not use. Temporary tables are other sessions'.
    sqlx::query_as(
        "SELECT ARRAY(SELECT quote_ident(nspname)
                        FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
                       WHERE relname = ANY ($1) AND relkind IN ('r', 'p') AND relpersistence <> 't'
                       GROUP BY nspname HAVING count(*) = cardinality($1)
                       ORDER BY nspname) AS having,
                quote_ident(current_schema()) AS current,
                ARRAY(SELECT quote_ident(name) FROM unnest(current_schemas(false)) AS name)
                    AS selected,
                setting AS search_path,
                source = 'client' AS is_asked_for
           FROM pg_settings WHERE name = 'search_path'",
    )
    .bind(tables)
    .fetch_one(connection)
    .await
}

impl SchemaName {
    /// The schema that has `tables`, or else the session's current one. From here on it is the only
    /// one of the session. It must be among those that the connection asks for, if it asks for any.
    ///
    /// Processes that make `tables` take turns from before this until they have made them.
    pub(super) async fn find(
        connection: &mut PgConnection,
        tables: &[&str],
    ) -> Result<Self, StartError> {
        let seen = look(connection, tables).await;
        let seen = seen.map_err(StartError::Unreachable)?;
        let found = match &*seen.having {
            [] => {
                let current = seen.current;
                current.ok_or(StartError::NoSchema(seen.search_path))?
            }
            [found] if seen.is_asked_for && !seen.selected.contains(found) => {
                return Err(StartError::AnotherSearchPath {
                    found: found.clone(),
                    asked: seen.search_path,
                });
            }
            [found] => found.clone(),
            several => {
                return Err(StartError::SeveralSchemas {
                    tables: tables.join(", "),
                    schemas: several.join(", "),
                });
            }
        };
        sqlx::query("SELECT set_config('search_path', $1, false)")
            .bind(&found)
            .execute(&mut *connection)
            .await
            .map_err(StartError::Unreachable)?;
        let found = Self(found);
        let is_current = found.is_current(connection).await;
        match is_current.map_err(StartError::Unreachable)? {
            true => Ok(found),
            false => Err(StartError::SchemaNotUsable(found.0)),
        }
    }

    /// Whether no other schema than the session's current one has `tables`.
    pub(super) async fn is_only_current(
        connection: &mut PgConnection,
        tables: &[&str],
    ) -> Result<bool, sqlx::Error> {
        let seen = look(connection, tables).await?;
        Ok(match &*seen.having {
            [] => true,
            [found] => seen.current.as_ref() == Some(found),
            _ => false,
        })
    }

    /// Whether it is the session's current one. It is not where a connection pooler dropped what
    /// [`find_schema`](super::find_schema) asks for.
    pub(super) async fn is_current(
        &self,
        connection: &mut PgConnection,
    ) -> Result<bool, sqlx::Error> {
        let current: Option<String> = sqlx::query_scalar("SELECT quote_ident(current_schema())")
            .fetch_one(connection)
            .await?;
        Ok(current.as_ref() == Some(&self.0))
    }

    /// As `search_path` names it.
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}
