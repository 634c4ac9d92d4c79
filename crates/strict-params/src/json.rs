//! Decodes a JSON request body into a tree that has one meaning.
//!
//! Promise: what every reader of RFC 8259 would understand alike is accepted and nothing else. Of
//! two bodies that differ in member order, white space or escapes, both give the same tree.
//! Repeated member names, numbers that not all readers keep exactly, and strings that not all
//! stores accept are refused (RFC 7493), naming the field and never its value.

use std::cell::{Cell, RefCell};
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::{
    MAX_DEPTH, MAX_VALUES, TOO_MANY_VALUES,
    error::Error as Refusal,
    path::{ParamPath, Step},
};

/// Largest magnitude of an integer: 2^53 − 1, beyond which readers that hold
/// numbers as IEEE 754 doubles no longer agree on the value (RFC 7493, section
/// 2.2).
const MAX_INTEGER: i64 = 9_007_199_254_740_991;

/// The white space of RFC 8259, section 2.
const WHITE_SPACE: [char; 4] = [' ', '\t', '\n', '\r'];

/// Decodes `body`, whose size the caller has bounded, to its root object.
///
/// An empty body means no parameters, as it does in a form.
///
/// Refuses whatever the promise of this module does not cover.
pub(crate) fn decode(body: &[u8]) -> Result<Map<String, Value>, Refusal> {
    let refuse = |message: &str| Refusal::malformed(None, message);
    // RFC 8259, section 8.1: UTF-8, and no byte order mark in front.
    let text = str::from_utf8(body).map_err(|_| refuse("The body must be encoded in UTF-8."))?;
    if text.starts_with('\u{feff}') {
        return Err(refuse("The body must not begin with a byte order mark."));
    }
    if text.trim_matches(WHITE_SPACE).is_empty() {
        return Ok(Map::new());
    }

    let reading = Reading::default();
    let root = JsonNode {
        path: &ParamPath::Root,
        depth: 1,
        reading: &reading,
    };
    let mut reader = serde_json::Deserializer::from_str(text);
    let decoded = root
        .deserialize(&mut reader)
        .and_then(|value| reader.end().map(|()| value));
    match decoded {
        Ok(Value::Object(members)) => Ok(members),
        Ok(
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_),
        ) => Err(refuse("The body must be a JSON object.")),
        // The reader's own message is not passed on, because it may quote the body.
        Err(error) => Err(reading.refusal.take().unwrap_or_else(|| {
            let (line, column) = (error.line(), error.column());
            refuse(&format!(
                "The body could not be read as JSON: see line {line}, column {column}."
            ))
        })),
    }
}

/// What is known of a body while it is read.
#[derive(Default)]
struct Reading {
    /// Carries the reason past `serde_json`, whose errors are only a text.
    refusal: RefCell<Option<Refusal>>,
    /// Texts, numbers, booleans and nulls so far.
    values: Cell<usize>,
    /// Objects and arrays so far.
    containers: Cell<usize>,
}

/// A value about to be read, and its place in the body.
#[derive(Clone, Copy)]
struct JsonNode<'a> {
    path: &'a ParamPath<'a>,
    /// The level that this value would be at if it were an object or an array.
    depth: usize,
    reading: &'a Reading,
}

impl JsonNode<'_> {
    fn refuse<E: Error>(self, message: &str) -> E {
        self.refuse_for(Refusal::malformed(self.path.to_param(), message))
    }

    fn refuse_for<E: Error>(self, refusal: Refusal) -> E {
        let error = E::custom(&refusal.message);
        *self.reading.refusal.borrow_mut() = Some(refusal);
        error
    }

    /// Counts one more, before it is made: in memory, a value of two bytes takes dozens of times
    /// its size, and an object of one member hundreds.
    fn count<E: Error>(self, counted: &Cell<usize>) -> Result<(), E> {
        counted.set(counted.get() + 1);
        if counted.get() > MAX_VALUES {
            return Err(self.refuse_for(Refusal::malformed(None, TOO_MANY_VALUES)));
        }
        Ok(())
    }

    fn scalar<E: Error>(self, value: impl Into<Value>) -> Result<Value, E> {
        self.count(&self.reading.values)?;
        Ok(value.into())
    }

    fn integer<E: Error>(self, integer: Option<i64>) -> Result<Value, E> {
        let integer = integer
            .filter(|integer| (-MAX_INTEGER..=MAX_INTEGER).contains(integer))
            .ok_or_else(|| {
                self.refuse(
                    "A number must be an integer from -9007199254740991 to 9007199254740991, \
                     written without a fraction, an exponent or a negative zero.",
                )
            })?;
        self.scalar(integer)
    }

    /// PostgreSQL stores no NUL in text, so that a string with one could be
    /// accepted here and then fail halfway through a request.
    fn check_text<E: Error>(self, text: &str) -> Result<(), E> {
        if text.contains('\0') {
            return Err(self.refuse("Strings and member names must not contain U+0000."));
        }
        Ok(())
    }

    fn open_container<E: Error>(self) -> Result<(), E> {
        if self.depth > MAX_DEPTH {
            return Err(self.refuse(&format!(
                "Objects and arrays must not be nested more than {MAX_DEPTH} levels deep."
            )));
        }
        self.count(&self.reading.containers)
    }
}

impl<'de> DeserializeSeed<'de> for JsonNode<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for JsonNode<'_> {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        self.scalar(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        self.scalar(value)
    }

    fn visit_i64<E: Error>(self, integer: i64) -> Result<Value, E> {
        self.integer(Some(integer))
    }

    fn visit_u64<E: Error>(self, integer: u64) -> Result<Value, E> {
        self.integer(i64::try_from(integer).ok())
    }

    /// Reached by everything that is not an integer of 64 bits: fractions,
    /// exponents, `-0` and integers of any greater size.
    fn visit_f64<E: Error>(self, _: f64) -> Result<Value, E> {
        self.integer(None)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        self.check_text(text)?;
        self.scalar(text)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Value, A::Error> {
        self.open_container()?;
        let mut items = Vec::new();
        while let Some(item) = elements.next_element_seed(JsonNode {
            path: &self.path.within(Step::Index(items.len())),
            depth: self.depth + 1,
            reading: self.reading,
        })? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        self.open_container()?;
        let mut members = Map::new();
        while let Some(name) = entries.next_key::<String>()? {
            let path = self.path.within(Step::Name(&name));
            let member = JsonNode {
                path: &path,
                depth: self.depth + 1,
                reading: self.reading,
            };
            member.check_text(&name)?;
            // RFC 8259, section 4, leaves it open which of two members counts. The
            // first or the last may not be the one that the client meant.
            if members.contains_key(&name) {
                return Err(member.refuse("A member name must not be repeated in one object."));
            }
            let value = entries.next_value_seed(member)?;
            members.insert(name, value);
        }
        Ok(Value::Object(members))
    }
}

#[cfg(test)]
mod tests;
