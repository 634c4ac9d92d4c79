//! No statement of one account's request can read or change another's rows: where a statement looks
//! into a table with accounts, it says which account.
//!
//! PostgreSQL parses the statements. Its plans, made for any values, show the conditions that it
//! reads each table by, with those that it derived: where one table is joined to another by
//! account, and the other one's account is a parameter, so is the first one's.

use sqlx::{Connection, Row};

use super::{statements, tables::GROWING};
use crate::support::prelude::*;

/// Statements about rows of many accounts: a part of each one, and why it is one. Those of
/// `store::invariants` and `store::sweepable` are about all accounts too, and run without sqlx's
/// macros.
const OF_MANY_ACCOUNTS: [(&str, &str); 20] = [
    (
        r#"SELECT key.hash AS "hash: "#,
        "an API key says whose request it is",
    ),
    (
        "WHERE hash = $1 AND (revoked_at IS NULL OR from_dev_api_key)",
        "a person revokes an API key that leaked",
    ),
    ("FROM api_keys JOIN accounts", "a person lists API keys"),
    (
        "lease.in_doubt OR NOT $3::boolean",
        "a person lists keys in flight",
    ),
    (
        "WHERE accounts.closed_at IS NULL ORDER BY accounts.id",
        "a person asks whose key it is",
    ),
    (
        "WHERE completed_at IS NULL ORDER BY operations.created_at",
        "a person lists operations",
    ),
    (
        "refused.outcome = 'declined'",
        "a person lists or resolves operations",
    ),
    (
        "WHERE operation = $1 AND kind = $4",
        "a person resolves an operation",
    ),
    (
        "WITH dead AS MATERIALIZED",
        "the sweep removes expired keys",
    ),
    (
        "account.test_until <= now() - interval",
        "the sweep closes test accounts",
    ),
    (
        "SELECT EXISTS ( SELECT FROM idempotency_leases",
        "the reconciler looks for work",
    ),
    (
        "WITH abandoned AS MATERIALIZED",
        "the reconciler takes over a lease",
    ),
    (
        "SET ready = true",
        "the webhook worker finds deliveries that are due again",
    ),
    (
        r#"AS "is_deleted!""#,
        "the webhook worker gives endpoints their turns",
    ),
    (
        "deleted_at IS NOT NULL AND canceled_at IS NULL",
        "the webhook worker finds deleted endpoints",
    ),
    (r#"AS "age!" FROM idempotency_keys"#, "a metric"),
    (r#"AS "running!""#, "a metric"),
    (r#"AS "refused!""#, "a metric"),
    (r#"AS "due!""#, "a metric"),
    ("LIMIT 1)))::float8 AS age", "a metric"),
];

/// Tables whose rows belong to an account each.
const WITH_ACCOUNTS: &str = "SELECT relname
      FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
     WHERE attname = 'account_id' AND relkind IN ('r', 'p') AND relnamespace = 'public'::regnamespace";

#[tokio::test]
async fn every_statement_on_a_table_with_accounts_says_which_account() {
    let database = TestDatabase::create().await;
    let tables: Vec<String> = sqlx::query_scalar(WITH_ACCOUNTS)
        .fetch_all(&database.pool)
        .await
        .unwrap();
    let tables: BTreeSet<_> = tables.iter().map(String::as_str).collect();
    let of_accounts = |table: &&str| *table == "accounts" || tables.contains(*table);
    assert!(GROWING.iter().all(of_accounts), "{tables:?}");
    let mut connection = database.pool.acquire().await.unwrap();
    let (mut faults, mut looked_at) = (Vec::new(), 0);
    let mut unused: BTreeSet<_> = OF_MANY_ACCOUNTS.iter().map(|(part, _)| *part).collect();
    for statement in statements::all() {
        let kinds: Vec<_> = statement.parameters.iter().map(|one| &*one.kind).collect();
        let scans = Scans::of(&plan(&mut connection, &statement.sql, &kinds).await);
        let free = scans.free(&tables);
        looked_at += scans.0.len();
        if free.is_empty() {
            continue;
        }
        let sql: Vec<_> = statement.sql.split_whitespace().collect();
        let sql = sql.join(" ");
        match OF_MANY_ACCOUNTS.iter().find(|(part, _)| sql.contains(part)) {
            Some((part, _)) => {
                unused.remove(part);
            }
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
    for (sql, expected) in [
        (
            "SELECT FROM charges WHERE account_id = $1 AND id = $2",
            vec![],
        ),
        (
            "SELECT FROM charges WHERE (id, account_id) = ($2, $1)",
            vec![],
        ),
        ("DELETE FROM charges WHERE account_id = $1", vec![]),
        (
            "SELECT FROM charges JOIN refunds USING (account_id) WHERE account_id = $1",
            vec![],
        ),
        (
            "SELECT FROM unnest(ARRAY[$1]) AS one (account_id) JOIN charges USING (account_id)",
            vec![],
        ),
        ("SELECT FROM charges WHERE id = $2", vec!["charges"]),
        (
            "UPDATE charges SET metadata = '{}' WHERE id = $2",
            vec!["charges"],
        ),
        (
            "SELECT FROM charges WHERE (account_id = $1 OR $1 IS NULL) AND id = $2",
            vec!["charges"],
        ),
        (
            "SELECT FROM charges WHERE account_id >= $1",
            vec!["charges"],
        ),
        (
            "SELECT FROM charges JOIN refunds USING (account_id) WHERE charges.id = $2",
            vec!["charges", "refunds"],
        ),
        (
            "SELECT FROM charges WHERE account_id = $1
                AND EXISTS (SELECT FROM refunds WHERE refunds.charge_id = charges.id)",
            vec!["refunds"],
        ),
    ] {
        let plan = plan(&mut connection, sql, &["uuid", "uuid"]).await;
        let scans = Scans::of(&plan);
        let mut free = scans.free(&tables);
        free.sort_unstable();
        assert_eq!(free, expected, "{sql}: {plan:#}");
    }
}

/// The plan for any values.
async fn plan(connection: &mut PgConnection, sql: &str, kinds: &[&str]) -> Value {
    let list = |items: &[&str]| match items {
        [] => String::new(),
        items => format!("({})", items.join(", ")),
    };
    let (nulls, kinds) = (list(&vec!["NULL"; kinds.len()]), list(kinds));
    let mut tx = connection.begin().await.unwrap();
    let prepare =
        format!("SET LOCAL plan_cache_mode = force_generic_plan; PREPARE planned {kinds} AS {sql}");
    let prepared = sqlx::raw_sql(AssertSqlSafe(prepare))
        .execute(&mut *tx)
        .await;
    prepared.unwrap_or_else(|error| panic!("{error}: {sql}"));
    let explain = format!("EXPLAIN (VERBOSE, COSTS OFF, FORMAT JSON) EXECUTE planned {nulls}");
    let explained = sqlx::raw_sql(AssertSqlSafe(explain))
        .fetch_one(&mut *tx)
        .await;
    let mut plans: Value = explained.unwrap().get(0);
    tx.rollback().await.unwrap();
    let forget = sqlx::raw_sql("DEALLOCATE planned");
    forget.execute(connection).await.unwrap();
    plans[0]["Plan"].take()
}

/// The looks into tables that a plan consists of, and the conditions of all its nodes.
struct Scans(Vec<Scan>, Vec<String>);

/// One look into a table.
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
                self.1
                    .extend(conjuncts(condition).into_iter().map(str::to_owned));
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
        let mut free: Vec<_> = self
            .0
            .iter()
            .filter(|scan| tables.contains(&*scan.table))
            .collect();
        let equal: Vec<_> = self
            .1
            .iter()
            .filter_map(|one| one.split_once(" = "))
            .collect();
        loop {
            let before = free.len();
            let names: Vec<_> = free
                .iter()
                .map(|scan| format!("{}.account_id", scan.alias))
                .collect();
            let is_bound = |value: &str| {
                value.starts_with('$')
                    || value.starts_with("ANY ($")
                    || value.ends_with(".account_id") && names.iter().all(|name| name != value)
            };
            free.retain(|scan| {
                let (name, row) = (
                    format!("{}.account_id", scan.alias),
                    format!("{}.ctid", scan.alias),
                );
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
