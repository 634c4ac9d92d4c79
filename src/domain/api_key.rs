//! The shape of this service's API keys.

use charge_once_api_keys::KeyShape;

/// Marks keys that can't move real money, so that secret scanners and people recognize them.
const PREFIX: &str = "sk_test_";

/// API keys of this service.
pub const API_KEY: KeyShape = KeyShape::with_prefix(PREFIX);

/// Whether a text begins like a key of Stripe's that pages and apps hold.
pub fn is_publishable(key: &str) -> bool {
    key.starts_with("pk_test_") || key.starts_with("pk_live_")
}

/// How secrets begin that people paste into the wrong place: API keys of this service and of
/// Stripe's, the secrets of webhooks, and what follows the id in the secret of an intent.
const SECRET_PREFIXES: [&str; 6] = [
    PREFIX, "sk_live_", "rk_test_", "rk_live_", "whsec_", "_secret_",
];

/// How the words begin that are secrets.
const SECRET_WORDS: [&str; 5] = ["sk_", "rk_", "whsec_", "pi_", "seti_"];

/// Whether a name that a client has chosen is a secret, or has one for a word. `task_test_20260101`
/// and `gift_secret_santa_2026` are good names.
pub fn is_secret(name: &str) -> bool {
    let mut words = name.split(|letter: char| letter != '_' && !letter.is_ascii_alphanumeric());
    words.any(|word| {
        let is_one = SECRET_WORDS.iter().any(|start| word.starts_with(start));
        is_one && holds_secret(word)
    })
}

/// Whether a text holds what may be an API key or another secret.
pub fn holds_secret(text: &str) -> bool {
    charge_once_api_keys::holds_secret(text, &SECRET_PREFIXES)
}
