//! What webhooks are signed with, and how.

use std::fmt;

use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use hmac::{Hmac, KeyInit, Mac};
use rand::distr::{Alphanumeric, SampleString};
use sha2::Sha256;

/// Random characters in a secret: 32 of 62 letters and digits are 190 bits. As Base64, which
/// Standard Webhooks read, they are 24 bytes, the least that it allows.
const RANDOM_CHARS: usize = 32;

/// What is signed with. It shows itself only where [`Secret::reveal`] is called, so that no log
/// line can hold it by accident.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// What every secret begins with, so that scanners and people know one.
    pub const PREFIX: &'static str = "whsec_";

    /// A secret of a new endpoint.
    pub fn random() -> Self {
        let random = Alphanumeric.sample_string(&mut rand::rng(), RANDOM_CHARS);
        Self(format!("{}{random}", Self::PREFIX))
    }

    /// A secret that is known already.
    pub fn of(text: String) -> Self {
        Self(text)
    }

    /// The secret itself, prefix included.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("whsec_…")
    }
}

/// The signature of a body that is sent at `t`, in unix seconds: `t=…,v1=` and the HMAC-SHA256 of
/// `t`, a dot and the body, in hexadecimal. Stripe's libraries verify it.
#[expect(clippy::expect_used, reason = "HMAC takes keys of any length")]
pub(crate) fn signature(secret: &Secret, t: i64, body: &[u8]) -> String {
    let mut mac =
        Hmac::<Sha256>::new_from_slice(secret.reveal().as_bytes()).expect("a key of any length");
    mac.update(format!("{t}.").as_bytes());
    mac.update(body);
    format!("t={t},v1={}", hex::encode(mac.finalize().into_bytes()))
}

/// The value of `webhook-signature`: the signature of a body that is sent at `t` with `id`, as
/// Standard Webhooks computes it. `None`: the secret is not Base64, so no receiver could have its
/// key.
pub(crate) fn standard_signature(secret: &Secret, id: &str, t: i64, body: &[u8]) -> Option<String> {
    let key = BASE64
        .decode(secret.reveal().strip_prefix(Secret::PREFIX)?)
        .ok()?;
    let mut mac = Hmac::<Sha256>::new_from_slice(&key).ok()?;
    mac.update(format!("{id}.{t}.").as_bytes());
    mac.update(body);
    Some(format!("v1,{}", BASE64.encode(mac.finalize().into_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standard_signature_is_the_one_that_the_library_computes() {
        // standardwebhooks of PyPI: Webhook(secret).sign("evt_1", 1795000000 as a datetime, body).
        let secret = Secret::of("whsec_MfKQ9r8GKYqTwjUPD8ILPZIo2LaLaSw0".to_owned());
        let sign = |secret: &Secret| {
            standard_signature(secret, "evt_1", 1_795_000_000, br#"{"id":"evt_1"}"#)
        };
        let expected = "v1,Md6JpzGn1Dx9i1m/iMNEEsOurXxaOi6mNPbkLyckuhU=";
        assert_eq!(sign(&secret).as_deref(), Some(expected));
        assert_eq!(sign(&Secret::of("whsec_not Base64".to_owned())), None);
        for _ in 0..100 {
            assert!(sign(&Secret::random()).is_some());
        }
    }

    #[test]
    fn a_secret_does_not_show_itself() {
        let secret = Secret::of("whsec_hidden".to_owned());
        assert!(!format!("{secret:?}").contains("hidden"));
    }

    #[test]
    fn a_signature_is_the_one_that_openssl_computes() {
        // printf '1795000000.{"id":"evt_1"}' | openssl dgst -sha256 -hmac whsec_test
        let secret = Secret::of("whsec_test".to_owned());
        assert_eq!(
            signature(&secret, 1_795_000_000, br#"{"id":"evt_1"}"#),
            "t=1795000000,v1=9768205fbb644a6a645cdd13f225c6791ed91580e4d16c14b9a8e73cd4ba4393"
        );
    }
}
