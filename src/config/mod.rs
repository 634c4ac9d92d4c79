//! Configuration, by environment variables only.
//!
//! Promise: each variable is declared once, in `variables.rs`: name, default, values and help.
//! `charge_once_service::settings` reads them: a bad value stops the start, and all errors are
//! reported at once.

mod database;
mod in_progress;
mod processor;
mod timeouts;
mod values;
mod variables;

use std::{net::SocketAddr, time::Duration};

pub use charge_once_postgres::database::shards::ShardUrl;
pub use charge_once_postgres::embedded::DatabaseLocation;
use charge_once_service::connections::{ConnectionTimeouts, Host, is_loopback_address};
use charge_once_service::settings::Source;
pub use charge_once_service::settings::{ConfigError, ConfigErrors};
pub use charge_once_service::traces::{Log, TraceSettings};

use self::{
    database::location,
    variables::{
        ALLOWED_HOSTS, ANY_TEST_KEY, DATA_DIR, DATABASE_URL, DEV_API_KEY, EVENT_RETENTION, FAULTS,
        KEEP_ALIVE_TIMEOUT, LOG_FORMAT, OPERATION_RETENTION, PROCESSOR_DATA_DIR,
        PROCESSOR_DATABASE_URL, PROCESSOR_URL, REPLY_WRITE_TIMEOUT, REQUEST_HEAD_TIMEOUT,
        REQUEST_LOG_RETENTION, RUST_LOG, SEAL_REPLIES, SEAL_SECRETS, TRACES,
    },
};
use crate::{
    database::embedded,
    idempotency::{InProgressLimits, Seal},
};

pub use self::{
    database::{DEFAULT_DEV_API_KEY, FORMER_DEV_API_KEY},
    processor::ProcessorConfig,
    timeouts::TTL_MIN,
    values::RouteTimes,
    variables::{VARIABLES, Values},
};

/// Connections of a process's workers to one database, at most.
const WORKER_CONNECTIONS: u32 = 6;

/// What is removed after a time; `None` is kept for good.
#[derive(Debug, Clone, Copy)]
pub struct RetentionTimes {
    /// `EVENT_RETENTION`: events, and the deliveries of each.
    pub events: Option<Duration>,
    /// `OPERATION_RETENTION`: instructions to a card processor that have their answer.
    pub operations: Option<Duration>,
    /// `REQUEST_LOG_RETENTION`: what the console shows of requests.
    pub request_log: Option<Duration>,
}

/// The whole configuration, checked.
#[derive(Debug, Clone)]
pub struct Config {
    /// The variables that are read as they are.
    pub values: Values,
    /// `ALLOWED_HOSTS`
    pub allowed_hosts: Vec<Host>,
    /// `DATABASE_URL` or `DATA_DIR`
    pub database: DatabaseLocation,
    /// `SHARD_URLS`
    pub shards: Vec<ShardUrl>,
    /// The dev account's key, if there is to be one.
    pub dev_api_key: Option<String>,
    /// `SEAL_SECRETS`; `None` stores replies as they are.
    pub seal: Option<Seal>,
    /// `PROCESSOR_URL` and what belongs to it; `None` simulates the processor in this process.
    pub processor: Option<ProcessorConfig>,
    /// `EVENT_RETENTION`, `OPERATION_RETENTION`, `REQUEST_LOG_RETENTION`
    pub retention: RetentionTimes,
    /// When connections end.
    pub connections: ConnectionTimeouts,
    /// `IN_PROGRESS_LIMIT` and `IN_PROGRESS_LIMIT_PER_ACCOUNT`
    pub in_progress: InProgressLimits,
    /// `RUST_LOG`, `LOG_FORMAT`
    pub log: Log,
    /// `OTEL_…`; `None` sends no traces.
    pub traces: Option<TraceSettings>,
    /// Of `charge-once processor`: `PROCESSOR_DATABASE_URL` or `PROCESSOR_DATA_DIR`
    pub processor_database: DatabaseLocation,
}

impl Config {
    /// Reads and checks the process's environment, misspelled names included.
    pub fn from_env() -> Result<Self, ConfigErrors> {
        let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        Self::read(&|name| std::env::var(name).ok(), names)
    }

    /// Reads and checks variables from anywhere else.
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigErrors> {
        Self::read(&lookup, std::iter::empty())
    }

    /// For transactions that requests share; 0: every request has a transaction of its own.
    pub fn batch_connections(&self) -> u32 {
        match self.values.batch {
            true => self.values.batch_connections,
            false => 0,
        }
    }

    /// Connections to all databases that requests use at most.
    pub fn database_connections(&self) -> u32 {
        let databases = u32::try_from(1 + self.shards.len()).unwrap_or(u32::MAX);
        (self.values.pool_connections + self.batch_connections()).saturating_mul(databases)
    }

    /// Connections to one database that a process takes at most.
    pub fn connections_per_database(&self) -> u32 {
        self.values.pool_connections + self.batch_connections() + WORKER_CONNECTIONS
    }

    /// A host that a server takes, for requests from its own machine.
    pub fn own_host(&self) -> String {
        let listed = self.allowed_hosts.first();
        listed.map_or_else(|| "localhost".to_owned(), Host::to_string)
    }

    /// What the addresses of pages begin with, of a server that listens on `address`. Without
    /// `PUBLIC_URL`, it is where a browser on the same machine reaches the server.
    pub fn public_url(&self, address: SocketAddr) -> String {
        if let Some(url) = &self.values.public_url {
            return url.clone();
        }
        let ip = address.ip();
        // Elsewhere than on loopback, a list of hosts refuses the address if it doesn't name it.
        let has_names = !self.allowed_hosts.is_empty() && !is_loopback_address(address);
        if ip.is_unspecified() || has_names {
            return format!("http://{}:{}", self.own_host(), address.port());
        }
        format!("http://{address}")
    }

    /// The API keys that everyone knows, where strangers would reach the server with them.
    pub fn refused_keys(&self) -> &'static [&'static str] {
        match is_for_strangers(&self.values) {
            true => &[DEFAULT_DEV_API_KEY, FORMER_DEV_API_KEY],
            false => &[],
        }
    }

    /// Reads every variable before it gives up, so that every error is recorded.
    fn read(
        lookup: &dyn Fn(&str) -> Option<String>,
        names: impl Iterator<Item = String>,
    ) -> Result<Self, ConfigErrors> {
        let source = Source::new(lookup);
        source.check_names(VARIABLES, names);
        let values = Values::read(&source);
        let allowed_hosts = source.optional(&ALLOWED_HOSTS).unwrap_or_default();
        let database = location(&source, &DATABASE_URL, &DATA_DIR, embedded::settings);
        let shards = database::shards(&source, &database);
        let dev_api_key = database::dev_api_key(&source, &database);
        values.check_times(&source);
        check_faults(&source, values.faults);
        check_any_test_key(&source, &values);
        let seal = source.optional(&SEAL_SECRETS).map(Seal::from);
        if values.seals_all && seal.is_none() {
            let expected = "secrets where SEAL_SECRETS is unset: set SEAL_SECRETS to seal replies";
            source.bad(SEAL_REPLIES.name, expected);
        }
        let config = Self {
            allowed_hosts,
            database,
            shards,
            dev_api_key,
            seal,
            in_progress: in_progress::limits(&source, values.pool_connections),
            processor: ProcessorConfig::read(&source, &values),
            retention: RetentionTimes {
                events: source.read(&EVENT_RETENTION),
                operations: source.read(&OPERATION_RETENTION),
                request_log: source.read(&REQUEST_LOG_RETENTION),
            },
            connections: ConnectionTimeouts {
                keep_alive: source.read(&KEEP_ALIVE_TIMEOUT),
                request_head: source.read(&REQUEST_HEAD_TIMEOUT),
                reply: source.read(&REPLY_WRITE_TIMEOUT),
            },
            log: Log::read(&source, &RUST_LOG, &LOG_FORMAT),
            traces: TraceSettings::read(&source, &TRACES),
            processor_database: location(
                &source,
                &PROCESSOR_DATABASE_URL,
                &PROCESSOR_DATA_DIR,
                embedded::processor_settings,
            ),
            values,
        };
        source.finish(config)
    }
}

/// Faults are for the simulated cards of this process.
fn check_faults(source: &Source<'_>, are_allowed: bool) {
    if are_allowed && source.text(PROCESSOR_URL.name).is_some() {
        let expected = "false where PROCESSOR_URL is set: unset PROCESSOR_URL to try faults with the \
                        simulated processor of this process";
        source.bad(FAULTS.name, expected);
    }
}

/// Whether strangers may reach the server, and no setting allows them a public key.
fn is_for_strangers(values: &Values) -> bool {
    !values.allow_public_dev_key && !is_loopback_address(values.bind_address)
}

/// Refuses `ANY_TEST_KEY` without an account that it opens, and where strangers could open it.
fn check_any_test_key(source: &Source<'_>, values: &Values) {
    let expected = match (values.any_test_key, source.text(DEV_API_KEY.name)) {
        (true, None) => "false where DEV_API_KEY is unset: the account of that key is opened",
        (true, Some(_)) if is_for_strangers(values) => {
            "false where BIND_ADDRESS is more than this machine's and ALLOW_PUBLIC_DEV_KEY isn't true"
        }
        (true | false, _) => return,
    };
    source.bad(ANY_TEST_KEY.name, expected);
}

#[cfg(test)]
mod tests {
    use std::num::{NonZeroU32, NonZeroU64};

    use super::*;

    fn config(variables: &[(&str, &str)]) -> Result<Config, ConfigErrors> {
        Config::from_lookup(|name| {
            variables
                .iter()
                .find(|(known, _)| *known == name)
                .map(|(_, value)| (*value).to_owned())
        })
    }

    fn variables_of(errors: &ConfigErrors) -> Vec<&'static str> {
        errors.0.iter().map(ConfigError::variable).collect()
    }

    #[test]
    fn every_error_is_told_at_once_and_none_hides_behind_another() {
        let errors = config(&[
            ("BIND_ADDRESS", "here"),
            ("POOL_WAIT", "long"),
            ("STATEMENT_TIMEOUT", "0s"),
            ("IDEMPOTENCY_LEASE", "soon"),
            ("PROCESSOR_URL", "processor:8081"),
            ("PROCESSOR_NAME", &"a".repeat(256)),
            ("WEBHOOK_TIMEOUT", "61s"),
            ("WEBHOOK_RETRY_MAX", "9s"),
            ("LOG_FORMAT", "xml"),
            ("PROCESSOR_BIND_ADDRESS", "8081"),
        ])
        .unwrap_err();
        // First those that are read as they are.
        let expected = [
            "BIND_ADDRESS",
            "IDEMPOTENCY_LEASE",
            "POOL_WAIT",
            "STATEMENT_TIMEOUT",
            "WEBHOOK_TIMEOUT",
            "PROCESSOR_BIND_ADDRESS",
            "WEBHOOK_RETRY_MAX",
            "PROCESSOR_URL",
            "PROCESSOR_NAME",
            "LOG_FORMAT",
        ];
        assert_eq!(variables_of(&errors), expected);
        let told = errors.to_string();
        assert!(told.starts_with("10 settings can't be used:\n  BIND_ADDRESS must be"));
        assert_eq!(told.lines().count(), 11, "{told}");
        // Two steps of the ladder at once.
        let ladder = [("STATEMENT_TIMEOUT", "9s"), ("REQUEST_TIMEOUT", "6s")];
        let errors = config(&ladder).unwrap_err();
        assert_eq!(
            variables_of(&errors),
            ["DATABASE_DEADLINE", "REQUEST_TIMEOUT"]
        );
    }

    #[test]
    fn a_strange_environment_is_no_concern() {
        let strange = "PATH HOME PORT HOST PGDATA PGHOST DATABASE DATABASE_PORT DATA \
                       RUST_BACKTRACE LOG_LEVEL TIMEOUT XDG_DATA_DIRS WORKSPACE LIMIT \
                       CHARGE_ONCE_URL CHARGE_ONCE_API_KEY NODE_ENV API_KEY";
        let ours = VARIABLES.iter().map(|variable| variable.name);
        let names = strange.split(' ').chain([""]).chain(ours);
        Config::read(&|_| None, names.map(str::to_owned)).unwrap();
    }

    #[test]
    fn localhost_is_an_address() {
        for (given, means) in [
            ("localhost:8080", "127.0.0.1:8080"),
            ("LocalHost:1", "127.0.0.1:1"),
            ("[::1]:8080", "[::1]:8080"),
        ] {
            let config = config(&[("BIND_ADDRESS", given)]).unwrap();
            assert_eq!(config.values.bind_address.to_string(), means);
        }
    }

    #[test]
    fn a_request_from_the_own_machine_names_a_host_that_is_allowed() {
        let own_host = |allowed| {
            let config = config(&[("ALLOWED_HOSTS", allowed)]).unwrap();
            config.own_host()
        };
        assert_eq!(own_host(""), "localhost");
        assert_eq!(own_host("[2001:DB8::1], localhost"), "[2001:db8::1]");
        assert_eq!(own_host("Pay.Example.com."), "pay.example.com");
    }

    #[test]
    fn pages_are_where_a_browser_reaches_the_server() {
        let url = |variables: &[(&str, &str)], address: &str| {
            config(variables)
                .unwrap()
                .public_url(address.parse().unwrap())
        };
        let public = [("PUBLIC_URL", "https://Pay.example.com:8443/")];
        assert_eq!(url(&public, "10.0.0.7:1"), "https://pay.example.com:8443");
        let names = [("ALLOWED_HOSTS", "pay.example.com")];
        for (variables, address, expected) in [
            (&[][..], "127.0.0.1:8080", "http://127.0.0.1:8080"),
            (&[], "[::1]:8080", "http://[::1]:8080"),
            (&[], "10.0.0.7:8080", "http://10.0.0.7:8080"),
            (&[], "0.0.0.0:8080", "http://localhost:8080"),
            (&[], "[::]:8080", "http://localhost:8080"),
            (&names, "127.0.0.1:8080", "http://127.0.0.1:8080"),
            (&names, "0.0.0.0:8080", "http://pay.example.com:8080"),
            (&names, "10.0.0.7:8080", "http://pay.example.com:8080"),
        ] {
            assert_eq!(url(variables, address), expected);
        }
    }

    #[test]
    fn the_defaults_are_a_valid_configuration() {
        let config = config(&[]).unwrap();
        assert_eq!(config.values.idempotency_ttl, Duration::from_secs(86_400));
        assert_eq!(config.dev_api_key.as_deref(), Some(DEFAULT_DEV_API_KEY));
        assert_eq!(config.values.before_work(), Duration::from_secs(2));
        assert_eq!(config.values.rate_limit, NonZeroU32::new(1000));
    }

    #[test]
    fn the_limits_of_requests_in_progress_follow_from_the_pool_and_from_each_other() {
        let limits = |variables: &[(&str, &str)]| {
            let limits = config(variables).unwrap().in_progress;
            (limits.in_all, limits.per_account)
        };
        let (in_all, per_account) = ("IN_PROGRESS_LIMIT", "IN_PROGRESS_LIMIT_PER_ACCOUNT");
        assert_eq!(limits(&[]), (2000, 1000));
        assert_eq!(limits(&[("POOL_CONNECTIONS", "3")]), (600, 300));
        assert_eq!(limits(&[(in_all, "7")]), (7, 4));
        assert_eq!(limits(&[(per_account, "7")]), (2000, 7));
        assert_eq!(limits(&[(in_all, "0")]), (usize::MAX, usize::MAX));
        assert_eq!(limits(&[(per_account, "0")]), (2000, usize::MAX));
        assert_eq!(
            limits(&[(in_all, "0"), (per_account, "9")]),
            (usize::MAX, 9)
        );
        for variables in [
            [(in_all, "7"), (per_account, "8")],
            [(in_all, "7"), (per_account, "-1")],
        ] {
            assert_eq!(
                variables_of(&config(&variables).unwrap_err()),
                [per_account]
            );
        }
    }

    #[test]
    fn a_rate_limit_of_0_is_none() {
        let config = config(&[("RATE_LIMIT", "0")]).unwrap();
        assert_eq!(config.values.rate_limit, None);
    }

    #[test]
    fn the_size_of_the_replay_cache_may_have_a_unit() {
        // 0 is none.
        for (given, bytes) in [
            ("256MiB", 1 << 28),
            ("1000", 1000),
            ("2 kB", 2000),
            ("0", 0),
        ] {
            let config = config(&[("REPLAY_CACHE", given)]).unwrap();
            let expected = NonZeroU64::new(bytes);
            assert_eq!(config.values.replay_cache, expected, "{given}");
        }
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

    const BAD_VALUES: &[(&str, &[&str])] = &[
        (
            "BIND_ADDRESS",
            &["localhost", "localhost:http", "example.com:8080"],
        ),
        (
            "ALLOWED_HOSTS",
            &[
                "pay.example.com:443",
                "https://pay.example.com",
                "*.example.com",
                "2001:db8::1",
                "pay.example.com,",
            ],
        ),
        (
            "PUBLIC_URL",
            &[
                "pay.example.com",
                "ftp://pay.example.com",
                "https://user@pay.example.com",
                "https://pay.example.com/shop",
                "https://pay.example.com/?shop=1",
            ],
        ),
        ("METRICS_ADDRESS", &["9090"]),
        ("DATABASE_URL", &["mysql://x"]),
        ("DEV_API_KEY", &["secret"]),
        ("ALLOW_PUBLIC_DEV_KEY", &["yes"]),
        (
            "KEYS",
            &[
                "optional",
                "v1=assign",
                "/v1/=assign",
                "/v1=perhaps",
                "=assign",
                "required,assign",
                "/v1=assign,/v1=required",
            ],
        ),
        ("IDEMPOTENCY_TTL", &["a day", "59s", "500d"]),
        (
            "IDEMPOTENCY_TTL_BY_ROUTE",
            &[
                "/refunds=7d",
                "POST refunds=7d",
                "POST /refunds",
                "POST /refunds=59s",
                "POST /refunds=500d",
                "POST /refunds=7d,",
                "POST /refunds=7d,POST /refunds=8d",
            ],
        ),
        ("IDEMPOTENCY_TTL_MAX", &["0s", "500d"]),
        ("ALLOW_SHORT_TTL", &["yes"]),
        ("EXPIRY_SWEEP_INTERVAL", &["0s"]),
        ("EVENT_RETENTION", &["59m"]),
        ("OPERATION_RETENTION", &["401d"]),
        ("REQUEST_LOG_RETENTION", &["1m"]),
        ("KEY_MEMORY", &["59m", "401d", "for ever"]),
        ("REFUSE_OLD_KEYS", &["yes"]),
        ("CONSOLE", &["on"]),
        ("IN_FLIGHT_WAIT_V1", &["31s"]),
        ("POOL_CONNECTIONS", &["1"]),
        ("POOL_WAIT", &["-1s"]),
        ("STATEMENT_TIMEOUT", &["1s"]),
        ("DATABASE_DEADLINE", &["3s", "31s"]),
        ("IDLE_IN_TRANSACTION_TIMEOUT", &["5s"]),
        ("REQUEST_TIMEOUT", &["6s"]),
        ("BODY_LIMIT", &["64KiB"]),
        ("REPLAY_CACHE", &["much", "65GiB", "-1"]),
        ("RATE_LIMIT", &["10/s", "-1", "1000001"]),
        // Actix takes no more than 512.
        ("WORKERS", &["many", "513"]),
        ("KEEP_ALIVE_TIMEOUT", &["0s"]),
        ("REQUEST_HEAD_TIMEOUT", &["2h"]),
        ("REPLY_WRITE_TIMEOUT", &["slow"]),
        ("MIGRATE_ON_START", &["1"]),
        ("DRAIN_TIMEOUT", &[""]),
        ("WEBHOOK_ALLOW_PRIVATE", &["yes"]),
        ("WEBHOOK_TIMEOUT", &["61s"]),
        ("WEBHOOK_RETRY_MIN", &["0s"]),
        ("WEBHOOK_RETRY_MAX", &["9s", "8d"]),
        ("WEBHOOK_POLL_INTERVAL", &["often"]),
        ("PROCESSOR_BIND_ADDRESS", &["8081"]),
        ("PROCESSOR_DATABASE_URL", &["mysql://x"]),
        ("PROCESSOR_KEY_WINDOW", &["0s", "401d"]),
        ("FAULTS", &["on"]),
        ("EMPTY_LISTS", &["on"]),
        // Not without DEV_API_KEY.
        ("ANY_TEST_KEY", &["yes", "true"]),
        (
            "SEAL_SECRETS",
            &["short", ",", "a-secret-of-thirty-two-characters,"],
        ),
        // Not without SEAL_SECRETS.
        ("SEAL_REPLIES", &["some", "all"]),
        ("LOG_FORMAT", &["xml"]),
        ("RUST_LOG", &["charge_once=loud"]),
    ];

    #[test]
    fn a_bad_value_names_its_variable() {
        for (name, values) in BAD_VALUES {
            for value in *values {
                match config(&[(name, value)]) {
                    Err(errors) => assert_eq!(variables_of(&errors), [*name], "{value}"),
                    Ok(_) => assert!(value.is_empty(), "{name}={value} was accepted"),
                }
            }
        }
    }

    #[test]
    fn keys_are_assigned_below_the_longest_prefix_that_says_so() {
        for (keys, assigned, required) in [
            ("required", &[][..], &["/charges", "/v1/charges"][..]),
            ("assign", &["/charges", "/v1/charges"], &[]),
            (
                "/v1=assign",
                &["/v1", "/v1/charges"],
                &["/charges", "/v10/charges"],
            ),
            (
                "assign, /v1=required, /v1/orders=assign",
                &["/charges", "/v1/orders/or_1/pay"],
                &["/v1/charges", "/v1/orders_1"],
            ),
        ] {
            let modes = config(&[("KEYS", keys)]).unwrap().values.keys;
            assert!(assigned.iter().all(|path| modes.assigns(path)), "{keys}");
            assert!(!required.iter().any(|path| modes.assigns(path)), "{keys}");
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
        let errors = with("41s").unwrap_err();
        assert_eq!(variables_of(&errors), ["PROCESSOR_KEY_WINDOW"]);
        let processor = with("24h").unwrap();
        // Less an hour of the day, the lease, and one call.
        let within = Duration::from_secs(23 * 3600 - 40);
        assert_eq!(processor.send_again_within, within);
        assert_eq!(processor.name, "https://processor.example:8443");
    }

    #[test]
    fn faults_and_a_processor_across_a_network_exclude_each_other() {
        let faults = ("FAULTS", "true");
        assert!(!config(&[]).unwrap().values.faults);
        let without = config(&[faults, ("PROCESSOR_URL", "")]).unwrap();
        assert!(without.values.faults);
        let errors = config(&[faults, ("PROCESSOR_URL", "http://processor:8081")]).unwrap_err();
        assert_eq!(
            errors.to_string(),
            "FAULTS must be false where PROCESSOR_URL is set: unset PROCESSOR_URL to try faults with \
             the simulated processor of this process"
        );
    }

    #[test]
    fn a_short_retention_needs_to_be_allowed() {
        let short = [("IDEMPOTENCY_TTL", "2s"), ("ALLOW_SHORT_TTL", "true")];
        assert_eq!(
            config(&short).unwrap().values.idempotency_ttl,
            Duration::from_secs(2)
        );
    }
}
