//! What a change changed.

use serde::Serialize;
use serde_json::{Map, Value};

/// The members that differ between an object `before` and `after` a change, with the values that
/// they had: JSON. Of an object within it only the members that differ are told, `null` for one
/// that it did not have. A list is told whole.
pub fn previous_attributes<T: Serialize>(before: &T, after: &T) -> serde_json::Result<String> {
    let (before, after) = (serde_json::to_value(before)?, serde_json::to_value(after)?);
    let changed = difference(&before, &after).unwrap_or_else(|| Value::Object(Map::new()));
    serde_json::to_string(&changed)
}

/// What is to be told of a value; `None` if it stayed as it was.
fn difference(before: &Value, after: &Value) -> Option<Value> {
    if before == after {
        return None;
    }
    let (Value::Object(old), Value::Object(new)) = (before, after) else {
        return Some(before.clone());
    };
    let mut changed = Map::new();
    let added = new.keys().filter(|name| !old.contains_key(*name));
    for name in old.keys().chain(added) {
        let value = |of: &Map<String, Value>| of.get(name).cloned().unwrap_or(Value::Null);
        let is_there_in_both = old.contains_key(name) && new.contains_key(name);
        let told = difference(&value(old), &value(new));
        if let Some(told) = told.or_else(|| (!is_there_in_both).then_some(Value::Null)) {
            changed.insert(name.clone(), told);
        }
    }
    Some(Value::Object(changed))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
    use super::*;

    #[test]
    fn only_what_changed_is_told_with_the_value_that_it_had() {
        for (before, after, told) in [
            (r#"{"a":1,"b":2}"#, r#"{"a":1,"b":3}"#, r#"{"b":2}"#),
            (r#"{"a":1}"#, r#"{"a":1}"#, "{}"),
            (r#"{"a":null}"#, r#"{"a":1}"#, r#"{"a":null}"#),
            (r#"{"a":1}"#, r#"{"a":null}"#, r#"{"a":1}"#),
            ("{}", r#"{"a":1}"#, r#"{"a":null}"#),
            ("{}", r#"{"a":null}"#, r#"{"a":null}"#),
            (r#"{"a":1}"#, "{}", r#"{"a":1}"#),
            (r#"{"a":[1,2]}"#, r#"{"a":[1,3]}"#, r#"{"a":[1,2]}"#),
            // Of metadata, only the keys that changed.
            (
                r#"{"m":{"same":"1","new":"2","gone":"3"}}"#,
                r#"{"m":{"same":"1","new":"4","added":"5"}}"#,
                r#"{"m":{"new":"2","gone":"3","added":null}}"#,
            ),
            (r#"{"m":{}}"#, r#"{"m":{"a":"1"}}"#, r#"{"m":{"a":null}}"#),
            (r#"{"m":{"a":"1"}}"#, r#"{"m":{}}"#, r#"{"m":{"a":"1"}}"#),
            // An object that was not there, or is there no more.
            (r#"{"o":null}"#, r#"{"o":{"a":1}}"#, r#"{"o":null}"#),
            (r#"{"o":{"a":1}}"#, r#"{"o":null}"#, r#"{"o":{"a":1}}"#),
        ] {
            let read = |json: &str| serde_json::from_str::<Value>(json).unwrap();
            let written = previous_attributes(&read(before), &read(after)).unwrap();
            assert_eq!(read(&written), read(told), "{before} {after}");
        }
    }
}
