#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use proptest::prelude::*;

use super::{
    groups::separator,
    samples::{SEPARATORS, TEST_CARDS, fullwidth, grouped, printed, spellings},
    *,
};

fn is_separator(character: char) -> bool {
    separator(character).is_some()
}

/// Its first 16 digits are no card number.
const OF_19_DIGITS: &str = "4000000000000000006";

#[test]
fn every_test_card_is_found_in_every_spelling() {
    for card in TEST_CARDS.into_iter().chain([OF_19_DIGITS]) {
        for text in spellings(card) {
            assert!(holds_card_number(&text), "{text}");
            assert!(bytes_hold_card_number(text.as_bytes()), "{text}");
        }
    }
}

#[test]
fn what_is_written_after_a_number_does_not_hide_it() {
    for text in [
        "4242424242424242 123",
        "4242424242424242 1230",
        "4242 4242 4242 4242 123",
        "4242-4242-4242-4242-123",
        "4242 4242 4242 4242 123 12/30",
        "4242424242424242,123,12",
        "4242424242424242-123",
        "4242424242424242.12.30",
        "1.4242424242424242.1",
        "4242424242424242-42424242-4242-4242-beef-abcdefabcdef",
        "12 4242424242424242",
        "12.5 4242 4242 4242 4242",
        "2a3d4c5b6e77 4242 4242 4242 4242",
        "a-77 4242 4242 4242 4242 12345678-ceea",
    ] {
        assert!(holds_card_number(text), "{text}");
    }
}

/// Between the groups of a number, or between all its digits.
#[test]
fn whatever_stands_between_the_digits_hides_no_number() {
    let (zero_width, keycap) = ("\u{200b} ", "\u{fe0f}\u{20e3}");
    let joints = [
        "_", "__", "\u{ff3f}", "\n", "\r\n", "\n\n", "\t", "\u{2028}", "  ", "     ", " \u{a0}",
        ",", ", ", "\u{ff0c}", "\u{3001}", " - ", "--", ". ", "-\n", zero_width, " \u{ad}",
    ];
    let invisible = [
        "\u{200b}", "\u{200c}", "\u{200d}", "\u{2060}", "\u{feff}", "\u{ad}", "\u{34f}", "\u{61c}",
        "\u{180e}", "\u{200e}", "\u{202d}", "\u{2066}", keycap, "\u{332}", "\u{336}", "\u{fe26}",
        "\u{2800}", "\u{1}", "\u{7f}", "\u{3164}",
    ];
    for card in TEST_CARDS {
        let one_by_one = |joint: &str| grouped(card, &[1], joint);
        let shapes = joints.map(|joint| printed(card, joint)).into_iter();
        let shapes = shapes.chain(joints.map(one_by_one));
        let shapes = shapes.chain([" ", "-", "."].map(one_by_one));
        let shapes = shapes.chain(invisible.map(one_by_one));
        let shapes = shapes.chain(invisible.map(|joint| printed(card, joint)));
        let shapes = shapes.chain(invisible.map(|joint| {
            let number = printed(card, " ");
            let hidden = number.chars().map(|digit| format!("{digit}{joint}"));
            hidden.collect()
        }));
        for shape in shapes {
            for text in [
                shape.clone(),
                format!("card {shape}; cvc: 123"),
                format!("\u{200b}{shape}\u{200b}"),
                format!("x\u{200b}{shape}\u{200b}x"),
            ] {
                assert!(holds_card_number(&text), "{text:?}");
            }
        }
    }
    for text in [
        "4242 4242-4242 4242",
        "4242.4242-4242.4242",
        "4242 4242\n4242 4242",
        "\u{664}\u{662}\u{664}\u{662} 4242 4242 4242",
        "\u{1d7d2}242 4242 4242 4242",
        "\u{bea}\u{be8}\u{bea}\u{be8} 4242 4242 4242",
        "\u{f24}\u{f22}\u{f24}\u{f22} 4242 4242 4242",
        "622126 0000001234567",
    ] {
        assert!(holds_card_number(text), "{text:?}");
    }
}

#[test]
fn a_short_number_of_maestro_s_is_found_where_it_stands_alone() {
    for card in [
        "675900000000",
        "676100000006",
        "5018000000007",
        "6304000000000",
    ] {
        for number in [card.to_owned(), printed(card, " "), fullwidth(card)] {
            for text in [
                number.clone(),
                format!("card {number}, please"),
                format!("({number})"),
            ] {
                assert!(holds_card_number(&text), "{text}");
            }
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
        "x4242424242424242",
        "4242424242424242x",
        "4242424242424242\u{e9}",
        "\u{663}4242424242424242",
        "ch_4242424242424242",
        "4242424242424242_",
        "0000000000000000",
        "2026-11-21 07:56:00.123456789-05:00",
        "+1 (415) 555-2671",
        // Not grouped as on a card.
        "42 4242 4242 4242 42",
        "4242 4242 42424242",
        "42-42-42-42-42-42-42-42",
        "424242 4242424242",
        "3782 8224 6310 005",
        "3056 9309 0259 04",
        "4\n242424242424242",
        // Parts of words.
        "order_4242_4242_4242_4242",
        "4242_4242_4242_4242_v2",
        "7_4242424242424242",
        "4242424242424242_7",
        // What is not between two groups hides nothing, and joins nothing.
        "4242    4242:4242    4242",
        "4242 .,. 4242 .,. 4242 .,. 4242",
        // Digits that continue the groups.
        "4242 4242 4242 4242 12",
        "4242 4242 4242 4242 4242",
        "12 4242 4242 4242 4242",
        "EE38 4242 4242 4242 4242",
        "IT60 X054 4242 4242 4242 4242 123",
        "4242 4242 4242 4242x",
        "1-4242-4242-4242-4242",
        // Decimals.
        "0.4242424242424242",
        "0.30569309025904",
        // A Visa card of 1990.
        "4222222222222",
        // The last of its 13 digits is the check digit of an article number, too.
        "5020000000003",
        // Short ones that are joined to others, as in a UUID.
        "675900000000-1",
        "a-675900000000",
        "a-6759-0000-0000-a",
    ];
    for text in cases {
        assert!(!holds_card_number(text), "{text}");
        assert!(!bytes_hold_card_number(text.as_bytes()), "{text}");
    }
}

#[test]
fn a_field_for_a_number_is_read_in_any_groups() {
    for text in [
        "4242424242424242",
        "4242 4242-42424242",
        "42\u{a0}42.4242\u{2009}4242-4242",
        "\u{ff14}242\u{ff0d}424242424242",
    ] {
        let digits = card_digits(text);
        assert_eq!(digits.as_deref(), Some("4242424242424242"), "{text}");
    }
    for text in [
        "4242424242424242.",
        " 4242424242424242",
        "42--42",
        "42_42",
        "42,42",
        "42\n42",
        "4242x",
        "x",
    ] {
        assert_eq!(card_digits(text), None, "{text}");
    }
}

#[test]
fn issuers_have_their_prefixes_and_lengths() {
    let issuers: [(&[&str], Vec<usize>); 8] = [
        (
            &[
                "1", "2199", "2206", "2220", "2721", "306", "35", "3527", "3590", "61", "643",
                "66", "80", "83",
            ],
            vec![],
        ),
        (&["34", "37"], vec![15]),
        (
            &["2221", "2720", "51", "55", "56", "6012", "82", "9792"],
            vec![16],
        ),
        (&["300", "305", "3095", "36", "38", "39"], vec![14, 16]),
        (
            &[
                "3528", "3589", "4", "5017", "6011", "6201", "6303", "644", "649", "65", "6764",
                "81", "9704",
            ],
            vec![16, 19],
        ),
        (&["2200", "62"], vec![16, 17, 18, 19]),
        (&["5018", "6304", "6759"], (12..=19).collect()),
        // Of 13 digits, this one is an article number.
        (&["5893"], vec![12, 14, 15, 16, 17, 18, 19]),
    ];
    for (prefixes, lengths) in issuers {
        for prefix in prefixes {
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
}

#[test]
fn unreadable_bytes_are_searched_through_their_escapes() {
    let hits: [&[u8]; 13] = [
        b"{\"number\": 4242424242424242",
        b"\xff4242424242424242\xfe",
        b"number=4242+4242+4242+4242&a[",
        b"number=4242%204242%204242%204242&a[",
        b"a=%ff&number=%34242424242424242",
        b"number=4242%C2%A04242%E2%80%AF4242%E2%80%894242&a[",
        b"number=%EF%BC%94242.4242.4242.4242&a[",
        b"{\"note\": \"4242\\u00a04242\\u20074242\\u20094242\"",
        b"{\"note\": \"\\uff14242424242424242\"",
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

proptest! {
    #[test]
    fn any_bytes_can_be_searched(raw: Vec<u8>) {
        let _ = bytes_hold_card_number(&raw);
    }

    #[test]
    fn text_around_a_card_does_not_hide_it(
        before in "[^0-9\\pL\\pN_]?|\\PC{0,20}[^0-9\\pL\\pN_]",
        after in "[^0-9\\pL\\pN_]?|[^0-9\\pL\\pN_]\\PC{0,20}",
        card in prop::sample::select(TEST_CARDS.as_slice()),
        joint in prop::sample::select(SEPARATORS.as_slice()),
        wide: bool,
    ) {
        // A letter for Rust that is none of these classes would rightly hide it, and so would a
        // digit across a separator.
        prop_assume!(!before.ends_with(is_word) && !after.starts_with(is_word));
        let is_alone = |text: &str| text.chars().count() == 1;
        prop_assume!(is_alone(&before) || !before.ends_with(is_separator));
        prop_assume!(is_alone(&after) || !after.starts_with(is_separator));
        let number = printed(card, joint);
        let number = if wide { fullwidth(&number) } else { number };
        let text = format!("{before}{number}{after}");
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
