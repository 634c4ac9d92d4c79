#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use chrono::DateTime;
use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;

pub(in crate::api) const TEST_CARDS: [&str; 15] = [
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
pub(in crate::api) fn spellings(card: &str) -> Vec<String> {
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
