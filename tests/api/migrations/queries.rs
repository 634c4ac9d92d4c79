//! The committed descriptions of the queries, `.sqlx/`, which a build reads in place of a database.
//!
//! A query that has none doesn't compile. These tests find the others: what a migration has changed
//! since, and what is no longer used.

use std::fs;

use charge_once::database::{Database, PROCESSOR_SCHEMA, WhenRefused};
use memchr::memmem;
use sqlx::{Executor, SqlSafeStr};

use crate::support::prelude::*;

/// The card processor's simulator has a database of its own.
const PROCESSOR: &str = "crates/processor/.sqlx";

const FOLDERS: [&str; 6] = [
    ".sqlx",
    "crates/postgres/.sqlx",
    "crates/idempotency/.sqlx",
    "crates/service/.sqlx",
    "crates/webhooks/.sqlx",
    PROCESSOR,
];

/// A file of `.sqlx/`.
struct Committed {
    path: PathBuf,
    content: Value,
}

impl Committed {
    fn all() -> Vec<Self> {
        let files = FOLDERS.map(|folder| fs::read_dir(root().join(folder)).unwrap());
        let paths = files.into_iter().flatten().map(|file| file.unwrap().path());
        let read = |path: PathBuf| Self {
            content: serde_json::from_slice(&fs::read(&path).unwrap()).unwrap(),
            path,
        };
        paths.map(read).collect()
    }

    fn query(&self) -> &str {
        self.content["query"].as_str().unwrap()
    }

    fn is_the_processors(&self) -> bool {
        self.path.starts_with(root().join(PROCESSOR))
    }
}

/// What sqlx's macros ask a database, and write into the file.
async fn describe(query: &str, database: &PgPool) -> Value {
    let query = AssertSqlSafe(query.to_owned()).into_sql_str();
    let described = database.describe(query).await;
    serde_json::to_value(described.unwrap()).unwrap()
}

#[tokio::test]
async fn every_committed_query_is_described_as_the_migrated_database_describes_it() {
    let api = TestDatabase::create().await;
    let processor = TestDatabase::create_empty().await;
    let settings = config(&[]).database_settings(PROCESSOR_SCHEMA);
    let connected = Database::connect(&processor.url, settings, WhenRefused::GiveUp).await;
    connected.unwrap();

    for committed in Committed::all() {
        let database = match committed.is_the_processors() {
            true => &processor,
            false => &api,
        };
        let path = committed.path.display();
        let described = describe(committed.query(), &database.pool).await;
        let known = &committed.content["describe"];
        assert_eq!(known, &described, "{path}: run `make generate`");
        assert_eq!(committed.content["db_name"], json!("PostgreSQL"), "{path}");
    }
}

#[test]
fn every_committed_query_is_compiled_into_the_program() {
    let program = fs::read(env!("CARGO_BIN_EXE_charge-once")).unwrap();
    let mut unused = Committed::all();
    unused.retain(|it| memmem::find(&program, it.query().as_bytes()).is_none());
    let unused: Vec<_> = unused.iter().map(|it| &it.path).collect();
    let remedy = "run `make generate`: no query of the program has these";
    assert_eq!(unused, [] as [&PathBuf; 0], "{remedy}");
}
