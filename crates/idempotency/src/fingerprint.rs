//! What makes two requests the same request.
//!
//! Promise: the fingerprint changes with the method, path, query, media type and any value of the
//! parameters, and with nothing else: re-ordered members, white space and escapes vanish in the
//! canonical form (RFC 8785) that the caller hands in.

use sha2::{Digest, Sha256};

/// The rule that new records are made by. A change of rule gets a new number and keeps the old
/// rule beside it for as long as records of the old version can live.
const CURRENT_VERSION: i16 = 1;

/// The version of a record that answers any request with its key, as that of a key that was given
/// up. Its fingerprint is [`NO_FINGERPRINT`].
pub(crate) const OF_ANY_REQUEST: i16 = 0;

pub(crate) const NO_FINGERPRINT: [u8; 32] = [0; 32];

/// Set in front of everything else, so that this hash can't be mistaken for another use of SHA-256.
const DOMAIN_TAG: &[u8] = b"charge-once fingerprint v1";

/// The parameters of a request, as they enter the fingerprint.
#[derive(Debug, Clone, Copy)]
pub enum Parameters<'a> {
    /// RFC 8785 canonical JSON of the decoded body.
    Canonical(&'a [u8]),
    /// The bytes of a body that could not be decoded: the refusal is stored for exactly these.
    Raw(&'a [u8]),
}

/// Everything that tells one request from another.
#[derive(Debug, Clone, Copy)]
pub struct FingerprintInput<'a> {
    /// The method, upper case.
    pub method: &'a str,
    /// The path as the client sent it, without the query.
    pub path: &'a str,
    /// The decoded query: canonical JSON, or raw bytes when it could not be decoded.
    pub query: Parameters<'a>,
    /// `json` or `form`: the same values in another encoding are another request.
    pub media_type: &'a str,
    /// The body.
    pub parameters: Parameters<'a>,
}

/// A request's identity, comparable with a stored record's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint {
    version: i16,
    v1: [u8; 32],
}

/// A record made by a rule that this build doesn't know, by a newer release before a rollback:
/// neither "same" nor "different" would be honest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the record's fingerprint version {0} is unknown to this build")]
pub struct UnknownVersion(pub i16);

impl Fingerprint {
    /// Of a record that answers any request with its key.
    pub const OF_ANY_REQUEST: Self = Self {
        version: OF_ANY_REQUEST,
        v1: NO_FINGERPRINT,
    };

    /// The fingerprint of one request.
    pub fn of(request: &FingerprintInput<'_>) -> Self {
        let mut hash = Sha256::new();
        for part in [
            DOMAIN_TAG,
            request.method.as_bytes(),
            request.path.as_bytes(),
            request.query.kind(),
            request.query.bytes(),
            request.media_type.as_bytes(),
            request.parameters.kind(),
            request.parameters.bytes(),
        ] {
            // A length before each part keeps bytes from moving between neighbors unnoticed.
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        Self {
            version: CURRENT_VERSION,
            v1: hash.finalize().into(),
        }
    }

    /// The version stored with a new record.
    pub fn version(&self) -> i16 {
        self.version
    }

    /// The 32 bytes stored with a new record.
    pub fn bytes(&self) -> &[u8] {
        &self.v1
    }

    /// Compares by the rule of the *record's* version.
    pub fn matches(&self, version: i16, stored: &[u8]) -> Result<bool, UnknownVersion> {
        match version {
            OF_ANY_REQUEST => Ok(true),
            1 => Ok(self.v1 == stored),
            unknown => Err(UnknownVersion(unknown)),
        }
    }
}

impl<'a> Parameters<'a> {
    fn kind(&self) -> &'static [u8] {
        match self {
            Self::Canonical(_) => b"canonical",
            Self::Raw(_) => b"raw",
        }
    }

    fn bytes(&self) -> &'a [u8] {
        match self {
            Self::Canonical(bytes) | Self::Raw(bytes) => bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: FingerprintInput<'_> = FingerprintInput {
        method: "POST",
        path: "/charges",
        query: Parameters::Canonical(b"{}"),
        media_type: "json",
        parameters: Parameters::Canonical(br#"{"amount":2000}"#),
    };

    #[test]
    fn every_part_of_a_request_changes_its_fingerprint() {
        let changes: [fn(&mut FingerprintInput<'_>); 7] = [
            |input| input.method = "PUT",
            |input| input.path = "/v1/charges",
            |input| input.query = Parameters::Canonical(br#"{"a":"1"}"#),
            |input| input.query = Parameters::Raw(b"{}"),
            |input| input.media_type = "form",
            |input| input.parameters = Parameters::Canonical(br#"{"amount":2001}"#),
            |input| input.parameters = Parameters::Raw(br#"{"amount":2000}"#),
        ];
        for change in changes {
            let mut other = BASE;
            change(&mut other);
            assert_ne!(Fingerprint::of(&BASE), Fingerprint::of(&other), "{other:?}");
        }
    }

    #[test]
    fn bytes_do_not_move_between_neighboring_parts() {
        let left = FingerprintInput {
            method: "POSTx",
            path: "",
            ..BASE
        };
        let right = FingerprintInput {
            method: "POST",
            path: "x",
            ..BASE
        };
        assert_ne!(Fingerprint::of(&left), Fingerprint::of(&right));
    }

    #[test]
    fn the_rule_of_version_1_never_changes() {
        assert_eq!(
            hex::encode(Fingerprint::of(&BASE).bytes()),
            "e4e93245c4e1ce767b8f3e6dea1dcda332368691d55b4e10af6749cce125b22a"
        );
    }

    #[test]
    fn a_record_of_any_request_is_that_of_each() {
        let fingerprint = Fingerprint::of(&BASE);
        assert_eq!(fingerprint.matches(OF_ANY_REQUEST, &[0; 32]), Ok(true));
    }

    #[test]
    fn a_record_of_an_unknown_version_is_neither_same_nor_different() {
        let fingerprint = Fingerprint::of(&BASE);
        assert_eq!(
            fingerprint.matches(2, fingerprint.bytes()),
            Err(UnknownVersion(2))
        );
        assert_eq!(fingerprint.matches(1, fingerprint.bytes()), Ok(true));
    }
}
