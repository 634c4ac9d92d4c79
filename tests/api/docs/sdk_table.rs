//! The table that docs/sdk.md opens with: which of Stripe's resources and verbs are offered.

use charge_once::wire::{error::ErrorCode, not_offered};

use crate::support::prelude::*;

const OWN: [&str; 9] = [
    ".well-known",
    "checkouts",
    "idempotency-keys",
    "inventory",
    "livez",
    "orders",
    "readyz",
    "test",
    "workflows",
];

/// The columns between the first and the last, each with its method and what follows the resource.
const COLUMNS: [(&str, &str, &str); 5] = [
    ("create", "POST", ""),
    ("retrieve", "GET", "/{id}"),
    ("update", "POST", "/{id}"),
    ("delete", "DELETE", "/{id}"),
    ("list", "GET", ""),
];

/// What a cell may say of a verb. `true`: it is offered.
fn is_offered(cell: &str) -> bool {
    match cell {
        "yes" | "yes, always empty" | "yes, your own" => true,
        // Stripe has no such verb, or charge-once has none.
        "–" | "no" => false,
        other => panic!("the table says {other:?}"),
    }
}

#[derive(Debug)]
struct Said {
    /// A further verb has any.
    method: Option<&'static str>,
    /// What follows the resource.
    path: String,
    is_offered: bool,
}

fn table() -> BTreeMap<String, Vec<Said>> {
    let text = read("docs/sdk.md");
    let names = COLUMNS.map(|(name, _, _)| name).join(" | ");
    let header = format!("| resource | {names} | further |\n");
    let (before, rows) = text.split_once(&header).expect("the table");
    let lines_before = before.lines().count();
    assert!(lines_before < 10, "docs/sdk.md opens with the table");
    let mut table = BTreeMap::new();
    let rows = rows.lines().skip(1);
    for row in rows.take_while(|line| line.starts_with('|')) {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let [resource, verbs @ .., further] = cells.as_slice() else {
            panic!("{row}");
        };
        assert_eq!(verbs.len(), COLUMNS.len(), "{row}");
        let columns = COLUMNS.iter().zip(verbs);
        let mut said: Vec<_> = columns
            .map(|((_, method, path), cell)| Said {
                method: Some(*method),
                path: (*path).to_owned(),
                is_offered: is_offered(cell),
            })
            .collect();
        for one in further.split(", ").filter(|one| !one.is_empty()) {
            let (verb, cell) = one.trim_start_matches('`').split_once("` ").expect(row);
            said.push(Said {
                method: None,
                path: format!("/{{id}}/{verb}"),
                is_offered: is_offered(cell),
            });
        }
        table.insert(resource.trim_matches('`').to_owned(), said);
    }
    table
}

#[test]
fn the_table_of_what_is_offered_is_the_openapi_document_s() {
    let document = document();
    let documented = operations(&document);
    let table = table();
    assert!(table.len() > 7, "{table:?}");
    let has = |method: Option<&str>, path: &str| {
        documented.iter().any(|(pattern, known, _)| {
            pattern == path && method.is_none_or(|method| known == method)
        })
    };
    let mut told = BTreeSet::new();
    for (resource, said) in &table {
        for one in said {
            let path = format!("/{resource}{}", one.path);
            let verb = one.method.unwrap_or("any method");
            assert_eq!(one.is_offered, has(one.method, &path), "{verb} {path}");
            told.insert(path);
        }
        let offers_something = said.iter().any(|one| one.is_offered);
        let is_listed = not_offered::path(&format!("/{resource}"), |_| false).is_some();
        let is_told = offers_something || is_listed;
        assert!(is_told, "{resource} is listed nowhere");
    }
    for (path, method, _) in &documented {
        let is_own = OWN.contains(&path.split('/').nth(1).unwrap());
        // One more way to a method, and to a list, which the table has by themselves.
        let shortcuts = [
            "/customers/{id}/payment_methods/{payment_method}",
            "/customers/search",
        ];
        let is_shortcut = shortcuts.contains(&&**path);
        let is_told = is_own || is_shortcut || told.contains(path);
        assert!(is_told, "the table lacks {method} {path}");
    }
}

/// A client that has a server and no repository reads there what of Stripe's is offered.
#[test]
fn the_page_of_errors_names_the_resources_of_the_table() {
    let explained = ErrorCode::RouteNotFound.explanation();
    for (resource, said) in table() {
        let creates = said.first().expect("the first column").is_offered;
        let is_offered = creates || resource == "events";
        let is_named = explained.contains(&format!(" {resource}"));
        assert_eq!(is_offered, is_named, "{resource}: {explained}");
    }
}
