#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use serde_json::json;

use super::*;

/// `depth` arrays in each other, inside the root object.
fn nested(depth: usize) -> String {
    format!("{{\"a\":{}{}}}", "[".repeat(depth), "]".repeat(depth))
}

#[test]
fn one_meaning_is_decoded() {
    let cases = [
        ("", json!({})),
        (" \t\r\n", json!({})),
        ("{}", json!({})),
        (" {\"a\" : 1 }\n", json!({"a": 1})),
        (
            "{\"a\":null,\"b\":true,\"c\":false}",
            json!({"a": null, "b": true, "c": false}),
        ),
        ("{\"a\":[1,[\"x\",{}]]}", json!({"a": [1, ["x", {}]]})),
        (
            "{\"\\u0061\":\"\\u00e9\\ud83d\\ude00\\n\"}",
            json!({"a": "\u{e9}\u{1f600}\n"}),
        ),
        (
            "{\"a\":{\"b\":1},\"b\":{\"b\":1}}",
            json!({"a": {"b": 1}, "b": {"b": 1}}),
        ),
        ("{\"\":0}", json!({"": 0})),
        (
            "{\"a\":[9007199254740991,-9007199254740991,0]}",
            json!({"a": [9_007_199_254_740_991_i64, -9_007_199_254_740_991_i64, 0]}),
        ),
        // A name that `serde_json` gives a meaning of its own.
        (
            "{\"$serde_json::private::Number\":\"1\"}",
            json!({"$serde_json::private::Number": "1"}),
        ),
    ];
    for (body, expected) in cases {
        let decoded = decode(body.as_bytes()).map(Value::Object);
        assert_eq!(decoded, Ok(expected), "{body}");
    }
}

#[test]
fn anything_else_is_refused() {
    let cases: [(&[u8], Option<&str>, &str); 39] = [
        (b"{\"a\":\"\xff\"}", None, "UTF-8"),
        (b"{\"a\":\"\xed\xa0\x80\"}", None, "UTF-8"),
        (b"\xef\xbb\xbf{}", None, "byte order mark"),
        (b"\xef\xbb\xbf", None, "byte order mark"),
        (b"null", None, "a JSON object"),
        (b"[]", None, "a JSON object"),
        (b"\"a\"", None, "a JSON object"),
        (b"1", None, "a JSON object"),
        (b"{} {}", None, "read as JSON"),
        (b"{}x", None, "read as JSON"),
        (b"{", None, "read as JSON"),
        (b"{\"a\":1,}", None, "read as JSON"),
        (b"{\"a\":[1,]}", None, "read as JSON"),
        (b"{a:1}", None, "read as JSON"),
        (b"{'a':1}", None, "read as JSON"),
        (b"{\"a\":01}", None, "read as JSON"),
        (b"{\"a\":+1}", None, "read as JSON"),
        (b"{\"a\":NaN}", None, "read as JSON"),
        (b"{\"a\":1} // x", None, "read as JSON"),
        (b"{\"a\":\"\n\"}", None, "read as JSON"),
        (b"{\"a\":\"\0\"}", None, "read as JSON"),
        (b"{\"a\":\"\\x\"}", None, "read as JSON"),
        (b"{\"a\":\"\\ud800\"}", None, "read as JSON"),
        (b"{\"a\":\"\\udc00\"}", None, "read as JSON"),
        (b"{\"\\ud800x\":1}", None, "read as JSON"),
        (b"\0", None, "read as JSON"),
        (b"{\"a\":\"\\u0000\"}", Some("a"), "U+0000"),
        (b"{\"a\":{\"b\\u0000\":1}}", Some("a"), "U+0000"),
        (b"{\"a\":1,\"a\":1}", Some("a"), "repeated"),
        (b"{\"a\":{\"b\":1,\"\\u0062\":2}}", Some("a[b]"), "repeated"),
        (
            b"{\"4242424242424242\":1,\"4242424242424242\":1}",
            None,
            "repeated",
        ),
        (b"{\"a\":1.0}", Some("a"), "integer"),
        (b"{\"a\":[0,1e2]}", Some("a[1]"), "integer"),
        (b"{\"a\":-0}", Some("a"), "integer"),
        (b"{\"a\":9007199254740992}", Some("a"), "integer"),
        (b"{\"a\":-9007199254740992}", Some("a"), "integer"),
        (b"{\"a\":18446744073709551616}", Some("a"), "integer"),
        (
            b"{\"items\":[{\"quantity\":0.5}]}",
            Some("items[0][quantity]"),
            "integer",
        ),
        (b"{\"a\":1e999}", None, "read as JSON"),
    ];
    for (body, param, message) in cases {
        let error = decode(body).unwrap_err();
        let shown = body.escape_ascii();
        assert_eq!(error.param.as_deref(), param, "{shown}");
        assert!(error.message.contains(message), "{shown}: {error}");
    }
}

#[test]
fn nesting_is_bounded_well_before_the_stack_is() {
    assert!(decode(nested(MAX_DEPTH - 1).as_bytes()).is_ok());
    // The root is refused by its depth even where it is no object.
    let bodies = [
        nested(MAX_DEPTH),
        nested(30_000),
        "[".repeat(64 * 1024),
        "{\"a\":".repeat(10_000),
    ];
    for body in bodies {
        let error = decode(body.as_bytes()).unwrap_err();
        assert!(error.message.contains("32 levels"), "{error}");
    }
}

#[test]
fn values_and_containers_are_counted_before_they_are_made() {
    let list = |item: &str, count: usize| format!("{{\"a\":[{}]}}", vec![item; count].join(","));
    // The root and the list are containers too.
    for (item, most) in [
        ("1", MAX_VALUES),
        ("\"\"", MAX_VALUES),
        ("null", MAX_VALUES),
        ("{}", MAX_VALUES - 2),
        ("[]", MAX_VALUES - 2),
        ("{\"a\":true}", MAX_VALUES - 2),
    ] {
        assert!(decode(list(item, most).as_bytes()).is_ok(), "{item}");
        // What follows is not read: it is not even JSON.
        let more = format!("{}, no JSON", list(item, most + 1).trim_end_matches("]}"));
        let error = decode(more.as_bytes()).unwrap_err();
        assert_eq!(error.message, TOO_MANY_VALUES, "{item}");
    }
}

#[test]
fn errors_never_repeat_a_value() {
    let secret = "tok_5ecret";
    for body in [
        format!("{{\"a\":\"{secret}\",\"a\":\"{secret}\"}}"),
        format!("{{\"a\":{secret}}}"),
        format!("{{\"a\":\"{secret}\\u0000\"}}"),
        format!("{{\"a\":\"{secret}\" \"{secret}\"}}"),
        format!("\"{secret}\""),
    ] {
        let error = decode(body.as_bytes()).unwrap_err();
        assert!(!format!("{error:?}").contains(secret), "{error:?}");
    }
}

fn trees() -> impl Strategy<Value = Map<String, Value>> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-MAX_INTEGER..=MAX_INTEGER).prop_map(Value::from),
        "[^\0]{0,12}".prop_map(Value::from),
    ];
    let value = leaf.prop_recursive(5, 48, 6, |value| {
        prop_oneof![
            prop::collection::vec(value.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map("[^\0]{0,6}", value, 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    });
    prop::collection::btree_map("[^\0]{0,6}", value, 0..6)
        .prop_map(|members| members.into_iter().collect())
}

/// Writes a tree in one of the many ways that mean the same.
struct Writer {
    random: StdRng,
    body: String,
}

impl Writer {
    fn write_space(&mut self) {
        for _ in 0..self.random.random_range(0..3) {
            let [space, tab, line_feed, carriage_return] = WHITE_SPACE;
            self.body.push(match self.random.random_range(0..4) {
                0 => space,
                1 => tab,
                2 => line_feed,
                _ => carriage_return,
            });
        }
    }

    fn write_text(&mut self, text: &str) {
        self.body.push('"');
        for character in text.chars() {
            if self.random.random_bool(0.3) {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    self.body.push_str(&format!("\\u{unit:04X}"));
                }
            } else {
                let quoted = Value::from(character.to_string()).to_string();
                let inner = quoted.strip_prefix('"').unwrap().strip_suffix('"').unwrap();
                self.body.push_str(inner);
            }
        }
        self.body.push('"');
    }

    fn write_value(&mut self, value: &Value) {
        self.write_space();
        match value {
            Value::String(text) => self.write_text(text),
            Value::Array(items) => {
                self.body.push('[');
                for (index, item) in items.iter().enumerate() {
                    self.body.push_str(if index > 0 { "," } else { "" });
                    self.write_value(item);
                }
                self.write_space();
                self.body.push(']');
            }
            Value::Object(members) => {
                let mut members: Vec<_> = members.iter().collect();
                members.shuffle(&mut self.random);
                self.body.push('{');
                for (index, (name, member)) in members.into_iter().enumerate() {
                    self.body.push_str(if index > 0 { "," } else { "" });
                    self.write_space();
                    self.write_text(name);
                    self.write_space();
                    self.body.push(':');
                    self.write_value(member);
                }
                self.write_space();
                self.body.push('}');
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {
                self.body.push_str(&value.to_string());
            }
        }
        self.write_space();
    }
}

proptest! {
    #[test]
    fn any_bytes_decode_or_are_refused(body: Vec<u8>) {
        let _ = decode(&body);
    }

    #[test]
    fn json_like_text_decodes_or_is_refused(body in "[\\[\\]{}\",:0-9.eE+\\-tfn\\\\u a]{0,64}") {
        if let Ok(tree) = decode(body.as_bytes()) {
            let written = Value::Object(tree.clone()).to_string();
            prop_assert_eq!(decode(written.as_bytes()), Ok(tree));
        }
    }

    #[test]
    fn a_written_tree_is_read_back(tree in trees()) {
        let value = Value::Object(tree.clone());
        prop_assert_eq!(decode(value.to_string().as_bytes()), Ok(tree.clone()));
        let canonical = serde_json_canonicalizer::to_vec(&value).unwrap();
        prop_assert_eq!(decode(&canonical), Ok(tree));
    }

    #[test]
    fn spelling_does_not_change_the_tree(tree in trees(), seed: u64) {
        let mut writer = Writer { random: StdRng::seed_from_u64(seed), body: String::new() };
        writer.write_value(&Value::Object(tree.clone()));
        prop_assert_eq!(decode(writer.body.as_bytes()), Ok(tree));
    }
}
