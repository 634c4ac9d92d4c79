//! From decoded syntax to checked parameters.
//!
//! Promise: JSON and form bodies go through one validator; every refusal names the exact field, no
//! parameter is ignored, and everything has a limit. The order of checks is the order in which a
//! command reads its fields, so a bad request gets the same refusal every time.

use std::{collections::BTreeSet, ops::RangeInclusive};

use serde_json::{Map, Value};

use super::{
    error::{ApiError, ErrorCode},
    param_path::{MAX_NAME_CHARS, ParamPath, Step},
};
use crate::domain::{
    change::Change,
    money::{AMOUNT_MAX, Currency},
    test_cards::LOST_REPLY,
};

/// Longest reference of the client's own, in characters.
pub const REFERENCE_MAX_CHARS: usize = 255;
/// Longest text for people, in characters.
pub const DESCRIPTION_MAX_CHARS: usize = 1_000;

/// Most names that `expand` may list, and the longest, in characters; more than any object has.
const EXPAND_MAX: usize = 20;
const EXPANDABLE_MAX_CHARS: usize = 100;

/// How alike a misspelled parameter must be to the known one: 0 is not at all, 1 is the same.
const LIKENESS_MIN: f64 = 0.9;

/// How the parameters were written. It decides what an integer and a boolean look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// Integers and booleans are JSON's own.
    Json,
    /// Every value is a string.
    Form,
}

impl Encoding {
    /// Its name in the fingerprint.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Form => "form",
        }
    }
}

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
        Ok(Fields {
            allows_lost_reply: self.allows_lost_reply,
            ..Fields::new(self.encoding, tree, ParamPath::Root)
        })
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

/// The members of one object, read one by one.
pub struct Fields<'a> {
    encoding: Encoding,
    members: &'a Map<String, Value>,
    pub(super) place: ParamPath<'a>,
    /// As the root's [`Params::allows_lost_reply`]; objects inside the root have no `source`.
    pub(super) allows_lost_reply: bool,
    read: BTreeSet<&'static str>,
}

impl<'a> Fields<'a> {
    fn new(encoding: Encoding, members: &'a Map<String, Value>, place: ParamPath<'a>) -> Self {
        Self {
            encoding,
            members,
            place,
            allows_lost_reply: false,
            read: BTreeSet::new(),
        }
    }

    /// A value that is there: `null` and the empty string mean absent.
    fn take(&mut self, name: &'static str) -> Option<&'a Value> {
        self.take_given(name).filter(|value| !is_empty(value))
    }

    /// A value that the request names, `null` and the empty string included.
    pub(super) fn take_given(&mut self, name: &'static str) -> Option<&'a Value> {
        self.read.insert(name);
        self.members.get(name)
    }

    fn param(&self, name: &str) -> Option<String> {
        self.place.within(Step::Name(name)).to_param()
    }

    /// A refusal of the field `name`.
    pub fn invalid(&self, name: &str, message: impl AsRef<str>) -> ApiError {
        invalid(self.param(name), message.as_ref())
    }

    /// A refusal of one element of the list `name`.
    pub fn invalid_element(&self, name: &str, index: usize, message: impl AsRef<str>) -> ApiError {
        let list = self.place.within(Step::Name(name));
        invalid(list.within(Step::Index(index)).to_param(), message.as_ref())
    }

    /// The refusal of a required field that is not there.
    pub fn missing(&self, name: &str) -> ApiError {
        let param = self.param(name);
        let message = match &param {
            None => "A parameter is required.".to_owned(),
            Some(param) => format!("Missing parameter: {param}."),
        };
        ApiError::new(ErrorCode::ParameterMissing, message).with_param(param)
    }

    /// An integer within `range`. In a form it is written `0|[1-9][0-9]*`.
    pub fn integer(
        &mut self,
        name: &'static str,
        range: RangeInclusive<i64>,
    ) -> Result<Option<i64>, ApiError> {
        match self.number(name) {
            None => Ok(None),
            Some(Some(number)) if range.contains(&number) => Ok(Some(number)),
            Some(_) => {
                let (least, most) = (range.start(), range.end());
                Err(self.invalid(name, format!("Must be an integer from {least} to {most}.")))
            }
        }
    }

    /// A value that is there, as an integer if it is one.
    fn number(&mut self, name: &'static str) -> Option<Option<i64>> {
        Some(match (self.encoding, self.take(name)?) {
            (Encoding::Json, Value::Number(number)) => number.as_i64(),
            (Encoding::Form, Value::String(text)) => canonical_integer(text),
            _ => None,
        })
    }

    /// An amount in minor units, from `smallest` to [`AMOUNT_MAX`].
    pub fn amount(&mut self, name: &'static str, smallest: i64) -> Result<Option<i64>, ApiError> {
        match self.number(name) {
            None => Ok(None),
            Some(Some(amount)) if amount > AMOUNT_MAX => {
                Err(ApiError::explained(ErrorCode::AmountTooLarge).with_param(self.param(name)))
            }
            Some(Some(amount)) if amount >= smallest => Ok(Some(amount)),
            Some(_) => {
                let message =
                    format!("Must be an integer from {smallest} to {AMOUNT_MAX}, in minor units.");
                Err(self.invalid(name, message))
            }
        }
    }

    /// The required parameter `currency`.
    pub fn currency(&mut self) -> Result<Currency, ApiError> {
        let Some(code) = self.text("currency", usize::MAX)? else {
            return Err(self.missing("currency"));
        };
        Currency::parse(&code).ok_or_else(|| {
            self.invalid(
                "currency",
                "Must be the ISO 4217 code of a currency in use, such as usd.",
            )
        })
    }

    /// `true` or `false`.
    pub fn boolean(&mut self, name: &'static str) -> Result<Option<bool>, ApiError> {
        let Some(value) = self.take(name) else {
            return Ok(None);
        };
        match (self.encoding, value) {
            (Encoding::Json, Value::Bool(boolean)) => Ok(Some(*boolean)),
            (Encoding::Form, Value::String(text)) if text == "true" => Ok(Some(true)),
            (Encoding::Form, Value::String(text)) if text == "false" => Ok(Some(false)),
            _ => Err(self.invalid(name, "Must be true or false.")),
        }
    }

    /// Text of at most `chars_max` Unicode scalar values.
    pub fn text(
        &mut self,
        name: &'static str,
        chars_max: usize,
    ) -> Result<Option<String>, ApiError> {
        let Some(value) = self.take(name) else {
            return Ok(None);
        };
        let Value::String(text) = value else {
            return Err(self.invalid(name, "Must be a string."));
        };
        if text.chars().count() > chars_max {
            return Err(self.invalid(name, format!("Must have at most {chars_max} characters.")));
        }
        Ok(Some(text.clone()))
    }

    /// Text on an update, where `null` and the empty string unset.
    pub fn text_change(
        &mut self,
        name: &'static str,
        chars_max: usize,
    ) -> Result<Change<String>, ApiError> {
        if self.take_given(name).is_some_and(is_empty) {
            return Ok(Change::Unset);
        }
        let text = self.text(name, chars_max)?;
        Ok(text.map_or(Change::Keep, Change::Set))
    }

    /// A list of `sizes` strings of at most `chars_max` Unicode scalar values each. Absent is
    /// empty.
    pub fn texts(
        &mut self,
        name: &'static str,
        sizes: RangeInclusive<usize>,
        chars_max: usize,
    ) -> Result<Vec<String>, ApiError> {
        let values = match self.take(name) {
            None => &[],
            Some(Value::Array(values)) => values.as_slice(),
            Some(_) => return Err(self.invalid(name, "Must be a list of strings.")),
        };
        self.sized(name, values, &sizes)?;
        let read_one = |(index, value): (usize, &Value)| match value.as_str() {
            Some(text) if text.chars().count() <= chars_max => Ok(text.to_owned()),
            Some(_) | None => {
                let message = format!("Must be a string of at most {chars_max} characters.");
                Err(self.invalid_element(name, index, message))
            }
        };
        values.iter().enumerate().map(read_one).collect()
    }

    /// Refuses a list that is too short or too long.
    fn sized(
        &self,
        name: &str,
        values: &[Value],
        sizes: &RangeInclusive<usize>,
    ) -> Result<(), ApiError> {
        if sizes.contains(&values.len()) {
            return Ok(());
        }
        let (least, most) = (sizes.start(), sizes.end());
        Err(self.invalid(name, format!("Must have {least} to {most} elements.")))
    }

    /// A string or an object, for parameters that may be either.
    pub fn text_or_object<'s>(
        &'s mut self,
        name: &'static str,
    ) -> Result<Option<TextOrFields<'s>>, ApiError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(TextOrFields::Text(text))),
            Some(Value::Object(members)) => Ok(Some(TextOrFields::Fields(Fields::new(
                self.encoding,
                members,
                self.place.within(Step::Name(name)),
            )))),
            Some(_) => Err(self.invalid(name, "Must be a string or an object.")),
        }
    }

    /// Reads a list of `sizes` objects, each with `read`.
    pub fn objects<T>(
        &mut self,
        name: &'static str,
        sizes: RangeInclusive<usize>,
        read: impl Fn(&mut Fields<'_>) -> Result<T, ApiError>,
    ) -> Result<Vec<T>, ApiError> {
        let Some(value) = self.take(name) else {
            return Err(self.missing(name));
        };
        let Value::Array(values) = value else {
            return Err(self.invalid(name, "Must be a list."));
        };
        self.sized(name, values, &sizes)?;
        let list = self.place.within(Step::Name(name));
        let read_one = |(index, value): (usize, &Value)| {
            let place = list.within(Step::Index(index));
            let Value::Object(members) = value else {
                return Err(invalid(place.to_param(), "Must be an object."));
            };
            let mut fields = Fields::new(self.encoding, members, place);
            let one = read(&mut fields)?;
            fields.finish()?;
            Ok(one)
        };
        values.iter().enumerate().map(read_one).collect()
    }

    /// Whether `expand` asks for `expandable`, the one reference that this endpoint can show as a
    /// whole object.
    pub fn expands(&mut self, expandable: &str) -> Result<bool, ApiError> {
        let names = self.texts("expand", 0..=EXPAND_MAX, EXPANDABLE_MAX_CHARS)?;
        match names.iter().position(|name| name != expandable) {
            None => Ok(!names.is_empty()),
            Some(index) => {
                let message = format!("Only {expandable} can be expanded here.");
                Err(self.invalid_element("expand", index, message))
            }
        }
    }

    /// Refuses the first member that was not read. Call it after the last field.
    pub fn finish(self) -> Result<(), ApiError> {
        let mut names = self.members.keys();
        let Some(unknown) = names.find(|name| !self.read.contains(name.as_str())) else {
            return Ok(());
        };
        let param = self.param(unknown);
        let message = match (&param, self.similar(unknown)) {
            (None, _) => "This endpoint has no such parameter.".to_owned(),
            (Some(param), None) => format!("Unknown parameter: {param}."),
            (Some(param), Some(known)) => {
                format!("Unknown parameter: {param}. Did you mean {known}?")
            }
        };
        Err(ApiError::new(ErrorCode::ParameterUnknown, message).with_param(param))
    }

    /// The known parameter that `unknown` is probably a misspelling of. A long name is none: to compare it takes
    /// time, and no known name is long.
    fn similar(&self, unknown: &str) -> Option<&'static str> {
        if unknown.len() > MAX_NAME_CHARS {
            return None;
        }
        let likeness = |known: &str| strsim::jaro_winkler(known, unknown);
        let known = self.read.iter().copied();
        known
            .filter(|known| likeness(known) >= LIKENESS_MIN)
            .max_by(|one, other| likeness(one).total_cmp(&likeness(other)))
    }
}

/// A refusal of a parameter.
pub(super) fn invalid(param: Option<String>, message: &str) -> ApiError {
    ApiError::about(ErrorCode::ParameterInvalid, param, message)
}

/// `null` or the empty string.
pub(super) fn is_empty(value: &Value) -> bool {
    value.is_null() || value.as_str().is_some_and(str::is_empty)
}

/// A parameter that may be written either way.
pub enum TextOrFields<'a> {
    /// A string.
    Text(&'a str),
    /// An object.
    Fields(Fields<'a>),
}

/// `0|[1-9][0-9]*`: one spelling per number, no sign, no leading zero.
pub fn canonical_integer(text: &str) -> Option<i64> {
    let canonical =
        text == "0" || (text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0'));
    canonical.then(|| text.parse().ok()).flatten()
}
