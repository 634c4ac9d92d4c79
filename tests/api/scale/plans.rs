//! No statement's cost grows with the tables: each one of the program is planned and run against
//! 200,000 rows, once for its values and once by a plan for any values.

use charge_once::database::shard_load;
use charge_once_service::request_log::SEARCHED_MAX;

use super::{
    statements::{self, Bound, Parameter, Statement, list},
    tables::{BigTables, GROWING, ROWS},
};
use crate::support::prelude::*;

/// Rows that one node of a plan may read. A page and a batch of these tests have eleven.
const READ_MAX: u64 = 1_000;

/// Statements of the console, which read rows one after the other, and their bound: its searches,
/// its overview, and what retries the webhooks that failed. A person runs them.
const SEARCHES: [&str; 4] = ["LIMIT 20000", "OFFSET 19999", "LIMIT 5000", "LIMIT 1441"];

/// Pages of tables and indexes that a statement may look at, beside [`PAGES_PER_ROW_MAX`] for each
/// row. A page counts each time that it is looked at.
const PAGES_MAX: u64 = 40;

/// Pages for each row that a statement reads. Three pages lead through an index to a row. An update
/// leads through every index of its table.
const PAGES_PER_ROW_MAX: u64 = 25;

/// Statements that read a table whole on purpose: a person runs them, and the table is small. Those
/// of `store::invariants` and `store::sweepable` read all tables, for a person too, and are not
/// listed with the others: they are made of parts, or run without sqlx's macros.
const WHOLE: [&str; 4] = [
    "FROM api_keys JOIN accounts",
    // All keys in flight that an operator asks for.
    "lease.in_doubt OR NOT $3::boolean",
    // All accounts, of which an operator asks which one has used a key.
    "WHERE accounts.closed_at IS NULL",
    // One lease that an operator resolves, by its operation alone.
    "WHERE operation = $1 AND kind = $4",
];

/// Statements that write one row whole, which they find by its key. Values that are not made for
/// each other break its CHECKs, so they are planned and not run.
const WHOLE_ROWS: [&str; 8] = [
    "UPDATE idempotency_keys AS record",
    "UPDATE operations\n           SET completed_at",
    "UPDATE charges",
    "UPDATE checkouts",
    "UPDATE orders",
    "UPDATE payment_intents",
    "UPDATE payment_methods",
    "UPDATE setup_intents",
];

/// What is pending stays so, and the statistics say that nothing is.
const FORGOTTEN: &str = "
    ALTER TABLE webhook_deliveries SET (autovacuum_enabled = false);
    UPDATE webhook_deliveries SET status = 'failed', claim = NULL, next_attempt_at = NULL
     WHERE status = 'pending';
    ANALYZE webhook_deliveries;
    UPDATE webhook_deliveries SET status = 'pending', next_attempt_at = now()
     WHERE status = 'failed'";

#[tokio::test]
async fn no_statement_reads_more_the_bigger_a_table_is() {
    let tables = BigTables::new().await;
    let is_whole = |sql: &str| WHOLE.iter().any(|whole| sql.contains(whole));
    let planned = assert_bounded(&tables, |sql| !is_whole(sql)).await;
    assert!(planned > 500, "only {planned} plans");
    // It asks for all accounts that are open, and is not one of sqlx's macros.
    let accounts = Statement {
        sql: shard_load::ACCOUNTS.to_owned(),
        parameters: vec![Parameter::of(shard_load::ACCOUNTS, "int4", 1)],
    };
    let mut connection = tables.database.pool.acquire().await.unwrap();
    let limit = [shard_load::EVENTS_READ_MAX.to_string()];
    let mode = "force_custom_plan";
    let mut faults = faults_with(&mut connection, &accounts, &limit, mode).await;
    // PostgreSQL's catalogs have what they have, however many rows the tables do.
    faults.retain(|fault| !fault.contains(" of pg_"));
    assert_eq!(faults, [""; 0]);
    // What counts the deliveries of an event finds them by the event, also where the statistics
    // call it cheaper to look through all that is pending.
    tables.database.execute(FORGOTTEN).await;
    let counts = [
        "pending_webhooks!",
        "is_ready!",
        "DELETE FROM webhook_deliveries AS delivery",
    ];
    let counts_pending = |sql: &str| counts.iter().any(|one| sql.contains(one));
    let planned = assert_bounded(&tables, counts_pending).await;
    assert!(planned > 40, "only {planned} plans");
}

/// Plans the statements that are chosen by their SQL, and says how many plans these were.
async fn assert_bounded(tables: &BigTables, is_chosen: impl Fn(&str) -> bool) -> usize {
    let mut connection = tables.database.pool.acquire().await.unwrap();
    let mut faults = Vec::new();
    let mut planned = 0;
    for statement in statements::all() {
        if !is_chosen(&statement.sql) {
            continue;
        }
        for values in values_of(&statement, tables) {
            for mode in ["force_custom_plan", "force_generic_plan"] {
                planned += 1;
                let found = faults_with(&mut connection, &statement, &values, mode).await;
                if !found.is_empty() {
                    let sql: Vec<_> = statement.sql.split_whitespace().collect();
                    let (sql, found, values) = (sql.join(" "), found.join("; "), list(&values));
                    faults.push(format!("{mode} {found}\n{sql}\n{values}\n"));
                }
            }
        }
    }
    assert!(
        faults.is_empty(),
        "{} of {planned} plans\n\n{}",
        faults.len(),
        faults.join("\n")
    );
    planned
}

/// What a statement does with these values that it must not.
async fn faults_with(
    connection: &mut PgConnection,
    statement: &Statement,
    values: &[String],
    mode: &str,
) -> Vec<String> {
    let mut plan = plan_of(connection, statement, values, mode).await;
    if looks_at_too_much(&plan) {
        // The first use of a table reads what the catalogs say of its indexes.
        plan = plan_of(connection, statement, values, mode).await;
    }
    let mut found = Vec::new();
    let is_run = plan["Execution Time"].is_number();
    // A new row may be there already: the values are those of one that is.
    let is_whole_row = WHOLE_ROWS.iter().any(|row| statement.sql.contains(row));
    if !is_run && !is_whole_row && !statement.sql.contains("INSERT INTO") {
        found.push("was not run, so what it reads is unknown".to_owned());
    }
    let is_search = SEARCHES.iter().any(|search| statement.sql.contains(search));
    let read_max = match is_search {
        true => SEARCHED_MAX.unsigned_abs(),
        false => READ_MAX,
    };
    faults_of(&plan["Plan"], read_max, &mut found);
    // A plan doesn't say how many entries of an index were read in vain, but how many pages.
    if looks_at_too_much(&plan) {
        let (pages, rows) = (pages_of(&plan["Plan"]), most_rows(&plan["Plan"]));
        found.push(format!("looks at {pages} pages for {rows} rows"));
    }
    found
}

fn looks_at_too_much(plan: &Value) -> bool {
    let (pages, rows) = (pages_of(&plan["Plan"]), most_rows(&plan["Plan"]));
    pages > PAGES_MAX + rows * PAGES_PER_ROW_MAX
}

/// Values to run a statement with: a page of any time, one that begins or ends in the middle of the
/// table, far from both ends, and one of a minute there. `charge_once_strict_params::pages` derives
/// the ids of a page from its time.
fn values_of(statement: &Statement, tables: &BigTables) -> Vec<Vec<String>> {
    let parameters = &statement.parameters;
    if parameters.iter().all(|one| one.bound.is_none()) {
        let values = parameters.iter().map(|one| literal(one, tables));
        return vec![values.collect()];
    }
    let page = |from: Option<i64>, to: Option<i64>| {
        let value = |parameter: &Parameter| match (parameter.bound, &*parameter.kind) {
            (Some(bound), "uuid") => {
                let (row, open) = match bound {
                    Bound::From => (from.map(|row| row - SLACK_ROWS), "00000000"),
                    Bound::To => (to.map(|row| row + SLACK_ROWS), "ffffffff"),
                };
                let open = format!("'{open}-{0}-{0}-{0}-{0}{0}{0}'::uuid", &open[..4]);
                row.map_or(open, |row| format!("id_of({row})"))
            }
            (Some(bound), _) => {
                let row = match bound {
                    Bound::From => from,
                    Bound::To => to,
                };
                row.map_or("NULL".to_owned(), |row| format!("at({row})"))
            }
            (None, _) => literal(parameter, tables),
        };
        parameters.iter().map(value).collect()
    };
    let middle = ROWS / 2 + 1;
    vec![
        page(None, None),
        page(Some(middle), None),
        page(None, Some(middle)),
        page(Some(middle), Some(middle + 6)),
    ]
}

/// What `charge_once_strict_params::pages` allows an id to be apart from its row's time, in rows.
const SLACK_ROWS: i64 = 6;

/// SQL for a parameter's value: row 100,001 where it names a row.
fn literal(parameter: &Parameter, tables: &BigTables) -> String {
    let row = ROWS / 2 + 1;
    let column = parameter.column.as_deref().unwrap_or_default();
    let value = match (&*parameter.kind, column) {
        // A filter that this statement is not for.
        ("text" | "uuid", "IS") => "NULL".to_owned(),
        ("uuid", "account_id") => format!("'{}'", tables.account),
        ("uuid", _) => format!("id_of({row})"),
        ("uuid[]", "account_id") => format!("ARRAY['{}'::uuid]", tables.account),
        ("uuid[]", _) => format!("ARRAY[id_of({row})]"),
        ("text", "key" | "idempotency_key") => format!("'key-{row}'"),
        ("text", "customer") => "'cus_4001'".to_owned(),
        ("text", "email") => "'ann@example.com'".to_owned(),
        ("text", "client_order_id") => format!("'order-{row}'"),
        ("text", "label") => "'label-100'".to_owned(),
        ("text", "outcome") => "'done'".to_owned(),
        ("int2", "status") => "201".to_owned(),
        ("text", "kind") => "'processor'".to_owned(),
        ("text", "sku") => format!("'sku-{row}'"),
        ("text", "type") => "'charge.updated'".to_owned(),
        // JSON too.
        ("text", _) => "'1'".to_owned(),
        ("text[]", "status") => "ARRAY['succeeded']".to_owned(),
        ("text[]", "type") => "ARRAY['charge.updated', 'charge.captured']".to_owned(),
        // JSON of what changes of a refund or a customer.
        ("text[]", "row") => r#"ARRAY['{"metadata": {}, "preferred_locales": [],
                                        "status": "succeeded", "version": 1}']"#
            .to_owned(),
        ("text[]", "outcomes" | "durations") => "ARRAY['{1}']".to_owned(),
        ("text[]", "sku") => format!("ARRAY['sku-{row}']"),
        ("text[]", _) => format!("ARRAY['key-{row}']"),
        ("timestamptz", _) => format!("at({row})"),
        ("timestamptz[]", _) => format!("ARRAY[at({row})]"),
        ("int8" | "int4" | "int2", _) => "11".to_owned(),
        ("int8[]" | "int2[]", _) => "ARRAY[1]".to_owned(),
        ("interval", _) => "'1 minute'".to_owned(),
        // None after the last attempt.
        ("interval[]", _) => "ARRAY[NULL]".to_owned(),
        ("jsonb", _) => "'{}'".to_owned(),
        ("jsonb[]", _) => "ARRAY['[]']".to_owned(),
        ("bytea", _) => "sha256('x')".to_owned(),
        ("bytea[]", _) => "ARRAY[sha256('x')]".to_owned(),
        ("bool", _) => "true".to_owned(),
        ("bool[]", _) => "ARRAY[true]".to_owned(),
        (kind, _) => panic!("no value for a parameter of the type {kind}"),
    };
    format!("{value}::{}", parameter.kind)
}

/// The plan that a statement runs with, with what it read. Nothing of what it writes stays. A
/// statement that these values break a constraint with is planned and not run.
async fn plan_of(
    connection: &mut PgConnection,
    statement: &Statement,
    values: &[String],
    mode: &str,
) -> Value {
    // What refers to a row doesn't keep it here. `locks` tests that each foreign key has an index.
    let settings = format!(
        "SET LOCAL session_replication_role = replica; SET LOCAL plan_cache_mode = {mode}; "
    );
    for options in ["ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON", "FORMAT JSON"] {
        let plan = statement.explain(connection, &settings, options, values);
        if let Ok(plan) = plan.await {
            assert!(plan["Plan"].is_object(), "{}: {plan}", statement.sql);
            return plan;
        }
    }
    panic!("no plan for {}", statement.sql);
}

/// The pages that a node of a plan, and those below it, looked at: in memory or not.
fn pages_of(node: &Value) -> u64 {
    let pages = |name: &str| node[name].as_u64().unwrap_or_default();
    pages("Shared Hit Blocks") + pages("Shared Read Blocks")
}

/// The most rows that a node of a plan read, or one below it.
fn most_rows(node: &Value) -> u64 {
    let below = node["Plans"].as_array().into_iter().flatten();
    let most = below.map(most_rows).max().unwrap_or_default();
    most.max(rows_of(node))
}

/// The rows that a node read, in all of its loops.
fn rows_of(node: &Value) -> u64 {
    // PostgreSQL 18 shows rows with a fraction.
    let rows = |name: &str| node[name].as_f64().map_or(0, |rows| rows.round() as u64);
    let read = rows("Actual Rows").saturating_add(rows("Rows Removed by Filter"));
    read.saturating_mul(rows("Actual Loops").max(1))
}

/// What a node of a plan does that it must not, and what the nodes below it do.
fn faults_of(node: &Value, read_max: u64, faults: &mut Vec<String>) {
    let kind = node["Node Type"].as_str().unwrap();
    let table = node["Relation Name"].as_str().unwrap_or_default();
    if kind == "Seq Scan" && GROWING.split(' ').any(|growing| growing == table) {
        faults.push(format!("reads {table} whole"));
    }
    let read = rows_of(node);
    if read > read_max {
        faults.push(format!("{kind} of {table} reads {read} rows"));
    }
    for below in node["Plans"].as_array().into_iter().flatten() {
        faults_of(below, read_max, faults);
    }
}
