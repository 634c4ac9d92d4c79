//! How the person who looks at a page writes numbers, as their browser's languages say.
//!
//! Promise: only separators change. The words of a page stay, and so do symbols of currencies.

use actix_web::{
    HttpMessage,
    http::header::{AcceptLanguage, Header as _, Quality},
};

/// What stands between groups of three digits, and before decimals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Locale {
    thousands: char,
    decimals: char,
}

/// Separators with the languages that have them, and with those that have them in a region. The
/// first are the default: the server writes with them.
const LOCALES: [(char, char, &str); 4] = [
    (
        ',',
        '.',
        "en es-419 es-DO es-GT es-HN es-MX es-NI es-PA es-PE es-PR es-SV es-US he ja ko th zh",
    ),
    (
        '.',
        ',',
        "ca da de el es gl hr id is it nl pt ro sl sr tr vi",
    ),
    (
        '\u{202f}',
        ',',
        "bg cs en-ZA et fi fr hu lt lv nb no pl pt-PT ru sk sv uk",
    ),
    ('\'', '.', "de-CH de-LI en-CH it-CH rm"),
];

impl Default for Locale {
    fn default() -> Self {
        let [(thousands, decimals, _), ..] = LOCALES;
        Self {
            thousands,
            decimals,
        }
    }
}

impl Locale {
    /// Of the language that a request prefers, among those that are known here.
    pub(super) fn of(request: &impl HttpMessage) -> Self {
        let Ok(mut accepted) = AcceptLanguage::parse(request) else {
            return Self::default();
        };
        accepted.retain(|one| one.quality > Quality::ZERO);
        let mut ranked = accepted.ranked().into_iter();
        let known = ranked.find_map(|one| {
            let tag = one.into_item()?;
            let language = tag.primary_language();
            let region = tag.region().unwrap_or_default();
            Self::named(&format!("{language}-{region}")).or_else(|| Self::named(language))
        });
        known.unwrap_or_default()
    }

    fn named(name: &str) -> Option<Self> {
        let is = |one: &str| one.eq_ignore_ascii_case(name);
        let found = LOCALES.iter().find(|one| one.2.split(' ').any(is));
        found.map(|&(thousands, decimals, _)| Self {
            thousands,
            decimals,
        })
    }

    /// A number that is written as in English, with what is around it.
    pub(super) fn written(self, english: &str) -> String {
        let separator = |letter| match letter {
            ',' => self.thousands,
            '.' => self.decimals,
            other => other,
        };
        english.chars().map(separator).collect()
    }

    /// How many there are.
    pub(super) fn count(self, count: i64) -> String {
        let mut digits = count.to_string();
        let (first, end) = (1 + usize::from(count < 0), digits.len());
        for place in (first..end).rev().filter(|at| (end - at).is_multiple_of(3)) {
            digits.insert(place, self.thousands);
        }
        digits
    }
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    #[test]
    fn the_first_language_that_is_known_chooses_the_separators() {
        let of = |header: &[u8]| {
            let request = TestRequest::default().insert_header(("accept-language", header));
            let locale = Locale::of(&request.to_http_request());
            locale.written("CA$1,234.5")
        };
        for (header, written) in [
            ("", "CA$1,234.5"),
            ("en-US,en;q=0.9,de;q=0.8", "CA$1,234.5"),
            ("de", "CA$1.234,5"),
            ("en;q=0.5, DE-at", "CA$1.234,5"),
            ("de;q=0, en", "CA$1,234.5"),
            ("fr-FR, en;q=0.1", "CA$1\u{202f}234,5"),
            ("de-CH", "CA$1'234.5"),
            ("de-Latn-CH", "CA$1'234.5"),
            ("es", "CA$1.234,5"),
            ("es-MX", "CA$1,234.5"),
            ("tlh", "CA$1,234.5"),
            ("*, de;q=0.5", "CA$1.234,5"),
            (";;q=x,,-,de-", "CA$1,234.5"),
            ("x, de;q=7, fr;q=0.3", "CA$1\u{202f}234,5"),
        ] {
            assert_eq!(of(header.as_bytes()), written, "{header}");
        }
        assert_eq!(of(b"\xff\xfe"), "CA$1,234.5");
    }

    #[test]
    fn each_third_digit_of_a_count_is_set_apart() {
        for (count, written) in [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (-999, "-999"),
            (-1_234_567, "-1,234,567"),
        ] {
            assert_eq!(Locale::default().count(count), written);
        }
    }
}
