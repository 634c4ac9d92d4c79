//! Records whose bodies are encrypted where they are stored.
//!
//! Promise: such a record holds a hash in place of its key, so what is stored opens no body, with
//! the cipher's secrets or without. One index decides between it and a record of the key itself.

use std::{
    fmt::{self, Write},
    sync::Arc,
};

use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::{Failure, Outcome, Record, Reply, Request};

/// What the stored key of a sealed record begins with. No client can send it.
pub(crate) const SEALED: &str = ",sealed.";

/// Encrypts the bodies of one key's record, and decrypts them. The key is the client's own.
pub trait Cipher: fmt::Debug + Send + Sync + 'static {
    /// Encrypts a body, each time to other bytes.
    fn seal(&self, account_id: Uuid, key: &str, body: &[u8]) -> Result<Vec<u8>, Failure>;

    /// The body, or a failure where it is another key's, was changed, or its secret is not known.
    fn open(&self, account_id: Uuid, key: &str, sealed: &[u8]) -> Result<Vec<u8>, Failure>;
}

/// How a request seals its record, and opens one that is sealed.
#[derive(Debug, Clone)]
pub struct Seal {
    /// By what.
    pub cipher: Arc<dyn Cipher>,
    /// Whether its own record is sealed. One that is there already may be sealed or not.
    pub seals: bool,
}

impl Seal {
    /// What is stored in place of a key, by a request that has this seal or none.
    pub fn stored_key(of: Option<&Self>, account_id: Uuid, key: &str) -> String {
        match of {
            Some(seal) if seal.seals => sealed_key(account_id, key),
            Some(_) | None => key.to_owned(),
        }
    }
}

impl Request {
    /// What its record is stored under: its key, or a hash in place of it.
    pub fn stored_key(&self) -> String {
        Seal::stored_key(self.seal.as_ref(), self.account_id, self.key.as_str())
    }

    /// The two that a record of its key may be stored under.
    pub(crate) fn stored_keys(&self) -> [String; 2] {
        let key = self.key.as_str();
        [key.to_owned(), sealed_key(self.account_id, key)]
    }

    /// The body as its record keeps it, if that is sealed.
    pub(crate) fn sealed(&self, reply: &Reply) -> Result<Option<Vec<u8>>, sqlx::Error> {
        let Some(Seal {
            cipher,
            seals: true,
        }) = &self.seal
        else {
            return Ok(None);
        };
        let sealed = cipher.seal(self.account_id, self.key.as_str(), &reply.body);
        // As what can't be written.
        let unwritten = |failure: Failure| sqlx::Error::Encode(failure.cause.to_string().into());
        sealed.map(Some).map_err(unwritten)
    }

    /// The same request, whose own record is not sealed.
    #[must_use]
    pub fn unsealed(mut self) -> Self {
        if let Some(seal) = &mut self.seal {
            seal.seals = false;
        }
        self
    }

    /// A record of this very request, with the body that was answered the first time. One that does
    /// not open is no outcome, and never leads to a second one.
    pub(crate) fn replay(&self, record: Arc<Record>) -> Result<Outcome, Failure> {
        if !record.is_sealed {
            return Ok(Outcome::replay(record));
        }
        let unknown = || Failure::unavailable("a stored reply is sealed, and no secret is set");
        let cipher = &self.seal.as_ref().ok_or_else(unknown)?.cipher;
        let mut opened = Arc::unwrap_or_clone(record);
        let sealed = &opened.reply.body;
        opened.reply.body = cipher.open(self.account_id, self.key.as_str(), sealed)?;
        opened.is_sealed = false;
        Ok(Outcome::replay(Arc::new(opened)))
    }
}

/// What stands in place of a key, as the index computes it of the key.
pub fn sealed_key(account_id: Uuid, key: &str) -> String {
    let mut stored = SEALED.to_owned();
    for byte in Sha256::digest(format!("{account_id}:{key}")) {
        // Writing to a String can't fail.
        let _ = write!(stored, "{byte:02x}");
    }
    stored
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `sha256sum` says of the account, a colon and the key.
    #[test]
    fn a_hash_stands_in_place_of_the_key() {
        let stored = ",sealed.0b36fbd4002bbadc94a4a15819cbf9e16a8c97a52428190f5cb62b8c03daa62e";
        assert_eq!(sealed_key(Uuid::from_u128(7), "key-1"), stored);
    }
}
