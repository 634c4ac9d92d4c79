//! The migrations of this repository, file by file.

use std::{collections::BTreeMap, fs, path::Path};

use sha2::{Digest, Sha256};

use super::linter::Linter;

/// The schema of the first release, with the SHA-256 of each file. A database that has applied a
/// file refuses to start with another text under that number, so these never change.
const FIRST_RELEASE: &[(&str, &str)] = &[
    (
        "0001_idempotency_keys.sql",
        "d3f221383ac387507e552b2eefc73fb61e3508b98ae5f56374fd194bb8feae7b",
    ),
    (
        "0002_accounts.sql",
        "1db76978c4f6a2b0f9a6e703f90f4f2f7f876b277ed1fefe408acdcd90d3a461",
    ),
    (
        "0003_orders.sql",
        "7d76f81c72243658e99f6792579243540988d74c0891581811c9adfbefc4ca98",
    ),
    (
        "0004_charges.sql",
        "1597790aed38c17d6f23b0da7d751aaa06236d9c67df448aebf9861cba79d8d8",
    ),
    (
        "0005_refunds.sql",
        "42b7cbcb99f149e2c9c630865e00e34ab025a8cf1a5c4ecea07bd3622bd7e413",
    ),
    (
        "0006_events.sql",
        "6568efdb4d664db923d4b3364fed82956c9497f27c75d64e99e52da3a52331c6",
    ),
    (
        "0007_webhook_endpoints.sql",
        "5447560d70252847908d15795d30ba3ddf756f0e92a49fab9d79d1e1ee5829c5",
    ),
    (
        "0008_inventory.sql",
        "5606f7d1e559c225530317c631d8ab4543205c93c6c78382966c45c200b31e7a",
    ),
    (
        "0009_checkouts.sql",
        "622139210eda1ebfbdaf29445e632fdab6678f259293c12777e6c0e07be4e13d",
    ),
    (
        "0010_operations.sql",
        "d774b222065d6410a71af7173247b24b4dcb48adf6bccbc28fe11a58d3f33a0b",
    ),
    (
        "0011_operators_words.sql",
        "723f881426ebab599634e5d0cc13a477c5fee8bd155b3c17f8d86988a891b08a",
    ),
];

fn migrations() -> BTreeMap<String, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations");
    fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            (name, fs::read_to_string(entry.path()).unwrap())
        })
        .collect()
}

#[test]
fn the_migrations_of_the_first_release_never_change() {
    let migrations = migrations();
    let found: Vec<_> = migrations
        .iter()
        .take(FIRST_RELEASE.len())
        .map(|(name, sql)| (name.clone(), hex::encode(Sha256::digest(sql))))
        .collect();
    let known: Vec<_> = FIRST_RELEASE
        .iter()
        .map(|(name, sum)| ((*name).to_owned(), (*sum).to_owned()))
        .collect();
    assert_eq!(
        found, known,
        "write a new migration instead: docs/migrations.md"
    );
}

#[test]
fn later_migrations_keep_the_rules_for_tables_in_use() {
    let mut linter = Linter::default();
    for (name, sql) in migrations().into_iter().skip(FIRST_RELEASE.len()) {
        let faults = linter.faults(&sql);
        assert_eq!(
            faults,
            [],
            "{name}: docs/migrations.md says what to do instead"
        );
    }
}

#[test]
fn each_migration_has_a_number_of_its_own() {
    let mut names = BTreeMap::new();
    for name in migrations().into_keys() {
        let (number, rest) = name.split_once('_').expect("NUMBER_what_it_does.sql");
        assert!(number.len() == 4 && rest.ends_with(".sql"), "{name}");
        let number: u32 = number.parse().unwrap();
        let other = names.insert(number, name.clone());
        assert_eq!(other, None, "{name} has the number of another migration");
    }
}
