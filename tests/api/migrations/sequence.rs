//! The migrations of this repository, file by file.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

use super::linter::{Fault, Linter};

/// The schema of the first release, with the SHA-256 of each file. A database that has applied a
/// file refuses to start with another text under that number, so these never change.
const FIRST_RELEASE: &[(&str, &str)] = &[
    (
        "crates/idempotency/migrations/core/0001_idempotency_keys.sql",
        "50608fb162af952a81f3cf7cca2b29ba30a642bae7ce0dc2264e28aaf9235a62",
    ),
    (
        "crates/idempotency/migrations/phases/0002_idempotency_leases.sql",
        "57e12efaa6d337d84325cf89c266a2f3c51e051532868d4b42da22cacf932143",
    ),
    (
        "crates/idempotency/migrations/workflow/0003_workflows.sql",
        "ff5ac9b7cf64a6eb06f240f6878471b5a291ffcf2878b5b07c97a35cd573581f",
    ),
    (
        "migrations/0001_accounts.sql",
        "1db76978c4f6a2b0f9a6e703f90f4f2f7f876b277ed1fefe408acdcd90d3a461",
    ),
    (
        "migrations/0002_orders.sql",
        "7d76f81c72243658e99f6792579243540988d74c0891581811c9adfbefc4ca98",
    ),
    (
        "migrations/0003_charges.sql",
        "1597790aed38c17d6f23b0da7d751aaa06236d9c67df448aebf9861cba79d8d8",
    ),
    (
        "migrations/0004_refunds.sql",
        "42b7cbcb99f149e2c9c630865e00e34ab025a8cf1a5c4ecea07bd3622bd7e413",
    ),
    (
        "migrations/0005_events.sql",
        "6568efdb4d664db923d4b3364fed82956c9497f27c75d64e99e52da3a52331c6",
    ),
    (
        "migrations/0006_webhook_endpoints.sql",
        "5447560d70252847908d15795d30ba3ddf756f0e92a49fab9d79d1e1ee5829c5",
    ),
    (
        "migrations/0007_inventory.sql",
        "5606f7d1e559c225530317c631d8ab4543205c93c6c78382966c45c200b31e7a",
    ),
    (
        "migrations/0008_checkouts.sql",
        "622139210eda1ebfbdaf29445e632fdab6678f259293c12777e6c0e07be4e13d",
    ),
    (
        "migrations/0009_operations.sql",
        "67b6887c46c3ebf9047712ebcfa16022d797a8172bb87e832977a5662bc8ae42",
    ),
    (
        "migrations/0010_manual_resolutions.sql",
        "a93cb822f5e54653f68d4e49f0b0dfa658017b6d8ca776e2eafaf59942f5e0ff",
    ),
];

/// The migrations since then, with their checksums. They keep the rules for tables in use.
const LATER: &[(&str, &str)] = &[
    (
        "crates/idempotency/migrations/core/0005_autovacuum.sql",
        "ac152fa3a48f25d188d87b0df6a68bcb180a29da91cae8e6cc406d96debe3d59",
    ),
    (
        "crates/idempotency/migrations/core/0006_autovacuum_of_swept_keys.sql",
        "4fd362bdb39ae2b029d119a2f25e1ba98d2fad7df3df90cff82b416ed012f9ea",
    ),
    (
        "crates/idempotency/migrations/phases/0004_leases_by_account.sql",
        "0eb070462e892d95248ffda15a80bedb657d38c6ea3add3f7213805d7d24fac1",
    ),
    (
        "migrations/0011_no_lock_on_accounts.sql",
        "0db5e0ed75505c6771a9c623b63a3ca1508887e03473037c475e9df65199f6e3",
    ),
    (
        "migrations/0012_disabled_webhook_endpoints.sql",
        "a537c4dc854d3234ef19c3bb7320374314085a9ba3105935dd718c498cbd373f",
    ),
    (
        "migrations/0013_operations_by_checkout.sql",
        "daa32452e3a909eaed4b7725bc142359328b170de29e83067569d4db47d30561",
    ),
    (
        "migrations/0014_unfinished_operations.sql",
        "4170b2daa51b41dc349ebe25edc666725579ebc20e9e253d3ba6996926bbb9b9",
    ),
    (
        "migrations/0015_checkouts_with_refused_refunds.sql",
        "a1a33a37fabcd51550e39be9b2da51f0820c6981548c278006d866f333dd855b",
    ),
    (
        "migrations/0016_live_webhook_endpoints.sql",
        "b7a23aa6d9e775593013e36bf40e57894a3a7c3b32e540e590c611f423f59c45",
    ),
    (
        "migrations/0017_webhook_turns.sql",
        "036e321fbd71a99ad5e01f641940a145abeb65923cfb65961e5239599365a561",
    ),
    (
        "migrations/0018_ready_webhook_deliveries.sql",
        "a4a75296cf1daba68f3162574ebff90e34c27d5b43d09099c2c2689f0e4bb942",
    ),
    (
        "migrations/0019_waiting_webhook_deliveries.sql",
        "b1528d062376ceba89fb745be500438670397da1dc90d0b33419400bce499078",
    ),
    (
        "migrations/0020_autovacuum.sql",
        "14f6ebd08d4ec061ac99ec7bda856b9a1c8cd7be538a02a12f8fa188699cf42b",
    ),
    (
        "migrations/0021_webhook_endpoints_to_cancel.sql",
        "c9008e5ba60ed75c467515a20709ed0f1c9001471a5fdba4083e8bd63f33542e",
    ),
    (
        "migrations/0022_test_accounts.sql",
        "aa1bf50043f577d92f202cb0d0b7323665fbaaa45e34c9b8fd136bb5add29f63",
    ),
    (
        "migrations/0023_test_accounts_to_close.sql",
        "3cbf5942bc85b0b851fe627c0a7a8772c6755a1bc5dcd74be0fb9a70a8986508",
    ),
    (
        "migrations/0024_request_log.sql",
        "04f1c9467bcaa27901227d469a72ec911a715fc5572d261fc3b5b8a3ad9c7460",
    ),
    (
        "migrations/0025_last_check.sql",
        "5a39a335ea49c421a4c1585f37ec31d92f28b2ac2461bf72b731e9555311e24a",
    ),
    (
        "migrations/0026_drop_webhook_deliveries_by_endpoint_and_next_attempt.sql",
        "df738feb6a77b7d51ed128aad55467217dddc2c1aefdb45caca8a527345a3fc4",
    ),
    (
        "migrations/0027_traceparent_of_events.sql",
        "f1180d8ea0bd9dae52349a64ec420762006fdd85aa9517ca86e5057f75d01a79",
    ),
];

/// Text that was indexed in the order of the locale, and its mending: the indexes are built again under a lock
/// that blocks everything. New indexes beside them would serve no query of a replica of the release before, whose
/// comparisons have another collation.
const MENDS_THE_ORDER: &[(&str, &[Fault])] = &[
    (
        "crates/idempotency/migrations/phases/0004_leases_by_account.sql",
        &[Fault::SortedByLocale],
    ),
    (
        "crates/idempotency/migrations/phases/0007_leases_sorted_by_bytes.sql",
        &[Fault::ChangesType],
    ),
    (
        "migrations/0029_orders_sorted_by_bytes.sql",
        &[Fault::ChangesType, Fault::ChangesType],
    ),
    (
        "migrations/0030_charges_sorted_by_bytes.sql",
        &[Fault::ChangesType],
    ),
    (
        "migrations/0031_accounts_sorted_by_bytes.sql",
        &[Fault::ChangesType],
    ),
    (
        "migrations/0032_checkouts_sorted_by_bytes.sql",
        &[Fault::ChangesType],
    ),
    (
        "migrations/0033_events_sorted_by_bytes.sql",
        &[Fault::ChangesType],
    ),
    (
        "migrations/0034_manual_resolutions_sorted_by_bytes.sql",
        &[Fault::ChangesType],
    ),
];

/// Folders whose migrations are applied in the order of their numbers.
const SETS: [&str; 2] = ["crates/idempotency/migrations", "migrations"];

/// The migrations of a set by the names of their files. Features have folders of their own.
fn migrations_below(folder: &Path) -> BTreeMap<String, PathBuf> {
    let mut migrations = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            migrations.extend(migrations_below(&path));
        } else {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            let other = migrations.insert(name, path);
            assert_eq!(other, None, "two migrations have one name");
        }
    }
    migrations
}

/// Path and text of each migration of a set, in order.
fn migrations(set: &str) -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    migrations_below(&root.join(set))
        .into_values()
        .map(|path| {
            let name = path.strip_prefix(root).unwrap().to_str().unwrap();
            (name.to_owned(), fs::read_to_string(&path).unwrap())
        })
        .collect()
}

fn is_of_the_first_release(path: &str) -> bool {
    FIRST_RELEASE.iter().any(|(known, _)| *known == path)
}

#[test]
fn migrations_never_change() {
    for (path, known) in FIRST_RELEASE.iter().chain(LATER) {
        let sql = fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
        let sum = hex::encode(Sha256::digest(sql));
        assert_eq!(
            &sum, known,
            "{path}: write a new migration instead, docs/migrations.md"
        );
    }
}

#[test]
fn later_migrations_keep_the_rules_for_tables_in_use() {
    for set in SETS {
        let mut linter = Linter::default();
        for (path, sql) in migrations(set) {
            // Those of the first release say which columns there are.
            let faults = linter.faults(&sql);
            if !is_of_the_first_release(&path) {
                let exempted = MENDS_THE_ORDER.iter().find(|(known, _)| *known == path);
                assert_eq!(
                    faults,
                    exempted.map_or(&[][..], |(_, faults)| *faults),
                    "{path}: docs/migrations.md says what to do instead"
                );
            }
        }
    }
}

#[test]
fn each_migration_has_a_number_of_its_own_after_those_of_the_first_release() {
    for set in SETS {
        let mut last = 0;
        let mut is_later = false;
        for (path, _) in migrations(set) {
            let name = path.rsplit('/').next().unwrap();
            let (number, rest) = name.split_once('_').expect("NUMBER_what_it_does.sql");
            assert!(number.len() == 4 && rest.ends_with(".sql"), "{path}");
            let number: u32 = number.parse().unwrap();
            assert!(number > last, "{path} has the number of another migration");
            last = number;
            let is_first = is_of_the_first_release(&path);
            assert!(
                !(is_later && is_first),
                "{path} comes after a later migration"
            );
            is_later = !is_first;
        }
        assert!(last > 0, "{set} has no migration");
    }
}
