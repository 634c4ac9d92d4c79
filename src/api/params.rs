//! A request's parameters, and those that several requests have. `crates/strict-params` reads them.

use charge_once_strict_params::{Encoding, Error, Fields, Reason, is_empty};
use serde_json::{Map, Value};

use super::error::{ApiError, ErrorCode};
use crate::domain::{
    change::Change,
    money::{AMOUNT_MAX, Currency},
    test_cards::LOST_REPLY,
};

/// Longest reference of the client's own, in characters.
pub const REFERENCE_MAX_CHARS: usize = 255;
/// Longest text for people, in characters.
pub const DESCRIPTION_MAX_CHARS: usize = 1_000;

/// The parameter whose members have names that the client chooses.
pub const MAPS: &[&str] = &["metadata"];

/// Parameters as they were decoded: syntax without meaning.
#[derive(Debug, Clone)]
pub struct Params {
    /// How they were written.
    pub encoding: Encoding,
    /// The root object, or why there is none: a refusal like any other, to be stored.
    pub tree: Result<Map<String, Value>, ApiError>,
    /// Whether `source` may be `tok_lostReply`. To all other accounts that is no token.
    pub allows_lost_reply: bool,
}

impl Params {
    /// Decoded parameters of an ordinary account.
    pub fn new(encoding: Encoding, tree: Result<Map<String, Value>, ApiError>) -> Self {
        Self {
            encoding,
            tree,
            allows_lost_reply: false,
        }
    }

    /// The fields of the root, or the refusal of a body that could not be decoded.
    pub fn fields(&self) -> Result<Fields<'_>, ApiError> {
        let tree = self.tree.as_ref().map_err(Clone::clone)?;
        Ok(Fields::new(self.encoding, tree))
    }

    /// Refuses all, for requests that have none.
    pub fn refuse_any(&self) -> Result<(), ApiError> {
        Ok(self.fields()?.finish()?)
    }

    /// Whether `source` names the card whose replies get lost, and may.
    pub fn loses_its_reply(&self) -> bool {
        self.allows_lost_reply
            && self.tree.as_ref().is_ok_and(|tree| {
                tree.get("source").and_then(Value::as_str) == Some(LOST_REPLY.token())
            })
    }
}

impl Params {
    /// About how many bytes they have: their names and texts.
    pub fn weight(&self) -> usize {
        fn of(value: &Value) -> usize {
            match value {
                Value::Null | Value::Bool(_) | Value::Number(_) => 8,
                Value::String(text) => text.len(),
                Value::Array(values) => values.iter().map(of).sum(),
                Value::Object(members) => of_members(members),
            }
        }
        fn of_members(members: &Map<String, Value>) -> usize {
            members
                .iter()
                .map(|(name, value)| name.len() + of(value))
                .sum()
        }
        self.tree.as_ref().map_or(0, of_members)
    }
}

/// An amount in minor units, from `smallest` to [`AMOUNT_MAX`].
pub fn amount(
    fields: &mut Fields<'_>,
    name: &'static str,
    smallest: i64,
) -> Result<Option<i64>, ApiError> {
    match fields.number(name) {
        None => Ok(None),
        Some(Some(amount)) if amount > AMOUNT_MAX => {
            Err(ApiError::explained(ErrorCode::AmountTooLarge).with_param(fields.param(name)))
        }
        Some(Some(amount)) if amount >= smallest => Ok(Some(amount)),
        Some(_) => {
            let message =
                format!("Must be an integer from {smallest} to {AMOUNT_MAX}, in minor units.");
            Err(fields.invalid(name, message).into())
        }
    }
}

/// The required parameter `currency`.
pub fn currency(fields: &mut Fields<'_>) -> Result<Currency, Error> {
    let Some(code) = fields.text("currency", usize::MAX)? else {
        return Err(fields.missing("currency"));
    };
    Currency::parse(&code).ok_or_else(|| {
        fields.invalid(
            "currency",
            "Must be the ISO 4217 code of a currency in use, such as usd.",
        )
    })
}

/// Text on an update, where `null` and the empty string unset.
pub fn text_change(
    fields: &mut Fields<'_>,
    name: &'static str,
    chars_max: usize,
) -> Result<Change<String>, Error> {
    if fields.given(name).is_some_and(is_empty) {
        return Ok(Change::Unset);
    }
    let text = fields.text(name, chars_max)?;
    Ok(text.map_or(Change::Keep, Change::Set))
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        let code = match error.reason {
            Reason::Malformed => ErrorCode::BodyInvalid,
            Reason::Missing => ErrorCode::ParameterMissing,
            Reason::Unknown => ErrorCode::ParameterUnknown,
            Reason::Invalid => ErrorCode::ParameterInvalid,
        };
        Self::new(code, error.message).with_param(error.param)
    }
}
