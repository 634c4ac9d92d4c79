//! What every test stands on: a private PostgreSQL for the test run, a database of its own for each
//! test, the server in this process or as a process of its own, and a client.

mod client;
mod database;
mod server;

use std::io::Write;

use charge_once::config::Config;

use crate::support::prelude::*;

pub use self::{
    client::{Answer, Client},
    database::{
        EXPIRE_RECORDS, TestDatabase, every_connection_is_clean, one_charge_and_its_record,
        violated,
    },
    server::{ServerProcess, TestServer},
};

/// The key of the account `dev` in every test database.
pub const API_KEY: &str = "sk_test_harness_dev";

/// Counts the keys in flight by a committed row: each has a row without an outcome and a lease
/// beside it. One without the other counts, too.
pub const KEYS_IN_FLIGHT: &str = "
    SELECT count(*)
      FROM idempotency_leases
      FULL JOIN (SELECT account_id, key FROM idempotency_keys WHERE status IS NULL) AS unfinished
     USING (account_id, key)";

/// Any wait for a condition ends here, as a failure. It is longer than a lease, for which retries
/// may get 409, and than all deadlines of a request on a machine that is busy with other tests.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// Every request has a transaction of its own.
pub const ALONE: (&str, &str) = ("BATCH", "off");

/// Every replay comes from the database: for tests that change stored records by hand, or that are
/// about reading them.
pub const FORGETFUL: (&str, &str) = ("REPLAY_CACHE", "0");

pub const FAULTS: (&str, &str) = ("FAULTS", "true");

/// Whether requests share transactions, and replays come from memory, where a test doesn't say:
/// `make test-alone` runs many tests without either.
pub fn shortcuts() -> [(&'static str, &'static str); 2] {
    match std::env::var("TEST_SHORTCUTS").as_deref() {
        Ok("off") => [ALONE, FORGETFUL],
        _ => [("BATCH", "on"), ("REPLAY_CACHE", "32MiB")],
    }
}

/// The default configuration with some variables set.
pub fn config(variables: &[(&str, &str)]) -> Config {
    let defaults = [
        ("BIND_ADDRESS", "127.0.0.1:0"),
        ("DATABASE_URL", "postgres://unused@localhost/unused"),
        ("WORKERS", "2"),
        ("DEV_API_KEY", API_KEY),
    ];
    Config::from_lookup(|name| {
        let all = [variables, &shortcuts(), &defaults].concat();
        let found = all.into_iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| value.to_owned())
    })
    .unwrap()
}

/// Sessions of the test's database that wait for another one's row. Those of other tests are not
/// among them, as they are in `pg_locks`, and neither are those at a
/// [`PausePoint`](crate::support::pause_point::PausePoint).
pub const LOCK_WAITS: &str = "
    SELECT count(*) FROM pg_stat_activity
     WHERE datname = current_database() AND wait_event_type = 'Lock'
       AND wait_event IN ('transactionid', 'tuple')";

/// For tests that open many connections at once: a stall of a second or two doesn't end a wait for
/// one.
pub const WAITS_FOR_CONNECTIONS: &[(&str, &str)] =
    &[("POOL_WAIT", "10s"), ("REQUEST_TIMEOUT", "17s")];

/// Limits so long that a request at a [`PausePoint`](crate::support::pause_point::PausePoint) never
/// reaches one, and a transaction of its own: a batch gives up a request that is paused, and a
/// replay from memory passes no such point.
pub const PATIENT: &[(&str, &str)] = &[
    ALONE,
    FORGETFUL,
    ("STATEMENT_TIMEOUT", "28s"),
    ("DATABASE_DEADLINE", "30s"),
    ("IDLE_IN_TRANSACTION_TIMEOUT", "50s"),
    ("REQUEST_TIMEOUT", "60s"),
    ("IDEMPOTENCY_LEASE", "90s"),
];

/// A ladder of timeouts that leaves half a second until the work begins.
pub const IMPATIENT: &[(&str, &str)] = &[
    ("POOL_WAIT", "100ms"),
    ("STATEMENT_TIMEOUT", "1100ms"),
    ("DATABASE_DEADLINE", "1200ms"),
    ("IDLE_IN_TRANSACTION_TIMEOUT", "1300ms"),
    ("REQUEST_TIMEOUT", "1800ms"),
];

/// Prints a line though the test passes: the test runner keeps to itself only what `print!` writes.
pub fn report(line: &str) {
    let mut output = std::io::stderr().lock();
    writeln!(output, "{line}").unwrap();
}

/// Whether `TESTS=all`, as in `make check-long`: what takes minutes is tested whole, and not a
/// part of it.
pub fn tests_all() -> bool {
    std::env::var("TESTS").is_ok_and(|tests| tests == "all")
}

/// Polls until `condition` holds, and fails after [`PATIENCE`].
pub async fn eventually<F: Future<Output = bool>>(what: &str, mut condition: impl FnMut() -> F) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !condition().await {
        let now = tokio::time::Instant::now();
        assert!(now < deadline, "never happened: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub fn charge() -> Value {
    serde_json::json!({"amount": 2000, "currency": "usd", "source": "tok_visa"})
}

/// A charge of another card.
pub fn charge_by(source: &str) -> Value {
    let mut body = charge();
    body["source"] = source.into();
    body
}

pub fn another_charge() -> Value {
    serde_json::json!({"amount": 999, "currency": "usd", "source": "tok_visa"})
}
