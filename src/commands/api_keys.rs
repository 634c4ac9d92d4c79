//! New API keys.

use rand::distr::{Alphanumeric, SampleString};

use crate::domain::api_key::PREFIX;

/// Random characters in a key: 32 of 62 letters and digits are 190 bits.
const RANDOM_CHARS: usize = 32;

/// A new key. It is shown once, and stored as its hash.
pub fn new_api_key() -> String {
    let random = Alphanumeric.sample_string(&mut rand::rng(), RANDOM_CHARS);
    format!("{PREFIX}{random}")
}
