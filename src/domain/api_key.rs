//! The shape of this service's API keys.

use charge_once_postgres::api_keys::KeyShape;

/// Marks keys that can't move real money, so that secret scanners and people recognize them.
const PREFIX: &str = "sk_test_";

/// Restricted keys of Stripe's test mode, which some programs insist on. Here they may do as much.
const RESTRICTED: &str = "rk_test_";

/// API keys of this service.
pub const API_KEY: KeyShape = KeyShape::with_prefix(PREFIX).or(&[RESTRICTED]);

/// Whether a text begins like a secret key of Stripe's test mode.
pub fn is_of_test_mode(key: &str) -> bool {
    key.starts_with(PREFIX) || key.starts_with(RESTRICTED)
}

/// Whether a text begins like a key of Stripe's that pages and apps hold.
pub fn is_publishable(key: &str) -> bool {
    key.starts_with("pk_test_") || key.starts_with("pk_live_")
}

/// How secrets begin that people paste into the wrong place: API keys of this service and of
/// Stripe's, the secrets of webhooks, and what follows the id in the secret of an intent.
const SECRET_PREFIXES: [&str; 6] = [
    PREFIX, "sk_live_", RESTRICTED, "rk_live_", "whsec_", "_secret_",
];

/// How the words begin that are secrets: parts of a name between other characters than letters and
/// digits. The secret of another word is none, as in `gift_secret_santa_2026`.
const SECRET_WORDS: [&str; 7] = ["sk_", "rk_", "whsec_", "pi_", "seti_", "cs_", "src_"];

/// Whether a name that a client has chosen is a secret, or has one for a word. `task_test_20260101`
/// and `gift_secret_santa_2026` are good names.
pub fn is_secret(name: &str) -> bool {
    let begins_a_word = |at: &usize| {
        let before = name
            .get(..*at)
            .and_then(|before| before.chars().next_back());
        !before.is_some_and(|letter| letter.is_ascii_alphanumeric())
    };
    SECRET_WORDS.iter().any(|word| {
        let places = name.match_indices(word).map(|(at, _)| at);
        let mut words = places.filter(begins_a_word).filter_map(|at| name.get(at..));
        words.any(|from| {
            let end = |letter: char| letter != '_' && !letter.is_ascii_alphanumeric();
            from.split(end).next().is_some_and(holds_secret)
        })
    })
}

/// Whether a text holds what may be an API key or another secret.
pub fn holds_secret(text: &str) -> bool {
    charge_once_postgres::api_keys::holds_secret(text, &SECRET_PREFIXES)
}
