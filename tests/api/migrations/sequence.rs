//! The migrations of this repository, file by file.

use charge_once::database::SCHEMA;

use super::linter::{Fault, Linter};
use crate::support::prelude::*;

/// The SHA-256 of the schema of a new database, all its files in order. A database that has applied
/// a file refuses to start with another text under that number, so these never change.
const BASELINE: &str = "38ee2afce63c98183d346eb3ff94cb384ae2f8d426d77b239a4bfea9761068fa";

/// The migrations of the releases since then, with the SHA-256 of each file. They keep the rules
/// for tables in use.
const LATER: &[(&str, &str)] = &[];

/// Folders whose migrations are applied in the order of their numbers, as in [`SCHEMA`].
const SETS: &[&str] = &[
    "crates/idempotency/migrations",
    "crates/postgres/migrations/api_keys",
    "crates/webhooks/migrations",
    "crates/service/migrations",
    "migrations",
];

struct File {
    path: String,
    number: i64,
    sql: String,
    is_of_the_baseline: bool,
}

/// The paths of a set's migrations by the names of their files. Features have folders of their own.
fn migrations_below(folder: &str) -> BTreeMap<String, String> {
    let mut migrations = BTreeMap::new();
    for path in files_below(folder) {
        let name = path.rsplit('/').next().unwrap().to_owned();
        let other = migrations.insert(name, path);
        assert_eq!(other, None, "two migrations have one name");
    }
    migrations
}

fn sets() -> Vec<Vec<File>> {
    assert_eq!(SETS.len(), SCHEMA.len());
    let sets = SETS.iter().zip(SCHEMA).map(|(folder, set)| {
        let found = migrations_below(folder);
        let files = found.into_iter().map(|(name, path)| {
            let (number, rest) = name.split_once('_').expect("NUMBER_what_it_does.sql");
            assert!(number.len() == 4 && rest.ends_with(".sql"), "{name}");
            let number = number.parse().unwrap();
            File {
                sql: read(&path),
                path,
                number,
                is_of_the_baseline: number <= set.baseline.as_ref().unwrap().last,
            }
        });
        files.collect()
    });
    sets.collect()
}

#[test]
fn migrations_never_change() {
    let files = sets().into_iter().flatten();
    let (baseline, later): (Vec<_>, Vec<_>) = files.partition(|file| file.is_of_the_baseline);
    let texts = baseline.iter().map(|file| &*file.sql);
    let sum = hex::encode(Sha256::digest(texts.collect::<String>()));
    let instead = "write a new migration instead, docs/migrations.md";
    assert_eq!(sum, BASELINE, "{instead}");
    for (path, known) in LATER {
        let file = later.iter().find(|file| file.path == *path);
        let sum = file.map(|file| hex::encode(Sha256::digest(&file.sql)));
        assert_eq!(sum.as_deref(), Some(*known), "{path}: {instead}");
    }
}

#[test]
fn later_migrations_keep_the_rules_for_tables_in_use() {
    for files in sets() {
        let mut linter = Linter::default();
        for file in files {
            let mut faults = linter.faults(&file.sql);
            if file.is_of_the_baseline {
                // The linter learns from it which columns there are.
                let counted = [Fault::NotKnownToBeSafe, Fault::SortedByLocale];
                faults.retain(|fault| counted.contains(fault));
            }
            let path = file.path;
            assert_eq!(faults, [], "{path}: docs/migrations.md says what to do");
        }
    }
}

#[test]
fn each_migration_has_a_number_of_its_own() {
    for files in sets() {
        let mut last = 0;
        for File { path, number, .. } in files {
            assert!(number > last, "{path} has the number of another migration");
            last = number;
        }
        assert!(last > 0, "a set has no migration");
    }
}
