//! The shape of an API key.

/// Marks keys that can't move real money, so that secret scanners and people recognize them.
pub const PREFIX: &str = "sk_test_";

/// The fewest characters after the prefix.
const REST_MIN: usize = 8;
/// The most characters after the prefix.
const REST_MAX: usize = 200;

/// The last four characters of a key, by which a person tells it from others.
pub fn last4(key: &str) -> &str {
    let start = key.char_indices().nth_back(3).map_or(0, |(start, _)| start);
    key.get(start..).unwrap_or_default()
}

/// Whether a text may be an API key: `sk_test_` and 8 to 200 letters, digits and underscores. Every
/// key that was ever made is.
pub fn has_shape(text: &str) -> bool {
    text.strip_prefix(PREFIX).is_some_and(|rest| {
        (REST_MIN..=REST_MAX).contains(&rest.len())
            && rest
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    })
}

/// How secrets begin that people paste into the wrong place: API keys of this service and of
/// Stripe's, and the secrets of webhooks.
const SECRET_PREFIXES: [&str; 5] = [PREFIX, "sk_live_", "rk_test_", "rk_live_", "whsec_"];

/// Whether a text holds what may be an API key or another secret.
pub fn holds_secret(text: &str) -> bool {
    let is_long = |rest: &str| {
        let mut rest = rest.bytes();
        let is_of_a_key = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        rest.by_ref()
            .take(REST_MIN)
            .filter(|byte| is_of_a_key(*byte))
            .count()
            == REST_MIN
    };
    SECRET_PREFIXES.iter().any(|prefix| {
        let mut places = text.match_indices(prefix);
        places.any(|(start, _)| text.get(start + prefix.len()..).is_some_and(is_long))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_found_anywhere_in_a_text() {
        for text in [
            "/charges/sk_test_12345678",
            "/v1/refunds/xsk_live_12345678/y",
            "sk_test_/sk_test_charge_once_dev",
            "whsec_0123abcd",
        ] {
            assert!(holds_secret(text), "{text}");
        }
        for text in [
            "",
            "/charges/ch_12345678",
            "/inventory/sk_test_mug",
            "sk_test_é2345678",
        ] {
            assert!(!holds_secret(text), "{text}");
        }
    }

    #[test]
    fn a_key_is_told_by_its_last_four_characters() {
        for (key, expected) in [("sk_test_12345678", "5678"), ("né8", "né8"), ("", "")] {
            assert_eq!(last4(key), expected);
        }
    }

    #[test]
    fn a_key_is_the_prefix_and_8_to_200_letters_digits_and_underscores() {
        let of = |length| format!("sk_test_{}", "a".repeat(length));
        for key in [
            &of(8),
            &of(200),
            "sk_test_charge_once_dev",
            "sk_test_ABCdef789",
        ] {
            assert!(has_shape(key), "{key}");
        }
        for text in [
            &of(7),
            &of(201),
            "",
            "sk_test_",
            "sk_live_12345678",
            "SK_TEST_12345678",
        ] {
            assert!(!has_shape(text), "{text}");
        }
        for text in ["sk_test_1234-5678", "sk_test_12345678 ", "sk_test_1234567é"] {
            assert!(!has_shape(text), "{text}");
        }
    }
}
