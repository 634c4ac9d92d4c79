//! Bodies: bytes to a tree, to canonical bytes, to a fingerprint.

use charge_once::{
    api::{
        charges::CreateChargeParams,
        checkouts::CreateCheckoutParams,
        orders::CreateOrderParams,
        params::{Encoding, Params},
        refunds::CreateRefundParams,
    },
    http::body,
    idempotency::{Fingerprint, FingerprintInput, Parameters},
};
use proptest::{prelude::*, test_runner::TestCaseError};
use serde_json::{Map, Value};

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

fn decode(encoding: Encoding, bytes: &[u8]) -> Option<Map<String, Value>> {
    let Params { tree, .. } = body::decode(encoding, bytes).ok()?;
    tree.ok()
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

/// What decodes has one canonical form, which decodes to the same tree and has the same fingerprint.
fn round_trips(encoding: Encoding, bytes: &[u8]) -> Result<(), TestCaseError> {
    let Some(tree) = decode(encoding, bytes) else {
        return Ok(());
    };
    let canonical_bytes = canonical(&tree);
    // A tree of strings may hold what the JSON decoder takes for a card number across members; no
    // other difference is allowed.
    let again = decode(Encoding::Json, &canonical_bytes);
    prop_assert_eq!(again.as_ref(), Some(&tree));
    prop_assert_eq!(&canonical(&again.unwrap()), &canonical_bytes);
    let first = fingerprint(&canonical_bytes);
    let matched = fingerprint(&canonical(&tree)).matches(first.version(), first.bytes());
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
        let Ok(params) = body::decode(encoding, &bytes) else {
            return Ok(());
        };
        let _ = CreateChargeParams::parse(&params);
        let _ = CreateOrderParams::parse(&params);
        let _ = CreateRefundParams::parse(&params);
        let _ = CreateCheckoutParams::parse(&params);
        if let Ok(mut fields) = params.fields()
            && let Ok(metadata) = fields.metadata()
        {
            prop_assert!(metadata.len() <= 50);
            for (name, value) in &metadata {
                prop_assert!((1..=40).contains(&name.chars().count()));
                prop_assert!(value.chars().count() <= 500);
            }
        }
        Ok(())
    });
}
