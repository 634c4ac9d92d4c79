#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::{Duration, Instant};

use proptest::prelude::*;
use serde_json::json;

use super::*;

const MAPS: &[&str] = &["metadata"];

fn decode(body: &[u8]) -> Result<Map<String, Value>, Error> {
    super::decode(body, MAPS)
}

#[test]
fn bracketed_names_become_a_tree() {
    let cases = [
        ("", json!({})),
        ("&&", json!({})),
        ("a", json!({"a": ""})),
        ("a=", json!({"a": ""})),
        ("a=1=2", json!({"a": "1=2"})),
        ("&a=1&&b=2&", json!({"a": "1", "b": "2"})),
        ("a=x+y%20z%2B%25", json!({"a": "x y z+%"})),
        ("a=%C3%A9&b=\u{e9}", json!({"a": "\u{e9}", "b": "\u{e9}"})),
        ("a=%EF%BF%BD", json!({"a": "\u{fffd}"})),
        ("a[b]=1&a[c]=2", json!({"a": {"b": "1", "c": "2"}})),
        ("a%5Bb%5D=1&a%5bc]=2", json!({"a": {"b": "1", "c": "2"}})),
        ("a[b][c]=1", json!({"a": {"b": {"c": "1"}}})),
        ("a[ ]=1", json!({"a": {" ": "1"}})),
        (
            "metadata[order_id]=1",
            json!({"metadata": {"order_id": "1"}}),
        ),
        (
            "metadata[0]=x&metadata[01]=y",
            json!({"metadata": {"0": "x", "01": "y"}}),
        ),
        ("a[0]=x&a[1]=y", json!({"a": ["x", "y"]})),
        ("a[1]=y&a[0]=x", json!({"a": ["x", "y"]})),
        ("a[0][0]=x", json!({"a": [["x"]]})),
        (
            "items[1][q]=2&items[0][q]=1&items[1][p]=3",
            json!({"items": [{"q": "1"}, {"q": "2", "p": "3"}]}),
        ),
        ("expand[]=a&expand[]=b", json!({"expand": ["a", "b"]})),
        ("a[]=", json!({"a": [""]})),
        (
            "items[][p]=1&items[][q]=2&items[][p]=3&items[][q]=4",
            json!({"items": [{"p": "1", "q": "2"}, {"p": "3", "q": "4"}]}),
        ),
        (
            "items[][p][x]=1&items[][p][y]=2&items[][p][x]=3",
            json!({"items": [{"p": {"x": "1", "y": "2"}}, {"p": {"x": "3"}}]}),
        ),
        (
            "items[][p][]=1&items[][p][]=2&items[][q]=3",
            json!({"items": [{"p": ["1", "2"], "q": "3"}]}),
        ),
        (
            "items[][p][0]=1&items[][p][1]=2&items[][p][0]=3",
            json!({"items": [{"p": ["1", "2"]}, {"p": ["3"]}]}),
        ),
    ];
    for (body, expected) in cases {
        let decoded = decode(body.as_bytes()).map(Value::Object);
        assert_eq!(decoded, Ok(expected), "{body}");
    }
}

#[test]
fn a_name_without_one_meaning_is_refused() {
    let cases: [(&str, Option<&str>, &str); 41] = [
        ("=1", None, MALFORMED),
        ("=", None, MALFORMED),
        ("[a]=1", None, MALFORMED),
        ("a]b=1", None, MALFORMED),
        ("a]=1", None, MALFORMED),
        ("a[=1", Some("a"), MALFORMED),
        ("a[b=1", Some("a"), MALFORMED),
        ("a[b]c=1", Some("a[b]"), MALFORMED),
        ("a[b]]=1", Some("a[b]"), MALFORMED),
        ("a[[b]]=1", Some("a"), MALFORMED),
        ("a[[b]=1", Some("a"), MALFORMED),
        ("a[b][=1", Some("a[b]"), MALFORMED),
        ("a[][]=1", Some("a[]"), MALFORMED),
        ("a[][0]=1", Some("a[]"), MALFORMED),
        ("metadata[]=1", Some("metadata"), "with a name"),
        ("metadata[a][]=1", Some("metadata[a]"), "with a name"),
        ("amount=1&amount=2", Some("amount"), REPEATED),
        ("amount=1&amount=1", Some("amount"), REPEATED),
        ("a[b]=1&a[b]=2", Some("a[b]"), REPEATED),
        ("a[0]=1&a[0]=2", Some("a[0]"), REPEATED),
        ("items[0][q]=1&items[0][q]=2", Some("items[0][q]"), REPEATED),
        ("4242424242424242=1&4242424242424242=2", None, REPEATED),
        ("a=1&a[b]=2", Some("a[b]"), MIXED),
        ("a[b]=1&a=2", Some("a"), MIXED),
        ("a=1&a[]=2", Some("a[]"), MIXED),
        ("a[]=1&a=2", Some("a"), MIXED),
        ("a[0]=1&a[b]=2", Some("a[b]"), MIXED),
        ("a[b]=1&a[0]=2", Some("a[0]"), MIXED),
        ("a[]=1&a[0]=2", Some("a[0]"), MIXED),
        ("a[0]=1&a[]=2", Some("a[]"), MIXED),
        ("a[]=1&a[b]=2", Some("a[b]"), MIXED),
        ("a[][b][c]=1&a[][b]=2", Some("a[][b]"), MIXED),
        ("a[][b]=1&a[][b][c]=2", Some("a[][b][c]"), MIXED),
        ("a[1]=x", Some("a"), "leave no gap"),
        ("a[0]=x&a[2]=y", Some("a"), "leave no gap"),
        ("a[b][0][c][1]=x", Some("a[b][0][c]"), "leave no gap"),
        ("a[00]=x", Some("a"), "without leading zeros"),
        ("a[01]=x", Some("a"), "without leading zeros"),
        ("a[1000]=x", Some("a"), "from 0 to 999"),
        ("a[99999999999999999999]=x", Some("a"), "from 0 to 999"),
        ("a[999]=x", Some("a"), "leave no gap"),
    ];
    for (body, param, message) in cases {
        let error = decode(body.as_bytes()).unwrap_err();
        assert_eq!(error.param.as_deref(), param, "{body}");
        assert!(error.message.contains(message), "{body}: {error}");
    }
}

#[test]
fn text_that_would_have_to_be_repaired_is_refused() {
    let cases: [(&[u8], Option<&str>, &str); 12] = [
        (b"a=%", Some("a"), "percent"),
        (b"a=%4", Some("a"), "percent"),
        (b"a=%&b=1", Some("a"), "percent"),
        (b"a=%zz", Some("a"), "percent"),
        (b"a=%+1", Some("a"), "percent"),
        (b"a%=1", None, "percent"),
        (b"a=%ff", Some("a"), "UTF-8"),
        (b"a=\xff", Some("a"), "UTF-8"),
        (b"a[b]=%ed%a0%80", Some("a[b]"), "UTF-8"),
        (b"%c3=%a9", None, "UTF-8"),
        (b"a[b]=%00", Some("a[b]"), "U+0000"),
        (b"a[b%00]=1", None, "U+0000"),
    ];
    for (body, param, message) in cases {
        let error = decode(body).unwrap_err();
        let shown = body.escape_ascii();
        assert_eq!(error.param.as_deref(), param, "{shown}");
        assert!(error.message.contains(message), "{shown}: {error}");
    }
}

#[test]
fn limits_hold_at_their_edges() {
    let pairs = |count: usize| "a[]=1&".repeat(count);
    assert!(decode(pairs(MAX_VALUES).as_bytes()).is_ok());
    assert!(decode(pairs(MAX_VALUES + 1).as_bytes()).is_err());

    let nested = |levels: usize| format!("a{}=1", "[b]".repeat(levels - 1));
    assert!(decode(nested(MAX_DEPTH).as_bytes()).is_ok());
    let error = decode(nested(MAX_DEPTH + 1).as_bytes()).unwrap_err();
    assert!(error.message.contains("32 levels"), "{error}");

    let last = (0..=MAX_INDEX).rev().map(|index| format!("a[{index}]=1&"));
    assert!(decode(last.collect::<String>().as_bytes()).is_ok());

    // Each pair makes ten maps; the root and the list count too.
    let items = |count: usize| format!("a[]{}=1&", "[b]".repeat(10)).repeat(count);
    assert!(decode(items(99).as_bytes()).is_ok());
    let error = decode(items(100).as_bytes()).unwrap_err();
    assert_eq!(error.message, TOO_MANY_VALUES);
}

/// A debug build takes 50 ms for the worst of these. The bound leaves room for a
/// busy machine, and none for work that grows with the square of the body.
#[test]
fn hostile_bodies_of_64_kib_take_no_longer_than_their_size() {
    const SIZE: usize = 64 * 1024;
    let deep = format!("a[]{}", "[b]".repeat(MAX_DEPTH - 2));
    let bodies = [
        "&".repeat(SIZE),
        "[".repeat(SIZE),
        format!("a{}", "[".repeat(SIZE)),
        format!("a{}", "[]".repeat(SIZE / 2)),
        format!("a{}", "[b]".repeat(SIZE / 3)),
        "a[][b]=&".repeat(SIZE / 8),
        format!("{deep}=&").repeat(SIZE / (deep.len() + 2)),
        (0..MAX_VALUES)
            .map(|n| format!("{}{n}=&", "a".repeat(60)))
            .collect(),
        "%41".repeat(SIZE / 3),
    ];
    for body in bodies {
        let start = Instant::now();
        let _ = decode(body.as_bytes());
        assert!(start.elapsed() < Duration::from_secs(2), "{:.20}", body);
    }
}

#[test]
fn errors_never_repeat_a_value() {
    for body in [
        "a=tok_5ecret&a=tok_5ecret",
        "a=tok_5ecret%",
        "a=tok_5ecret%00",
        "a[=tok_5ecret",
        "a[1]=tok_5ecret",
    ] {
        let error = decode(body.as_bytes()).unwrap_err();
        assert!(!format!("{error:?}").contains("tok_5ecret"), "{error:?}");
    }
}

/// Trees that a form can express: leaves are strings and nothing is empty.
fn trees() -> impl Strategy<Value = Value> {
    let members = |value| prop::collection::btree_map("[^\0\\[\\]0-9]{1,6}", value, 1..5);
    let value = "[^\0]{0,8}"
        .prop_map(Value::from)
        .prop_recursive(4, 40, 5, move |value| {
            prop_oneof![
                prop::collection::vec(value.clone(), 1..5).prop_map(Value::from),
                members(value).prop_map(|members| members.into_iter().collect()),
            ]
        });
    members(value.boxed()).prop_map(|members| {
        members
            .into_iter()
            .filter(|(name, _)| !MAPS.contains(&name.as_str()))
            .collect()
    })
}

/// The pairs of `value`, lists with indexes.
fn pairs(value: &Value, name: String) -> Vec<(String, String)> {
    let inner = |step: &str| match name.as_str() {
        "" => step.to_owned(),
        _ => format!("{name}[{step}]"),
    };
    match value {
        Value::Object(members) => members
            .iter()
            .flat_map(|(member, value)| pairs(value, inner(member)))
            .collect(),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .flat_map(|(index, item)| pairs(item, inner(&index.to_string())))
            .collect(),
        Value::String(text) => vec![(name, text.clone())],
        Value::Null | Value::Bool(_) | Value::Number(_) => Vec::new(),
    }
}

proptest! {
    #[test]
    fn any_bytes_decode_or_are_refused(body: Vec<u8>) {
        let _ = decode(&body);
    }

    #[test]
    fn form_like_text_decodes_or_is_refused(body in "(a|b|0|1|\\[|\\]|\\[\\]|=|&|%5B|%|\\+){0,24}") {
        let _ = decode(body.as_bytes());
    }

    #[test]
    fn a_written_form_is_read_back_in_any_order(
        (tree, shuffled) in trees().prop_flat_map(|tree| {
            let pairs = pairs(&tree, String::new());
            (Just(tree), Just(pairs).prop_shuffle())
        }),
    ) {
        let body = form_urlencoded::Serializer::new(String::new())
            .extend_pairs(shuffled)
            .finish();
        prop_assert_eq!(decode(body.as_bytes()).map(Value::Object), Ok(tree));
    }
}
