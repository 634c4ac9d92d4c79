//! No statement of one account's request can read or change another's rows: where a statement looks
//! into a table with accounts, it says which account.
//!
//! PostgreSQL parses the statements. Its plans, made for any values, show the conditions that it
//! reads each table by, with those that it derived: where one table is joined to another by
//! account, and the other one's account is a parameter, so is the first one's.

use super::{
    statements::{self, Parameter, Statement},
    tables::GROWING,
};
use crate::support::prelude::*;

/// Statements about rows of many accounts: a part of each one, and why it is one. Those of
/// `store::invariants` and `store::sweepable` are about all accounts too, and run without sqlx's
/// macros.
const OF_MANY_ACCOUNTS: [&str; 20] = [
    // An API key says whose request it is.
    r#"SELECT key.hash AS "hash: "#,
    // A person revokes an API key that leaked, or lists API keys.
    "WHERE hash = $1 AND (revoked_at IS NULL OR from_dev_api_key)",
    "FROM api_keys JOIN accounts",
    // A person lists keys in flight, asks whose key it is, lists operations, and resolves them.
    "lease.in_doubt OR NOT $3::boolean",
    "WHERE accounts.closed_at IS NULL ORDER BY accounts.id",
    "WHERE completed_at IS NULL ORDER BY operations.created_at",
    "refused.outcome = 'declined'",
    "WHERE operation = $1 AND kind = $4",
    // The sweep removes expired keys, and closes test accounts.
    "WITH this_sweep AS MATERIALIZED",
    "account.test_until <= now() - interval",
    // The reconciler looks for work, and takes over a lease.
    "SELECT EXISTS ( SELECT FROM idempotency_leases",
    "WITH abandoned AS MATERIALIZED",
    // The webhook worker finds deliveries that are due again, gives endpoints their turns, and
    // finds deleted ones.
    "SET ready = true",
    r#"AS "is_deleted!""#,
    "deleted_at IS NOT NULL AND canceled_at IS NULL",
    // Metrics.
    r#"AS "age!" FROM idempotency_keys"#,
    r#"AS "running!""#,
    r#"AS "refused!""#,
    r#"AS "due!""#,
    "LIMIT 1)))::float8 AS age",
];

/// Tables whose rows belong to an account each.
const WITH_ACCOUNTS: &str = "SELECT relname
      FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
     WHERE attname = 'account_id' AND relkind IN ('r', 'p') AND relnamespace = 'public'::regnamespace";

#[tokio::test]
async fn every_statement_on_a_table_with_accounts_says_which_account() {
    let database = TestDatabase::create().await;
    let tables: Vec<String> = database.values(WITH_ACCOUNTS).await;
    let tables: BTreeSet<_> = tables.iter().map(String::as_str).collect();
    // The id of a tombstone begins with the hash of its account.
    let of_accounts = |table: &str| {
        ["accounts", "idempotency_tombstones"].contains(&table) || tables.contains(table)
    };
    assert!(GROWING.split(' ').all(of_accounts), "{tables:?}");
    let mut connection = database.pool.acquire().await.unwrap();
    let (mut faults, mut looked_at) = (Vec::new(), 0);
    let mut unused = BTreeSet::from(OF_MANY_ACCOUNTS);
    for statement in statements::all() {
        let scans = Scans::of(&plan(&mut connection, &statement).await);
        let free = scans.free(&tables);
        looked_at += scans.0.len();
        if free.is_empty() {
            continue;
        }
        let sql: Vec<_> = statement.sql.split_whitespace().collect();
        let sql = sql.join(" ");
        match OF_MANY_ACCOUNTS.iter().find(|part| sql.contains(**part)) {
            Some(part) => _ = unused.remove(part),
            None => faults.push(format!("{}: {sql}\n", free.join(", "))),
        }
    }
    assert!(looked_at > 100, "only {looked_at} looks into tables");
    assert!(
        faults.is_empty(),
        "{} statements don't say `account_id = $n`\n\n{}",
        faults.len(),
        faults.join("\n")
    );
    assert!(unused.is_empty(), "no statement for {unused:?}");
}

#[tokio::test]
async fn a_statement_that_names_no_account_is_found() {
    let database = TestDatabase::create().await;
    let mut connection = database.pool.acquire().await.unwrap();
    let tables = BTreeSet::from(["charges", "refunds"]);
    for line in FREE_TABLES.trim().lines() {
        let (expected, sql) = line.split_once(": ").unwrap();
        let parameters = vec![Parameter::of(sql, "uuid", 1), Parameter::of(sql, "uuid", 2)];
        let sql = sql.to_owned();
        let statement = Statement { sql, parameters };
        let plan = plan(&mut connection, &statement).await;
        let scans = Scans::of(&plan);
        let mut free = scans.free(&tables);
        free.sort_unstable();
        assert_eq!(free.join(" "), expected, "{line}: {plan:#}");
    }
}

/// Statements, and the tables of which they don't say which account.
const FREE_TABLES: &str = "
: SELECT FROM charges WHERE account_id = $1 AND id = $2
: SELECT FROM charges WHERE (id, account_id) = ($2, $1)
: DELETE FROM charges WHERE account_id = $1
: SELECT FROM charges JOIN refunds USING (account_id) WHERE account_id = $1
: SELECT FROM unnest(ARRAY[$1]) AS one (account_id) JOIN charges USING (account_id)
charges: SELECT FROM charges WHERE id = $2
charges: UPDATE charges SET metadata = '{}' WHERE id = $2
charges: SELECT FROM charges WHERE (account_id = $1 OR $1 IS NULL) AND id = $2
charges: SELECT FROM charges WHERE account_id >= $1
charges refunds: SELECT FROM charges JOIN refunds USING (account_id) WHERE charges.id = $2
refunds: SELECT FROM charges WHERE account_id = $1 AND EXISTS (SELECT FROM refunds WHERE refunds.charge_id = charges.id)";

/// The plan for any values.
async fn plan(connection: &mut PgConnection, statement: &Statement) -> Value {
    let settings = "SET LOCAL plan_cache_mode = force_generic_plan; ";
    let options = "VERBOSE, COSTS OFF, FORMAT JSON";
    let nulls = vec!["NULL"; statement.parameters.len()];
    let explained = statement.explain(connection, settings, options, &nulls);
    explained.await.unwrap()["Plan"].take()
}

/// The looks into tables that a plan consists of, and the conditions of all its nodes.
struct Scans(Vec<Scan>, Vec<String>);

struct Scan {
    table: String,
    alias: String,
}

impl Scans {
    fn of(plan: &Value) -> Self {
        let mut scans = Self(Vec::new(), Vec::new());
        scans.add(plan);
        scans
    }

    fn add(&mut self, node: &Value) {
        let text = |name: &str| node[name].as_str().map(str::to_owned);
        // The node that writes has the rows from a node below it, which looked for them.
        if node["Node Type"] != "ModifyTable"
            && let (Some(table), Some(alias)) = (text("Relation Name"), text("Alias"))
        {
            self.0.push(Scan { table, alias });
        }
        for (name, value) in node.as_object().unwrap() {
            if (name.ends_with("Cond") || name.ends_with("Filter"))
                && let Some(condition) = value.as_str()
            {
                let all = conjuncts(condition).into_iter().map(str::to_owned);
                self.1.extend(all);
            }
        }
        for below in node["Plans"].as_array().into_iter().flatten() {
            self.add(below);
        }
    }

    /// The looks into `tables` that are bound to no account. One is bound if its account is a
    /// parameter, or that of another look which is bound, or comes with the rows of a subquery:
    /// what that one looks into is in the plan as well. So is where the place of a row, its `ctid`,
    /// was found.
    fn free(&self, tables: &BTreeSet<&str>) -> Vec<&str> {
        let is_of_these = |scan: &&Scan| tables.contains(&*scan.table);
        let mut free: Vec<_> = self.0.iter().filter(is_of_these).collect();
        let equal = self.1.iter().filter_map(|one| one.split_once(" = "));
        let equal: Vec<_> = equal.collect();
        loop {
            let before = free.len();
            let names = free.iter().map(|scan| format!("{}.account_id", scan.alias));
            let names: Vec<_> = names.collect();
            let is_bound = |value: &str| {
                value.starts_with('$')
                    || value.starts_with("ANY ($")
                    || value.ends_with(".account_id") && names.iter().all(|name| name != value)
            };
            free.retain(|scan| {
                let [name, row] = ["account_id", "ctid"].map(|of| format!("{}.{of}", scan.alias));
                !equal.iter().any(|(one, other)| {
                    *one == name && is_bound(other)
                        || *other == name && is_bound(one)
                        || *one == row
                        || *other == row
                })
            });
            if free.len() == before {
                break free.into_iter().map(|scan| &*scan.table).collect();
            }
        }
    }
}

/// What must all hold for a condition to hold, without the parentheses around each.
fn conjuncts(condition: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut begin) = (Vec::new(), 0, 0);
    for (at, char) in condition.char_indices() {
        match char {
            '(' => depth += 1,
            ')' => depth -= 1,
            ' ' if depth == 0 && condition[at..].starts_with(" AND ") => {
                parts.push(&condition[begin..at]);
                begin = at + " AND ".len();
            }
            _ => {}
        }
    }
    match (parts.is_empty(), inside(condition)) {
        (true, Some(inside)) => conjuncts(inside),
        (true, None) => vec![condition],
        (false, _) => {
            parts.push(&condition[begin..]);
            parts.into_iter().flat_map(conjuncts).collect()
        }
    }
}

/// What is between the parentheses, if one pair is around all of it.
fn inside(condition: &str) -> Option<&str> {
    let inside = condition.strip_prefix('(')?.strip_suffix(')')?;
    let mut depth = 0;
    let is_one_pair = inside.chars().all(|char| {
        depth += match char {
            '(' => 1,
            ')' => -1,
            _ => 0,
        };
        depth >= 0
    });
    is_one_pair.then_some(inside)
}
