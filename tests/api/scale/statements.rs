//! Every statement of the program, as sqlx's macros keep it for builds without a database.

use std::{borrow::Borrow, fs};

use crate::support::prelude::*;

pub struct Statement {
    pub sql: String,
    pub parameters: Vec<Parameter>,
}

pub struct Parameter {
    /// PostgreSQL's name of its type, in lower case.
    pub kind: String,
    /// The column that it is compared with, if the statement compares it with one, or that it is
    /// unnested as. `IS`: it must be NULL.
    pub column: Option<String>,
    /// Which end of a page it is, if it is one.
    pub bound: Option<Bound>,
}

#[derive(Debug, Clone, Copy)]
pub enum Bound {
    From,
    To,
}

/// Where the statements of the API are, and of its crates.
pub const FOLDERS: [&str; 5] = [
    ".sqlx",
    "crates/postgres/.sqlx",
    "crates/idempotency/.sqlx",
    "crates/service/.sqlx",
    "crates/webhooks/.sqlx",
];

/// The files of such a folder, and what is in them.
pub fn committed(folder: &str) -> impl Iterator<Item = (PathBuf, Value)> + use<> {
    let files = fs::read_dir(root().join(folder)).unwrap();
    files.map(|file| {
        let path = file.unwrap().path();
        let content = fs::read(&path).unwrap();
        (path, serde_json::from_slice(&content).unwrap())
    })
}

/// All of them. The card processor's simulator has a database of its own, which no one runs in
/// production.
pub fn all() -> Vec<Statement> {
    let committed = FOLDERS.iter().flat_map(|folder| committed(folder));
    let statements = committed.map(|(_, described)| Statement::of(&described));
    let mut statements: Vec<_> = statements.collect();
    statements.sort_by(|one, other| one.sql.cmp(&other.sql));
    statements
}

/// A list in parentheses, unless it is empty.
pub fn list(items: &[impl Borrow<str>]) -> String {
    match items {
        [] => String::new(),
        items => format!("({})", items.join(", ")),
    }
}

impl Statement {
    /// How PostgreSQL would execute it with values, after these settings, or has executed it.
    /// Nothing of it stays.
    pub async fn explain(
        &self,
        connection: &mut PgConnection,
        settings: &str,
        options: &str,
        values: &[impl Borrow<str>],
    ) -> sqlx::Result<Value> {
        let (sql, kinds) = (&self.sql, self.parameters.iter().map(|one| &*one.kind));
        let kinds = list(&kinds.collect::<Vec<_>>());
        let mut tx = connection.begin().await.unwrap();
        let prepare = format!("{settings}PREPARE planned {kinds} AS {sql}");
        let prepared = sqlx::raw_sql(AssertSqlSafe(prepare)).execute(&mut *tx);
        let prepared = prepared.await;
        assert!(prepared.is_ok(), "{prepared:?}: {sql}");
        let explain = format!("EXPLAIN ({options}) EXECUTE planned {}", list(values));
        let explained = sqlx::raw_sql(AssertSqlSafe(explain)).fetch_one(&mut *tx);
        let explained = explained.await;
        tx.rollback().await.unwrap();
        let forget = sqlx::raw_sql("DEALLOCATE planned");
        forget.execute(connection).await.unwrap();
        let mut plans: Value = explained?.get(0);
        Ok(plans[0].take())
    }

    fn of(described: &Value) -> Self {
        let sql = described["query"].as_str().unwrap().to_owned();
        let kinds = described["describe"]["parameters"]["Left"].clone();
        let kinds: Vec<String> = serde_json::from_value(kinds).unwrap();
        let parameters = kinds.iter().zip(1..);
        let parameters = parameters.map(|(kind, number)| Parameter::of(&sql, kind, number));
        Self {
            parameters: parameters.collect(),
            sql,
        }
    }
}

impl Parameter {
    pub fn of(sql: &str, kind: &str, number: usize) -> Self {
        let find = |pattern: &str| {
            let pattern = Regex::new(&pattern.replace("NUMBER", &number.to_string())).unwrap();
            let found = pattern.captures(sql)?;
            Some((found[1].to_owned(), found[2].to_owned()))
        };
        let compared = find(r"(\w+)\s*(=|<=|>=|<|>)\s*(?:ANY\s*\(\s*)?\$NUMBER\b");
        let unused = find(r"AND \$NUMBER::\w+ (IS) (NULL)\s+(?:AND|ORDER)");
        let unnested = || {
            let lists = r"(?i)unnest\(([^)]*)\)(?:\s+WITH ORDINALITY)?\s+AS\s+\w+\s*\(([^)]*)\)";
            let lists = Regex::new(lists).unwrap().captures(sql)?;
            let start = format!("${number}::");
            let mut both = lists[1].split(',').zip(lists[2].split(','));
            let (_, column) = both.find(|(value, _)| value.trim().starts_with(&start))?;
            Some(column.trim().to_owned())
        };
        let bound = match compared.as_ref().map(|(column, how)| (&**column, &**how)) {
            Some(("id" | "created_at", ">" | ">=")) => Some(Bound::From),
            Some(("id" | "created_at", "<" | "<=")) => Some(Bound::To),
            _ => None,
        };
        Self {
            kind: match kind.strip_suffix("Array") {
                Some(element) => format!("{}[]", element.to_lowercase()),
                None => kind.to_lowercase(),
            },
            column: compared
                .or(unused)
                .map(|(column, _)| column)
                .or_else(unnested),
            bound,
        }
    }
}
