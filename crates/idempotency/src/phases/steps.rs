//! Work that belongs to a larger request: each part is a request of its own, under a key that no
//! client can send.

use std::time::Duration;

use uuid::Uuid;

use crate::{FingerprintInput, IdempotencyKey, KEY_MAX_BYTES, KeyError, Parameters, Request};

impl IdempotencyKey {
    /// A key that no client can send: it begins with a comma, which no header's key may hold. For
    /// the steps of work that a client asked for under a key of its own.
    pub fn reserved(name: &str) -> Result<Self, KeyError> {
        let Self(name) = Self::parse(name.as_bytes())?;
        if name.len() == KEY_MAX_BYTES {
            return Err(KeyError::TooLong);
        }
        Ok(Self(format!(",{name}")))
    }
}

impl Request {
    /// Work that belongs to a larger request: `path` says which part, and is its key in a scope
    /// that no client can write. The same path is always the same request.
    pub fn reserved(
        account_id: Uuid,
        path: String,
        request_id: String,
        wait: Duration,
    ) -> Result<Self, KeyError> {
        let nothing = Parameters::Canonical(b"{}");
        let input = FingerprintInput {
            method: "POST",
            path: &path,
            query: nothing,
            media_type: "json",
            parameters: nothing,
        };
        Ok(Self {
            request_id,
            wait,
            is_step: true,
            ..Self::new(account_id, IdempotencyKey::reserved(&path)?, &input)
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
    use super::*;

    #[test]
    fn no_header_names_a_reserved_key() {
        let reserved = IdempotencyKey::reserved("step-1").unwrap();
        assert_eq!(reserved.as_str(), ",step-1");
        let parsed = IdempotencyKey::parse(reserved.as_str().as_bytes());
        assert_eq!(parsed.unwrap_err(), KeyError::ForbiddenByte);
        let too_long = IdempotencyKey::reserved(&"k".repeat(KEY_MAX_BYTES));
        assert_eq!(too_long.unwrap_err(), KeyError::TooLong);
    }
}
