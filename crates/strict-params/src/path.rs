//! Places in a request body, and how they are named to a client.
//!
//! Promise: a place is written as `items[0][quantity]`, and never repeats a name that is not safe
//! to repeat: one that is long, is not plain ASCII, or could itself be a card number.

use std::borrow::Cow;

use crate::card_numbers::holds_card_number;

/// Longest field path written to a reply, in characters. Paths are for a
/// developer to read; a longer one stops at the last step that fits.
const MAX_PARAM_CHARS: usize = 100;

/// Longest member name written to a reply, in characters. Forty is the limit that
/// APIs commonly set on metadata keys.
pub(crate) const MAX_NAME_CHARS: usize = 40;

/// One step from a container to what it contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step<'a> {
    /// Into a map, by member name.
    Name(&'a str),
    /// Into a list, by position from zero.
    Index(usize),
    /// Into a list, at the position the sender left open with `[]`.
    Next,
}

/// A place in a request body, as a chain of steps back to the root.
///
/// The chain lives on the stack of the code that walks the body, so that keeping track of the place
/// costs nothing until it has to be written.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ParamPath<'a> {
    /// The body itself.
    Root,
    /// A step further than another place.
    Within(&'a ParamPath<'a>, Step<'a>),
}

impl<'a> ParamPath<'a> {
    pub(crate) fn within(&'a self, step: Step<'a>) -> Self {
        Self::Within(self, step)
    }

    /// Writes the place as clients write it in a form: `items[0][quantity]`.
    ///
    /// The result may be echoed. It stops before the first name that is not plain
    /// ASCII, is too long, or could itself be a card number.
    pub(crate) fn to_param(self) -> Option<String> {
        let mut steps = Vec::new();
        let mut place = &self;
        while let Self::Within(parent, step) = place {
            steps.push(*step);
            place = parent;
        }
        steps.reverse();
        param(&steps)
    }

    /// Whether `names` lead here from the root.
    pub(crate) fn is(&self, names: &[&str]) -> bool {
        match (self, names.split_last()) {
            (Self::Root, None) => true,
            (Self::Within(parent, Step::Name(name)), Some((last, before))) => {
                name == last && parent.is(before)
            }
            _ => false,
        }
    }
}

/// Writes `steps` as [`ParamPath::to_param`] does, for a caller that holds them in a row.
pub(crate) fn param(steps: &[Step<'_>]) -> Option<String> {
    let (Step::Name(root), rest) = steps.split_first()? else {
        return None;
    };
    let mut written = safe_name(root)?.to_owned();
    for step in rest {
        let segment = match step {
            Step::Name(name) => safe_name(name).map(Cow::Borrowed),
            Step::Index(index) => Some(Cow::Owned(index.to_string())),
            Step::Next => Some(Cow::Borrowed("")),
        };
        let Some(segment) = segment else { break };
        if written.len() + segment.len() + "[]".len() > MAX_PARAM_CHARS {
            break;
        }
        written.push('[');
        written.push_str(&segment);
        written.push(']');
    }
    Some(written)
}

/// `name`, if it may be repeated in a reply.
fn safe_name(name: &str) -> Option<&str> {
    let plain = name
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-'));
    let safe =
        plain && !name.is_empty() && name.len() <= MAX_NAME_CHARS && !holds_card_number(name);
    safe.then_some(name)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn params_repeat_safe_names_only() {
        use Step::{Index, Name, Next};
        let long = "a".repeat(41);
        let card = "4242-4242-4242-4242";
        let cases: [(&[Step<'_>], Option<&str>); 10] = [
            (&[], None),
            (&[Index(0)], None),
            (&[Name("")], None),
            (&[Name("4242424242424242")], None),
            (&[Name(&long)], None),
            (&[Name("a"), Name("b\n")], Some("a")),
            (&[Name("a"), Name("b"), Name("[")], Some("a[b]")),
            (&[Name("a"), Index(0), Name("b")], Some("a[0][b]")),
            (&[Name("a"), Next, Name("b")], Some("a[][b]")),
            (&[Name("a"), Name(card), Name("c")], Some("a")),
        ];
        for (steps, expected) in cases {
            assert_eq!(param(steps).as_deref(), expected);
        }
        let deep = [Step::Name("name"); 40];
        assert_eq!(param(&deep).unwrap().len(), 100);
    }
}
