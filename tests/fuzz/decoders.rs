//! Bodies: bytes to a tree, to canonical bytes, to a fingerprint.

use std::fmt::Write;

use charge_once::{
    domain::ids::ChargeId,
    http::body,
    idempotency::{Fingerprint, FingerprintInput, Parameters},
    wire::{
        charges::CreateChargeParams, checkouts::CreateCheckoutParams, metadata::MetadataParam,
        orders::CreateOrderParams, refunds::CreateRefundParams,
    },
};
use charge_once_strict_params::pages::{Cursor, PageQuery};
use charge_once_strict_params::{Encoding, Field, Parameter, ParameterSet, Params};
use proptest::{collection::vec, prelude::*, test_runner::TestCaseError};
use serde_json::{Map, Value};
use url::form_urlencoded::Serializer;

use crate::{fuzz, mutation::mutated};

const JSON_TOKENS: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    "\"",
    ":",
    ",",
    "\\u0000",
    "\\ud800",
    "\\\"",
    "null",
    "true",
    "1e5",
    "-0",
    "9007199254740993",
    "1.0",
    "\u{feff}",
    "{\"a\":",
    "[[[[[[[[",
    "\"amount\":",
    " ",
];

const FORM_TOKENS: &[&str] = &[
    "&",
    "=",
    "[",
    "]",
    "[]",
    "%5B",
    "%5D",
    "%00",
    "%",
    "+",
    "items[0][quantity]=1",
    "items[][quantity]=1",
    "metadata[a]=b",
    "[0]",
    "[999]",
    "a=1&a=2",
    "%ff",
];

/// What [`PageQuery`] reads.
const PAGE_PARAMETERS: &[&str] = &[
    "limit",
    "starting_after",
    "ending_before",
    "created",
    "created[gt]",
    "created[gte]",
    "created[lt]",
    "created[lte]",
];

fn decode(encoding: Encoding, bytes: &[u8]) -> Option<Map<String, Value>> {
    body::decode(encoding, bytes).ok()
}

fn canonical(tree: &Map<String, Value>) -> Vec<u8> {
    serde_json_canonicalizer::to_vec(tree).unwrap()
}

fn fingerprint(parameters: &[u8]) -> Fingerprint {
    Fingerprint::of(&FingerprintInput {
        method: "POST",
        path: "/charges",
        query: Parameters::Canonical(b"{}"),
        media_type: "json",
        parameters: Parameters::Canonical(parameters),
    })
}

/// The tree as another client might write it: with white space, and letters beyond ASCII escaped.
fn respelled(tree: &Map<String, Value>) -> Vec<u8> {
    let mut spelled = String::new();
    for letter in serde_json::to_string_pretty(tree).unwrap().chars() {
        if letter.is_ascii() {
            spelled.push(letter);
            continue;
        }
        for unit in letter.encode_utf16(&mut [0; 2]) {
            write!(spelled, "\\u{unit:04x}").unwrap();
        }
    }
    spelled.into_bytes()
}

/// What decodes has one canonical form, which decodes to the same tree. The same tree in another
/// spelling has the same fingerprint.
fn round_trips(encoding: Encoding, bytes: &[u8]) -> Result<(), TestCaseError> {
    let Some(tree) = decode(encoding, bytes) else {
        return Ok(());
    };
    let canonical_bytes = canonical(&tree);
    let again = decode(Encoding::Json, &canonical_bytes);
    prop_assert_eq!(again.as_ref(), Some(&tree));
    prop_assert_eq!(&canonical(&again.unwrap()), &canonical_bytes);
    let first = fingerprint(&canonical_bytes);
    let respelled = decode(Encoding::Json, &respelled(&tree)).map(|tree| canonical(&tree));
    let matched = fingerprint(&respelled.unwrap()).matches(first.version(), first.bytes());
    prop_assert!(matched.unwrap());
    Ok(())
}

#[test]
fn json_bodies() {
    let bodies = mutated("json", JSON_TOKENS);
    fuzz(&bodies, |bytes| round_trips(Encoding::Json, &bytes));
}

#[test]
fn form_bodies() {
    let bodies = mutated("form", FORM_TOKENS);
    fuzz(&bodies, |bytes| {
        if let Some(tree) = decode(Encoding::Form, &bytes) {
            prop_assert!(are_texts(&Value::Object(tree)), "a form has texts only");
        }
        round_trips(Encoding::Form, &bytes)
    });
}

fn are_texts(value: &Value) -> bool {
    match value {
        Value::String(_) => true,
        Value::Object(members) => members.values().all(are_texts),
        Value::Array(items) => items.iter().all(are_texts),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Whatever decodes is checked parameter by parameter, as the commands do.
#[test]
fn parameters() {
    let bodies = prop_oneof![
        mutated("json", JSON_TOKENS).prop_map(|bytes| (Encoding::Json, bytes)),
        mutated("form", FORM_TOKENS).prop_map(|bytes| (Encoding::Form, bytes)),
    ];
    fuzz(&bodies, |(encoding, bytes)| {
        let tree = body::decode(encoding, &bytes);
        if body::forbidden(&tree, &bytes).is_some() {
            return Ok(());
        }
        let params = Params::new(encoding, tree);
        let _ = CreateChargeParams::parse(&params);
        let _ = CreateOrderParams::parse(&params);
        let _ = CreateRefundParams::parse(&params);
        let _ = CreateCheckoutParams::parse(&params);
        let metadata =
            params.read(|mut fields| MetadataParam::read(&mut Field::new(&mut fields, "metadata")));
        if let Ok(metadata) = metadata {
            prop_assert!(metadata.len() <= 50);
            for (name, value) in &metadata {
                prop_assert!((1..=40).contains(&name.chars().count()));
                prop_assert!(value.chars().count() <= 500);
            }
        }
        Ok(())
    });
}

/// The query of a list asks for a page of at most a hundred, which begins at one place at most, and
/// holds what was created in the seconds that were written.
#[test]
fn pages() {
    let values = prop_oneof![
        4 => "[0-9]{1,3}",
        2 => "-?[0-9]{1,12}",
        2 => "ch_[0-7][0-9a-z]{25}",
        1 => "[0-9]{17,25}",
        1 => "\\PC{0,9}",
    ];
    let pairs = vec((prop::sample::select(PAGE_PARAMETERS), values), 0..6);
    fuzz(&pairs, |pairs| {
        let query = Serializer::new(String::new()).extend_pairs(&pairs).finish();
        let tree = body::decode(Encoding::Form, query.as_bytes());
        let Ok(query) = PageQuery::parse(&Params::new(Encoding::Form, tree)) else {
            return Ok(());
        };
        let Ok(page) = query.page(|text| ChargeId::parse(text).map(|id| id.0)) else {
            return Ok(());
        };
        // An empty text is no value.
        let given = |name: &str| {
            let mut named = pairs.iter().filter(|pair| pair.0 == name);
            named.find_map(|pair| (!pair.1.is_empty()).then_some(&*pair.1))
        };
        let seconds = |name: &str| given(name).map(|text| text.parse::<i64>().unwrap());
        prop_assert_eq!(page.limit, seconds("limit").unwrap_or(10));
        prop_assert!((1..=100).contains(&page.limit));
        let places = [given("starting_after"), given("ending_before")];
        let is_start = page.cursor == Cursor::Start;
        prop_assert_eq!(places.iter().flatten().count(), usize::from(!is_start));
        let next = |name| seconds(name).map(|second| second + 1);
        // `created` is one second, and doesn't go with the ends of an interval.
        let from = [
            seconds("created"),
            seconds("created[gte]"),
            next("created[gt]"),
        ];
        let from = from.into_iter().max().flatten();
        let before = [
            next("created"),
            seconds("created[lt]"),
            next("created[lte]"),
        ];
        let before = before.into_iter().flatten().min();
        prop_assert_eq!(page.created_from.map(|moment| moment.timestamp()), from);
        prop_assert_eq!(page.created_before.map(|moment| moment.timestamp()), before);
        Ok(())
    });
}
