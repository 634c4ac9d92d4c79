//! Finds card numbers in a decoded body, wherever a client put them.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::{card_digits, digits_are_card_number, holds_card_number};
use crate::path::{ParamPath, Step};

/// A card number was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The bracketed name of the field that holds it. When the number is itself
    /// a member name, this is the enclosing field, or nothing at the root.
    pub param: Option<String>,
}

/// Searches every string, member name and integer of a decoded body.
///
/// The names in each of `card_fields` lead to a field that is meant to hold a card number. Only
/// there may one be that `allowed`, called with the digits alone, knows.
#[must_use]
pub fn find_card_number(
    tree: &Map<String, Value>,
    card_fields: &[&[&str]],
    allowed: impl Fn(&str) -> bool,
) -> Option<Found> {
    let exemption = Exemption {
        card_fields,
        allowed: &allowed,
    };
    find_in_members(tree, &ParamPath::Root, exemption)
}

#[derive(Clone, Copy)]
struct Exemption<'a> {
    card_fields: &'a [&'a [&'a str]],
    allowed: &'a dyn Fn(&str) -> bool,
}

fn find_in_members(
    members: &Map<String, Value>,
    path: &ParamPath<'_>,
    exemption: Exemption<'_>,
) -> Option<Found> {
    members.iter().find_map(|(name, value)| {
        let place = path.within(Step::Name(name));
        if holds_card_number(name) {
            return Some(Found {
                param: place.to_param(),
            });
        }
        find_in_value(value, &place, exemption)
    })
}

fn find_in_value(value: &Value, path: &ParamPath<'_>, exemption: Exemption<'_>) -> Option<Found> {
    let text = match value {
        Value::Null | Value::Bool(_) => return None,
        Value::Array(items) => {
            return items.iter().enumerate().find_map(|(index, item)| {
                find_in_value(item, &path.within(Step::Index(index)), exemption)
            });
        }
        Value::Object(members) => return find_in_members(members, path, exemption),
        Value::String(text) => Cow::Borrowed(text.as_str()),
        Value::Number(number) => Cow::Owned(number.to_string()),
    };
    let is_card_field = exemption.card_fields.iter().any(|names| path.is(names));
    if is_card_field && card_digits(&text).is_some_and(|digits| (exemption.allowed)(&digits)) {
        return None;
    }
    let is_found = holds_card_number(&text) || is_card_field && digits_are_card_number(&text);
    is_found.then(|| Found {
        param: path.to_param(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use serde_json::json;

    use super::{
        super::samples::{TEST_CARDS, spellings},
        *,
    };

    fn no_card(_: &str) -> bool {
        false
    }

    fn is_test_card(digits: &str) -> bool {
        TEST_CARDS.contains(&digits)
    }

    fn find(tree: &Value, allowed: impl Fn(&str) -> bool) -> Option<Found> {
        let card_fields: &[&[&str]] = &[&["source", "number"], &["data", "card", "number"]];
        find_card_number(tree.as_object().unwrap(), card_fields, allowed)
    }

    fn found_at(param: &str) -> Option<Found> {
        Some(Found {
            param: Some(param.to_owned()),
        })
    }

    #[test]
    fn every_test_card_is_found_wherever_it_stands() {
        for card in TEST_CARDS {
            for text in spellings(card) {
                let value = json!({"amount": 1, "items": [{"note": ["x", text]}]});
                assert_eq!(find(&value, no_card), found_at("items[0][note][1]"));
                let name = json!({"metadata": {"order_id": "1", text: "x"}});
                assert_eq!(find(&name, no_card), found_at("metadata"));
            }
            let number: i64 = card.parse().unwrap();
            for number in [number, -number] {
                let integer = json!({"amount": number});
                assert_eq!(find(&integer, no_card), found_at("amount"));
            }
        }
    }

    #[test]
    fn a_test_card_is_exempt_in_the_fields_for_it_alone() {
        let card = "4242 4242 4242 4242";
        let oddly = "4242 4242-4242\u{a0}\u{ff14}242";
        let plain = "4242424242424242";
        let unknown = "4111111111111111";
        let source = |number: Value| json!({"source": {"number": number}});
        let of_card = |number: &str| json!({"data": {"card": {"number": number}}});
        let number = json!(4_242_424_242_424_242_i64);
        let exempt = [source(json!(card)), source(json!(oddly)), source(number)];
        for tree in exempt.into_iter().chain([of_card(oddly)]) {
            assert_eq!(find(&tree, is_test_card), None, "{tree}");
        }
        for (tree, param) in [
            (of_card(unknown), "data[card][number]"),
            (json!({"data": {"number": card}}), "data[number]"),
            (source(json!(unknown)), "source[number]"),
            (source(json!(format!("{oddly}."))), "source[number]"),
            (source(json!("41 11-1111\u{a0}11111111")), "source[number]"),
            (source(json!({"number": plain})), "source[number][number]"),
            (source(json!([plain])), "source[number][0]"),
            (json!({"source": {"name": card}}), "source[name]"),
            (json!({"number": card}), "number"),
            (json!({"a": source(json!(card))}), "a[source][number]"),
        ] {
            assert_eq!(find(&tree, is_test_card), found_at(param), "{tree}");
        }
    }
}
