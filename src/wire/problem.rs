//! The same errors as RFC 9457 has them: `application/problem+json`.
//!
//! Promise: a problem is made of the bytes of the envelope, stored or not, and of nothing else. So
//! a replay is the same problem as the first reply.

use std::{borrow::Cow, collections::BTreeMap};

use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{
        RefOr, Schema,
        schema::{ObjectBuilder, Type},
    },
};

use super::error::EnvelopeError;

/// The members of an error, in the envelope and in a problem, whose names differ.
const RENAMED: [(&str, &str); 3] = [
    ("type", "error_type"),
    ("doc_url", "type"),
    ("message", "detail"),
];

/// The problem that says what an envelope says. `None`: the body is no envelope.
pub fn of_envelope(body: &[u8], status: u16) -> Option<String> {
    #[derive(Deserialize)]
    struct Parsed<'a> {
        #[serde(borrow)]
        error: BTreeMap<&'a str, &'a RawValue>,
    }
    let Parsed { mut error } = serde_json::from_slice(body).ok()?;
    let code: &str = serde_json::from_str(error.get("code")?.get()).ok()?;
    let (title, status) = (to_raw_value(&title(code)), to_raw_value(&status));
    let (title, status) = (title.ok()?, status.ok()?);
    for (name, renamed) in RENAMED {
        let value = error.remove(name)?;
        error.insert(renamed, value);
    }
    error.extend([("title", &*title), ("status", &*status)]);
    serde_json::to_string(&error).ok()
}

/// The code in words: `Card declined`.
fn title(code: &str) -> String {
    let mut title = code.replace('_', " ");
    if let Some(first) = title.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    title
}

/// A problem, for the OpenAPI document: the members of an error, and those of the RFC.
pub struct Problem;

impl PartialSchema for Problem {
    fn schema() -> RefOr<Schema> {
        let mut described = EnvelopeError::schema();
        if let RefOr::T(Schema::Object(object)) = &mut described {
            for (name, renamed) in RENAMED {
                if let Some(property) = object.properties.remove(name) {
                    object.properties.insert(renamed.to_owned(), property);
                }
            }
            for (name, kind, about) in [
                ("title", Type::String, "The code in words."),
                ("status", Type::Integer, "The HTTP status."),
            ] {
                let property = ObjectBuilder::new().schema_type(kind);
                let property = property.description(Some(about)).into();
                object.properties.insert(name.to_owned(), property);
            }
            let required = ["type", "title", "status", "detail", "code", "error_type"];
            object.required = required.map(str::to_owned).to_vec();
            object.description = Some("What went wrong, as RFC 9457 has it.".to_owned());
        }
        described
    }
}

impl ToSchema for Problem {
    fn name() -> Cow<'static, str> {
        "Problem".into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::error::{ApiError, ErrorCode};

    #[test]
    fn a_problem_says_all_that_the_envelope_says() -> serde_json::Result<()> {
        let mut error = ApiError::invalid("items[\"a\"]", "It is \"no\" number.");
        error.about.payment_intent = Some(r#"{"amount":1.50,"b":[ 1 ]}"#.to_owned());
        let envelope = serde_json::to_vec(&error.envelope())?;
        let problem = of_envelope(&envelope, 400);
        let expected = concat!(
            r#"{"code":"parameter_invalid","detail":"It is \"no\" number.","#,
            r#""error_type":"invalid_request_error","param":"items[\"a\"]","#,
            r#""payment_intent":{"amount":1.50,"b":[ 1 ]},"status":400,"#,
            r#""title":"Parameter invalid","type":"/errors#parameter_invalid"}"#,
        );
        assert_eq!(problem.as_deref(), Some(expected));
        Ok(())
    }

    #[test]
    fn the_schema_has_the_members_of_every_problem() -> serde_json::Result<()> {
        let schema = serde_json::to_value(Problem::schema())?;
        for code in ErrorCode::ALL {
            let envelope = serde_json::to_vec(&ApiError::explained(*code).envelope())?;
            let problem = of_envelope(&envelope, code.status()).unwrap_or_default();
            let members: BTreeMap<String, serde_json::Value> = serde_json::from_str(&problem)?;
            assert_eq!(members.len(), 6, "{problem}");
            for name in members.keys() {
                assert!(schema["properties"][name].is_object(), "{name}");
            }
        }
        Ok(())
    }

    #[test]
    fn what_is_no_envelope_is_no_problem() {
        for body in [
            "",
            "[]",
            "{}",
            r#"{"error":{}}"#,
            r#"{"error":{"code":"a"}}"#,
        ] {
            assert_eq!(of_envelope(body.as_bytes(), 400), None, "{body}");
        }
    }
}
