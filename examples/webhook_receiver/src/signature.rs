//! Verifies `Stripe-Signature: t=…,v1=…`. `t` is the time of the attempt in Unix seconds, `v1` is
//! the hexadecimal HMAC-SHA256 of `t`, a dot and the body, under the endpoint's whole secret.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// An older signature is refused, so that a recorded request is worthless after that time. Every
/// attempt is signed anew, so redeliveries pass.
pub const TOLERANCE_SECONDS: u64 = 5 * 60;

/// Checks `header` against the body's bytes as they came. `now` is in Unix seconds. An error says
/// what is wrong, for the log.
pub fn verify(secret: &str, header: &str, body: &[u8], now: i64) -> Result<(), &'static str> {
    let fields = || header.split(',').filter_map(|field| field.split_once('='));
    let time = fields()
        .find(|(name, _)| *name == "t")
        .map(|(_, time)| time);
    let time = time.ok_or("no time is signed")?;
    let signed_at: i64 = time.parse().map_err(|_| "the signed time is no number")?;
    if now.abs_diff(signed_at) > TOLERANCE_SECONDS {
        return Err("the signed time is too far from this machine's");
    }

    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).map_err(|_| "no secret")?;
    for part in [time.as_bytes(), b".", body] {
        mac.update(part);
    }
    // `verify_slice` compares in constant time: `==` would tell an attacker, by its duration, how
    // many leading bytes were right. There may be several signatures, one per secret.
    fields()
        .filter(|(name, _)| *name == "v1")
        .filter_map(|(_, signature)| hex::decode(signature).ok())
        .any(|signature| mac.clone().verify_slice(&signature).is_ok())
        .then_some(())
        .ok_or("no signature matches the body")
}
