//! Recognizes card numbers in text.
//!
//! Promise: a text that is spelled like a card number is found, so that it can be refused before it
//! is stored, logged or echoed. Identifiers of the usual kinds are never mistaken for one: UUIDs,
//! timestamps, article numbers, phone numbers, IBANs, and order numbers with a date.

mod groups;
mod search;

use std::ops::RangeInclusive;

use groups::{Before, Group, Joint, digit, is_word, leading_run, without_invisible};
pub use search::{Found, find_card_number};

/// The fewest and the most digits that any row of [`ISSUERS`] admits.
const CARD_DIGITS_MIN: usize = 12;
const CARD_DIGITS_MAX: usize = 19;

/// Numbers of fewer digits are article numbers, phone numbers and counters so often that one which
/// is joined to other digits is none of a card.
const JOINED_DIGITS_MIN: usize = 14;

/// Digits of an article number (EAN-13).
const ARTICLE_DIGITS: usize = 13;

/// Leading digits that [`ISSUERS`] is keyed by. Four is the fewest that tell all its rows apart.
const PREFIX_DIGITS: usize = 4;

/// Lengths of Maestro's cards, in digits.
const MAESTRO: &[usize] = &[12, 13, 14, 15, 16, 17, 18, 19];

/// What UnionPay's numbers begin with. Those of 17 and 18 digits are found only where they are
/// grouped, written one by one, or begin as [`UNIONPAY_TEST`].
const UNIONPAY: &str = "62";

/// How UnionPay's test cards begin.
const UNIONPAY_TEST: &str = "6200";

/// Card schemes by the range of their first four digits, with the lengths, in
/// digits, that each issues. The Luhn check alone accepts one number in ten;
/// this table is what keeps order numbers and timestamps from being refused.
///
/// A length is here only where cards of it are in use, and 12, 13, 17 and 18 only in narrow ranges:
/// numbers of these lengths are in use for articles, phones and ids. Visa's cards of 13 digits are
/// long gone.
const ISSUERS: &[(RangeInclusive<u16>, &[usize])] = &[
    // Visa.
    (4000..=4999, &[16, 19]),
    // Mastercard.
    (5100..=5599, &[16]),
    (2221..=2720, &[16]),
    // American Express.
    (3400..=3499, &[15]),
    (3700..=3799, &[15]),
    // Discover, and RuPay from 652.
    (6011..=6011, &[16, 19]),
    (6440..=6599, &[16, 19]),
    // JCB.
    (3528..=3589, &[16, 19]),
    // Diners Club.
    (3000..=3059, &[14, 16]),
    (3095..=3095, &[14, 16]),
    (3600..=3699, &[14, 16]),
    (3800..=3999, &[14, 16]),
    // UnionPay, and RuPay among those from 81.
    (6200..=6299, &[16, 17, 18, 19]),
    (8100..=8199, &[16, 19]),
    (8200..=8299, &[16]),
    // Mir, and Borica.
    (2200..=2205, &[16, 17, 18, 19]),
    // Maestro.
    (5018..=5018, MAESTRO),
    (5020..=5020, MAESTRO),
    (5038..=5038, MAESTRO),
    (5893..=5893, MAESTRO),
    (6304..=6304, MAESTRO),
    (6759..=6763, MAESTRO),
    (5600..=5999, &[16]),
    (6700..=6799, &[16, 19]),
    // Elo, RuPay, Verve, Dankort and Meeza, with Maestro.
    (5000..=5099, &[16, 19]),
    // RuPay, Hipercard, Cabal and UkrCard.
    (6000..=6099, &[16]),
    // Elo, Hiper, Switch and InstaPayment.
    (6300..=6399, &[16, 19]),
    // Troy, Napas, mada, Humo and Uzcard.
    (9792..=9792, &[16]),
    (9704..=9704, &[16, 19]),
    (9682..=9682, &[16]),
    (9860..=9860, &[16]),
    (8600..=8600, &[16]),
];

/// Digits in each group of a number, as it is printed on a card. A number that is
/// written in other groups is another kind of number, unless each digit is a group.
const PRINTED_GROUPS: &[&[usize]] = &[
    // Most cards.
    &[4, 4, 4, 4],
    // American Express.
    &[4, 6, 5],
    // Diners Club.
    &[4, 6, 4],
    // Cards of 19 digits.
    &[4, 4, 4, 4, 3],
    &[6, 13],
    // Maestro and UnionPay.
    &[4, 4, 4],
    &[4, 4, 4, 1],
    &[4, 4, 4, 4, 1],
    &[4, 4, 4, 4, 2],
];

/// A card of 16 digits, and the three digits of its security code.
const GROUPS_WITH_SECURITY_CODE: [usize; 5] = [4, 4, 4, 4, 3];

/// Characters in an IBAN of six groups of four, as Pakistan, Romania and the Virgin
/// Islands print theirs (ISO 13616).
const IBAN_CHARS: usize = 29;

/// Hexadecimal digits after `\u` in a JSON string (RFC 8259, section 7).
const ESCAPE_HEX_DIGITS: usize = 4;

/// Whether `text` holds a card number: digits that
/// - are contiguous, grouped as on a card, or written one by one;
/// - touch no letter and no `_`;
/// - have a length and a prefix that a card scheme issues;
/// - pass the Luhn check.
///
/// Up to three spaces, dashes, dots, commas, low lines and line breaks, in all their forms, stand
/// between two groups. Invisible characters don't count, and fullwidth digits are digits. Digits
/// beside a grouped number that continue its groups make it another number, but for an expiry date
/// and a security code.
#[must_use]
pub fn holds_card_number(text: &str) -> bool {
    if text.chars().filter_map(digit).count() < CARD_DIGITS_MIN {
        return false;
    }
    is_found_in(text) || without_invisible(text).is_some_and(|visible| is_found_in(&visible))
}

fn is_found_in(text: &str) -> bool {
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
    let mut joints = run.iter().filter_map(|group| group.joint);
    let is_whole = after.is_empty() && joints.all(Joint::is_plain);
    is_whole.then(|| run.iter().flat_map(Group::digits).collect())
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
    let reads_otherwise = |escapes: &[char]| text.contains(escapes);
    holds_card_number(&text)
        || reads_otherwise(&['\\']) && holds_card_number(&unescape_json(&text))
        || reads_otherwise(&['%', '+'])
            && form_urlencoded::parse(raw)
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

/// A number is one group, or a sequence of groups with the same joint between each two, or all
/// groups of a run.
fn run_holds_card(run: &[Group<'_>]) -> bool {
    let digits: usize = run.iter().map(|group| group.count).sum();
    digits >= CARD_DIGITS_MIN
        && (a_group_is_card(run) || a_sequence_is_card(run) || run.len() > 1 && is_card(run))
}

fn a_group_is_card(run: &[Group<'_>]) -> bool {
    let mut words = run.chunk_by(|group, _| group.joint.is_some_and(Joint::is_tight));
    words.any(|word| {
        // Programs write a fraction with up to 17 digits: 0.4242424242424242.
        let is_decimal = matches!(word, [whole, _] if whole.joint == Some(Joint::DOT));
        let is_long_enough =
            |group: &Group<'_>| word.len() == 1 || group.count >= JOINED_DIGITS_MIN;
        let mut wholes = word.iter().filter(|group| !group.is_part);
        !is_decimal
            && wholes.any(|group| is_long_enough(group) && is_card(std::slice::from_ref(group)))
    })
}

/// Whether groups with the same joint between each two are a card number. A dash and a dot join
/// closer than other joints, so a date is no part of the number beside it.
fn a_sequence_is_card(run: &[Group<'_>]) -> bool {
    let mut from = 0;
    let mut is_bound = false;
    while let Some(joint) = run.get(from).and_then(|group| group.joint) {
        let rest = run.get(from..).unwrap_or_default();
        let joints = rest.iter().take_while(|group| group.joint == Some(joint));
        let joined = joints.count();
        let sequence = rest.get(..=joined).unwrap_or_default();
        let binds_next = |group: &Group<'_>| group.joint.is_some_and(Joint::is_tight);
        let found = if joint.is_tight() || joint.is_of_a_word() {
            is_card(sequence)
        } else {
            let until = joined + 1 - usize::from(sequence.last().is_some_and(binds_next));
            let words = sequence.get(usize::from(is_bound)..until);
            is_card_of_words(words.unwrap_or_default())
        };
        if found {
            return true;
        }
        is_bound = joint.is_tight();
        from += joined;
    }
    false
}

/// Whether words of digits alone are the groups of a card number, with or without the end of
/// something else beside it.
fn is_card_of_words(words: &[Group<'_>]) -> bool {
    let apart = |word: Option<&Group<'_>>| usize::from(word.is_some_and(|word| word.is_apart));
    let (first, last) = (apart(words.first()), words.len() - apart(words.last()));
    let all = words.len();
    let ends = [(0, all), (first, all), (0, last), (first, last)];
    let is_card_at = |(from, to): (usize, usize)| words.get(from..to).is_some_and(is_card);
    ends.into_iter().any(is_card_at)
}

fn is_card(groups: &[Group<'_>]) -> bool {
    let counts = groups.iter().map(|group| group.count);
    let digits: usize = counts.clone().sum();
    let is_short = digits < JOINED_DIGITS_MIN;
    if !(CARD_DIGITS_MIN..=CARD_DIGITS_MAX).contains(&digits)
        || groups
            .iter()
            .any(|group| group.in_word || is_short && group.is_apart)
    {
        return false;
    }
    let counts: Vec<usize> = counts.collect();
    let is_whole = counts.len() == 1
        || PRINTED_GROUPS.contains(&counts.as_slice())
        || counts.iter().all(|count| *count == 1);
    let digits_of = |count| -> String {
        let written = groups.iter().take(count);
        written.flat_map(Group::digits).collect()
    };
    // For weeks at a time, all ids that are counted up from a moment begin with this prefix.
    let may_be_an_id = || {
        let digits = digits_of(1);
        matches!(counts.as_slice(), [17 | 18])
            && digits.starts_with(UNIONPAY)
            && !digits.starts_with(UNIONPAY_TEST)
    };
    is_whole
        && !may_be_an_id()
        && (is_card_number(&digits_of(counts.len()))
            || counts == GROUPS_WITH_SECURITY_CODE && is_card_number(&digits_of(counts.len() - 1)))
}

/// Whether `digits`, ASCII digits only, could have been issued as a card number.
fn is_card_number(digits: &str) -> bool {
    let prefix = digits.get(..PREFIX_DIGITS);
    let Some(prefix) = prefix.and_then(|prefix| prefix.parse::<u16>().ok()) else {
        return false;
    };
    ISSUERS
        .iter()
        .any(|(prefixes, lengths)| prefixes.contains(&prefix) && lengths.contains(&digits.len()))
        && has_check_digit(digits)
        && !is_article_number(digits)
}

/// Whether `digits` are an article number (GS1, EAN-13): from the right, weights 1 and 3. A tenth
/// of Maestro's cards of 13 digits is taken for one.
fn is_article_number(digits: &str) -> bool {
    let weighted = digits.chars().rev().zip([1, 3].into_iter().cycle());
    let sum: u32 = weighted
        .filter_map(|(digit, weight)| Some(digit.to_digit(10)? * weight))
        .sum();
    digits.len() == ARTICLE_DIGITS && sum.is_multiple_of(10)
}

/// Replaces the escapes of JSON strings, wherever they are in `text`, by the characters they stand
/// for; what stands for no readable character becomes a line break, which separates.
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
