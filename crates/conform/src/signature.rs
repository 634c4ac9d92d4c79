//! How deliveries of webhooks are signed.

use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use ring::hmac::{HMAC_SHA256, Key, sign};

/// Whose signature a delivery has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Scheme {
    /// `Stripe-Signature`.
    Stripe,
    /// `webhook-id`, `webhook-timestamp` and `webhook-signature`.
    Standard,
}

impl Scheme {
    pub(crate) fn preset(self) -> &'static str {
        match self {
            Self::Stripe => include_str!("presets/stripe-webhooks.toml"),
            Self::Standard => include_str!("presets/standard-webhooks.toml"),
        }
    }

    /// Whether a secret can be one.
    pub(crate) fn takes(self, secret: &str) -> bool {
        !secret.is_empty() && (self == Self::Stripe || standard_key(secret).is_some())
    }

    /// The headers that sign a body at `t`, in unix seconds. None without a secret.
    pub(crate) fn headers(
        self,
        secret: &str,
        id: &str,
        t: u64,
        body: &str,
    ) -> Vec<(&'static str, String)> {
        if secret.is_empty() {
            return Vec::new();
        }
        match self {
            Self::Stripe => {
                let mac = hmac(secret.as_bytes(), &format!("{t}.{body}"));
                let hex: String = mac.iter().map(|byte| format!("{byte:02x}")).collect();
                vec![("stripe-signature", format!("t={t},v1={hex}"))]
            }
            Self::Standard => {
                let key = standard_key(secret).unwrap_or_default();
                let signature = BASE64.encode(hmac(&key, &format!("{id}.{t}.{body}")));
                vec![
                    ("webhook-timestamp", t.to_string()),
                    ("webhook-signature", format!("v1,{signature}")),
                ]
            }
        }
    }
}

fn standard_key(secret: &str) -> Option<Vec<u8>> {
    let encoded = secret.strip_prefix("whsec_").unwrap_or(secret);
    BASE64.decode(encoded).ok()
}

fn hmac(key: &[u8], text: &str) -> Vec<u8> {
    let key = Key::new(HMAC_SHA256, key);
    sign(&key, text.as_bytes()).as_ref().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_are_those_that_openssl_computes() {
        // printf '1795000000.{"id":"evt_1"}' | openssl dgst -sha256 -hmac whsec_test
        let stripe = Scheme::Stripe.headers("whsec_test", "", 1_795_000_000, r#"{"id":"evt_1"}"#);
        assert_eq!(
            stripe,
            [(
                "stripe-signature",
                "t=1795000000,v1=9768205fbb644a6a645cdd13f225c6791ed91580e4d16c14b9a8e73cd4ba4393"
                    .to_owned()
            )]
        );
        // printf 'msg_1.1795000000.{}' | openssl dgst -sha256 -hmac secret -binary | base64
        let standard = Scheme::Standard.headers("whsec_c2VjcmV0", "msg_1", 1_795_000_000, "{}");
        assert_eq!(
            standard.last(),
            Some(&(
                "webhook-signature",
                "v1,VHHjmj8G9L1soWTYQLF3VO+fbzvTyhrf/9/zfPr2OWY=".to_owned()
            ))
        );
    }
}
