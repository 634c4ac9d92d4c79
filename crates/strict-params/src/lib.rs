// Without the feature, its example does not compile.
#![cfg_attr(any(feature = "openapi", not(doctest)), doc = include_str!("../README.md"))]

pub mod card_numbers;
mod error;
mod fields;
mod form;
mod json;
#[cfg(feature = "openapi")]
mod kinds;
#[cfg(feature = "pages")]
pub mod pages;
#[cfg(feature = "openapi")]
mod parameter;
mod params;
mod path;
#[cfg(feature = "openapi")]
pub mod schema;

use serde_json::{Map, Value};

pub use error::{Error, Reason};
pub use fields::{EXPAND_MAX, Expansion, Fields, TextOrFields, canonical_integer, is_empty};
#[cfg(feature = "openapi")]
pub use kinds::{
    AnyId, Change, Expand, Expandables, ID_MAX_CHARS, Integer, Kept, ListOf, Nested, Text,
    TextKind, ValueKind,
};
#[cfg(feature = "openapi")]
pub use parameter::{Field, Include, Parameter, ParameterSet};
pub use params::Params;
/// For the macros of this crate.
#[cfg(feature = "openapi")]
#[doc(hidden)]
pub use {serde_json, utoipa};

/// Deepest nesting of objects and lists, in levels, the root being the first. It must stay below
/// the 128 levels at which `serde_json` gives up with a less helpful error.
const MAX_DEPTH: usize = 32;

/// Most values in one body or query, and most objects and lists, the root included. They bound what
/// a tree takes in memory, which no limit in bytes does, and are several times what the largest
/// documented request needs.
const MAX_VALUES: usize = 1_000;

const TOO_MANY_VALUES: &str =
    "There must be no more than 1000 values, and no more than 1000 objects and lists.";

/// How parameters are written. It decides what an integer and a boolean look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// Integers and booleans are JSON's own.
    Json,
    /// Every value is a string.
    Form,
}

impl Encoding {
    /// What a `Content-Type` names. `None` for other types, and for other charsets than UTF-8.
    #[must_use]
    pub fn of_media_type(text: &str) -> Option<Self> {
        let media_type: mime::Mime = text.parse().ok()?;
        // utf8 is a label of UTF-8 too, in the Encoding Standard.
        let is_utf_8 = |charset: mime::Name<'_>| {
            let is = |label| charset.as_str().eq_ignore_ascii_case(label);
            is("utf-8") || is("utf8")
        };
        if !media_type.get_param(mime::CHARSET).is_none_or(is_utf_8) {
            return None;
        }
        match media_type.essence_str() {
            "application/json" => Some(Self::Json),
            "application/x-www-form-urlencoded" => Some(Self::Form),
            _ => None,
        }
    }

    /// Its short name: `json` or `form`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Form => "form",
        }
    }

    /// Decodes `body`, whose size the caller has bounded, to its root object. An empty body has no
    /// parameters.
    ///
    /// `maps` are the parameters of a form whose brackets always hold a member's name. In others,
    /// digits in brackets are the index of a list.
    ///
    /// Refuses what not every reader would understand alike: repeated names, numbers that are no
    /// integer of 53 bits, U+0000, text that is not UTF-8, and more than 32 levels, 1,000 values,
    /// or 1,000 objects and lists.
    pub fn decode(self, body: &[u8], maps: &[&str]) -> Result<Map<String, Value>, Error> {
        match self {
            Self::Json => json::decode(body),
            Self::Form => form::decode(body, maps),
        }
    }
}
