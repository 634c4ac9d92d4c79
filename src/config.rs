//! Configuration, by environment variables only.
//!
//! Promise: each variable is described once, in [`VARIABLES`]; `--help` and the table in
//! `docs/configuration.md` come from it. A bad value stops the start and names the variable and what
//! it should be.

use std::{
    fmt::Write, net::SocketAddr, num::NonZeroU32, path::PathBuf, str::FromStr, time::Duration,
};

use crate::{
    domain::webhook_delivery::Pauses,
    idempotency::{CLAIM_WAIT, COMPLETION_RESERVE, ROW_LOCK_WAIT},
};

/// The key that the embedded mode's account has unless `DEV_API_KEY` sets another.
pub const DEFAULT_DEV_API_KEY: &str = "sk_test_charge_once_dev";

/// The retention below which retries of ordinary clients would meet a key that is dead already.
const TTL_MIN: Duration = Duration::from_secs(60);
/// Longer retention is possible but a mistake: the table holds every key of the window.
const TTL_MAX: Duration = Duration::from_secs(400 * 24 * 3600);

/// A receiver that takes longer should answer first and work afterwards.
const WEBHOOK_TIMEOUT_MAX: Duration = Duration::from_secs(60);
/// With longer pauses an event would come after everybody has given it up.
const WEBHOOK_RETRY_LIMIT: Duration = Duration::from_secs(7 * 24 * 3600);

const ADDRESS_EXPECTED: &str = "an IP address and a port, such as 127.0.0.1:8080";

/// Longest PROCESSOR_NAME; one that is made of a URL is about as long as a host name may be.
const PROCESSOR_NAME_MAX_CHARS: usize = 255;

/// What part of the processor's key window is left unused: an hour of a day, for clocks that differ.
const KEY_WINDOW_MARGIN: u32 = 24;

/// One environment variable.
#[derive(Debug)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// The value it has when it is unset or empty; `None` if that is a state of its own.
    pub default: Option<&'static str>,
    /// What it is, its unit, and why one would change it.
    pub about: &'static str,
}

const fn variable(
    name: &'static str,
    default: Option<&'static str>,
    about: &'static str,
) -> Variable {
    Variable {
        name,
        default,
        about,
    }
}

/// Every variable that charge-once reads.
pub const VARIABLES: &[Variable] = &[
    variable(
        "BIND_ADDRESS",
        Some("127.0.0.1:8080"),
        "Address and port to listen on.",
    ),
    variable(
        "DATABASE_URL",
        None,
        "PostgreSQL 15 or later, as postgres://user:password@host/database. Unset: charge-once \
         runs a private PostgreSQL of its own in DATA_DIR.",
    ),
    variable(
        "DATA_DIR",
        Some("./.charge-once"),
        "Where the private PostgreSQL keeps its data.",
    ),
    variable(
        "PG_BIN_DIR",
        None,
        "Folder of PostgreSQL's programs (initdb, postgres), if they are not found by themselves.",
    ),
    variable(
        "DEV_API_KEY",
        None,
        "An API key for the account dev: sk_test_ and at least 8 more characters. Unset: \
         sk_test_charge_once_dev with the private PostgreSQL, none with DATABASE_URL.",
    ),
    variable(
        "IDEMPOTENCY_TTL",
        Some("24h"),
        "How long a key and its outcome are kept, from the key's first use; 60s to 400d.",
    ),
    variable(
        "ALLOW_SHORT_TTL",
        Some("false"),
        "Allows IDEMPOTENCY_TTL under 60s, for tests and demonstrations.",
    ),
    variable(
        "PROCESSOR_URL",
        None,
        "The card processor, as http://host:port or https://…. Unset: it is simulated in this \
         process, and every request is one transaction.",
    ),
    variable(
        "PROCESSOR_NAME",
        None,
        "What charges remember the card processor by: only who took the money is asked to give it back. \
         Set it before the processor's address changes, to the scheme, host and port that it had. \
         Unset: scheme, host and port of PROCESSOR_URL.",
    ),
    variable(
        "PROCESSOR_TIMEOUT",
        Some("10s"),
        "Longest time for one call of the card processor at PROCESSOR_URL.",
    ),
    variable(
        "IDEMPOTENCY_LEASE",
        Some("30s"),
        "How long a request of several transactions, a checkout or with PROCESSOR_URL a payment, is \
         trusted to be at work before another may go on with it; longer than PROCESSOR_TIMEOUT, \
         DATABASE_DEADLINE and 5s together.",
    ),
    variable(
        "EXPIRY_SWEEP_INTERVAL",
        Some("60s"),
        "Pause between two sweeps of expired keys.",
    ),
    variable(
        "IN_FLIGHT_WAIT_V1",
        Some("10s"),
        "How long a duplicate under /v1 waits for the first request's answer; at most 30s.",
    ),
    variable(
        "POOL_CONNECTIONS",
        Some("10"),
        "Size of the connection pool; 2 to 1000.",
    ),
    variable(
        "POOL_WAIT",
        Some("1s"),
        "Longest wait for a pooled connection, then 503.",
    ),
    variable(
        "STATEMENT_TIMEOUT",
        Some("3s"),
        "Longest time one SQL statement may take.",
    ),
    variable(
        "DATABASE_DEADLINE",
        Some("5s"),
        "Longest time from BEGIN to COMMIT, then 503.",
    ),
    variable(
        "IDLE_IN_TRANSACTION_TIMEOUT",
        Some("6s"),
        "After this PostgreSQL itself ends a transaction that lost its client.",
    ),
    variable(
        "REQUEST_TIMEOUT",
        Some("8s"),
        "Longest time for a request of one transaction and its own work; waiting for another \
         request with the same key comes on top. Looking its API key up and reading its body share what POOL_WAIT and \
         DATABASE_DEADLINE leave.",
    ),
    variable(
        "BODY_LIMIT",
        Some("65536"),
        "Largest request body, in bytes; 1024 to 1048576.",
    ),
    variable(
        "RATE_LIMIT",
        Some("1000"),
        "Requests per second, and in a burst, that each process takes from one account; beyond it \
         429. 0 is no limit.",
    ),
    variable(
        "WORKERS",
        Some("0"),
        "HTTP worker threads; 0 is one for each core.",
    ),
    variable(
        "MIGRATE_ON_START",
        Some("true"),
        "Brings the schema up to date at the start. A lock in the database makes it safe with \
         several replicas.",
    ),
    variable(
        "DRAIN_TIMEOUT",
        Some("20s"),
        "How long requests in flight may take to finish after SIGTERM.",
    ),
    variable(
        "WEBHOOK_ALLOW_PRIVATE",
        Some("false"),
        "Lets webhooks go to private and local addresses, for development. In production it would \
         be a way into your network.",
    ),
    variable(
        "WEBHOOK_TIMEOUT",
        Some("10s"),
        "Longest time for one attempt to deliver a webhook; at most 60s. Three times as long after \
         an attempt began, another replica takes over from one that died.",
    ),
    variable(
        "WEBHOOK_RETRY_MIN",
        Some("5s"),
        "Shortest pause after a failed attempt to deliver a webhook. Pauses double, with jitter.",
    ),
    variable(
        "WEBHOOK_RETRY_MAX",
        Some("8h"),
        "Longest pause between two attempts to deliver a webhook, at least twice the shortest; at \
         most 7d. After 24 attempts the delivery has failed.",
    ),
    variable(
        "WEBHOOK_POLL_INTERVAL",
        Some("1s"),
        "How often each replica looks for webhooks to deliver.",
    ),
    variable(
        "PROCESSOR_BIND_ADDRESS",
        Some("127.0.0.1:8081"),
        "Address and port that `charge-once processor` listens on.",
    ),
    variable(
        "PROCESSOR_DATABASE_URL",
        None,
        "A database that `charge-once processor` has for itself. Unset: a private PostgreSQL in \
         PROCESSOR_DATA_DIR.",
    ),
    variable(
        "PROCESSOR_DATA_DIR",
        Some("./.charge-once-processor"),
        "Where the private PostgreSQL of `charge-once processor` keeps its data.",
    ),
    variable(
        "PROCESSOR_KEY_WINDOW",
        Some("24h"),
        "How long the processor remembers a key, `charge-once processor` too. The same instruction \
         sent later is a new one, so past this nothing is sent again.",
    ),
    variable(
        "LOG_FORMAT",
        None,
        "pretty or json. Unset: pretty on a terminal, else json.",
    ),
    variable(
        "RUST_LOG",
        Some("info"),
        "Which log lines are written, as tracing's EnvFilter.",
    ),
];

/// The whole configuration, checked.
#[derive(Debug, Clone)]
pub struct Config {
    /// `BIND_ADDRESS`
    pub bind_address: SocketAddr,
    /// Where the data is.
    pub database: DatabaseLocation,
    /// The dev account's key, if there is to be one.
    pub dev_api_key: Option<String>,
    /// `IDEMPOTENCY_TTL`
    pub idempotency_ttl: Duration,
    /// `IDEMPOTENCY_LEASE`
    pub lease: Duration,
    /// `PROCESSOR_URL` and what belongs to it; `None` simulates the processor in this process.
    pub processor: Option<ProcessorConfig>,
    /// `EXPIRY_SWEEP_INTERVAL`
    pub expiry_sweep_interval: Duration,
    /// `IN_FLIGHT_WAIT_V1`
    pub in_flight_wait_v1: Duration,
    /// `POOL_CONNECTIONS`
    pub pool_connections: u32,
    /// The timeout ladder.
    pub timeouts: Timeouts,
    /// `BODY_LIMIT`, bytes.
    pub body_limit: usize,
    /// `RATE_LIMIT`, requests per second; `None` is no limit.
    pub rate_limit: Option<NonZeroU32>,
    /// `WORKERS`; `None` is one for each core.
    pub workers: Option<usize>,
    /// `MIGRATE_ON_START`
    pub migrate_on_start: bool,
    /// `DRAIN_TIMEOUT`
    pub drain_timeout: Duration,
    /// `WEBHOOK_…`
    pub webhooks: Webhooks,
    /// For `charge-once processor` only.
    pub processor_service: ProcessorService,
}

/// How webhooks are delivered.
#[derive(Debug, Clone, Copy)]
pub struct Webhooks {
    /// `WEBHOOK_ALLOW_PRIVATE`
    pub allow_private: bool,
    /// `WEBHOOK_TIMEOUT`
    pub timeout: Duration,
    /// `WEBHOOK_RETRY_MIN`, `WEBHOOK_RETRY_MAX`
    pub pauses: Pauses,
    /// `WEBHOOK_POLL_INTERVAL`
    pub poll_interval: Duration,
}

/// The card processor's simulator as a process of its own.
#[derive(Debug, Clone)]
pub struct ProcessorService {
    /// `PROCESSOR_BIND_ADDRESS`
    pub bind_address: SocketAddr,
    /// `PROCESSOR_DATABASE_URL` or `PROCESSOR_DATA_DIR`
    pub database: DatabaseLocation,
    /// `PROCESSOR_KEY_WINDOW`
    pub key_window: Duration,
}

/// Which PostgreSQL to use.
#[derive(Debug, Clone)]
pub enum DatabaseLocation {
    /// Somebody else runs it.
    Url(String),
    /// This process runs it.
    Embedded {
        /// `DATA_DIR`
        data_dir: PathBuf,
        /// `PG_BIN_DIR`
        bin_dir: Option<PathBuf>,
    },
}

/// The card processor across a network.
#[derive(Debug, Clone)]
pub struct ProcessorConfig {
    /// `PROCESSOR_URL`
    pub url: String,
    /// `PROCESSOR_NAME`, or scheme, host and port: what operations and charges remember of it.
    pub name: String,
    /// `PROCESSOR_KEY_WINDOW` less a margin: how old an operation may be to be sent again.
    pub send_again_within: Duration,
    /// `PROCESSOR_TIMEOUT`
    pub timeout: Duration,
}

/// Each longer than the one before, so that the innermost limit fires first and is told apart.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// `POOL_WAIT`
    pub pool_wait: Duration,
    /// `STATEMENT_TIMEOUT`
    pub statement: Duration,
    /// `DATABASE_DEADLINE`
    pub database_deadline: Duration,
    /// `IDLE_IN_TRANSACTION_TIMEOUT`
    pub idle_in_transaction: Duration,
    /// `REQUEST_TIMEOUT`
    pub request: Duration,
}

impl Timeouts {
    /// What is left of a request's time until its work begins: for looking its API key up and for
    /// reading its body.
    pub fn before_work(&self) -> Duration {
        self.request
            .saturating_sub(self.pool_wait + self.database_deadline)
    }
}

/// A variable has a value that can't be used.
#[derive(Debug, thiserror::Error)]
#[error("{variable} must be {expected}")]
pub struct ConfigError {
    /// Its name.
    pub variable: &'static str,
    /// What it should be. The value itself isn't repeated: it may be a secret.
    pub expected: String,
}

/// Where variables are read from; a function, so that tests need no global state.
struct Source<F>(F);

impl<F: Fn(&str) -> Option<String>> Source<F> {
    /// An empty value counts as unset: that is how Compose passes on what isn't there.
    fn optional(&self, name: &str) -> Option<String> {
        (self.0)(name).filter(|value| !value.trim().is_empty())
    }

    fn value(&self, name: &'static str) -> String {
        let default = VARIABLES
            .iter()
            .find(|variable| variable.name == name)
            .and_then(|variable| variable.default)
            .unwrap_or_default();
        self.optional(name).unwrap_or_else(|| default.to_owned())
    }

    fn parse<T: FromStr>(&self, name: &'static str, expected: &str) -> Result<T, ConfigError> {
        self.value(name)
            .trim()
            .parse()
            .map_err(|_| bad(name, expected))
    }

    fn number<T: FromStr + PartialOrd>(
        &self,
        name: &'static str,
        range: std::ops::RangeInclusive<T>,
        expected: &str,
    ) -> Result<T, ConfigError> {
        let number = self.parse(name, expected)?;
        if range.contains(&number) {
            Ok(number)
        } else {
            Err(bad(name, expected))
        }
    }

    fn duration(&self, name: &'static str) -> Result<Duration, ConfigError> {
        let expected = "a duration such as 90s, 250ms or 24h, longer than zero";
        match humantime::parse_duration(self.value(name).trim()) {
            Ok(duration) if !duration.is_zero() => Ok(duration),
            Ok(_) | Err(_) => Err(bad(name, expected)),
        }
    }
}

fn bad(variable: &'static str, expected: impl Into<String>) -> ConfigError {
    ConfigError {
        variable,
        expected: expected.into(),
    }
}

impl Config {
    /// Reads and checks the process's environment.
    pub fn from_env() -> Result<Self, ConfigError> {
        Self::from_lookup(|name| std::env::var(name).ok())
    }

    /// The same from anywhere.
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let source = Source(lookup);
        let database = database(&source, "DATABASE_URL", "DATA_DIR")?;
        let timeouts = timeouts(&source)?;
        let lease = lease(&source, &timeouts)?;
        let workers = source.number("WORKERS", 0..=1024, "a number from 0 to 1024")?;
        Ok(Self {
            bind_address: source.parse("BIND_ADDRESS", ADDRESS_EXPECTED)?,
            dev_api_key: dev_api_key(&source, &database)?,
            database,
            idempotency_ttl: idempotency_ttl(&source)?,
            expiry_sweep_interval: source.duration("EXPIRY_SWEEP_INTERVAL")?,
            in_flight_wait_v1: in_flight_wait(&source)?,
            pool_connections: source.number(
                "POOL_CONNECTIONS",
                2..=1000,
                "a number from 2 to 1000",
            )?,
            lease,
            processor: processor(&source, lease)?,
            timeouts,
            body_limit: source.number(
                "BODY_LIMIT",
                1024..=1_048_576,
                "a number of bytes, 1024 to 1048576",
            )?,
            rate_limit: NonZeroU32::new(source.number(
                "RATE_LIMIT",
                0..=1_000_000,
                "a number of requests per second, 0 to 1000000",
            )?),
            workers: (workers > 0).then_some(workers),
            migrate_on_start: source.parse("MIGRATE_ON_START", "true or false")?,
            drain_timeout: source.duration("DRAIN_TIMEOUT")?,
            webhooks: webhooks(&source)?,
            processor_service: ProcessorService {
                bind_address: source.parse("PROCESSOR_BIND_ADDRESS", ADDRESS_EXPECTED)?,
                database: self::database(&source, "PROCESSOR_DATABASE_URL", "PROCESSOR_DATA_DIR")?,
                key_window: key_window(&source)?,
            },
        })
    }
}

fn database<F: Fn(&str) -> Option<String>>(
    source: &Source<F>,
    url: &'static str,
    data_dir: &'static str,
) -> Result<DatabaseLocation, ConfigError> {
    match source.optional(url) {
        Some(url) if url.starts_with("postgres://") || url.starts_with("postgresql://") => {
            Ok(DatabaseLocation::Url(url))
        }
        Some(_) => {
            let expected = "a URL such as postgres://user:password@host:5432/database";
            Err(bad(url, expected))
        }
        None => Ok(DatabaseLocation::Embedded {
            data_dir: PathBuf::from(source.value(data_dir)),
            bin_dir: source.optional("PG_BIN_DIR").map(PathBuf::from),
        }),
    }
}

fn key_window<F: Fn(&str) -> Option<String>>(source: &Source<F>) -> Result<Duration, ConfigError> {
    let window = source.duration("PROCESSOR_KEY_WINDOW")?;
    if window > TTL_MAX || window.subsec_nanos() % 1_000 != 0 {
        let expected = "at most 400d, in whole microseconds";
        return Err(bad("PROCESSOR_KEY_WINDOW", expected));
    }
    Ok(window)
}

fn dev_api_key<F: Fn(&str) -> Option<String>>(
    source: &Source<F>,
    database: &DatabaseLocation,
) -> Result<Option<String>, ConfigError> {
    match (source.optional("DEV_API_KEY"), database) {
        (Some(key), _) if is_plausible_key(&key) => Ok(Some(key)),
        (Some(_), _) => Err(bad(
            "DEV_API_KEY",
            "sk_test_ followed by 8 to 200 letters, digits and underscores",
        )),
        (None, DatabaseLocation::Embedded { .. }) => Ok(Some(DEFAULT_DEV_API_KEY.to_owned())),
        // A known key in somebody's shared database would be an open door.
        (None, DatabaseLocation::Url(_)) => Ok(None),
    }
}

fn is_plausible_key(key: &str) -> bool {
    key.strip_prefix("sk_test_").is_some_and(|rest| {
        (8..=200).contains(&rest.len())
            && rest
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    })
}

fn idempotency_ttl<F: Fn(&str) -> Option<String>>(
    source: &Source<F>,
) -> Result<Duration, ConfigError> {
    let ttl = source.duration("IDEMPOTENCY_TTL")?;
    let short_allowed: bool = source.parse("ALLOW_SHORT_TTL", "true or false")?;
    if ttl < TTL_MIN && !short_allowed {
        let expected = "at least 60s; for a test or a demonstration set ALLOW_SHORT_TTL=true";
        return Err(bad("IDEMPOTENCY_TTL", expected));
    }
    if ttl > TTL_MAX || ttl.subsec_nanos() % 1_000 != 0 {
        return Err(bad(
            "IDEMPOTENCY_TTL",
            "at most 400d, in whole microseconds",
        ));
    }
    Ok(ttl)
}

fn in_flight_wait<F: Fn(&str) -> Option<String>>(
    source: &Source<F>,
) -> Result<Duration, ConfigError> {
    let expected = "a duration from 0s to 30s";
    match humantime::parse_duration(source.value("IN_FLIGHT_WAIT_V1").trim()) {
        Ok(wait) if wait <= Duration::from_secs(30) => Ok(wait),
        Ok(_) | Err(_) => Err(bad("IN_FLIGHT_WAIT_V1", expected)),
    }
}

fn timeouts<F: Fn(&str) -> Option<String>>(source: &Source<F>) -> Result<Timeouts, ConfigError> {
    let timeouts = Timeouts {
        pool_wait: source.duration("POOL_WAIT")?,
        statement: source.duration("STATEMENT_TIMEOUT")?,
        database_deadline: source.duration("DATABASE_DEADLINE")?,
        idle_in_transaction: source.duration("IDLE_IN_TRANSACTION_TIMEOUT")?,
        request: source.duration("REQUEST_TIMEOUT")?,
    };
    let ladder = [
        ("the claim's lock wait", CLAIM_WAIT),
        ("a row's lock wait", ROW_LOCK_WAIT),
        ("STATEMENT_TIMEOUT", timeouts.statement),
        ("DATABASE_DEADLINE", timeouts.database_deadline),
        ("IDLE_IN_TRANSACTION_TIMEOUT", timeouts.idle_in_transaction),
        ("REQUEST_TIMEOUT", timeouts.request),
    ];
    for pair in ladder.windows(2) {
        if let [(below, lower), (variable, higher)] = pair
            && higher <= lower
        {
            let lower = humantime::format_duration(*lower);
            return Err(bad(
                variable,
                format!("longer than {below}, which is {lower}"),
            ));
        }
    }
    if timeouts.before_work().is_zero() {
        return Err(bad(
            "REQUEST_TIMEOUT",
            "longer than POOL_WAIT and DATABASE_DEADLINE together",
        ));
    }
    Ok(timeouts)
}

fn webhooks<F: Fn(&str) -> Option<String>>(source: &Source<F>) -> Result<Webhooks, ConfigError> {
    let timeout = source.duration("WEBHOOK_TIMEOUT")?;
    if timeout > WEBHOOK_TIMEOUT_MAX {
        return Err(bad("WEBHOOK_TIMEOUT", "at most 60s"));
    }
    let pauses = Pauses {
        min: source.duration("WEBHOOK_RETRY_MIN")?,
        max: source.duration("WEBHOOK_RETRY_MAX")?,
    };
    if pauses.max > WEBHOOK_RETRY_LIMIT || pauses.max / 2 < pauses.min {
        let expected = "at least twice WEBHOOK_RETRY_MIN and at most 7d";
        return Err(bad("WEBHOOK_RETRY_MAX", expected));
    }
    Ok(Webhooks {
        allow_private: source.parse("WEBHOOK_ALLOW_PRIVATE", "true or false")?,
        timeout,
        pauses,
        poll_interval: source.duration("WEBHOOK_POLL_INTERVAL")?,
    })
}

/// Longer than one call of the processor and the transaction after it, so that whoever holds a lease
/// can use it.
fn lease<F: Fn(&str) -> Option<String>>(
    source: &Source<F>,
    timeouts: &Timeouts,
) -> Result<Duration, ConfigError> {
    let lease = source.duration("IDEMPOTENCY_LEASE")?;
    let timeout = source.duration("PROCESSOR_TIMEOUT")?;
    let least = timeout + timeouts.database_deadline + COMPLETION_RESERVE;
    if lease <= least {
        let least = humantime::format_duration(least);
        let expected =
            format!("longer than PROCESSOR_TIMEOUT, DATABASE_DEADLINE and 5s together: {least}");
        return Err(bad("IDEMPOTENCY_LEASE", expected));
    }
    Ok(lease)
}

fn processor<F: Fn(&str) -> Option<String>>(
    source: &Source<F>,
    lease: Duration,
) -> Result<Option<ProcessorConfig>, ConfigError> {
    let timeout = source.duration("PROCESSOR_TIMEOUT")?;
    let Some(url) = source.optional("PROCESSOR_URL") else {
        return Ok(None);
    };
    let name = match url::Url::parse(&url) {
        Ok(parsed) if ["http", "https"].contains(&parsed.scheme()) => {
            parsed.origin().ascii_serialization()
        }
        Ok(_) | Err(_) => return Err(bad("PROCESSOR_URL", "a URL such as http://processor:8081")),
    };
    let name = match source.optional("PROCESSOR_NAME") {
        None => name,
        Some(given) if given.chars().count() <= PROCESSOR_NAME_MAX_CHARS => given,
        Some(_) => return Err(bad("PROCESSOR_NAME", "at most 255 characters")),
    };
    let window = key_window(source)?;
    let margin = lease + timeout + window / KEY_WINDOW_MARGIN;
    if window <= margin {
        let expected = "the time that the processor remembers keys, much longer than \
                        IDEMPOTENCY_LEASE and PROCESSOR_TIMEOUT together";
        return Err(bad("PROCESSOR_KEY_WINDOW", expected));
    }
    Ok(Some(ProcessorConfig {
        url,
        name,
        send_again_within: window - margin,
        timeout,
    }))
}

/// The table for `docs/configuration.md`.
pub fn markdown_table() -> String {
    let mut table = String::from("| variable | default | what it is |\n|---|---|---|\n");
    for Variable {
        name,
        default,
        about,
    } in VARIABLES
    {
        let default = default.map_or("(unset)".to_owned(), |default| format!("`{default}`"));
        // Writing to a String can't fail.
        let _ = writeln!(table, "| `{name}` | {default} | {about} |");
    }
    table
}

/// The same for `--help`.
pub fn help_text() -> String {
    let mut text = String::from("Environment variables:\n");
    for Variable {
        name,
        default,
        about,
    } in VARIABLES
    {
        let default = default.map_or(String::new(), |default| format!(" [default: {default}]"));
        let _ = writeln!(text, "  {name}{default}\n      {about}");
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
    use super::*;

    fn config(variables: &[(&str, &str)]) -> Result<Config, ConfigError> {
        Config::from_lookup(|name| {
            variables
                .iter()
                .find(|(known, _)| *known == name)
                .map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn the_defaults_are_a_valid_configuration() {
        let config = config(&[]).unwrap();
        assert_eq!(config.idempotency_ttl, Duration::from_secs(86_400));
        assert_eq!(config.dev_api_key.as_deref(), Some(DEFAULT_DEV_API_KEY));
        assert_eq!(config.timeouts.before_work(), Duration::from_secs(2));
        assert_eq!(config.rate_limit, NonZeroU32::new(1000));
    }

    #[test]
    fn a_rate_limit_of_0_is_none() {
        assert_eq!(config(&[("RATE_LIMIT", "0")]).unwrap().rate_limit, None);
    }

    #[test]
    fn with_a_database_url_no_dev_key_exists_unless_it_is_given() {
        let url = ("DATABASE_URL", "postgres://u@h/d");
        assert_eq!(config(&[url]).unwrap().dev_api_key, None);
        let key = ("DEV_API_KEY", "sk_test_12345678");
        assert_eq!(
            config(&[url, key]).unwrap().dev_api_key.as_deref(),
            Some(key.1)
        );
    }

    #[test]
    fn a_bad_value_names_its_variable() {
        for (name, value) in [
            ("BIND_ADDRESS", "localhost"),
            ("DATABASE_URL", "mysql://x"),
            ("DEV_API_KEY", "secret"),
            ("IDEMPOTENCY_TTL", "a day"),
            ("IDEMPOTENCY_TTL", "59s"),
            ("IDEMPOTENCY_TTL", "500d"),
            ("ALLOW_SHORT_TTL", "yes"),
            ("EXPIRY_SWEEP_INTERVAL", "0s"),
            ("IN_FLIGHT_WAIT_V1", "31s"),
            ("POOL_CONNECTIONS", "1"),
            ("POOL_WAIT", "-1s"),
            ("STATEMENT_TIMEOUT", "1s"),
            ("DATABASE_DEADLINE", "3s"),
            ("IDLE_IN_TRANSACTION_TIMEOUT", "5s"),
            ("REQUEST_TIMEOUT", "6s"),
            ("BODY_LIMIT", "64KiB"),
            ("RATE_LIMIT", "10/s"),
            ("RATE_LIMIT", "-1"),
            ("RATE_LIMIT", "1000001"),
            ("WORKERS", "many"),
            ("MIGRATE_ON_START", "1"),
            ("DRAIN_TIMEOUT", ""),
            ("WEBHOOK_ALLOW_PRIVATE", "yes"),
            ("WEBHOOK_TIMEOUT", "61s"),
            ("WEBHOOK_RETRY_MIN", "0s"),
            ("WEBHOOK_RETRY_MAX", "9s"),
            ("WEBHOOK_RETRY_MAX", "8d"),
            ("WEBHOOK_POLL_INTERVAL", "often"),
            ("PROCESSOR_BIND_ADDRESS", "8081"),
            ("PROCESSOR_DATABASE_URL", "mysql://x"),
            ("PROCESSOR_KEY_WINDOW", "0s"),
            ("PROCESSOR_KEY_WINDOW", "401d"),
        ] {
            match config(&[(name, value)]) {
                Err(error) => assert_eq!(error.variable, name, "{value}"),
                Ok(_) => assert!(value.is_empty(), "{name}={value} was accepted"),
            }
        }
    }

    #[test]
    fn the_processor_s_memory_of_keys_must_outlast_a_lease_by_far() {
        let with = |window| {
            let url = (
                "PROCESSOR_URL",
                "https://user:secret@processor.example:8443/v2",
            );
            config(&[url, ("PROCESSOR_KEY_WINDOW", window)]).map(|config| config.processor.unwrap())
        };
        assert_eq!(with("41s").unwrap_err().variable, "PROCESSOR_KEY_WINDOW");
        let processor = with("24h").unwrap();
        // Less an hour of the day, the lease, and one call.
        let within = Duration::from_secs(23 * 3600 - 40);
        assert_eq!(processor.send_again_within, within);
        assert_eq!(processor.name, "https://processor.example:8443");
    }

    #[test]
    fn a_short_retention_needs_to_be_allowed() {
        let short = [("IDEMPOTENCY_TTL", "2s"), ("ALLOW_SHORT_TTL", "true")];
        assert_eq!(
            config(&short).unwrap().idempotency_ttl,
            Duration::from_secs(2)
        );
    }
}
