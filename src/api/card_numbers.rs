//! Recognizes card numbers in text.
//!
//! Promise: a text that is spelled like a card number is found, so that it can be refused before it
//! is stored, logged or echoed; identifiers and timestamps of the usual kinds are never mistaken
//! for one. A card is found only when no further digits are joined to it by a single space or dash:
//! `4242424242424242 12/30` reads as one run of 18 digits.

use std::ops::RangeInclusive;

use uuid::Uuid;

/// Digits in a card number: the shortest and the longest that any row of
/// [`ISSUERS`] admits. ISO/IEC 7812-1 sets the upper bound.
const CARD_DIGITS: RangeInclusive<usize> = 13..=19;

/// Leading digits that [`ISSUERS`] is keyed by. Four is the fewest that tell all
/// its rows apart.
const PREFIX_DIGITS: usize = 4;

/// Card schemes by the range of their first four digits, with the lengths, in
/// digits, that each issues. The Luhn check alone accepts one number in ten;
/// this table is what keeps order numbers and timestamps from being refused.
const ISSUERS: &[(RangeInclusive<u16>, &[usize])] = &[
    // Visa.
    (4000..=4999, &[13, 16, 19]),
    // Mastercard.
    (5100..=5599, &[16]),
    (2221..=2720, &[16]),
    // American Express.
    (3400..=3499, &[15]),
    (3700..=3799, &[15]),
    // Discover.
    (6011..=6011, &[16, 19]),
    (6440..=6599, &[16, 19]),
    // JCB.
    (3528..=3589, &[16]),
    // Diners Club.
    (3000..=3059, &[14]),
    (3600..=3699, &[14]),
    (3800..=3999, &[14]),
    // UnionPay.
    (6200..=6299, &[16, 19]),
];

/// Characters in a UUID written with dashes (RFC 9562, section 4).
const UUID_CHARS: usize = 36;

/// Hexadecimal digits after `\u` in a JSON string (RFC 8259, section 7).
const ESCAPE_HEX_DIGITS: usize = 4;

/// Whether `text` holds a card number.
///
/// It does when a run of digits, single spaces or dashes between them allowed,
/// - extends as far as it can both ways and touches no letter, digit or `_`,
/// - has a length and a prefix that a card scheme issues, and
/// - passes the Luhn check.
///
/// UUIDs are skipped. Their dashes can set off groups of 13 digits and more, and
/// about one random UUID in a hundred thousand would pass for a card; no card is
/// ever grouped as 8-4-4-4-12, so skipping that shape hides none.
#[must_use]
pub fn holds_card_number(text: &str) -> bool {
    let mut rest = text;
    while let Some((before, after)) = split_at_uuid(rest) {
        if has_card_run(before) {
            return true;
        }
        rest = after;
    }
    has_card_run(rest)
}

/// Whether a body that could not be decoded holds a card number.
///
/// What such a body was meant to be is unknown, so it is read as plain text, as a
/// form and as JSON strings: an escape must not join a number to a letter, nor
/// hide it. Bytes that are not UTF-8 separate, as punctuation does.
#[must_use]
pub fn bytes_hold_card_number(raw: &[u8]) -> bool {
    let text = String::from_utf8_lossy(raw);
    holds_card_number(&text)
        || holds_card_number(&unescape_json(&text))
        || form_urlencoded::parse(raw)
            .any(|(name, value)| holds_card_number(&name) || holds_card_number(&value))
}

/// Splits `text` around the first UUID in it that stands apart from other letters
/// and digits. The parts therefore begin and end at a non-alphanumeric character,
/// and a run of digits in them touches what it touched in the whole.
fn split_at_uuid(text: &str) -> Option<(&str, &str)> {
    let mut in_word = false;
    for (at, character) in text.char_indices() {
        if !in_word && character.is_ascii_hexdigit() {
            let (before, from_here) = text.split_at(at);
            if let Some((candidate, after)) = from_here.split_at_checked(UUID_CHARS)
                && !after.starts_with(char::is_alphanumeric)
                && Uuid::try_parse(candidate).is_ok()
            {
                return Some((before, after));
            }
        }
        in_word = character.is_alphanumeric();
    }
    None
}

fn has_card_run(text: &str) -> bool {
    let mut rest = text;
    let mut touches_before = false;
    loop {
        let (digits, after) = leading_run(rest);
        if !touches_before && !after.starts_with(is_word) && is_card_number(&digits) {
            return true;
        }
        let mut characters = after.chars();
        let Some(character) = characters.next() else {
            return false;
        };
        touches_before = is_word(character);
        rest = characters.as_str();
    }
}

/// The digits that `text` begins with, single spaces and dashes between them left
/// out, and what follows them.
pub(super) fn leading_run(text: &str) -> (String, &str) {
    let mut digits = String::new();
    let mut rest = text;
    loop {
        let next = if digits.is_empty() {
            rest
        } else {
            rest.strip_prefix([' ', '-']).unwrap_or(rest)
        };
        let mut characters = next.chars();
        match characters.next() {
            Some(digit) if digit.is_ascii_digit() => digits.push(digit),
            Some(_) | None => return (digits, rest),
        }
        rest = characters.as_str();
    }
}

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// Whether `digits`, ASCII digits only, could have been issued as a card number.
fn is_card_number(digits: &str) -> bool {
    if !CARD_DIGITS.contains(&digits.len()) {
        return false;
    }
    let Some(prefix) = digits
        .get(..PREFIX_DIGITS)
        .and_then(|prefix| prefix.parse::<u16>().ok())
    else {
        return false;
    };
    ISSUERS
        .iter()
        .any(|(prefixes, lengths)| prefixes.contains(&prefix) && lengths.contains(&digits.len()))
        && luhn3::decimal::valid(digits.as_bytes())
}

/// Replaces the escapes of JSON strings, wherever they are in `text`, by the
/// characters they stand for; what stands for no readable character becomes a
/// line break, which separates.
fn unescape_json(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, escaped)) = rest.split_once('\\') {
        plain.push_str(before);
        let code_point = escaped
            .strip_prefix('u')
            .and_then(|hex| hex.split_at_checked(ESCAPE_HEX_DIGITS))
            .and_then(|(hex, after)| Some((u32::from_str_radix(hex, 16).ok()?, after)));
        if let Some((code_point, after)) = code_point {
            plain.push(char::from_u32(code_point).unwrap_or('\n'));
            rest = after;
        } else {
            plain.push('\n');
            let mut characters = escaped.chars();
            characters.next();
            rest = characters.as_str();
        }
    }
    plain.push_str(rest);
    plain
}

#[cfg(test)]
pub(super) mod tests;
