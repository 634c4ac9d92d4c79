//! A request's parameters, as they were decoded.

use charge_once_strict_params::{Encoding, Error, Fields, Reason};
use serde_json::{Map, Value};

use super::error::{ApiError, ErrorCode};
use crate::domain::test_cards::LOST_REPLY;

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
    /// Whether `url` may name an address that is not public.
    pub allows_private_url: bool,
}

impl Params {
    /// Decoded parameters of an ordinary account.
    pub fn new(encoding: Encoding, tree: Result<Map<String, Value>, ApiError>) -> Self {
        Self {
            encoding,
            tree,
            allows_lost_reply: false,
            allows_private_url: false,
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
