//! Short forms of what many tests do.

use charge_once::database::{Database, PROCESSOR_SCHEMA, WhenRefused};

use crate::support::prelude::*;

impl TestDatabase {
    /// That of a private PostgreSQL, with the account of the tests.
    pub async fn in_private(postgres: &EmbeddedPostgres) -> Self {
        let url = postgres.url();
        let pool = PgPool::connect_lazy(&url).unwrap();
        let database = Self::elsewhere(url, pool);
        let migrated = database.connect(&[]).await;
        ensure_dev_key(&migrated, API_KEY).await.unwrap();
        migrated.pool().close().await;
        database
    }

    /// With the tables of the card processor's simulator.
    pub async fn create_for_processor() -> Self {
        let database = Self::create_empty().await;
        let settings = config(&[]).database_settings(PROCESSOR_SCHEMA);
        let connected = Database::connect(&database.url, settings, WhenRefused::GiveUp).await;
        connected.unwrap().pool().close().await;
        database
    }

    /// Ends the servers' sessions, so that they begin others.
    pub async fn end_sessions(&self) {
        let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                    WHERE datname = current_database() AND application_name = 'charge-once'";
        self.execute(end).await;
    }

    /// A command of the program that works on it.
    pub fn command(&self, command: &str) -> Run {
        let arguments: Vec<_> = command.split(' ').collect();
        Run::of(run(&arguments, &[("DATABASE_URL", &self.url)]))
    }

    /// What a command prints that works on it, and succeeds.
    pub fn printed_by(&self, command: &str) -> String {
        self.command(command).succeeded()
    }

    /// Gives all sessions to come another default: `name = value`.
    pub async fn set_default(&self, setting: &str) {
        let set = format!(
            "DO $$ BEGIN
                 EXECUTE format($f$ALTER DATABASE %I SET {setting}$f$, current_database());
             END $$"
        );
        self.execute(set).await;
    }
}

/// For a server of which no test knows the address before it starts.
pub const ANY_PORT: (&str, &str) = ("BIND_ADDRESS", "127.0.0.1:0");

pub fn start_with_log(
    database: &TestDatabase,
    variables: &[(&str, &str)],
) -> (ServerProcess, NamedTempFile) {
    let log = NamedTempFile::new().unwrap();
    let server = ServerProcess::start_logging_to(log.reopen().unwrap(), database, variables);
    (server, log)
}

pub fn text_of(log: &NamedTempFile) -> String {
    std::fs::read_to_string(log.path()).unwrap()
}

/// Fails where a text lacks a part, and shows both.
#[track_caller]
pub fn assert_has(text: &str, part: &str) {
    assert!(text.contains(part), "no {part:?} in {text}");
}

pub fn complaint_of(arguments: &[&str], variables: &[(&str, &str)], code: i32) -> String {
    Run::of(run(arguments, variables)).failed(code)
}

/// What an error says to a person.
pub fn message(answer: &Answer) -> String {
    let message = answer.json()["error"]["message"].take();
    message.as_str().unwrap().to_owned()
}

/// A page, a complaint, or another text.
pub trait Text {
    fn must_have(&self, parts: &[&str]);

    fn must_lack(&self, parts: &[&str]);

    /// What stands between the first `start` and the next `end`.
    fn between(&self, start: &str, end: &str) -> &str;
}

impl Text for str {
    #[track_caller]
    fn must_have(&self, parts: &[&str]) {
        for part in parts {
            assert!(self.contains(part), "{part:?} is not in {self}");
        }
    }

    #[track_caller]
    fn must_lack(&self, parts: &[&str]) {
        for part in parts {
            assert!(!self.contains(part), "{part:?} is in {self}");
        }
    }

    #[track_caller]
    fn between(&self, start: &str, end: &str) -> &str {
        let rest = self.split_once(start).map(|(_, rest)| rest);
        let found = rest.and_then(|rest| rest.split_once(end));
        found
            .unwrap_or_else(|| panic!("no {start:?} with {end:?} in {self}"))
            .0
    }
}
