//! The schema of PostgreSQL that has the tables: found once, and pinned in each session.
//!
//! PostgreSQL's `search_path` begins with a schema named after the role, and a role, a database or
//! a URL may set another one. A second set of tables would have no record of what the first one
//! executed.
//!
//! Promise: no migration makes a second set, and each pinned session sees the set that was found.

use sqlx::{PgConnection, postgres::PgConnectOptions};

use super::plain;

/// A schema of PostgreSQL, as `search_path` names it: quoted where the name needs that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SchemaName(String);

/// Why the tables have no schema that a session could be pinned to.
#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    /// A retry that meets the other set is executed again.
    #[error(
        "the tables ({tables}) are in several schemas of this database, {schemas}: a request that is known in one \
         would have a second effect in another. Stop all servers, keep the schema with the records, and drop \
         the tables of every other one. Another program with such tables needs a database of its own"
    )]
    Several {
        /// Those by which a schema is recognized.
        tables: String,
        /// The schemas.
        schemas: String,
    },
    /// Tables made where the session looks would be a second set.
    #[error(
        "the tables are in the schema {found}, and the connection asks for {asked}: a second set of tables \
         would know no key of the first. Name that schema in the search_path of the connection, or leave \
         search_path out"
    )]
    Elsewhere {
        /// The schema that has them.
        found: String,
        /// The session's `search_path` or schema.
        asked: String,
    },
    /// There are no tables yet, and no schema to make them in.
    #[error(
        "search_path ({asked}) names no schema that exists and that the role may use. Create the schema, and grant \
         the role USAGE on it"
    )]
    NoneSelected {
        /// The session's `search_path`.
        asked: String,
    },
    /// The schema that has the tables is closed to the role.
    #[error(
        "the tables are in the schema {found}, which the role may not use: GRANT USAGE ON SCHEMA {found} to it, \
         and its rights to the tables"
    )]
    NotUsable {
        /// The schema that has them.
        found: String,
    },
    /// It can't be looked at.
    #[error("{}", plain(.0))]
    Database(#[from] sqlx::Error),
}

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
    ) -> Result<Self, SchemaError> {
        let seen = look(connection, tables).await?;
        let found = match &*seen.having {
            [] => seen.current.ok_or(SchemaError::NoneSelected {
                asked: seen.search_path,
            })?,
            [found] if seen.is_asked_for && !seen.selected.contains(found) => {
                return Err(SchemaError::Elsewhere {
                    found: found.clone(),
                    asked: seen.search_path,
                });
            }
            [found] => found.clone(),
            several => return Err(SchemaError::several(tables, several)),
        };
        sqlx::query("SELECT set_config('search_path', $1, false)")
            .bind(&found)
            .execute(&mut *connection)
            .await?;
        let found = Self(found);
        match found.is_current(connection).await? {
            true => Ok(found),
            false => Err(SchemaError::NotUsable { found: found.0 }),
        }
    }

    /// Fails where another schema than the session's current one has `tables`.
    pub(super) async fn ensure_only_current(
        connection: &mut PgConnection,
        tables: &[&str],
    ) -> Result<(), SchemaError> {
        let seen = look(connection, tables).await?;
        match &*seen.having {
            [] => Ok(()),
            [found] if seen.current.as_ref() == Some(found) => Ok(()),
            [found] => Err(SchemaError::Elsewhere {
                found: found.clone(),
                asked: seen.current.unwrap_or(seen.search_path),
            }),
            several => Err(SchemaError::several(tables, several)),
        }
    }

    /// Whether it is the session's current one. It is not where a connection pooler dropped what
    /// [`SchemaName::pin`] asks for.
    pub(super) async fn is_current(
        &self,
        connection: &mut PgConnection,
    ) -> Result<bool, sqlx::Error> {
        let current: Option<String> = sqlx::query_scalar("SELECT quote_ident(current_schema())")
            .fetch_one(connection)
            .await?;
        Ok(current.as_ref() == Some(&self.0))
    }

    /// Makes it the only schema of each session, whatever the defaults are and `options` say.
    pub(super) fn pin(&self, options: PgConnectOptions) -> PgConnectOptions {
        // The last one counts.
        options.options([("search_path", &self.0)])
    }

    /// As `search_path` names it.
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl SchemaError {
    fn several(tables: &[&str], schemas: &[String]) -> Self {
        Self::Several {
            tables: tables.join(", "),
            schemas: schemas.join(", "),
        }
    }
}
