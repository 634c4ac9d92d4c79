//! The `Idempotency-Key` header as a value.
//!
//! Promise: an [`IdempotencyKey`] is valid, and the bare and the quoted spelling of one are equal.

use std::fmt;

/// The longest key, in bytes, counted without its quotes. Long enough for any UUID, ULID or
/// `stripe-node-retry-…`, short enough for an index entry.
pub const KEY_MAX_BYTES: usize = 255;

/// A key that a client chose for one operation: 1 to 255 bytes of visible ASCII without `"`, `\`
/// and `,`, which are not `undefined`, `null`, `None`, `nil` or `NaN`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IdempotencyKey(pub(crate) String);

/// Why a header value, or a key in a look-up, names no key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Nothing in it, or nothing between its quotes.
    #[error("The idempotency key is empty.")]
    Empty,
    /// More than [`KEY_MAX_BYTES`].
    #[error("The idempotency key is longer than 255 bytes.")]
    TooLong,
    /// A quote at one end only, or parameters after the quoted string.
    #[error(
        "The idempotency key is quoted at one end only: send it bare, or as one quoted string \
         without parameters."
    )]
    Unbalanced,
    /// A space, a control or non-ASCII byte, `"`, `\` or `,`.
    #[error(
        "The idempotency key holds a byte that is not allowed: use visible ASCII without spaces, \
         quotes, backslashes and commas. A UUID is a good key."
    )]
    ForbiddenByte,
    /// `undefined`, `null`, `None`, `nil` or `NaN`: what a program writes in place of no value.
    #[error(
        "The idempotency key is what a program writes for a value that is not there, such as \
         undefined or null. A UUID, made before the first attempt, is a good key."
    )]
    Mistake,
}

/// What programs write for a value that is not there. Operations that have nothing in common would
/// share it as their key.
pub const KEY_MISTAKES: [&str; 5] = ["undefined", "null", "None", "nil", "NaN"];

impl IdempotencyKey {
    /// Reads a header value: bare, or one structured-field string (RFC 8941, section 3.3.3)
    /// without parameters. Escapes can't occur, because no byte that needs one is allowed.
    pub fn parse(value: &[u8]) -> Result<Self, KeyError> {
        let key = Self::parse_form(value)?;
        if KEY_MISTAKES.contains(&key.as_str()) {
            return Err(KeyError::Mistake);
        }
        Ok(key)
    }

    /// Reads what has the form of a key, and may be what only a mistake sends.
    pub(crate) fn parse_form(value: &[u8]) -> Result<Self, KeyError> {
        let bare = match value {
            [b'"', inner @ .., b'"'] => inner,
            [b'"', ..] | [.., b'"'] => return Err(KeyError::Unbalanced),
            bare => bare,
        };
        if bare.is_empty() {
            return Err(KeyError::Empty);
        }
        if bare.len() > KEY_MAX_BYTES {
            return Err(KeyError::TooLong);
        }
        if !bare.iter().copied().all(is_allowed) {
            return Err(KeyError::ForbiddenByte);
        }
        Ok(Self(bare.iter().copied().map(char::from).collect()))
    }

    /// The key without quotes.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A key may be a customer's order number or worse, so it never reaches a log by accident.
impl fmt::Debug for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IdempotencyKey(…)")
    }
}

fn is_allowed(byte: u8) -> bool {
    byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\' | b',')
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
    use super::*;

    #[test]
    fn bare_and_quoted_spellings_name_the_same_key() {
        assert_eq!(
            IdempotencyKey::parse(b"order-1").unwrap(),
            IdempotencyKey::parse(b"\"order-1\"").unwrap()
        );
    }

    #[test]
    fn the_length_counts_without_quotes() {
        let longest = "k".repeat(KEY_MAX_BYTES);
        assert!(IdempotencyKey::parse(longest.as_bytes()).is_ok());
        assert!(IdempotencyKey::parse(format!("\"{longest}\"").as_bytes()).is_ok());
        let longer = IdempotencyKey::parse(format!("{longest}k").as_bytes());
        assert_eq!(longer.unwrap_err(), KeyError::TooLong);
    }

    #[test]
    fn what_only_a_mistake_sends_is_no_key() {
        for mistake in KEY_MISTAKES {
            let quoted = format!("\"{mistake}\"");
            for value in [mistake, &quoted] {
                let error = IdempotencyKey::parse(value.as_bytes()).unwrap_err();
                assert_eq!(error, KeyError::Mistake, "{value}");
            }
        }
        for key in ["Undefined", "null-1", "none", "0"] {
            assert!(IdempotencyKey::parse(key.as_bytes()).is_ok(), "{key}");
        }
    }

    #[test]
    fn everything_else_is_refused() {
        let cases: [(&[u8], KeyError); 13] = [
            (b"", KeyError::Empty),
            (b"\"\"", KeyError::Empty),
            (b"\"", KeyError::Unbalanced),
            (b"\"a", KeyError::Unbalanced),
            (b"a\"", KeyError::Unbalanced),
            (b"\"a\";p=1", KeyError::Unbalanced),
            (b"a b", KeyError::ForbiddenByte),
            (b"a,b", KeyError::ForbiddenByte),
            (b"a\\b", KeyError::ForbiddenByte),
            (b"a\"b", KeyError::ForbiddenByte),
            (b"a\x7fb", KeyError::ForbiddenByte),
            (b"a\x00b", KeyError::ForbiddenByte),
            ("käse".as_bytes(), KeyError::ForbiddenByte),
        ];
        for (value, expected) in cases {
            let error = IdempotencyKey::parse(value).unwrap_err();
            assert_eq!(error, expected, "{value:?}");
        }
    }
}
