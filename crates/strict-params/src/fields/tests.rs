#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde_json::json;

use super::*;
use crate::Params;

/// Reads one parameter of each kind, and drops its value.
fn read(encoding: Encoding, tree: &Value) -> Result<(), Error> {
    let mut fields = Fields::new(encoding, tree.as_object().unwrap());
    fields.integer("integer", -1..=9)?;
    fields.boolean("boolean")?;
    fields.text("text", 3)?;
    fields.texts("texts", 0..=2, 3)?;
    fields.text_map("map", 3, 4)?;
    if let Some(TextOrFields::Fields(mut inner)) = fields.text_or_object("either")? {
        inner.integer("integer", 1..=9)?;
        inner.finish()?;
    }
    if fields.given("objects").is_some() {
        fields.objects("objects", 1..=2, |item| {
            item.text("id", 3)?.ok_or_else(|| item.missing("id"))
        })?;
    }
    fields.expands("", &["charge"])?;
    fields.finish()
}

#[test]
fn json_and_forms_have_one_reader_and_spell_integers_and_booleans_their_own_way() {
    let json = json!({
        "integer": 9, "boolean": true, "text": "é\u{1f600}x", "texts": ["a", ""],
        "map": {"a": "b", "c": null, "d": ""}, "either": {"integer": 1}, "objects": [{"id": "1"}],
        "expand": ["charge"],
    });
    assert_eq!(read(Encoding::Json, &json), Ok(()));
    for boolean in ["false", "true", "False", "TRUE"] {
        let form = json!({"integer": "9", "boolean": boolean, "either": "x", "text": ""});
        assert_eq!(read(Encoding::Form, &form), Ok(()));
    }
    // What is empty is absent, of whatever kind it should be.
    let names = [
        "integer", "boolean", "text", "texts", "map", "either", "expand",
    ];
    for empty in [json!(null), json!("")] {
        let members = names.map(|name| (name.to_owned(), empty.clone()));
        let tree: Map<_, _> = members.into_iter().collect();
        assert_eq!(read(Encoding::Json, &tree.into()), Ok(()));
    }
}

#[test]
fn a_refusal_names_the_field_and_says_what_it_must_be() {
    let range = "Must be an integer from -1 to 9.";
    let keys = "Keys have 1 to 3 characters, none of them a bracket.";
    for (tree, param, message) in [
        (json!({"integer": 10}), "integer", range),
        (json!({"integer": "1"}), "integer", range),
        (json!({"boolean": 1}), "boolean", "Must be true or false."),
        (json!({"text": 1}), "text", "Must be a string."),
        (
            json!({"text": "abcd"}),
            "text",
            "Must have at most 3 characters.",
        ),
        (json!({"texts": "a"}), "texts", "Must be a list of strings."),
        (
            json!({"texts": ["a", "b", "c"]}),
            "texts",
            "Must have 0 to 2 elements.",
        ),
        (
            json!({"texts": ["a", 1]}),
            "texts[1]",
            "Must be a string of at most 3 characters.",
        ),
        (json!({"map": []}), "map", "Must be an object of strings."),
        (json!({"map": {"abcd": "x"}}), "map[abcd]", keys),
        (json!({"map": {"a]": "x"}}), "map", keys),
        (
            json!({"map": {"a": "abcde"}}),
            "map[a]",
            "Values have at most 4 characters.",
        ),
        (json!({"map": {"a": {}}}), "map[a]", "Values are strings."),
        (
            json!({"either": 1}),
            "either",
            "Must be a string or an object.",
        ),
        (json!({"objects": {}}), "objects", "Must be a list."),
        (
            json!({"objects": []}),
            "objects",
            "Must have 1 to 2 elements.",
        ),
        (
            json!({"objects": ["x"]}),
            "objects[0]",
            "Must be an object.",
        ),
        (
            json!({"expand": ["charge", "x"]}),
            "expand[1]",
            "Only charge can be expanded here.",
        ),
    ] {
        let message = format!("Invalid parameter: {param}. {message}");
        let expected = Error {
            reason: Reason::Invalid,
            param: Some(param.to_owned()),
            message,
        };
        assert_eq!(read(Encoding::Json, &tree), Err(expected), "{tree}");
    }
}

#[test]
fn a_form_has_one_spelling_for_each_integer() {
    for text in ["01", "+1", "-1", " 1", "1.0", "10", "9223372036854775808"] {
        let refused = read(Encoding::Form, &json!({"integer": text})).unwrap_err();
        assert_eq!(refused.param.as_deref(), Some("integer"), "{text}");
    }
}

#[test]
fn what_is_missing_or_was_not_read_is_refused() {
    for (tree, reason, param, message) in [
        (
            json!({"objects": [{"id": "1"}, {}]}),
            Reason::Missing,
            Some("objects[1][id]"),
            "Missing parameter: objects[1][id].",
        ),
        (
            json!({"either": {"intger": 1}}),
            Reason::Unknown,
            Some("either[intger]"),
            "Unknown parameter: either[intger]. Did you mean integer?",
        ),
        (
            json!({"color": "red"}),
            Reason::Unknown,
            Some("color"),
            "Unknown parameter: color.",
        ),
        (
            json!({"4242424242424242": 1}),
            Reason::Unknown,
            None,
            "This endpoint has no such parameter.",
        ),
    ] {
        let expected = Error {
            reason,
            param: param.map(str::to_owned),
            message: message.to_owned(),
        };
        assert_eq!(read(Encoding::Json, &tree), Err(expected), "{tree}");
    }
}

#[test]
fn a_form_has_the_numbers_of_a_date_as_people_type_them() {
    for (encoding, value, expected) in [
        (Encoding::Form, json!("05"), Some(Some(5))),
        (Encoding::Form, json!("00"), Some(Some(0))),
        (Encoding::Form, json!("5"), Some(Some(5))),
        (Encoding::Form, json!("2027"), Some(Some(2027))),
        (Encoding::Form, json!("005"), Some(None)),
        (Encoding::Form, json!("0x"), Some(None)),
        (Encoding::Form, json!("-5"), Some(None)),
        (Encoding::Form, json!(""), None),
        (Encoding::Json, json!(5), Some(Some(5))),
        (Encoding::Json, json!("05"), Some(None)),
        (Encoding::Json, json!(null), None),
    ] {
        let tree = json!({"month": value});
        let mut fields = Fields::new(encoding, tree.as_object().unwrap());
        assert_eq!(fields.typed_number("month"), expected, "{tree}");
    }
}

#[test]
fn a_name_that_is_known_and_not_offered_is_no_typing_mistake() {
    let tree = json!({"either": {"name": "x"}, "integers": 1, "other": 1});
    let refusal = |sent: &str| {
        let mut members = tree.as_object().unwrap().clone();
        members.retain(|name, _| name == sent);
        let mut params = Params::new(Encoding::Json, Ok(members));
        params.not_offered(&["either[name]", "integers"]);
        params.read(|mut fields| {
            if let Ok(Some(TextOrFields::Fields(inner))) = fields.text_or_object("either") {
                inner.finish()?;
            }
            fields.number("integer");
            fields.finish()
        })
    };
    let error = refusal("either").unwrap_err();
    assert_eq!(error.reason, Reason::NotOffered);
    assert_eq!(error.param.as_deref(), Some("either[name]"));
    let error = refusal("integers").unwrap_err();
    assert_eq!(error.message, "Parameter not offered: integers.");
    let error = refusal("other").unwrap_err();
    assert_eq!(error.reason, Reason::Unknown);
}
