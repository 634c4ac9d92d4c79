//! The committed descriptions of the queries, `.sqlx/`, which a build reads in place of a database.
//!
//! A query that has none doesn't compile. These tests find the others: what a migration has changed
//! since, and what is no longer used.

use std::fs;

use memchr::memmem;
use sqlx::{Executor, SqlSafeStr};

use crate::{
    scale::statements::{FOLDERS, committed},
    support::prelude::*,
};

/// The card processor's simulator has a database of its own.
const PROCESSOR: &str = "crates/processor/.sqlx";

fn folders() -> impl Iterator<Item = &'static str> {
    FOLDERS.into_iter().chain([PROCESSOR])
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
    let processor = TestDatabase::create_for_processor().await;

    for folder in folders() {
        let database = match folder {
            PROCESSOR => &processor,
            _ => &api,
        };
        for (path, known) in committed(folder) {
            let described = describe(known["query"].as_str().unwrap(), &database.pool).await;
            let known_as = &known["describe"];
            assert_eq!(known_as, &described, "{path:?}: run `make generate`");
            assert_eq!(known["db_name"], json!("PostgreSQL"), "{path:?}");
        }
    }
}

#[test]
fn every_committed_query_is_compiled_into_the_program() {
    let program = fs::read(env!("CARGO_BIN_EXE_charge-once")).unwrap();
    let unused = folders().flat_map(committed).filter_map(|(path, known)| {
        let query = known["query"].as_str().unwrap();
        let is_used = memmem::find(&program, query.as_bytes()).is_some();
        (!is_used).then_some(path)
    });
    let remedy = "run `make generate`: no query of the program has these";
    assert_eq!(unused.collect::<Vec<_>>(), [] as [PathBuf; 0], "{remedy}");
}
