//! The linter's own tests: each rule with statements that break it and statements that don't.

use super::linter::{Fault, Linter};

const TIMEOUT: &str = "SET LOCAL lock_timeout = '2s';\n";

fn faults(sql: &str) -> Vec<Fault> {
    Linter::default().faults(sql)
}

/// The faults of a statement in a transaction with a lock_timeout.
fn faults_of(statement: &str) -> Vec<Fault> {
    faults(&format!("{TIMEOUT}{statement}"))
}

#[test]
fn what_is_safe_for_a_table_in_use_is_accepted() {
    for statement in [
        "ALTER TABLE orders ADD COLUMN note text;",
        "ALTER TABLE orders ADD COLUMN note text COLLATE \"C\", ADD COLUMN seen boolean;",
        "ALTER TABLE orders ADD COLUMN seen boolean NOT NULL DEFAULT false;",
        "ALTER TABLE orders ADD COLUMN tags text[] NOT NULL DEFAULT '{}'::text[];",
        "ALTER TABLE orders ADD COLUMN seen_at timestamptz NOT NULL DEFAULT now();",
        "ALTER TABLE orders ADD COLUMN balance bigint NOT NULL DEFAULT -1;",
        "ALTER TABLE orders ADD CONSTRAINT short CHECK (char_length(note) < 9) NOT VALID;",
        "ALTER TABLE orders ADD CONSTRAINT known FOREIGN KEY (a, b) REFERENCES t (a, b) NOT VALID;",
        "ALTER TABLE orders VALIDATE CONSTRAINT short;",
        "ALTER TABLE orders ADD CONSTRAINT one UNIQUE USING INDEX one_note;",
        "ALTER TABLE orders DROP CONSTRAINT short;",
        "ALTER TABLE orders ALTER CONSTRAINT known DEFERRABLE INITIALLY DEFERRED;",
        "ALTER TABLE orders ALTER COLUMN note SET DEFAULT '';",
        "ALTER TABLE orders ALTER COLUMN note DROP NOT NULL;",
        "COMMENT ON COLUMN orders.note IS 'What the customer wrote.';",
        "CREATE TABLE payouts (id uuid PRIMARY KEY, amount bigint NOT NULL CHECK (amount > 0));",
        "CREATE TABLE payouts (id uuid); CREATE INDEX payouts_by_id ON payouts (id);",
        "CREATE TABLE notes (id uuid, name text COLLATE \"C\", PRIMARY KEY (id, name));",
        "CREATE TABLE notes (id uuid, type text COLLATE \"C\", PRIMARY KEY (id, type));",
        "CREATE TABLE notes (name text); CREATE INDEX by_name ON notes (name COLLATE \"C\");",
        "ANALYZE orders (note);",
        "CREATE FUNCTION one() RETURNS int LANGUAGE sql AS $$ SELECT 1 $$;",
        "CREATE TABLE levels (name text); INSERT INTO levels VALUES ('low'), ('high');",
        "INSERT INTO levels (name) VALUES ('low');",
        "CREATE VIEW open_orders AS SELECT id FROM orders WHERE status = 'open';",
    ] {
        assert_eq!(faults_of(statement), [], "{statement}");
    }
    for file in [
        "-- no-transaction\nCREATE INDEX CONCURRENTLY orders_by_note ON orders (account_id, note);",
        "-- no-transaction\nCREATE UNIQUE INDEX CONCURRENTLY one_note ON orders (note) WHERE true;",
        "-- no-transaction\n-- Nothing reads it.\nDROP INDEX CONCURRENTLY orders_by_note;",
        "-- no-transaction\nDROP INDEX CONCURRENTLY IF EXISTS orders_by_note;",
        "-- A comment first.\nSET LOCAL lock_timeout TO '500ms';\nCOMMENT ON TABLE orders IS 'x';",
    ] {
        assert_eq!(faults(file), [], "{file}");
    }
}

#[test]
fn what_would_hurt_a_table_in_use_is_refused_by_its_rule() {
    for (fault, statements) in [
        (
            Fault::NoNotValid,
            &[
                "ALTER TABLE orders ADD CONSTRAINT short CHECK (char_length(note) < 9);",
                "ALTER TABLE orders ADD CONSTRAINT known FOREIGN KEY (a) REFERENCES t (a);",
                "ALTER TABLE orders ADD CHECK (amount > 0);",
                "ALTER TABLE orders ADD COLUMN note text CHECK (note <> '');",
                "ALTER TABLE orders ADD COLUMN owner uuid REFERENCES accounts (id);",
                // Words in a string are no keywords.
                "ALTER TABLE orders ADD CONSTRAINT s CHECK (note <> 'NOT VALID');",
            ][..],
        ),
        (
            Fault::KeyWithoutIndex,
            &[
                "ALTER TABLE orders ADD CONSTRAINT one UNIQUE (note);",
                "ALTER TABLE orders ADD PRIMARY KEY (id);",
                "ALTER TABLE orders ADD COLUMN note text UNIQUE;",
            ],
        ),
        (
            Fault::NotConcurrently,
            &[
                "CREATE INDEX orders_by_note ON orders (note);",
                "CREATE UNIQUE INDEX IF NOT EXISTS one_note ON public.orders (note);",
                "DROP INDEX orders_by_note;",
                "CREATE TABLE payouts (id uuid); CREATE INDEX orders_by_note ON orders (note);",
            ],
        ),
        (
            Fault::ConcurrentlyInTransaction,
            &[
                "CREATE INDEX CONCURRENTLY orders_by_note ON orders (note);",
                "drop index concurrently orders_by_note;",
            ],
        ),
        (
            Fault::NotNullUnproven,
            &["ALTER TABLE orders ALTER COLUMN note SET NOT NULL;"],
        ),
        (
            Fault::ChangesType,
            &[
                "ALTER TABLE orders ALTER COLUMN note TYPE varchar(9);",
                "ALTER TABLE orders ALTER note SET DATA TYPE bigint USING note::bigint;",
            ],
        ),
        (
            Fault::RewritesTable,
            &[
                "ALTER TABLE orders ADD COLUMN token uuid NOT NULL DEFAULT gen_random_uuid();",
                "ALTER TABLE orders ADD COLUMN at timestamptz DEFAULT clock_timestamp();",
                "ALTER TABLE orders ADD COLUMN r float DEFAULT 1 + random();",
                "ALTER TABLE orders ADD COLUMN n bigint GENERATED ALWAYS AS IDENTITY;",
                "ALTER TABLE orders ADD COLUMN d bigint GENERATED ALWAYS AS (amount * 2) STORED;",
            ],
        ),
        (
            Fault::NotNullWithoutDefault,
            &["ALTER TABLE orders ADD COLUMN note text NOT NULL;"],
        ),
        (
            Fault::SortedByLocale,
            &[
                "CREATE TABLE notes (name text PRIMARY KEY);",
                "CREATE TABLE notes (name varchar(9) NOT NULL UNIQUE);",
                "CREATE TABLE notes (id uuid, name text, PRIMARY KEY (id, name));",
                "CREATE TABLE notes (id uuid, name text COLLATE \"und-x-icu\", UNIQUE (id, name));",
                "CREATE TABLE notes (name text); CREATE INDEX notes_by_name ON notes (lower(name));",
                "CREATE TABLE notes (tags text[]); CREATE INDEX by_tag ON notes USING gin (tags);",
                "ALTER TABLE orders ADD COLUMN note text; CREATE INDEX by_note ON orders (note DESC);",
                "ALTER TABLE orders ALTER note TYPE text; CREATE INDEX by_note ON orders (id, note);",
            ],
        ),
        (
            Fault::ChangesRows,
            &[
                "UPDATE orders SET note = '';",
                "UPDATE orders SET note = '' WHERE note IS NULL;",
                "DELETE FROM orders;",
                "TRUNCATE orders;",
                "INSERT INTO notes SELECT id, note FROM orders;",
            ],
        ),
        (
            Fault::ContractsUnmarked,
            &[
                "ALTER TABLE orders DROP COLUMN note;",
                "ALTER TABLE orders RENAME COLUMN note TO remark;",
                "ALTER TABLE orders RENAME TO purchases;",
                "DROP TABLE orders;",
                "-- contract:\nALTER TABLE orders DROP COLUMN note;",
            ],
        ),
        (
            Fault::NotKnownToBeSafe,
            &[
                "DO $$ BEGIN UPDATE orders SET note = ''; END $$;",
                "VACUUM FULL orders;",
                "ALTER TABLE orders ADD CONSTRAINT e EXCLUDE USING gist (during WITH &&);",
                "ALTER TABLE orders SET UNLOGGED;",
                "ALTER TABLE orders DROP COLUMN note CASCADE;",
                "CREATE TABLE copies AS SELECT * FROM orders;",
                "SET LOCAL statement_timeout = 0;",
                "This is no SQL;",
                "ALTER TABLE orders ADD COLUMN 'note;",
            ],
        ),
    ] {
        for statement in statements {
            let found = faults_of(statement);
            assert!(found.contains(&fault), "{statement}: {found:?}");
        }
    }
}

#[test]
fn a_transaction_begins_with_a_short_lock_timeout() {
    let comment = "COMMENT ON TABLE orders IS 'x';";
    for (first, is_refused) in [
        ("SET LOCAL lock_timeout = '5s';", false),
        ("SET LOCAL lock_timeout = '5000ms';", false),
        ("SET LOCAL lock_timeout = '6s';", true),
        ("SET LOCAL lock_timeout = '1min';", true),
        ("SET LOCAL lock_timeout = '0s';", true),
        ("SET LOCAL lock_timeout = DEFAULT;", true),
        // For the session: it would outlive the migration.
        ("SET lock_timeout = '2s';", true),
        ("", true),
    ] {
        let found = faults(&format!("{first}\n{comment}"));
        let is_found = found.contains(&Fault::NoLockTimeout);
        assert_eq!(is_found, is_refused, "{first}: {found:?}");
    }
    let found = faults(&format!("{comment}\n{TIMEOUT}"));
    assert_eq!(found, [Fault::NoLockTimeout], "it comes too late");
}

#[test]
fn a_file_without_a_transaction_holds_one_concurrent_statement() {
    let create = "CREATE INDEX CONCURRENTLY orders_by_note ON orders (note);";
    let add = "ALTER TABLE orders ADD COLUMN note text;";
    let create_if_missing = create.replace("orders_by", "IF NOT EXISTS orders_by");
    for (before, statements, fault) in [
        ("", &*format!("{create}\n{create}"), Fault::NotAlone),
        ("", &format!("{TIMEOUT}{create}"), Fault::NotAlone),
        ("", add, Fault::NeedlesslyWithoutTransaction),
        // sqlx looks at the first bytes of the file only.
        ("-- An index.\n", create, Fault::ConcurrentlyInTransaction),
        ("", &create_if_missing, Fault::TakesInvalidIndex),
    ] {
        let file = format!("{before}-- no-transaction\n{statements}");
        let found = faults(&file);
        assert!(found.contains(&fault), "{file}: {found:?}");
    }
}

#[test]
fn a_constraint_is_validated_by_a_later_file() {
    let add = "ALTER TABLE orders ADD CONSTRAINT short CHECK (char_length(note) < 9) NOT VALID;";
    let validate = "ALTER TABLE orders VALIDATE CONSTRAINT short;";
    let found = faults_of(&format!("{add}\n{validate}"));
    assert_eq!(found, [Fault::ValidatedTooEarly]);
    let mut linter = Linter::default();
    for statement in [add, validate] {
        let found = linter.faults(&format!("{TIMEOUT}{statement}"));
        assert_eq!(found, [], "{statement}");
    }
}

#[test]
fn not_null_needs_a_check_that_an_earlier_file_validated() {
    let check = "ALTER TABLE orders ADD CONSTRAINT c CHECK (note IS NOT NULL) NOT VALID;";
    let validate = "ALTER TABLE orders VALIDATE CONSTRAINT c;";
    let set = "ALTER TABLE orders ALTER COLUMN note SET NOT NULL, DROP CONSTRAINT c;";
    let other = "ALTER TABLE orders ALTER COLUMN amount SET NOT NULL;";
    let unproven = &[Fault::NotNullUnproven][..];
    for (files, expected) in [
        (&[check, validate, set][..], &[][..]),
        (&[check, set], unproven),
        (&[validate, set], unproven),
        (&[check, validate, other], unproven),
        // In one transaction the lock of SET NOT NULL is held while VALIDATE reads the table.
        (&[check, &format!("{validate}\n{set}")], unproven),
    ] {
        let mut linter = Linter::default();
        let mut found = Vec::new();
        for statements in files {
            found.extend(linter.faults(&format!("{TIMEOUT}{statements}")));
        }
        assert_eq!(found, expected, "{files:?}");
    }
}

#[test]
fn a_marked_contract_phase_may_drop_and_rename() {
    for statement in [
        "ALTER TABLE orders DROP COLUMN note;",
        "ALTER TABLE orders RENAME COLUMN note TO remark;",
        "DROP TABLE orders;",
    ] {
        let marked = format!("-- contract: release 0.4 reads it no more\n{TIMEOUT}{statement}");
        assert_eq!(faults(&marked), [], "{statement}");
    }
}
