//! Every noun of the API has all the places that CONTRIBUTING.md lists under "Add an endpoint".

use std::fs;

use crate::support::prelude::*;

/// The noun that the checklist uses as its example.
const EXAMPLE_NOUN: &str = "payout";

/// The checklist must stay this short.
const PLACES_MAX: usize = 10;

/// Nouns that have nothing in some of the places, and why.
struct Exemption {
    nouns: &'static [&'static str],
    places: &'static [&'static str],
    reason: &'static str,
}

// The places as the checklist shows them.
const TABLE: &str = "migrations/NNNN_payouts.sql";
const DOMAIN: &str = "src/domain/payout.rs";
const STORE: &str = "src/store/payouts.rs";
const COMMAND: &str = "src/commands/payouts/create.rs";
const WIRE: &str = "src/wire/payouts.rs";
const HTTP: &str = "src/http/payouts.rs";
const TESTS: &str = "tests/api/resources/payouts.rs";
const CALLS: &str = "crates/client/src/calls.rs";

const EXEMPTIONS: &[Exemption] = &[
    Exemption {
        nouns: &["idempotency-keys", "workflows"],
        places: &[TABLE, DOMAIN, STORE, COMMAND, TESTS],
        reason: "what crates/idempotency stores, tested in tests/api/idempotency",
    },
    Exemption {
        nouns: &["idempotency-keys"],
        places: &[WIRE],
        reason: "its view is of what crates/idempotency knows, so its handlers have it",
    },
    Exemption {
        nouns: &["workflows"],
        places: &[WIRE],
        reason: "a list of idempotency keys",
    },
    Exemption {
        nouns: &["test"],
        places: &[TABLE, DOMAIN, STORE, COMMAND, WIRE, HTTP, TESTS],
        reason: "no resource: accounts, faults and reports for tests, tested in tests/api/faults",
    },
    Exemption {
        nouns: &["invoice_payments"],
        places: &[TABLE, DOMAIN, STORE, COMMAND, WIRE, CALLS],
        reason: "an empty list without a noun, for a program in Ruby",
    },
    Exemption {
        nouns: &["account"],
        places: &[TABLE, STORE, COMMAND, WIRE],
        reason: "what is true of every account, for programs that were written for Stripe",
    },
    Exemption {
        nouns: &["events"],
        places: &[COMMAND],
        reason: "every command writes its events; no request creates one",
    },
    Exemption {
        nouns: &["events", "webhook_endpoints"],
        places: &[TABLE, STORE],
        reason: "crates/webhooks stores them",
    },
    Exemption {
        nouns: &["webhook_endpoints"],
        places: &[DOMAIN, COMMAND],
        reason: "no rule about money is about them, so src/work has what they do",
    },
    Exemption {
        nouns: &["checkouts"],
        places: &[TESTS],
        reason: "their tests fill a folder of their own, tests/api/checkouts",
    },
];

/// The first path of each numbered item under "Add an endpoint".
fn places() -> Vec<String> {
    let contributing = read("CONTRIBUTING.md");
    let section = contributing.between("\n## Add an endpoint\n", "\n## ");
    let places: Vec<String> = section
        .lines()
        .filter_map(|line| line.split_once(". `"))
        .filter(|(number, _)| number.bytes().all(|byte| byte.is_ascii_digit()))
        .map(|(_, rest)| rest.split('`').next().unwrap().to_owned())
        .collect();
    assert!((8..=PLACES_MAX).contains(&places.len()), "{places:?}");
    places
}

/// The first segment of every path that is a noun: health and the policy are none.
fn nouns() -> Vec<String> {
    let document = document();
    let paths = document["paths"].as_object().unwrap().keys();
    let nouns = paths.map(|path| path.split('/').nth(1).unwrap().to_owned());
    let mut nouns: Vec<String> = nouns.collect();
    nouns.retain(|noun| !["livez", "readyz", ".well-known"].contains(&noun.as_str()));
    nouns.dedup();
    assert!(nouns.contains(&"charges".to_owned()), "{nouns:?}");
    nouns
}

fn has_file(folder: &Path, suffix: &str) -> bool {
    fs::read_dir(folder).is_ok_and(|mut entries| {
        entries.any(|entry| {
            let name = entry.unwrap().file_name();
            name.to_str().is_some_and(|name| name.ends_with(suffix))
        })
    })
}

fn has_table(folder: &Path, table: &str) -> bool {
    let statement = format!("CREATE TABLE {table} (");
    fs::read_dir(folder).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        fs::read_to_string(path).unwrap().contains(&statement)
    })
}

/// Whether a noun has what the checklist asks for at `place`.
fn is_there(place: &str, noun: &str) -> bool {
    if !place.contains(EXAMPLE_NOUN) {
        // One file for all nouns: it names the noun's path.
        return read(place).contains(&format!("/{noun}"));
    }
    let plural = noun.replace('-', "_");
    let singular = plural.strip_suffix('s').unwrap_or(&plural);
    let path = place
        .replace(&format!("{EXAMPLE_NOUN}s"), &plural)
        .replace(EXAMPLE_NOUN, singular);
    let path = root().join(path);
    let (folder, name) = (path.parent().unwrap(), path.file_name().unwrap());
    if name.to_str().unwrap().starts_with("NNNN") {
        return has_table(folder, &plural);
    }
    if let Some(suffix) = name.to_str().unwrap().strip_prefix("create") {
        // A file for each verb: verbs differ.
        return has_file(folder, suffix);
    }
    if folder.ends_with(&plural) {
        // A folder for the noun: its verbs differ.
        return has_file(folder, ".rs");
    }
    // A file that grew is a folder.
    path.is_file() || path.with_extension("").is_dir()
}

/// Why `noun` has nothing at `place`, if that is known.
fn exemption(place: &str, noun: &str) -> Option<&'static str> {
    let is_it = |one: &&Exemption| one.nouns.contains(&noun) && one.places.contains(&place);
    EXEMPTIONS.iter().find(is_it).map(|one| one.reason)
}

#[test]
fn every_noun_of_the_api_has_every_place_of_the_checklist() {
    let mut missing: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for place in places() {
        for noun in nouns() {
            match (is_there(&place, &noun), exemption(&place, &noun)) {
                (true, None) | (false, Some(_)) => {}
                (true, Some(reason)) => panic!("{noun} has {place}, exempt for: {reason}"),
                (false, None) => missing.entry(noun).or_default().push(place.clone()),
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn every_exemption_is_for_nouns_and_places_that_exist() {
    let (known_places, known_nouns) = (places(), nouns());
    for Exemption { nouns, places, .. } in EXEMPTIONS {
        for noun in *nouns {
            assert!(known_nouns.iter().any(|known| known == noun), "{noun}");
        }
        for place in *places {
            assert!(known_places.iter().any(|known| known == place), "{place}");
        }
    }
}
