//! What a server must have, and what it had better have: a list for the person who sets it up.
//!
//! Promise: it changes nothing. What must hold is decided by what the start decides by, so that a
//! server with no [`Verdict::NotOk`] is one that a start accepts.

use charge_once_idempotency as idempotency;
use sqlx::{
    Connection, PgConnection,
    postgres::{PgConnectOptions, PgSslMode},
};
use tokio::time::{Instant, timeout_at};

use super::{
    CLOCKS_APART_MAX, DatabaseSettings, FIRST_CONNECTION_LIMIT, StartError, WhenRefused,
    find_schema, first_connection, fitness, pin_settings, plain, pooler, url::options_of,
};
use crate::has_code;

/// The oldest PostgreSQL that is supported, as it numbers itself.
const VERSION_MIN: u32 = 150_000;

/// Two replicas, and one more while they are replaced.
const PROCESSES: i64 = 3;

/// Most tables that a line names.
const NAMED_MAX: usize = 5;

/// What is known of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is as it must be.
    Ok,
    /// It must be changed.
    NotOk,
    /// It had better be changed.
    Advice,
    /// It can't be seen from here.
    Unknown,
}

/// One line of the list.
#[derive(Debug)]
pub struct Finding {
    /// PostgreSQL's name of the setting, or what the line is about.
    pub setting: &'static str,
    /// What is known of it.
    pub verdict: Verdict,
    /// What was seen.
    pub found: String,
    /// What to do, unless it is as it must be.
    pub remedy: Option<String>,
}

/// Looks at the server at `url`, of which one process takes so many connections. Fails if there is
/// no connection, or it breaks.
pub async fn checklist(
    url: &str,
    settings: DatabaseSettings,
    connections: u32,
    when_refused: WhenRefused,
) -> Result<Vec<Finding>, StartError> {
    let own = options_of(url)?;
    let limit = match when_refused {
        WhenRefused::WaitFor(limit) => limit,
        WhenRefused::TryAgain | WhenRefused::GiveUp => FIRST_CONNECTION_LIMIT,
    };
    let until = Instant::now() + limit;
    let options = pin_settings(own.clone(), settings.session_limits());
    let connection = first_connection(&options, when_refused, until, limit).await?;
    let mut list = Checklist {
        connection,
        options,
        own,
        settings,
        findings: Vec::new(),
    };
    match timeout_at(until, list.look(i64::from(connections))).await {
        Ok(looked) => looked.map_err(StartError::Unreachable)?,
        Err(_) => return Err(StartError::Silent(limit)),
    }
    // All is seen: whether the end of the session is answered tells nothing.
    let _ = list.connection.close().await;
    Ok(list.findings)
}

/// The list while it is made.
struct Checklist {
    connection: PgConnection,
    /// How charge-once connects.
    options: PgConnectOptions,
    /// How others with its role connect, which pin nothing.
    own: PgConnectOptions,
    settings: DatabaseSettings,
    findings: Vec<Finding>,
}

impl Checklist {
    async fn look(&mut self, connections: i64) -> Result<(), sqlx::Error> {
        let is_own = pooler::is_own_session(&mut self.connection, &self.options).await?;
        let found = match is_own {
            true => "one for each connection",
            false => "shared by a connection pooler",
        };
        let broken = (!is_own).then_some(StartError::SharedSessions);
        self.line("sessions", found, Verdict::NotOk, broken);
        if !is_own {
            // What follows prepares statements, and those would be another client's.
            return Ok(());
        }
        self.server().await?;
        self.pinned().await?;
        self.failover().await?;
        self.room(connections).await?;
        self.transport().await?;
        self.schema().await?;
        self.rights().await?;
        self.locale().await
    }

    /// A line that is ok if there is nothing to do.
    fn line(
        &mut self,
        setting: &'static str,
        found: impl Into<String>,
        otherwise: Verdict,
        remedy: Option<impl ToString>,
    ) {
        self.findings.push(Finding {
            setting,
            verdict: match remedy {
                None => Verdict::Ok,
                Some(_) => otherwise,
            },
            found: found.into(),
            remedy: remedy.map(|remedy| remedy.to_string()),
        });
    }

    /// What holds for the whole server.
    async fn server(&mut self) -> Result<(), sqlx::Error> {
        let connection = &mut self.connection;
        let version = fitness::current_setting(connection, "server_version").await?;
        let number = connection.server_version_num();
        let is_standby = fitness::is_standby(connection).await?;
        let durability = fitness::durability(connection).await?;
        let apart = fitness::clocks_apart(connection).await?;

        let too_old = number.is_none_or(|number| number < VERSION_MIN);
        let upgrade = too_old.then_some("charge-once needs PostgreSQL 15 or later");
        self.line("server_version", version, Verdict::NotOk, upgrade);
        let role = match is_standby {
            true => "a standby",
            false => "the primary",
        };
        let broken = is_standby.then_some(StartError::Standby);
        self.line("recovery", role, Verdict::NotOk, broken);
        for (setting, found) in durability {
            let broken = (found != "on").then(|| StartError::Unsafe {
                setting,
                found: found.clone(),
            });
            self.line(setting, found, Verdict::NotOk, broken);
        }
        let broken = (apart > CLOCKS_APART_MAX).then(|| StartError::ClocksApart {
            seconds: apart.num_seconds(),
        });
        let found = format!("at least {} ms apart", apart.num_milliseconds());
        self.line("clocks", found, Verdict::NotOk, broken);
        Ok(())
    }

    /// What each session of charge-once asks for, and what others of its role have.
    async fn pinned(&mut self) -> Result<(), sqlx::Error> {
        let limits = self.settings.session_limits();
        let dropped = pooler::dropped_settings(&mut self.connection, limits).await?;
        let mut others = PgConnection::connect_with(&self.own).await?;
        for (setting, needed) in idempotency::pinned_settings(limits) {
            let found = fitness::current_setting(&mut self.connection, setting).await?;
            let default = fitness::current_setting(&mut others, setting).await?;
            let set = pooler::set_for_the_role(&self.options, setting, &format!("'{needed}'"));
            if dropped.iter().any(|(name, _)| *name == setting) {
                let broken = StartError::NotPinned { remedy: set };
                self.line(setting, found, Verdict::NotOk, Some(broken));
                continue;
            }
            // Other time limits are right for other programs. Weaker promises never are.
            let is_weaker = !setting.ends_with("_timeout") && default != found;
            let advice = is_weaker.then(|| {
                format!("other sessions of this role, such as those of psql, have {default}: {set}")
            });
            self.line(setting, found, Verdict::Advice, advice);
        }
        let looked = self.search_path(&mut others).await;
        let _ = others.close().await;
        looked
    }

    /// Which schema has the tables, whether sessions are pinned to it, and whether others of the
    /// role have it.
    async fn search_path(&mut self, others: &mut PgConnection) -> Result<(), sqlx::Error> {
        let setting = "search_path";
        let connection = &mut self.connection;
        match find_schema(connection, &self.options, self.settings.schema).await {
            Ok((schema, _)) => {
                let advice = (!schema.is_current(others).await?).then(|| {
                    let schema = schema.as_str();
                    let set = pooler::set_for_the_role(&self.options, setting, schema);
                    format!(
                        "other sessions of this role, such as those of psql, have another schema: \
                         {set}"
                    )
                });
                self.line(setting, schema.as_str(), Verdict::Advice, advice);
            }
            Err(StartError::Unreachable(error)) => return Err(error),
            Err(broken) => {
                let found = fitness::current_setting(&mut self.connection, setting).await?;
                self.line(setting, found, Verdict::NotOk, Some(broken));
            }
        }
        Ok(())
    }

    /// Whether what was acknowledged is on a standby as well.
    async fn failover(&mut self) -> Result<(), sqlx::Error> {
        let (standbys, names) = fitness::standbys(&mut self.connection).await?;
        let found = format!("{names:?}, with {standbys} standbys connected");
        let (otherwise, remedy) = match standbys {
            1.. => (
                Verdict::Advice,
                "a failover to a standby loses what it doesn't have yet, and retries charge again: set \
                 synchronous_standby_names",
            ),
            _ => (
                Verdict::Unknown,
                "a provider's standby may not be seen from here: ask whether a failover keeps every \
                 COMMIT that was acknowledged, as a synchronous standby does",
            ),
        };
        let remedy = names.is_empty().then_some(remedy);
        self.line("synchronous_standby_names", found, otherwise, remedy);
        Ok(())
    }

    /// How many processes find connections.
    async fn room(&mut self, needed: i64) -> Result<(), sqlx::Error> {
        // -1 is no limit.
        let room: i64 = sqlx::query_scalar(
            "SELECT least(
                 current_setting('max_connections')::bigint
                     - current_setting('superuser_reserved_connections')::bigint
                     - coalesce(current_setting('reserved_connections', true)::bigint, 0),
                 CASE WHEN rolconnlimit >= 0 THEN rolconnlimit END,
                 CASE WHEN datconnlimit >= 0 THEN datconnlimit END)
               FROM pg_roles, pg_database
              WHERE rolname = current_user AND datname = current_database()",
        )
        .fetch_one(&mut self.connection)
        .await?;
        let found = format!(
            "{room} for this role, which is enough for {} processes",
            room / needed.max(1)
        );
        let wanted = needed * PROCESSES;
        let advice = (room < wanted).then(|| {
            format!(
                "a process takes up to {needed}, and two of them with one more during a rollout take {wanted}: raise \
                 max_connections or the limit of the role, or lower POOL_CONNECTIONS"
            )
        });
        self.line("max_connections", found, Verdict::Advice, advice);
        Ok(())
    }

    /// Whether the way to the server is the server's.
    async fn transport(&mut self) -> Result<(), sqlx::Error> {
        let tls: Option<String> =
            sqlx::query_scalar("SELECT version FROM pg_stat_ssl WHERE pid = pg_backend_pid()")
                .fetch_optional(&mut self.connection)
                .await?
                .flatten();
        let host = self.options.get_host();
        let is_here = self.options.get_socket().is_some()
            || ["localhost", "127.0.0.1", "::1"].contains(&host);
        let is_on = "on".to_owned();
        let (found, advice) = match (self.options.get_ssl_mode(), tls) {
            (_, None) if is_here => ("off, within this machine".to_owned(), None),
            (_, Some(version)) if is_here => (version, None),
            // What PostgreSQL sees may be a pooler's connection. This program's has TLS, or there
            // is none.
            (PgSslMode::VerifyFull, version) => (version.unwrap_or(is_on), None),
            (PgSslMode::Disable | PgSslMode::Allow | PgSslMode::Prefer, None) => (
                "off, across a network".to_owned(),
                Some("passwords and payments can be read on their way"),
            ),
            (
                PgSslMode::Disable
                | PgSslMode::Allow
                | PgSslMode::Prefer
                | PgSslMode::Require
                | PgSslMode::VerifyCa,
                version,
            ) => (
                format!(
                    "{}, not verified by the server's name",
                    version.unwrap_or(is_on)
                ),
                Some("another server could answer in its place"),
            ),
        };
        let advice = advice.map(|why| {
            format!(
                "{why}: add sslmode=verify-full to DATABASE_URL, and sslrootcert=… if the certificate comes from a \
                 private authority"
            )
        });
        self.line("tls", found, Verdict::Advice, advice);
        Ok(())
    }

    /// Whether the migrations of this release are applied.
    async fn schema(&mut self) -> Result<(), sqlx::Error> {
        let current = fitness::schema_is_current(&mut self.connection, self.settings.schema).await;
        match current {
            Ok(is_current) => {
                let found = if is_current { "current" } else { "not current" };
                let broken = (!is_current).then_some(StartError::SchemaNotCurrent);
                self.line("schema", found, Verdict::NotOk, broken);
            }
            // 42501 is insufficient_privilege: the line about rights says more.
            Err(error) if has_code(&error, &["42501"]) => {
                let remedy = "grant the role its rights";
                self.line("schema", plain(&error), Verdict::Unknown, Some(remedy));
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Whether the role may do what a server does, and no more. That migrations ran is written down
    /// by another role.
    async fn rights(&mut self) -> Result<(), sqlx::Error> {
        let missing: Vec<String> = sqlx::query_scalar(
            "SELECT verb || ' on ' || relname
               FROM pg_class
              CROSS JOIN unnest(ARRAY['SELECT', 'INSERT']) AS verb
              WHERE relkind IN ('r', 'p')
                AND relnamespace = to_regnamespace(quote_ident(current_schema()))
                AND NOT (verb = 'INSERT'
                         AND (relname LIKE '%migrations' OR relname IN ('shard', 'moving')))
                AND NOT has_any_column_privilege(pg_class.oid, verb)
              ORDER BY relname, verb DESC",
        )
        .fetch_all(&mut self.connection)
        .await?;
        let (is_superuser, may_create): (bool, bool) = sqlx::query_as(
            "SELECT rolsuper, coalesce(has_schema_privilege(current_schema(), 'CREATE'), false)
               FROM pg_roles WHERE rolname = current_user",
        )
        .fetch_one(&mut self.connection)
        .await?;
        if !missing.is_empty() {
            let named: Vec<_> = missing.iter().take(NAMED_MAX).cloned().collect();
            let found = format!(
                "{} are missing, such as {}",
                missing.len(),
                named.join(", ")
            );
            let remedy = "this role can't serve: run deploy/postgres/roles.sql again, and set DATABASE_URL to its role \
                          charge_once_app";
            self.line("rights", found, Verdict::NotOk, Some(remedy));
            return Ok(());
        }
        let (found, is_too_much) = match (is_superuser, may_create) {
            (true, _) => ("those of a superuser", true),
            (false, true) => ("to rows, and to change the schema", true),
            (false, false) => ("to rows only", false),
        };
        let advice = is_too_much.then_some(
            "a server that is taken over could drop what guards the rows: deploy/postgres/roles.sql makes a role that \
             can't",
        );
        self.line("rights", found, Verdict::Advice, advice);
        Ok(())
    }

    /// Whether indexes on text are sorted as the server sorts now.
    async fn locale(&mut self) -> Result<(), sqlx::Error> {
        let changed = fitness::changed_locale(&mut self.connection).await?;
        let (found, advice) = match changed {
            None => ("as when the database was made".to_owned(), None),
            Some((database, made_with, now)) => (
                format!(
                    "{}, and {made_with} when the database was made",
                    now.as_deref().unwrap_or("none")
                ),
                Some(fitness::sort_again(&database)),
            ),
        };
        self.line("locale", found, Verdict::Advice, advice);
        Ok(())
    }
}
