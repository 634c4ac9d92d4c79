//! From decoded syntax to checked parameters.
//!
//! Promise: JSON and form bodies go through one validator; every refusal names the exact field, no
//! parameter is ignored, and everything has a limit. The order of checks is the order in which the
//! caller reads the fields, so a bad request gets the same refusal every time.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
};

use serde_json::{Map, Value};

use crate::{
    Encoding,
    error::{Error, Reason},
    path::{MAX_NAME_CHARS, ParamPath, Step},
};

/// Most names that `expand` may list: more than any object has.
pub const EXPAND_MAX: usize = 20;
/// The longest of them, in characters.
const EXPANDABLE_MAX_CHARS: usize = 100;

/// How alike a misspelled parameter must be to the known one: 0 is not at all, 1 is the same.
const LIKENESS_MIN: f64 = 0.9;

/// What a reply is to show whole: paths of members, such as `latest_charge.refunds`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Expansion(pub Vec<String>);

impl Expansion {
    /// Whether it is empty: the reply shows ids.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What it says about the object, or the list, that is `member`; `None`: it stays an id. A path
    /// through a list names its `data` next, which stays in what follows.
    pub fn under(&self, member: &str) -> Option<Self> {
        fn below<'a>(path: &'a str, member: &str) -> Option<&'a str> {
            match path.strip_prefix(member)? {
                "" => Some(""),
                rest => rest.strip_prefix('.'),
            }
        }
        let paths = self.0.iter().filter_map(|path| below(path, member));
        let mut paths: Vec<_> = paths.map(str::to_owned).collect();
        if paths.is_empty() {
            return None;
        }
        paths.retain(|path| !path.is_empty());
        Some(Self(paths))
    }
}

/// The members of one object, read one by one.
pub struct Fields<'a> {
    encoding: Encoding,
    members: &'a Map<String, Value>,
    place: ParamPath<'a>,
    grants: &'a [Cow<'static, str>],
    not_offered: &'static [&'static str],
    read: BTreeSet<&'static str>,
    expansion: Expansion,
}

impl<'a> Fields<'a> {
    /// The members of a body's root.
    #[must_use]
    pub fn new(encoding: Encoding, root: &'a Map<String, Value>) -> Self {
        Self {
            encoding,
            members: root,
            place: ParamPath::Root,
            grants: &[],
            not_offered: &[],
            read: BTreeSet::new(),
            expansion: Expansion::default(),
        }
    }

    /// With what the request was granted, and the names that are known, and not offered.
    pub(crate) fn granted(
        mut self,
        grants: &'a [Cow<'static, str>],
        not_offered: &'static [&'static str],
    ) -> Self {
        (self.grants, self.not_offered) = (grants, not_offered);
        self
    }

    fn at<'b>(&self, place: ParamPath<'b>, members: &'b Map<String, Value>) -> Fields<'b>
    where
        'a: 'b,
    {
        let fields = Fields {
            place,
            ..Fields::new(self.encoding, members)
        };
        fields.granted(self.grants, self.not_offered)
    }

    /// Whether the request was [granted](crate::Params::grant) `name`, for values that only some
    /// requests may have.
    #[must_use]
    pub fn is_granted(&self, name: &str) -> bool {
        self.grants.iter().any(|grant| grant == name)
    }

    /// A value that is there: `null` and the empty string mean absent.
    fn take(&mut self, name: &'static str) -> Option<&'a Value> {
        self.given(name).filter(|value| !is_empty(value))
    }

    /// A value that the request names, `null` and the empty string included.
    pub fn given(&mut self, name: &'static str) -> Option<&'a Value> {
        self.read.insert(name);
        self.members.get(name)
    }

    /// The bracketed name of the field `name`, as far as it may be repeated.
    #[must_use]
    pub fn param(&self, name: &str) -> Option<String> {
        self.place.within(Step::Name(name)).to_param()
    }

    /// A refusal of the field `name`.
    pub fn invalid(&self, name: &str, message: impl AsRef<str>) -> Error {
        Error::invalid(self.param(name), message.as_ref())
    }

    /// A refusal of one element of the list `name`.
    pub fn invalid_element(&self, name: &str, index: usize, message: impl AsRef<str>) -> Error {
        let list = self.place.within(Step::Name(name));
        Error::invalid(list.within(Step::Index(index)).to_param(), message.as_ref())
    }

    /// The refusal of a required field that is not there.
    pub fn missing(&self, name: &str) -> Error {
        let param = self.param(name);
        let message = match &param {
            None => "A parameter is required.".to_owned(),
            Some(param) => format!("Missing parameter: {param}."),
        };
        Error {
            reason: Reason::Missing,
            param,
            message,
        }
    }

    /// An integer within `range`. In a form it is written `0|[1-9][0-9]*`.
    pub fn integer(
        &mut self,
        name: &'static str,
        range: RangeInclusive<i64>,
    ) -> Result<Option<i64>, Error> {
        match self.number(name) {
            None => Ok(None),
            Some(Some(number)) if range.contains(&number) => Ok(Some(number)),
            Some(_) => {
                let (least, most) = (range.start(), range.end());
                Err(self.invalid(name, format!("Must be an integer from {least} to {most}.")))
            }
        }
    }

    /// A value that is there, as an integer if it is one: for limits that are refused in another
    /// way than [`integer`](Self::integer) does.
    pub fn number(&mut self, name: &'static str) -> Option<Option<i64>> {
        Some(match (self.encoding, self.take(name)?) {
            (Encoding::Json, Value::Number(number)) => number.as_i64(),
            (Encoding::Form, Value::String(text)) => canonical_integer(text),
            _ => None,
        })
    }

    /// As [`number`](Self::number), and in a form also two digits that begin with a zero, as people
    /// type the `05` of a date.
    pub fn typed_number(&mut self, name: &'static str) -> Option<Option<i64>> {
        let number = self.number(name)?;
        let typed = || match (self.encoding, self.members.get(name)?.as_str()?.as_bytes()) {
            (Encoding::Form, [b'0', digit @ b'0'..=b'9']) => Some(i64::from(digit - b'0')),
            _ => None,
        };
        Some(number.or_else(typed))
    }

    /// `true` or `false`; in a form in any case, because languages write their own: `True`.
    pub fn boolean(&mut self, name: &'static str) -> Result<Option<bool>, Error> {
        match (self.encoding, self.take(name)) {
            (_, None) => Ok(None),
            (Encoding::Json, Some(Value::Bool(boolean))) => Ok(Some(*boolean)),
            (Encoding::Form, Some(Value::String(text))) if text.eq_ignore_ascii_case("true") => {
                Ok(Some(true))
            }
            (Encoding::Form, Some(Value::String(text))) if text.eq_ignore_ascii_case("false") => {
                Ok(Some(false))
            }
            _ => Err(self.invalid(name, "Must be true or false.")),
        }
    }

    /// Text of at most `chars_max` Unicode scalar values.
    pub fn text(&mut self, name: &'static str, chars_max: usize) -> Result<Option<String>, Error> {
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

    /// A list of `sizes` strings of at most `chars_max` Unicode scalar values each. Absent is
    /// empty.
    pub fn texts(
        &mut self,
        name: &'static str,
        sizes: RangeInclusive<usize>,
        chars_max: usize,
    ) -> Result<Vec<String>, Error> {
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
    ) -> Result<(), Error> {
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
    ) -> Result<Option<TextOrFields<'s>>, Error> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(TextOrFields::Text(text))),
            Some(Value::Object(members)) => {
                let place = self.place.within(Step::Name(name));
                Ok(Some(TextOrFields::Fields(self.at(place, members))))
            }
            Some(_) => Err(self.invalid(name, "Must be a string or an object.")),
        }
    }

    /// The members of an object that is there.
    pub fn object<'s>(&'s mut self, name: &'static str) -> Result<Option<Fields<'s>>, Error> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Object(members)) => {
                let place = self.place.within(Step::Name(name));
                Ok(Some(self.at(place, members)))
            }
            Some(_) => Err(self.invalid(name, "Must be an object.")),
        }
    }

    /// Reads a list of `sizes` objects, each with `read`.
    pub fn objects<T, E: From<Error>>(
        &mut self,
        name: &'static str,
        sizes: RangeInclusive<usize>,
        read: impl Fn(&mut Fields<'_>) -> Result<T, E>,
    ) -> Result<Vec<T>, E> {
        let Some(value) = self.take(name) else {
            return Err(self.missing(name).into());
        };
        let Value::Array(values) = value else {
            return Err(self.invalid(name, "Must be a list.").into());
        };
        self.sized(name, values, &sizes)?;
        let list = self.place.within(Step::Name(name));
        let read_one = |(index, value): (usize, &Value)| {
            let place = list.within(Step::Index(index));
            let Value::Object(members) = value else {
                return Err(Error::invalid(place.to_param(), "Must be an object.").into());
            };
            let mut fields = self.at(place, members);
            let one = read(&mut fields)?;
            fields.finish()?;
            Ok(one)
        };
        values.iter().enumerate().map(read_one).collect()
    }

    /// Strings by names that the client chooses, none of them longer than the limits. Absent is
    /// empty, and `None` stands for a value that is `null` or the empty string.
    pub fn text_map(
        &mut self,
        name: &'static str,
        key_chars_max: usize,
        value_chars_max: usize,
    ) -> Result<BTreeMap<String, Option<String>>, Error> {
        let members = match self.take(name) {
            None => return Ok(BTreeMap::new()),
            Some(Value::Object(members)) => members,
            Some(_) => return Err(self.invalid(name, "Must be an object of strings.")),
        };
        let map = self.place.within(Step::Name(name));
        let read_one = |(key, value): (&String, &Value)| {
            let refuse = |message: &str| {
                let param = map.within(Step::Name(key)).to_param();
                Err(Error::invalid(param, message))
            };
            // With brackets no form could ever name it again, to unset it.
            let is_bracketed = key.contains(['[', ']']);
            if key.is_empty() || key.chars().count() > key_chars_max || is_bracketed {
                return refuse(&format!(
                    "Keys have 1 to {key_chars_max} characters, none of them a bracket."
                ));
            }
            match value {
                value if is_empty(value) => Ok((key.clone(), None)),
                Value::String(text) if text.chars().count() <= value_chars_max => {
                    Ok((key.clone(), Some(text.clone())))
                }
                Value::String(_) => refuse(&format!(
                    "Values have at most {value_chars_max} characters."
                )),
                Value::Null
                | Value::Bool(_)
                | Value::Number(_)
                | Value::Array(_)
                | Value::Object(_) => refuse("Values are strings."),
            }
        };
        members.iter().map(read_one).collect()
    }

    /// Which of the references at `paths` the parameter `expand` asks for. Each begins with
    /// `prefix` in the request.
    pub fn expands(&mut self, prefix: &str, paths: &[&str]) -> Result<Expansion, Error> {
        let mut names = self.texts("expand", 0..=EXPAND_MAX, EXPANDABLE_MAX_CHARS)?;
        let is_known = |name: &String| {
            let path = name.strip_prefix(prefix);
            path.is_some_and(|path| paths.contains(&path))
        };
        if let Some(index) = names.iter().position(|name| !is_known(name)) {
            let known: Vec<_> = paths.iter().map(|path| format!("{prefix}{path}")).collect();
            let message = format!("Only {} can be expanded here.", known.join(", "));
            return Err(self.invalid_element("expand", index, message));
        }
        for name in &mut names {
            name.drain(..prefix.len());
        }
        self.expansion = Expansion(names);
        Ok(self.expansion.clone())
    }

    /// Which references the parameter `expand` asked for, when it was read.
    pub fn expansion(&self) -> &Expansion {
        &self.expansion
    }

    /// Refuses the first member that was not read. Call it after the last field.
    pub fn finish(self) -> Result<(), Error> {
        let mut names = self.members.keys();
        let Some(unknown) = names.find(|name| !self.read.contains(name.as_str())) else {
            return Ok(());
        };
        let param = self.param(unknown);
        let is_known = |param: &String| self.not_offered.contains(&param.as_str());
        if let Some(param) = param.clone().filter(is_known) {
            return Err(Error {
                reason: Reason::NotOffered,
                message: format!("Parameter not offered: {param}."),
                param: Some(param),
            });
        }
        let message = match (&param, self.similar(unknown)) {
            (None, _) => "This endpoint has no such parameter.".to_owned(),
            (Some(param), None) => format!("Unknown parameter: {param}."),
            (Some(param), Some(known)) => {
                format!("Unknown parameter: {param}. Did you mean {known}?")
            }
        };
        Err(Error {
            reason: Reason::Unknown,
            param,
            message,
        })
    }

    /// The known parameter that `unknown` is probably a misspelling of. A long name is none: to
    /// compare it takes time, and no known name is long.
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

/// `null` or the empty string.
#[must_use]
pub fn is_empty(value: &Value) -> bool {
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
#[must_use]
pub fn canonical_integer(text: &str) -> Option<i64> {
    let canonical =
        text == "0" || (text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0'));
    canonical.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests;
