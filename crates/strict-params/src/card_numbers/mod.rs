//! Recognizes card numbers in text.
//!
//! Promise: a text that is spelled like a card number is found, so that it can be refused before it
//! is stored, logged or echoed. Identifiers of the usual kinds are never mistaken for one: UUIDs,
//! timestamps, article numbers, phone numbers, IBANs, and order numbers with a date.

mod groups;
mod search;

use std::ops::RangeInclusive;

use groups::{Before, Group, Separator, digit, is_word, leading_run};
pub use search::{Found, find_card_number};

/// The fewest digits that any row of [`ISSUERS`] admits.
const CARD_DIGITS_MIN: usize = 14;

/// Leading digits that [`ISSUERS`] is keyed by. Four is the fewest that tell all
/// its rows apart.
const PREFIX_DIGITS: usize = 4;

/// Card schemes by the range of their first four digits, with the lengths, in
/// digits, that each issues. The Luhn check alone accepts one number in ten;
/// this table is what keeps order numbers and timestamps from being refused.
///
/// Visa's cards of 13 digits are long gone. Every tenth article number of Germany
/// (EAN, 13 digits that begin with 40 to 44) would pass for one.
const ISSUERS: &[(RangeInclusive<u16>, &[usize])] = &[
    // Visa.
    (4000..=4999, &[16, 19]),
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

/// Digits in each group of a number, as it is printed on a card. A number that is
/// written in other groups is another kind of number.
const PRINTED_GROUPS: &[&[usize]] = &[
    // Most cards.
    &[4, 4, 4, 4],
    // American Express.
    &[4, 6, 5],
    // Diners Club.
    &[4, 6, 4],
    // Cards of 19 digits.
    &[4, 4, 4, 4, 3],
];

/// A card of 16 digits, and the three digits of its security code.
const GROUPS_WITH_SECURITY_CODE: [usize; 5] = [4, 4, 4, 4, 3];

/// Characters in an IBAN of six groups of four, as Pakistan, Romania and the Virgin
/// Islands print theirs (ISO 13616).
const IBAN_CHARS: usize = 29;

/// Hexadecimal digits after `\u` in a JSON string (RFC 8259, section 7).
const ESCAPE_HEX_DIGITS: usize = 4;

/// Whether `text` holds a card number: digits that
/// - are contiguous, or grouped as on a card by one kind of separator;
/// - touch no letter and no `_`;
/// - have a length and a prefix that a card scheme issues;
/// - pass the Luhn check.
///
/// Spaces, dashes and dots separate, each in all their forms, and fullwidth digits are digits.
/// Digits beside a grouped number that continue its groups make it another number, but for an
/// expiry date and a security code.
#[must_use]
pub fn holds_card_number(text: &str) -> bool {
    if text.chars().filter_map(digit).count() < CARD_DIGITS_MIN {
        return false;
    }
    let mut rest = text;
    while let Some((before, after)) = split_at_iban(rest) {
        if has_card_run(before) {
            return true;
        }
        rest = after;
    }
    has_card_run(rest)
}

/// The digits of a field that is meant to hold a card number, without the single separators between
/// them. `None` for text that holds anything else.
#[must_use]
pub fn card_digits(text: &str) -> Option<String> {
    let (run, after) = leading_run(text, Before::default());
    let written = run.iter().map(|group| group.text);
    let digits = written.flat_map(str::chars).filter_map(digit).collect();
    after.is_empty().then_some(digits)
}

/// Whether the digits in `text` are a card number, whatever separates them: the question about a
/// field that is meant to hold one.
#[must_use]
pub fn digits_are_card_number(text: &str) -> bool {
    let digits: String = text.chars().filter_map(digit).collect();
    is_card_number(&digits)
}

/// Whether the last of some ASCII digits is the check digit of the others, by Luhn's formula
/// (ISO/IEC 7812-1): it finds every single digit that was mistyped.
#[must_use]
pub fn has_check_digit(digits: &str) -> bool {
    luhn3::decimal::valid(digits.as_bytes())
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

/// Splits `text` around the first IBAN in it whose account is grouped as card numbers are. The
/// parts begin and end at a character that is not alphanumeric, so a run of digits in them touches
/// what it touched in the whole.
fn split_at_iban(text: &str) -> Option<(&str, &str)> {
    if text.len() < IBAN_CHARS {
        return None;
    }
    let mut in_word = false;
    for (at, character) in text.char_indices() {
        if !in_word && character.is_ascii_uppercase() {
            let (before, from_here) = text.split_at(at);
            if let Some((candidate, after)) = from_here.split_at_checked(IBAN_CHARS)
                && !after.starts_with(char::is_alphanumeric)
                && is_iban(candidate)
            {
                return Some((before, after));
            }
        }
        in_word = character.is_alphanumeric();
    }
    None
}

/// Whether `text` is an IBAN such as `PK36 SCBL 0000 0011 2345 6702`: a country, two check digits,
/// a bank of four letters, and an account of 16 digits. Every other IBAN has a letter or another
/// number of digits where that would look like a card.
fn is_iban(text: &str) -> bool {
    const SHAPE: &[u8; IBAN_CHARS] = b"AA00 AAAA 0000 0000 0000 0000";
    let has_shape = text.len() == SHAPE.len()
        && text.bytes().zip(SHAPE).all(|(byte, shape)| match shape {
            b'A' => byte.is_ascii_uppercase(),
            b'0' => byte.is_ascii_digit(),
            _ => byte == b' ',
        });
    if !has_shape {
        return false;
    }
    // ISO 7064, MOD 97-10: the country and the check digits count last, letters as 10 to 35.
    let (head, account) = text.split_at_checked(4).unwrap_or_default();
    let remainder = account
        .chars()
        .chain(head.chars())
        .fold(0, |sum, character| match character.to_digit(36) {
            Some(digit @ ..10) => (sum * 10 + digit) % 97,
            Some(letter) => (sum * 100 + letter) % 97,
            None => sum,
        });
    remainder == 1
}

fn has_card_run(text: &str) -> bool {
    let mut before = Before::default();
    let mut characters = text.chars();
    loop {
        let rest = characters.as_str();
        match characters.next() {
            None => return false,
            Some(character) if digit(character).is_none() => {
                before = Before {
                    word_chars: if is_word(character) {
                        before.word_chars + 1
                    } else {
                        0
                    },
                    joins: matches!(character, '/' | '-'),
                };
            }
            Some(_) => {
                let (run, after) = leading_run(rest, before);
                if run_holds_card(&run) {
                    return true;
                }
                before = Before::default();
                characters = after.chars();
            }
        }
    }
}

/// A space may separate the groups of a number, and it separates words. So each word is searched,
/// and neighboring words without dashes and dots are read as one number too.
fn run_holds_card(run: &[Group<'_>]) -> bool {
    let digits: usize = run.iter().map(|group| group.count).sum();
    if digits < CARD_DIGITS_MIN {
        return false;
    }
    let words: Vec<&[Group<'_>]> = run
        .split_inclusive(|group| group.joint == Some(Separator::Space))
        .collect();
    words.iter().any(|word| word_holds_card(word))
        || words
            .split(|word| word.len() > 1)
            .any(|words| is_card_of_words(words))
}

/// Whether a word is a card number, or one of its groups is.
fn word_holds_card(word: &[Group<'_>]) -> bool {
    let Some((_, joined)) = word.split_last() else {
        return false;
    };
    let kind = joined.first().and_then(|group| group.joint);
    // Programs write a fraction with up to 17 digits: 0.4242424242424242.
    let is_decimal = joined.len() == 1 && kind == Some(Separator::Dot);
    let is_one_kind = joined.iter().all(|group| group.joint == kind);
    let holds_whole_number = || word.iter().any(|group| is_card(std::iter::once(group)));
    !is_decimal && (holds_whole_number() || is_one_kind && is_card(word.iter()))
}

/// Whether words of digits alone are the groups of a card number, with or without the end of
/// something else beside it.
fn is_card_of_words(words: &[&[Group<'_>]]) -> bool {
    let apart = |word: Option<&&[Group<'_>]>| {
        let is_apart = word.is_some_and(|word| word.iter().any(|group| group.is_apart));
        usize::from(is_apart)
    };
    let (first, last) = (apart(words.first()), words.len() - apart(words.last()));
    [
        (0, words.len()),
        (first, words.len()),
        (0, last),
        (first, last),
    ]
    .into_iter()
    .filter_map(|(from, to)| words.get(from..to))
    .any(|words| is_card(words.iter().copied().flatten()))
}

/// Whether these groups together are one card number.
fn is_card<'a>(groups: impl Iterator<Item = &'a Group<'a>> + Clone) -> bool {
    let counts: Vec<usize> = groups.clone().map(|group| group.count).collect();
    let is_whole = counts.len() == 1 || PRINTED_GROUPS.contains(&counts.as_slice());
    if !is_whole || groups.clone().any(|group| group.in_word) {
        return false;
    }
    let digits_of = |count| -> String {
        let written = groups.clone().take(count).map(|group| group.text);
        written.flat_map(str::chars).filter_map(digit).collect()
    };
    is_card_number(&digits_of(counts.len()))
        || counts == GROUPS_WITH_SECURITY_CODE && is_card_number(&digits_of(counts.len() - 1))
}

/// Whether `digits`, ASCII digits only, could have been issued as a card number.
fn is_card_number(digits: &str) -> bool {
    let Some(prefix) = digits
        .get(..PREFIX_DIGITS)
        .and_then(|prefix| prefix.parse::<u16>().ok())
    else {
        return false;
    };
    ISSUERS
        .iter()
        .any(|(prefixes, lengths)| prefixes.contains(&prefix) && lengths.contains(&digits.len()))
        && has_check_digit(digits)
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
mod identifiers;
#[cfg(test)]
mod samples;
#[cfg(test)]
mod tests;
