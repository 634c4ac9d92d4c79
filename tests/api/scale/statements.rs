//! Every statement of the program, as sqlx's macros keep it for builds without a database.

use std::{borrow::Borrow, fs};

use regex::Regex;

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
    bound: Option<Bound>,
}

/// Which end of a page a parameter is.
#[derive(Debug, Clone, Copy)]
pub enum Bound {
    From,
    To,
}

/// All statements of the API, and of its crates. The card processor's simulator has a
/// database of its own, which no one runs in production.
pub fn all() -> Vec<Statement> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let crates = ["postgres", "idempotency", "service", "webhooks"];
    let folders = crates.map(|name| root.join("crates").join(name));
    let folders = folders.into_iter().chain([root.to_owned()]);
    let files = folders.flat_map(|folder| fs::read_dir(folder.join(".sqlx")).unwrap());
    let statements = files.map(|file| Statement::read(&file.unwrap().path()));
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
    fn read(file: &Path) -> Self {
        let described: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
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
    fn of(sql: &str, kind: &str, number: usize) -> Self {
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

    /// Which end of a page it is, if it is one.
    pub fn bound(&self) -> Option<Bound> {
        self.bound
    }
}
