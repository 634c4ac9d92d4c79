//! The tables of `crates/api-keys`, which this program creates by its own migrations.

/// What PostgreSQL reads of a migration.
fn statements(migration: &str) -> Vec<&str> {
    let lines = migration.lines().map(str::trim);
    lines
        .filter(|line| !line.is_empty() && !line.starts_with("--"))
        .collect()
}

#[test]
fn the_migration_of_the_api_keys_crate_creates_the_tables_of_this_program() {
    let own = statements(include_str!("../../../migrations/0101_accounts.sql"));
    let of_the_crate = include_str!("../../../crates/api-keys/migrations/0001_api_keys.sql");
    assert!(own.len() > 20, "{own:#?}");
    assert_eq!(own, statements(of_the_crate));
}
