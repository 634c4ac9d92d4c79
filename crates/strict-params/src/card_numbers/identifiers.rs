//! What merchants and programs write and is no card: a million of each kind must pass.
//!
//! Every run tests the same ones: they are counted up, or random from a fixed seed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use chrono::DateTime;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::{holds_card_number, samples::TEST_CARDS};

/// How many of each kind must pass.
const SAMPLES: u64 = 1_000_000;

/// Spreads the sample over all numbers below `below`. The factor is the golden ratio of 64 bits, so
/// neighbors are far apart and all digits vary.
fn spread(sample: u64, below: u64) -> u64 {
    let mixed = u128::from(sample.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    u64::try_from((mixed * u128::from(below)) >> 64).unwrap()
}

/// The check digit of an article number (GS1): from the right, weights 3 and 1.
fn article_check_digit(digits: &str) -> u32 {
    let weighted = digits.bytes().rev().zip([3, 1].into_iter().cycle());
    let sum: u32 = weighted
        .map(|(digit, weight)| u32::from(digit - b'0') * weight)
        .sum();
    (10 - sum % 10) % 10
}

/// `4006381333931` and `400 6381 33393 1`. Those of Germany begin with 400 to 440, as Visa's cards
/// do, and every tenth has the check digit of a card too.
#[test]
fn a_million_article_numbers_pass() {
    let mut with_luhn = 0;
    for sample in 0..SAMPLES {
        let body = format!("4{:011}", spread(sample, 41_000_000_000));
        let text = format!("{body}{}", article_check_digit(&body));
        with_luhn += u64::from(luhn3::decimal::valid(text.as_bytes()));
        assert!(!holds_card_number(&text), "{text}");
        if sample % 10 == 0 {
            let (prefix, rest) = text.split_at(3);
            let (company, rest) = rest.split_at(4);
            let (item, check) = rest.split_at(5);
            let text = format!("{prefix} {company} {item} {check}");
            assert!(!holds_card_number(&text), "{text}");
        }
    }
    // The samples are such that a length of 13 digits would be noticed.
    assert!(with_luhn > SAMPLES / 20, "{with_luhn}");
    // All over the world, and those among Maestro's prefixes.
    for sample in 0..SAMPLES {
        let body = match MAESTRO_PREFIXES.get(usize::try_from(sample % 20).unwrap()) {
            Some(prefix) => format!("{prefix}{:08}", spread(sample, 100_000_000)),
            None => format!("{:012}", spread(sample, 1_000_000_000_000)),
        };
        let text = format!("{body}{}", article_check_digit(&body));
        assert!(!holds_card_number(&text), "{text}");
    }
}

/// Of 12 and 13 digits.
const MAESTRO_PREFIXES: [u64; 10] = [5018, 5020, 5038, 5893, 6304, 6759, 6760, 6761, 6762, 6763];

/// How many in 100,000 are taken for a card, at most, of numbers that could be one: their lengths
/// are those of cards, and some have an issuer's prefix and a correct check digit by chance.
#[test]
fn few_numbers_without_a_form_are_taken_for_cards() {
    const COUNT: u64 = SAMPLES / 10;
    type Kind = (&'static str, u64, fn(u64) -> String);
    let kinds: [Kind; 7] = [
        ("article numbers of 12 digits (UPC-A)", 20, |sample| {
            let body = format!("{:011}", spread(sample, 100_000_000_000));
            format!("{body}{}", article_check_digit(&body))
        }),
        ("counters of 12 digits", 20, |sample| {
            format!("{}", 100_000_000_000 + spread(sample, 900_000_000_000))
        }),
        ("counters of 13 digits", 20, |sample| {
            format!("{}", 1_000_000_000_000 + spread(sample, 9_000_000_000_000))
        }),
        ("any 14 digits", 600, |sample| {
            format!("{:014}", spread(sample, 100_000_000_000_000))
        }),
        ("any 16 digits", 4_500, |sample| {
            format!("{:016}", spread(sample, 10_000_000_000_000_000))
        }),
        ("snowflakes of 17 and 18 digits", 200, |sample| {
            (80_000_000_000_000_000 + spread(sample, 900_000_000_000_000_000)).to_string()
        }),
        ("four numbers of four digits", 4_500, |sample| {
            let number = |at| 1000 + spread(4 * sample + at, 9000);
            format!("{}, {}, {}, {}", number(0), number(1), number(2), number(3))
        }),
    ];
    for (kind, most, text) in kinds {
        let found = (0..COUNT).filter(|sample| holds_card_number(&text(*sample)));
        let found = u64::try_from(found.count()).unwrap();
        assert!(found <= most, "{kind}: {found}");
    }
}

/// Discord's of the accounts of September 2019: all begin with UnionPay's prefix.
#[test]
fn a_million_ids_of_18_digits_from_the_same_month_pass() {
    for sample in 0..SAMPLES {
        let text = (620_100_000_000_000_000 + spread(sample, 9_900_000_000_000_000)).to_string();
        assert!(!holds_card_number(&text), "{text}");
    }
}

/// `20261121-0042`, up to ten digits after the date.
#[test]
fn a_million_order_numbers_with_a_date_pass() {
    const SEPARATORS: [&str; 6] = [" ", "-", ".", "/", "", "\u{2013}"];
    for sample in 0..SAMPLES {
        let (year, month, day) = (2000 + sample % 60, 1 + sample % 12, 1 + sample % 28);
        let width = usize::try_from(4 + sample % 7).unwrap();
        let number = spread(sample, 10_u64.pow(u32::try_from(width).unwrap()));
        let at = usize::try_from(sample % 6).unwrap();
        let separator = SEPARATORS.get(at).unwrap();
        let text = format!("{year}{month:02}{day:02}{separator}{number:0width$}");
        assert!(!holds_card_number(&text), "{text}");
    }
}

/// Countries by code, with the digits after it: none has more in use than 13 together.
#[test]
fn a_million_phone_numbers_pass() {
    const COUNTRIES: [(u64, usize); 14] = [
        (1, 10),
        (30, 10),
        (34, 9),
        (36, 9),
        (370, 8),
        (380, 9),
        (39, 10),
        (41, 9),
        (44, 10),
        (49, 11),
        (52, 10),
        (55, 11),
        (62, 11),
        (65, 8),
    ];
    for (sample, (country, digits)) in (0..SAMPLES).zip(COUNTRIES.into_iter().cycle()) {
        let number = spread(sample, 10_u64.pow(u32::try_from(digits).unwrap()));
        let number = format!("{number:0digits$}");
        let (area, rest) = number.split_at(3);
        let (first, last) = rest.split_at(rest.len() - 4);
        let text = match sample / 14 % 7 {
            0 => format!("+{country}{number}"),
            1 => format!("00{country}{number}"),
            2 => format!("+{country} {area} {first} {last}"),
            3 => format!("+{country}-{area}-{first}-{last}"),
            4 => format!("+{country}.{area}.{first}.{last}"),
            5 => format!("({area}) {first}-{last}"),
            _ => format!("+{country}\u{a0}{area}\u{2009}{first}{last}"),
        };
        assert!(!holds_card_number(&text), "{text}");
    }
}

/// Letters as the check digits of an IBAN count them: two digits each, 10 to 35.
fn letters_as_number(letters: &str) -> u128 {
    letters.chars().fold(0, |number, letter| {
        number * 100 + u128::from(letter.to_digit(36).unwrap())
    })
}

/// An IBAN in one word; its account has `digits` digits. ISO 7064, MOD 97-10.
fn iban(country: &str, bank: &str, account: u128, digits: u32) -> String {
    let bank_and_account =
        (letters_as_number(bank) % 97 * (10_u128.pow(digits) % 97) + account) % 97;
    let check = 98 - (bank_and_account * 1_000_000 + letters_as_number(country) * 100) % 97;
    let width = usize::try_from(digits).unwrap();
    format!("{country}{check:02}{bank}{account:0width$}")
}

fn in_fours(text: &str) -> String {
    let mut fours = String::with_capacity(text.len() + text.len() / 4);
    for (at, character) in text.chars().enumerate() {
        if at > 0 && at % 4 == 0 {
            fours.push(' ');
        }
        fours.push(character);
    }
    fours
}

#[test]
fn a_million_ibans_pass_in_fours_and_in_one_word() {
    // Country, letters of the bank, digits after it. Those of PK, VG and RO end like a card.
    const FORMS: [(&str, &str, u32); 12] = [
        ("BE", "", 12),
        ("NL", "ABNA", 10),
        ("GI", "NWBK", 15),
        ("DE", "", 18),
        ("GB", "NWBK", 14),
        ("PK", "SCBL", 16),
        ("VG", "VPVG", 16),
        ("RO", "BCYP", 16),
        ("EE", "", 16),
        ("IQ", "NBIQ", 15),
        ("AZ", "NABZ", 20),
        ("FR", "", 23),
    ];
    let german = iban("DE", "", 370_400_440_532_013_000, 18);
    assert_eq!(in_fours(&german), "DE89 3704 0044 0532 0130 00");
    let british = iban("GB", "WEST", 12_345_698_765_432, 14);
    assert_eq!(british, "GB82WEST12345698765432");
    const STARTS: [u128; 6] = [4000, 5100, 6200, 3700, 2221, 0];
    let mut like_a_card = 0;
    for (sample, (country, bank, digits)) in (0..SAMPLES).zip(FORMS.into_iter().cycle()) {
        // Cards' prefixes, and others. The digits after them are spread too.
        let at = usize::try_from(sample / 12 % 6).unwrap();
        let start = STARTS.get(at).unwrap();
        let after = 10_u128.pow(digits - 4);
        let account = *start * after + u128::from(spread(sample, u64::MAX)) % after;
        let text = iban(country, bank, account, digits);
        if sample % 7 == 0 {
            assert!(!holds_card_number(&text), "{text}");
            let tail = text.get(8..).unwrap();
            like_a_card += u64::from(holds_card_number(&in_fours(tail)));
        }
        let text = in_fours(&text);
        assert!(!holds_card_number(&text), "{text}");
    }
    // Without its head, such an account is a card number.
    assert!(like_a_card > SAMPLES / 1000, "{like_a_card}");
}

/// As the keys of programs that count: they have fewer digits than a card, or a prefix of none.
#[test]
fn a_million_numeric_keys_pass() {
    for sample in 0..SAMPLES {
        let text = match sample % 4 {
            // A counter, of every length below those of cards.
            0 => spread(sample, 10_u64.pow(u32::try_from(1 + sample % 11).unwrap())).to_string(),
            // Milliseconds and three digits more, until 2040.
            1 => (1_500_000_000_000_000 + spread(sample, 700_000_000_000_000)).to_string(),
            // A snowflake, which begins with 1 until 2029.
            2 => (1_000_000_000_000_000_000 + spread(sample, 999_999_999_999_999_999)).to_string(),
            // An order and its attempt.
            _ => format!("{}-{}", spread(sample, 10_000_000_000_000), sample % 9),
        };
        assert!(!holds_card_number(&text), "{text}");
    }
}

#[test]
fn a_million_uuids_pass() {
    let mut random = SmallRng::seed_from_u64(1);
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

/// Random UUIDs alone would seldom reach the case that matters: digits of a card, from every place
/// and up to every place.
#[test]
fn a_uuid_with_the_digits_of_a_card_passes() {
    for card in TEST_CARDS {
        for from in 0..32 {
            for letter in ['a', 'F', '0'] {
                let digits = card.chars().cycle().take(32 - from);
                let mut digits: String = (0..from).map(|_| letter).chain(digits).collect();
                for at in [20, 16, 12, 8] {
                    digits.insert(at, '-');
                }
                for end in 0..digits.len() {
                    let (head, tail) = digits.split_at(end);
                    let text = format!("{head}{}", tail.replace(|c| c != '-', "e"));
                    assert!(!holds_card_number(&text), "{text}");
                    assert!(!holds_card_number(&format!("{text}-{text}")), "{text}");
                    assert!(!holds_card_number(&format!("urn:uuid:{text}")), "{text}");
                }
            }
        }
    }
}

#[test]
fn a_million_ids_pass() {
    const PREFIXES: [&str; 7] = ["ch_", "re_", "or_", "co_", "acct_", "evt_", "req_"];
    const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
    let mut random = SmallRng::seed_from_u64(2);
    for (_, prefix) in (0..SAMPLES).zip(PREFIXES.into_iter().cycle()) {
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

/// From 2001 to 2039: outside that, microseconds since 1970 begin with the digits of a card scheme.
#[test]
fn a_million_timestamps_pass() {
    let mut random = SmallRng::seed_from_u64(3);
    for sample in 0..SAMPLES {
        let nanoseconds: i64 = random.random_range(1_000_000_000..2_200_000_000);
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
