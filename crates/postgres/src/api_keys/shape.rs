//! What API keys look like, and what is stored of them.

use rand::distr::{Alphanumeric, SampleString};
use sha2::{Digest, Sha256};

/// The fewest characters after the prefix.
const REST_MIN: usize = 8;
/// The most characters after the prefix.
const REST_MAX: usize = 200;

/// Random characters in a key: 32 of 62 letters and digits are 190 bits.
const RANDOM_CHARS: usize = 32;

/// What is stored of an API key: its SHA-256.
pub type KeyHash = [u8; 32];

/// What is stored of an API key.
pub fn hash(key: &str) -> KeyHash {
    Sha256::digest(key.as_bytes()).into()
}

/// The last four characters of a key, by which a person tells it from others.
pub(crate) fn last4(key: &str) -> &str {
    let start = key.char_indices().nth_back(3).map_or(0, |(start, _)| start);
    key.get(start..).unwrap_or_default()
}

/// The shape of a service's API keys: a prefix, and 8 to 200 letters, digits and underscores.
#[derive(Debug, Clone, Copy)]
pub struct KeyShape {
    prefix: &'static str,
    others: &'static [&'static str],
}

impl KeyShape {
    /// By the prefix, secret scanners and people recognize the service's keys.
    pub const fn with_prefix(prefix: &'static str) -> Self {
        let others = &[];
        Self { prefix, others }
    }

    /// Keys that begin with one of these fit, too. None of them is ever made.
    #[must_use]
    pub const fn or(self, others: &'static [&'static str]) -> Self {
        Self { others, ..self }
    }

    /// Whether a text may be an API key. Every key that was ever made is.
    pub fn fits(self, text: &str) -> bool {
        let mut prefixes = self.others.iter().chain([&self.prefix]);
        let rest = prefixes.find_map(|prefix| text.strip_prefix(prefix));
        rest.is_some_and(|rest| {
            (REST_MIN..=REST_MAX).contains(&rest.len()) && rest.bytes().all(is_of_a_key)
        })
    }

    /// A new key. It is to be shown once, and stored as its hash.
    pub fn new_key(self) -> String {
        let random = Alphanumeric.sample_string(&mut rand::rng(), RANDOM_CHARS);
        format!("{}{random}", self.prefix)
    }
}

fn is_of_a_key(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Whether a text holds what may be an API key or another secret that begins with one of
/// `prefixes`: people paste secrets into paths, which are logged.
pub fn holds_secret(text: &str, prefixes: &[&str]) -> bool {
    let is_long =
        |rest: &str| rest.bytes().take_while(|byte| is_of_a_key(*byte)).count() >= REST_MIN;
    prefixes.iter().any(|prefix| {
        let mut places = text.match_indices(prefix);
        places.any(|(start, _)| text.get(start + prefix.len()..).is_some_and(is_long))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: KeyShape = KeyShape::with_prefix("sk_test_");

    #[test]
    fn a_secret_is_found_anywhere_in_a_text() {
        let prefixes = ["sk_test_", "sk_live_", "whsec_"];
        for text in [
            "/charges/sk_test_12345678",
            "/v1/refunds/xsk_live_12345678/y",
            "sk_test_/sk_test_charge_once_dev",
            "whsec_0123abcd",
        ] {
            assert!(holds_secret(text, &prefixes), "{text}");
        }
        for text in [
            "",
            "/charges/ch_12345678",
            "/inventory/sk_test_mug",
            "sk_test_é2345678",
        ] {
            assert!(!holds_secret(text, &prefixes), "{text}");
        }
    }

    #[test]
    fn a_key_is_told_by_its_last_four_characters() {
        for (key, expected) in [("sk_test_12345678", "5678"), ("né8", "né8"), ("", "")] {
            assert_eq!(last4(key), expected);
        }
    }

    #[test]
    fn keys_with_other_prefixes_fit_and_are_never_made() {
        let shape = SHAPE.or(&["rk_test_"]);
        for (key, fits) in [
            ("rk_test_12345678", true),
            ("sk_test_12345678", true),
            ("rk_test_1234567", false),
            ("rk_live_12345678", false),
        ] {
            assert_eq!(shape.fits(key), fits, "{key}");
        }
        assert!(!SHAPE.fits("rk_test_12345678"));
        assert!(shape.new_key().starts_with("sk_test_"));
    }

    #[test]
    fn a_key_is_the_prefix_and_8_to_200_letters_digits_and_underscores() {
        let of = |length| format!("sk_test_{}", "a".repeat(length));
        for key in [
            &of(8),
            &of(200),
            "sk_test_charge_once_dev",
            "sk_test_ABCdef789",
            &SHAPE.new_key(),
        ] {
            assert!(SHAPE.fits(key), "{key}");
        }
        for text in [
            &of(7),
            &of(201),
            "",
            "sk_test_",
            "sk_live_12345678",
            "SK_TEST_12345678",
            "sk_test_1234-5678",
            "sk_test_12345678 ",
            "sk_test_1234567é",
        ] {
            assert!(!SHAPE.fits(text), "{text}");
        }
    }
}
