//! Add-on: replies are encrypted where they are stored, with secrets that can be rotated.
//!
//! Promise: a sealed body opens with the account, the client's key, and the secret that sealed it,
//! and with nothing less. What was changed does not open.
//!
//! The secret, the account and the key make the key of one record's cipher (HKDF-SHA256), which is
//! XChaCha20-Poly1305 with a random nonce. Stored is a version, an id of the secret, the nonce, and
//! what the cipher makes of the body.

use std::{
    fmt,
    sync::{Arc, LazyLock},
};

use chacha20poly1305::{KeyInit, XChaCha20Poly1305, XNonce, aead::Aead, aead::Payload};
use hkdf::Hkdf;
use sha2::Sha256;
use sqlx::migrate::Migrator;
use uuid::Uuid;

use crate::{Cipher, Failure, Seal};

/// Where [`SEAL_MIGRATIONS`] are counted.
pub const SEAL_MIGRATIONS_TABLE: &str = "idempotency_seal_migrations";

/// What a database needs before a record in it is sealed, after
/// [`MIGRATIONS`](crate::MIGRATIONS): an index. It costs each claim something, so only an
/// application that seals makes it. It stays when nothing is sealed any more.
pub static SEAL_MIGRATIONS: LazyLock<Migrator> = LazyLock::new(|| {
    let mut migrator = sqlx::migrate!("migrations/seal");
    migrator.dangerous_set_table_name(SEAL_MIGRATIONS_TABLE);
    migrator.set_ignore_missing(true);
    migrator
});

/// The shortest secret, in bytes: `openssl rand -hex 32` makes one of 64.
pub const SEAL_SECRET_MIN_BYTES: usize = 32;

/// How a sealed body is made. Another way would have another number.
const VERSION: u8 = 1;

const ID_BYTES: usize = 4;
const NONCE_BYTES: usize = 24;

/// Version and id: authenticated together with the body.
const HEAD_BYTES: usize = 1 + ID_BYTES;

/// Secrets of the server, which no database has. The first one seals, and all of them open.
#[derive(Clone)]
pub struct SealSecrets(Vec<Secret>);

/// No secret, or one that is shorter than [`SEAL_SECRET_MIN_BYTES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a secret has at least {SEAL_SECRET_MIN_BYTES} bytes")]
pub struct SealSecretsError;

#[derive(Clone)]
struct Secret {
    id: [u8; ID_BYTES],
    hkdf: Hkdf<Sha256>,
}

impl Secret {
    fn of(text: &str) -> Option<Self> {
        let hkdf = Hkdf::new(None, text.as_bytes());
        let mut id = [0; ID_BYTES];
        let is_long = text.len() >= SEAL_SECRET_MIN_BYTES;
        (is_long && hkdf.expand(b"charge-once: id of a secret", &mut id).is_ok())
            .then_some(Self { id, hkdf })
    }

    /// The cipher of one record. An account has 16 bytes, so the parts can't run together.
    fn cipher(&self, account_id: Uuid, key: &str) -> Result<XChaCha20Poly1305, Failure> {
        let record: [&[u8]; 3] = [b"charge-once: reply", account_id.as_bytes(), key.as_bytes()];
        let mut derived = [0; 32];
        let expanded = self.hkdf.expand_multi_info(&record, &mut derived);
        expanded.map_err(Failure::internal)?;
        Ok(XChaCha20Poly1305::new(&derived.into()))
    }

    fn seal(
        &self,
        (account_id, key): (Uuid, &str),
        nonce: [u8; NONCE_BYTES],
        body: &[u8],
    ) -> Result<Vec<u8>, Failure> {
        let mut sealed = vec![VERSION];
        sealed.extend(self.id);
        let payload = Payload {
            msg: body,
            aad: &sealed,
        };
        let cipher = self.cipher(account_id, key)?;
        let encrypted = cipher.encrypt(&XNonce::from(nonce), payload);
        let encrypted = encrypted.map_err(Failure::internal)?;
        sealed.extend(nonce);
        sealed.extend(encrypted);
        Ok(sealed)
    }
}

impl SealSecrets {
    /// The new one, and then older ones that still open what they have sealed.
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a str>) -> Result<Self, SealSecretsError> {
        let secrets: Option<Vec<_>> = secrets.into_iter().map(Secret::of).collect();
        let secrets = secrets.filter(|secrets| !secrets.is_empty());
        Ok(Self(secrets.ok_or(SealSecretsError)?))
    }
}

impl From<SealSecrets> for Seal {
    /// Seals nothing, until it is told to.
    fn from(secrets: SealSecrets) -> Self {
        Self {
            cipher: Arc::new(secrets),
            seals: false,
        }
    }
}

/// It never reaches a log by accident.
impl fmt::Debug for SealSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SealSecrets(…)")
    }
}

impl Cipher for SealSecrets {
    fn seal(&self, account_id: Uuid, key: &str, body: &[u8]) -> Result<Vec<u8>, Failure> {
        let first = self.0.first().ok_or(SealSecretsError);
        let first = first.map_err(Failure::internal)?;
        first.seal((account_id, key), rand::random(), body)
    }

    fn open(&self, account_id: Uuid, key: &str, sealed: &[u8]) -> Result<Vec<u8>, Failure> {
        let broken = || Failure::unavailable("a sealed reply doesn't open: it was changed");
        let (head, rest) = sealed.split_at_checked(HEAD_BYTES).ok_or_else(broken)?;
        let (nonce, encrypted) = rest.split_first_chunk::<NONCE_BYTES>().ok_or_else(broken)?;
        let [VERSION, id @ ..] = head else {
            return Err(broken());
        };
        let secret = self.0.iter().find(|secret| secret.id == id);
        let secret = secret.ok_or_else(|| {
            Failure::unavailable("a reply is sealed with a secret that is not known any more")
        })?;
        let payload = Payload {
            msg: encrypted,
            aad: head,
        };
        let opened = secret
            .cipher(account_id, key)?
            .decrypt(&XNonce::from(*nonce), payload);
        opened.map_err(|_| broken())
    }
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::indexing_slicing,
        reason = "a test may stop at the first surprise"
    )]

    use super::*;

    const OLD: &str = "old-secret-old-secret-old-secret";
    const NEW: &str = "new-secret-new-secret-new-secret";
    const ACCOUNT: Uuid = Uuid::from_u128(7);

    fn secrets(texts: &[&str]) -> SealSecrets {
        SealSecrets::new(texts.iter().copied()).unwrap()
    }

    fn cause(opened: Result<Vec<u8>, Failure>) -> String {
        opened.unwrap_err().cause.to_string()
    }

    #[test]
    fn a_body_opens_under_its_account_key_and_secret_and_under_nothing_else() {
        let sealing = secrets(&[NEW]);
        let sealed = sealing.seal(ACCOUNT, "key-1", b"whsec_1").unwrap();
        assert_eq!(sealing.open(ACCOUNT, "key-1", &sealed).unwrap(), b"whsec_1");
        assert!(!sealed.windows(6).any(|part| part == b"whsec_"));
        let again = sealing.seal(ACCOUNT, "key-1", b"whsec_1").unwrap();
        assert_ne!(sealed, again);

        let broken = "a sealed reply doesn't open: it was changed";
        for (account, key) in [(Uuid::nil(), "key-1"), (ACCOUNT, "key-2"), (ACCOUNT, "")] {
            assert_eq!(cause(sealing.open(account, key, &sealed)), broken);
        }
        // The version, the nonce, the body and its tag. The id is that of another secret.
        for place in [0, HEAD_BYTES, HEAD_BYTES + NONCE_BYTES, sealed.len() - 1] {
            let mut changed = sealed.clone();
            changed[place] ^= 1;
            assert_eq!(cause(sealing.open(ACCOUNT, "key-1", &changed)), broken);
        }
        for length in [0, 1, HEAD_BYTES, HEAD_BYTES + NONCE_BYTES, sealed.len() - 1] {
            assert_eq!(
                cause(sealing.open(ACCOUNT, "key-1", &sealed[..length])),
                broken
            );
        }
    }

    #[test]
    fn the_first_secret_seals_and_all_of_them_open() {
        let before = secrets(&[OLD]).seal(ACCOUNT, "k", b"{}").unwrap();
        let both = secrets(&[NEW, OLD]);
        assert_eq!(both.open(ACCOUNT, "k", &before).unwrap(), b"{}");
        let after = both.seal(ACCOUNT, "k", b"{}").unwrap();
        assert_eq!(secrets(&[NEW]).open(ACCOUNT, "k", &after).unwrap(), b"{}");
        let unknown = "a reply is sealed with a secret that is not known any more";
        assert_eq!(cause(secrets(&[NEW]).open(ACCOUNT, "k", &before)), unknown);
        assert!(SealSecrets::new(["short"]).is_err() && SealSecrets::new([]).is_err());
        assert_eq!(format!("{both:?}"), "SealSecrets(…)");
    }

    /// Computed with Python's `cryptography`: HKDF, ChaCha20Poly1305, and HChaCha20 by its draft.
    #[test]
    fn what_is_stored_is_what_another_implementation_makes() {
        const STORED: &str = "0126625e57000102030405060708090a0b0c0d0e0f10111213141516174b3ad721c0\
                              44db6e14a2f08ae13a9c05dea08d8c6f8c5dd1e2c9ca555820a44446349a02";
        let nonce = std::array::from_fn(|place| u8::try_from(place).unwrap());
        let secrets = secrets(&[NEW]);
        let body = br#"{"secret":"whsec_1"}"#;
        let sealed = secrets.0[0].seal((ACCOUNT, "key-1"), nonce, body).unwrap();
        assert_eq!(hex::encode(&sealed), STORED);
        assert_eq!(secrets.open(ACCOUNT, "key-1", &sealed).unwrap(), body);
    }
}
