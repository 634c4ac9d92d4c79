//! Finds card numbers in what a client sends, wherever it put them.
//!
//! Promise: a string, a member name or an integer that is spelled like a card
//! number is found, so that it can be refused before it is stored, logged or
//! echoed; identifiers and timestamps of the usual kinds are never mistaken for
//! one. A card is found only when no further digits are joined to it by a single
//! space or dash: `4242424242424242 12/30` reads as one run of 18 digits.

use std::borrow::Cow;
use std::ops::RangeInclusive;

use serde_json::{Map, Value};
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

/// Longest field path written to a reply, in characters. Paths are for a
/// developer to read; a longer one stops at the last step that fits.
const MAX_PARAM_CHARS: usize = 100;

/// Longest member name written to a reply, in characters. Forty is the limit that
/// payment APIs commonly set on metadata keys; no name of this API comes near it.
const MAX_NAME_CHARS: usize = 40;

/// A card number was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The bracketed name of the field that holds it. When the number is itself
    /// a member name, this is the enclosing field, or nothing at the root.
    pub param: Option<String>,
}

/// One step from a container to what it contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step<'a> {
    /// Into a map, by member name.
    Name(&'a str),
    /// Into a list, by position from zero.
    Index(usize),
    /// Into a list, at the position the sender left open with `[]`.
    Next,
}

/// A place in a request body, as a chain of steps back to the root.
///
/// The chain lives on the stack of whoever walks the body, so that keeping track
/// of the place costs nothing until it has to be written.
#[derive(Debug, Clone, Copy)]
pub enum ParamPath<'a> {
    /// The body itself.
    Root,
    /// A step further than another place.
    Within(&'a ParamPath<'a>, Step<'a>),
}

impl<'a> ParamPath<'a> {
    /// The place one step further in.
    #[must_use]
    pub fn within(&'a self, step: Step<'a>) -> Self {
        Self::Within(self, step)
    }

    /// Writes the place as clients write it in a form: `items[0][quantity]`.
    ///
    /// The result may be echoed. It stops before the first name that is not plain
    /// ASCII, is too long, or could itself be a card number.
    #[must_use]
    pub fn to_param(&self) -> Option<String> {
        let mut steps = Vec::new();
        let mut place = self;
        while let Self::Within(parent, step) = place {
            steps.push(*step);
            place = parent;
        }
        steps.reverse();
        param(&steps)
    }

    /// Whether this is the one field that is meant to carry a card number.
    fn is_source_number(&self) -> bool {
        matches!(
            self,
            Self::Within(
                Self::Within(Self::Root, Step::Name("source")),
                Step::Name("number")
            )
        )
    }
}

/// Writes `steps` as [`ParamPath::to_param`] does, for a caller that holds them
/// in a row.
#[must_use]
pub fn param(steps: &[Step<'_>]) -> Option<String> {
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

/// Searches every string, member name and integer of a decoded body.
///
/// The one exemption is `source[number]`, and only while `allowed`, called with
/// the digits alone, knows the number as a test card.
#[must_use]
pub fn find_card_number(
    tree: &Map<String, Value>,
    allowed: impl Fn(&str) -> bool,
) -> Option<Found> {
    find_in_members(tree, &ParamPath::Root, &allowed)
}

fn find_in_members(
    members: &Map<String, Value>,
    path: &ParamPath<'_>,
    allowed: &dyn Fn(&str) -> bool,
) -> Option<Found> {
    members.iter().find_map(|(name, value)| {
        let place = path.within(Step::Name(name));
        if holds_card_number(name) {
            return Some(Found {
                param: place.to_param(),
            });
        }
        find_in_value(value, &place, allowed)
    })
}

fn find_in_value(
    value: &Value,
    path: &ParamPath<'_>,
    allowed: &dyn Fn(&str) -> bool,
) -> Option<Found> {
    let text = match value {
        Value::Null | Value::Bool(_) => return None,
        Value::Array(items) => {
            return items.iter().enumerate().find_map(|(index, item)| {
                find_in_value(item, &path.within(Step::Index(index)), allowed)
            });
        }
        Value::Object(members) => return find_in_members(members, path, allowed),
        Value::String(text) => Cow::Borrowed(text.as_str()),
        Value::Number(number) => Cow::Owned(number.to_string()),
    };
    if path.is_source_number() {
        let (digits, after) = leading_run(&text);
        if after.is_empty() && allowed(&digits) {
            return None;
        }
    }
    holds_card_number(&text).then(|| Found {
        param: path.to_param(),
    })
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
fn leading_run(text: &str) -> (String, &str) {
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
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use chrono::DateTime;
    use proptest::prelude::*;
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};
    use serde_json::json;

    use super::*;

    const TEST_CARDS: [&str; 15] = [
        "4242424242424242",
        "5555555555554444",
        "378282246310005",
        "4000000000000002",
        "4000000000009995",
        "4000000000009987",
        "4000000000009979",
        "4000000000000069",
        "4000000000000127",
        "4000000000000119",
        "4100000000000019",
        "30569309025904",
        "3566002020360505",
        "6011111111111117",
        "6200000000000005",
    ];

    /// How many identifiers of each kind must pass. The rate at which random UUIDs
    /// would fail, were they not skipped, is one in a hundred thousand.
    const SAMPLES: usize = 1_000_000;

    fn no_card(_: &str) -> bool {
        false
    }

    fn is_test_card(digits: &str) -> bool {
        TEST_CARDS.contains(&digits)
    }

    fn find(tree: &Value, allowed: impl Fn(&str) -> bool) -> Option<Found> {
        find_card_number(tree.as_object().unwrap(), allowed)
    }

    fn found_at(param: &str) -> Option<Found> {
        Some(Found {
            param: Some(param.to_owned()),
        })
    }

    /// `digits` in groups of the given sizes, the last repeating as needed.
    fn grouped(digits: &str, sizes: &[usize], separator: &str) -> String {
        let mut groups = Vec::new();
        let mut rest = digits;
        let mut sizes = sizes.iter().copied().peekable();
        let mut size = 1;
        while !rest.is_empty() {
            size = sizes.next().unwrap_or(size);
            let (group, after) = rest.split_at(size.min(rest.len()));
            groups.push(group);
            rest = after;
        }
        groups.join(separator)
    }

    /// The ways people write a card number, alone and in a sentence.
    fn spellings(card: &str) -> Vec<String> {
        vec![
            card.to_owned(),
            grouped(card, &[4], " "),
            grouped(card, &[4], "-"),
            grouped(card, &[4, 6, 5], " "),
            grouped(card, &[4, 6, 5], "-"),
            grouped(card, &[1], " "),
            grouped(card, &[2], "-"),
            format!("card {card} please"),
            format!("(card:{card}),"),
            format!("\n{card}\t"),
            format!("4: {card}; cvc: 123"),
            format!("{card}-a"),
            format!("\u{201c}{card}\u{201d}"),
            format!("12 34  {card}  56"),
            format!("8f14e45f-ceea-467f-9575-2a3d4c5b6e7f {card}"),
            format!("{card} 8f14e45f-ceea-467f-9575-2a3d4c5b6e7f"),
        ]
    }

    #[test]
    fn every_test_card_is_found_in_every_spelling() {
        for card in TEST_CARDS {
            for text in spellings(card) {
                assert!(holds_card_number(&text), "{text}");
                assert!(bytes_hold_card_number(text.as_bytes()), "{text}");
                let value = json!({"amount": 1, "items": [{"note": ["x", text]}]});
                assert_eq!(find(&value, no_card), found_at("items[0][note][1]"));
                let name = json!({"metadata": {"order_id": "1", text: "x"}});
                assert_eq!(find(&name, no_card), found_at("metadata"));
            }
            let number: i64 = card.parse().unwrap();
            for number in [number, -number] {
                let integer = json!({"amount": number});
                assert_eq!(find(&integer, no_card), found_at("amount"));
            }
        }
    }

    #[test]
    fn other_text_is_let_through() {
        let cases = [
            "",
            "4242424242424241",
            "424242424242424",
            "42424242424242424242",
            "1234567812345670",
            "4242 4242  4242 4242",
            "4242--4242--4242--4242",
            "4242.4242.4242.4242",
            "x4242424242424242",
            "4242424242424242x",
            "4242424242424242\u{e9}",
            "\u{663}4242424242424242",
            "ch_4242424242424242",
            "4242424242424242_",
            "0000000000000000",
            "2026-11-21 07:56:00.123456789-05:00",
            "+1 (415) 555-2671",
            // Digits that join the number make it one longer run: the limit that
            // the opening of this module states.
            "4242424242424242 12/30",
        ];
        for text in cases {
            assert!(!holds_card_number(text), "{text}");
            assert!(!bytes_hold_card_number(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn issuers_have_their_prefixes_and_lengths() {
        let prefixes = [
            ("4", vec![13, 16, 19]),
            ("50", vec![]),
            ("51", vec![16]),
            ("55", vec![16]),
            ("56", vec![]),
            ("2220", vec![]),
            ("2221", vec![16]),
            ("2720", vec![16]),
            ("2721", vec![]),
            ("34", vec![15]),
            ("35", vec![]),
            ("37", vec![15]),
            ("3527", vec![]),
            ("3528", vec![16]),
            ("3589", vec![16]),
            ("3590", vec![]),
            ("300", vec![14]),
            ("305", vec![14]),
            ("306", vec![]),
            ("36", vec![14]),
            ("38", vec![14]),
            ("39", vec![14]),
            ("6011", vec![16, 19]),
            ("6012", vec![]),
            ("62", vec![16, 19]),
            ("63", vec![]),
            ("643", vec![]),
            ("644", vec![16, 19]),
            ("649", vec![16, 19]),
            ("65", vec![16, 19]),
            ("66", vec![]),
            ("1", vec![]),
        ];
        for (prefix, lengths) in prefixes {
            let accepted: Vec<usize> = (12..=20)
                .filter(|length| {
                    let body = format!("{prefix:0<width$}", width = length - 1);
                    let check = luhn3::decimal::checksum(body.as_bytes()).unwrap();
                    holds_card_number(&format!("{body}{}", char::from(check)))
                })
                .collect();
            assert_eq!(accepted, lengths, "{prefix}");
        }
    }

    #[test]
    fn a_test_card_is_exempt_at_source_number_alone() {
        let card = "4242 4242-42424242";
        let sources = [
            (json!({"source": {"number": card}}), None),
            (
                json!({"source": {"number": 4_242_424_242_424_242_i64}}),
                None,
            ),
            (
                json!({"source": {"number": "4111111111111111"}}),
                found_at("source[number]"),
            ),
            (
                json!({"source": {"number": format!("{card}.")}}),
                found_at("source[number]"),
            ),
            (
                json!({"source": {"number": {"number": card}}}),
                found_at("source[number][number]"),
            ),
            (
                json!({"source": {"number": [card]}}),
                found_at("source[number][0]"),
            ),
            (json!({"source": {"name": card}}), found_at("source[name]")),
            (json!({"number": card}), found_at("number")),
            (
                json!({"a": {"source": {"number": card}}}),
                found_at("a[source][number]"),
            ),
        ];
        for (tree, expected) in sources {
            assert_eq!(find(&tree, is_test_card), expected, "{tree}");
        }
    }

    #[test]
    fn unreadable_bytes_are_searched_through_their_escapes() {
        let hits: [&[u8]; 9] = [
            b"{\"number\": 4242424242424242",
            b"\xff4242424242424242\xfe",
            b"number=4242+4242+4242+4242&a[",
            b"number=4242%204242%204242%204242&a[",
            b"a=%ff&number=%34242424242424242",
            b"4242424242424242=x&a[",
            b"{\"note\": \"card:\\n4242424242424242\"",
            b"{\"note\": \"\\u0034242424242424242\"",
            b"{\"note\": \"\\ud8004242424242424242\\",
        ];
        for raw in hits {
            assert!(bytes_hold_card_number(raw), "{}", raw.escape_ascii());
        }
        let misses: [&[u8]; 4] = [
            b"",
            b"\\u",
            "\u{e9}4242424242424242".as_bytes(),
            b"{\"id\": \"ch_4242424242424242\"",
        ];
        for raw in misses {
            assert!(!bytes_hold_card_number(raw), "{}", raw.escape_ascii());
        }
    }

    #[test]
    fn params_repeat_safe_names_only() {
        let long = "a".repeat(41);
        let cases: [(&[Step<'_>], Option<&str>); 10] = [
            (&[], None),
            (&[Step::Index(0)], None),
            (&[Step::Name("")], None),
            (&[Step::Name("4242424242424242")], None),
            (&[Step::Name(&long)], None),
            (&[Step::Name("a"), Step::Name("b\n")], Some("a")),
            (
                &[Step::Name("a"), Step::Name("b"), Step::Name("[")],
                Some("a[b]"),
            ),
            (
                &[Step::Name("items"), Step::Index(0), Step::Name("quantity")],
                Some("items[0][quantity]"),
            ),
            (
                &[Step::Name("items"), Step::Next, Step::Name("quantity")],
                Some("items[][quantity]"),
            ),
            (
                &[
                    Step::Name("a"),
                    Step::Name("4242-4242-4242-4242"),
                    Step::Name("c"),
                ],
                Some("a"),
            ),
        ];
        for (steps, expected) in cases {
            assert_eq!(param(steps).as_deref(), expected);
        }
        let deep = [Step::Name("name"); 40];
        assert_eq!(param(&deep).unwrap().len(), 100);
    }

    #[test]
    fn a_million_uuids_pass() {
        let mut random = StdRng::seed_from_u64(1);
        for sample in 0..SAMPLES {
            let bytes: [u8; 16] = random.random();
            let builder = if sample % 2 == 0 {
                uuid::Builder::from_random_bytes(bytes)
            } else {
                let (_, tail) = bytes.split_last_chunk::<10>().unwrap();
                let milliseconds = random.random_range(1_600_000_000_000..2_200_000_000_000);
                uuid::Builder::from_unix_timestamp_millis(milliseconds, tail)
            };
            let text = builder.into_uuid().to_string();
            assert!(!holds_card_number(&text), "{text}");
        }
    }

    /// Random UUIDs alone would seldom reach the case that matters.
    #[test]
    fn a_uuid_that_reads_like_a_card_passes() {
        let like_a_card = "abcdefab-4242-4242-4242-4242424fffff";
        assert!(!has_card_run(like_a_card));
        let like_a_card = "42424242-4242-4242-beef-abcdefabcdef";
        assert!(has_card_run(like_a_card));
        for text in [
            like_a_card.to_owned(),
            like_a_card.to_uppercase(),
            format!("order-17-{like_a_card}"),
            format!("{like_a_card}-{like_a_card}"),
            format!("urn:uuid:{like_a_card}"),
            format!("key_{like_a_card}_1"),
            format!("\u{201c}{like_a_card}\u{201d}"),
        ] {
            assert!(!holds_card_number(&text), "{text}");
        }
        assert!(holds_card_number(&format!(
            "4242424242424242-{like_a_card}"
        )));
        // One more digit, and it is not a UUID any longer.
        assert!(holds_card_number("42424242-4242-4242-beef-abcdefabcdef0"));
    }

    #[test]
    fn a_million_ids_pass() {
        const PREFIXES: [&str; 7] = ["ch_", "re_", "or_", "co_", "acct_", "evt_", "req_"];
        const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
        let mut random = StdRng::seed_from_u64(2);
        for prefix in PREFIXES.iter().cycle().take(SAMPLES) {
            let mut bits: u128 = random.random();
            let mut text = String::with_capacity(32);
            text.push_str(prefix);
            for _ in 0..26 {
                let letter = ALPHABET.iter().cycle().nth((bits & 31) as usize).unwrap();
                text.push(char::from(*letter));
                bits >>= 5;
            }
            assert!(!holds_card_number(&text), "{text}");
        }
    }

    /// From 2001 to 2040: outside that, microseconds since 1970 begin with the
    /// digits of a card scheme.
    #[test]
    fn a_million_timestamps_pass() {
        let mut random = StdRng::seed_from_u64(3);
        for sample in 0..SAMPLES {
            let nanoseconds: i64 = random.random_range(1_000_000_000..2_221_000_000);
            let nanoseconds = nanoseconds * 1_000_000_000 + random.random_range(0..1_000_000_000);
            let text = match sample % 5 {
                0 => (nanoseconds / 1_000_000_000).to_string(),
                1 => (nanoseconds / 1_000_000).to_string(),
                2 => (nanoseconds / 1_000).to_string(),
                3 => nanoseconds.to_string(),
                _ => DateTime::from_timestamp_nanos(nanoseconds).to_rfc3339(),
            };
            assert!(!holds_card_number(&text), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_can_be_searched(raw: Vec<u8>) {
            let _ = bytes_hold_card_number(&raw);
        }

        #[test]
        fn text_around_a_card_does_not_hide_it(
            before in "([^0-9\\pL\\pN_]|\\PC{0,20}[^0-9\\pL\\pN_ -])?",
            after in "([^0-9\\pL\\pN_ -]\\PC{0,20})?",
            card in prop::sample::select(TEST_CARDS.as_slice()),
            separator in prop::sample::select(["", " ", "-"].as_slice()),
            size in 1_usize..20,
        ) {
            // A letter for Rust that is none of these classes would rightly hide it.
            prop_assume!(!before.ends_with(is_word) && !after.starts_with(is_word));
            let text = format!("{before}{}{after}", grouped(card, &[size], separator));
            prop_assert!(holds_card_number(&text));
        }

        #[test]
        fn joined_letters_and_digits_are_not_a_card(
            before in "[0-9a-z_]{0,8}[a-z_]",
            card in prop::sample::select(TEST_CARDS.as_slice()),
        ) {
            let touching_before = format!("{before}{card}");
            prop_assert!(!holds_card_number(&touching_before));
            let touching_after = format!("{card}é{before}");
            prop_assert!(!holds_card_number(&touching_after));
        }
    }
}
