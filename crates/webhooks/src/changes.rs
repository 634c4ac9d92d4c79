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
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_changed_is_told_with_the_value_that_it_had() {
        for (before, after, told) in [
            (
                json!({"a": 1, "b": 2}),
                json!({"a": 1, "b": 3}),
                json!({"b": 2}),
            ),
            (json!({"a": 1}), json!({"a": 1}), json!({})),
            (json!({"a": null}), json!({"a": 1}), json!({"a": null})),
            (json!({"a": 1}), json!({"a": null}), json!({"a": 1})),
            (json!({}), json!({"a": 1}), json!({"a": null})),
            (json!({}), json!({"a": null}), json!({"a": null})),
            (json!({"a": 1}), json!({}), json!({"a": 1})),
            (
                json!({"a": [1, 2]}),
                json!({"a": [1, 3]}),
                json!({"a": [1, 2]}),
            ),
            // Of metadata, only the keys that changed.
            (
                json!({"m": {"same": "1", "new": "2", "gone": "3"}}),
                json!({"m": {"same": "1", "new": "4", "added": "5"}}),
                json!({"m": {"new": "2", "gone": "3", "added": null}}),
            ),
            (
                json!({"m": {}}),
                json!({"m": {"a": "1"}}),
                json!({"m": {"a": null}}),
            ),
            (
                json!({"m": {"a": "1"}}),
                json!({"m": {}}),
                json!({"m": {"a": "1"}}),
            ),
            // An object that was not there, or is there no more.
            (
                json!({"o": null}),
                json!({"o": {"a": 1}}),
                json!({"o": null}),
            ),
            (
                json!({"o": {"a": 1}}),
                json!({"o": null}),
                json!({"o": {"a": 1}}),
            ),
        ] {
            let written = previous_attributes(&before, &after).unwrap();
            let read: Value = serde_json::from_str(&written).unwrap();
            assert_eq!(read, told, "{before} {after}");
        }
    }
}
