//! Why the database can't be used: at the start, by a read, and by a write.

use std::time::Duration;

use charge_once_idempotency::Failure;
use sqlx::migrate::MigrateError;

/// Why the database can't be used at the start. Messages are for the person who starts it.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The URL isn't one.
    #[error("DATABASE_URL must be a URL such as postgres://user:password@host:5432/database: {0}")]
    Url(#[source] sqlx::Error),
    /// A part of the URL that would have no effect.
    #[error("DATABASE_URL has the parameter {0}, which has no effect here: take it out of the URL")]
    UnknownParameter(String),
    /// No connection.
    #[error(
        "the database doesn't answer: {}. Is DATABASE_URL right, and is PostgreSQL running there?",
        plain(.0)
    )]
    Unreachable(#[source] sqlx::Error),
    /// A connection without an answer for so long.
    #[error(
        "the database accepts connections but said nothing within {} seconds. Is \
         DATABASE_URL right, and is it a PostgreSQL that runs there?",
        .0.as_secs()
    )]
    Silent(Duration),
    /// A pooler that doesn't know what connections ask for.
    #[error(
        "a connection pooler in front of the database refuses what connections ask for at their start: \
         {}. With PgBouncer, set ignore_startup_parameters = extra_float_digits, options and \
         pool_mode = session; docs/deployment.md says what else",
        plain(.0)
    )]
    StartupRefused(#[source] sqlx::Error),
    /// A pooler that gives each transaction another session.
    #[error(
        "a connection pooler in front of the database shares sessions among clients: the prepared \
         statements, locks and time limits of one would be another's. With PgBouncer, set \
         pool_mode = session for this database, or connect without the pooler; the prepared statements \
         of its version 1.21 alone are not enough"
    )]
    SharedSessions,
    /// A pooler that drops what connections ask for.
    #[error(
        "a connection pooler in front of the database drops what charge-once asks for at the start of \
         each connection. Set it for the role: {remedy}"
    )]
    NotPinned {
        /// Statements that do.
        remedy: String,
    },
    /// A pooler that drops where the tables are to be made, and the role, quoted.
    #[error(
        "a connection pooler in front of the database drops the search_path of DATABASE_URL. Take it out of the \
         URL, and set it for the role: ALTER ROLE {0} SET search_path = …;"
    )]
    SearchPathDropped(String),
    /// Two sets of tables: a retry that meets the other one is executed again.
    #[error(
        "the tables ({tables}) are in several schemas of this database, {schemas}: a request that is known in one \
         would have a second effect in another. Stop all servers, keep the schema with the records, and drop \
         the tables of every other one. Another program with such tables needs a database of its own"
    )]
    SeveralSchemas {
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
    AnotherSearchPath {
        /// The schema that has them.
        found: String,
        /// The session's `search_path`.
        asked: String,
    },
    /// There are no tables yet, and no schema of the `search_path` to make them in.
    #[error(
        "search_path ({0}) names no schema that exists and that the role may use. Create the schema, and grant \
         the role USAGE on it"
    )]
    NoSchema(String),
    /// The schema that has the tables is closed to the role.
    #[error(
        "the tables are in the schema {0}, which the role may not use: GRANT USAGE ON SCHEMA {0} to it, \
         and its rights to the tables"
    )]
    SchemaNotUsable(String),
    /// A server that can lose what it acknowledged.
    #[error(
        "the database has {setting}={found}, but charge-once needs {setting}=on: otherwise a crash could \
         lose charges that were acknowledged. Set {setting}=on on the server"
    )]
    Unsafe {
        /// The setting's name.
        setting: &'static str,
        /// What the session has.
        found: String,
    },
    /// Ids are made by one clock, `created_at` by the other.
    #[error(
        "this machine's clock and the database's are {seconds} seconds apart, and 30 are allowed: \
         lists would miss objects. Set both clocks, by NTP for instance"
    )]
    ClocksApart {
        /// How far, in seconds.
        seconds: i64,
    },
    /// A file that was changed, or a migration that failed.
    #[error("the schema could not be brought up to date: {}", plain_of_migration(.0))]
    Migration(#[from] MigrateError),
    /// An older schema than this release can take over, or one from elsewhere.
    #[error(
        "the migrations in the table {table} are neither this release's nor all of {release}'s, so the \
         schema is left as it is. If it is an earlier {release}'s, let the last {release} migrate it, and \
         then start this release: the notes on this release say how. If it is another program's, set \
         DATABASE_URL to the right database"
    )]
    AnotherSchema {
        /// Where they are counted.
        table: &'static str,
        /// The release that can be taken over.
        release: &'static str,
    },
    /// A server that knows this shard of several would let accounts be made twice.
    #[error(
        "the database is the shard {0} of a service with several. Set SHARD_URLS as its other servers \
         have it"
    )]
    OneOfSeveral(String),
    /// A shard that was restored from before an account moved, for instance.
    #[error(
        "the account {account} lives in the shards {first} and {second}: a request could have its effect \
         in both. Remove it from the one that isn't its home; docs/scale.md says how an account moves"
    )]
    AccountTwice {
        /// The account's id.
        account: uuid::Uuid,
        /// One shard.
        first: String,
        /// The other one.
        second: String,
    },
    /// A server that can't be written to.
    #[error(
        "the database is a standby, which can't be written to. Set DATABASE_URL to the primary"
    )]
    Standby,
    /// One of several databases can't be used.
    #[error("the shard {name}: {error}")]
    OfShard {
        /// Its name.
        name: String,
        /// Why.
        #[source]
        error: Box<StartError>,
    },
    /// A database that has this other name for good.
    #[error(
        "SHARD_URLS, or DATABASE_URL for the shard main, leads to the database of the shard {0}. A shard \
         keeps its name and its database"
    )]
    AnotherShard(String),
    /// A database with accounts that may be another shard's, too.
    #[error(
        "this database has accounts, but only an empty one becomes a shard: a copy of another shard would \
         serve the same accounts a second time"
    )]
    ShardNotEmpty,
    /// Not migrated, and not allowed to.
    #[error("the schema is not current: run `charge-once migrate`, or set MIGRATE_ON_START=true")]
    SchemaNotCurrent,
}

impl StartError {
    /// Of this one of several databases.
    pub(super) fn of_shard(self, name: &str) -> Self {
        Self::OfShard {
            name: name.to_owned(),
            error: Box::new(self),
        }
    }

    /// Why there is no connection.
    pub(super) fn of_connection(error: sqlx::Error) -> Self {
        let is_refused = error
            .as_database_error()
            .is_some_and(|error| error.message().contains("unsupported startup parameter"));
        match is_refused {
            true => Self::StartupRefused(error),
            false => Self::Unreachable(error),
        }
    }

    /// Whether the database is down, and may be what it should be when it is up again. Everything
    /// else is a mistake that a person must mend.
    pub(super) fn is_outage(&self) -> bool {
        let Self::Unreachable(error) = self else {
            return matches!(self, Self::Silent(_) | Self::Standby);
        };
        // Or PostgreSQL says that it stops, starts, or has no connection left.
        let code = error.as_database_error().and_then(|error| error.code());
        matches!(error, sqlx::Error::Io(_))
            || code.is_some_and(|code| code.starts_with("57P") || code.starts_with("53"))
    }
}

/// Why a read failed.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The database refused, or can't be reached.
    #[error(
        "the database doesn't answer this: {}. DATABASE_URL must be the servers', with a role that may read it",
        plain(.0)
    )]
    Database(#[source] sqlx::Error),
    /// It was down when this process started.
    #[error("the database has not passed the checks of a start yet")]
    NotChecked,
    /// No answer in time.
    #[error("the database deadline is over")]
    Deadline,
    /// A defect.
    #[error("a read panicked")]
    Panicked,
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Database(error) => error.into(),
            ReadError::NotChecked | ReadError::Deadline => Self::unavailable(error),
            ReadError::Panicked => Self::internal(error),
        }
    }
}

/// Why a write failed, or why its outcome is unknown.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The database refused it, or can't be reached: nothing was written.
    #[error(
        "the database doesn't store this: {}. DATABASE_URL must be the servers', with a role that may write it",
        plain(.0)
    )]
    Database(#[from] sqlx::Error),
    /// Nothing was begun: the database was down when this process started.
    #[error("the database has not passed the checks of a start yet")]
    NotChecked,
    /// Nothing was begun: the server can't be written to now, or must not be.
    #[error("no transaction can begin: {}", plain(.0))]
    Begin(#[source] sqlx::Error),
    /// No answer to COMMIT: both are possible.
    #[error("COMMIT was not acknowledged, the outcome is unknown: {}", plain(.0))]
    Commit(#[source] sqlx::Error),
    /// No answer in time.
    #[error("the database deadline is over, the outcome is unknown")]
    Deadline,
    /// A defect.
    #[error("a write panicked")]
    Panicked,
}

impl From<WriteError> for Failure {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Database(error) => error.into(),
            WriteError::NotChecked
            | WriteError::Begin(_)
            | WriteError::Commit(_)
            | WriteError::Deadline => Self::unavailable(error),
            WriteError::Panicked => Self::internal(error),
        }
    }
}

/// An error as a person reads it. sqlx adds the line of PostgreSQL's own source, which looks like
/// one of the statement or of the URL.
pub fn plain(error: &sqlx::Error) -> String {
    match error.as_database_error() {
        Some(error) => error.message().to_owned(),
        None => error.to_string(),
    }
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "all others have no error of PostgreSQL's"
)]
pub(super) fn plain_of_migration(error: &MigrateError) -> String {
    match error {
        MigrateError::Execute(error) => plain(error),
        MigrateError::ExecuteMigration(error, version) => {
            format!("the migration {version}: {}", plain(error))
        }
        other => other.to_string(),
    }
}
