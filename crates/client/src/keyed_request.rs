//! One change to be made, decided before anything is sent.
//!
//! Promise: key, method, path and body are fixed when the value is made. Whatever is sent of it, by
//! this process or by one that found it in a [`KeyStore`](super::KeyStore), is the same request.

use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::error::Error;

/// Longest key, and longest name of a workflow, that the service takes.
const NAME_MAX_BYTES: usize = 255;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(super) enum Method {
    /// A stored operation without a method is a POST.
    #[default]
    Post,
    Put,
}

impl Method {
    pub(super) fn is_post(&self) -> bool {
        *self == Self::Post
    }
}

/// A POST or PUT with its idempotency key: the exact bytes of every attempt.
///
/// Your own [`KeyStore`](super::KeyStore) serializes it. Members that were optional when it was
/// written may be missing when it is read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyedRequest {
    pub(super) key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) workflow: Option<String>,
    pub(super) server: String,
    #[serde(default, skip_serializing_if = "Method::is_post")]
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) body: String,
    pub(super) created_at: u64,
}

impl KeyedRequest {
    /// Serializes `parameters` once, and makes the key.
    pub(super) fn new(
        server: &str,
        method: Method,
        path: String,
        parameters: &impl Serialize,
        now: Duration,
    ) -> Result<Self, Error> {
        let body = serde_json::to_string(parameters)
            .map_err(|error| Error::Unusable(format!("the parameters can't be sent: {error}")))?;
        Ok(Self {
            key: Uuid::new_v4().to_string(),
            workflow: None,
            server: server.to_owned(),
            method,
            path,
            body,
            created_at: now.as_secs(),
        })
    }

    /// The request that gives this one's key up. Its own key, and all else, follows from this one:
    /// a process that finds only this one in a store makes the same.
    pub(super) fn abandonment(&self) -> Result<Self, Error> {
        Ok(Self {
            key: abandoned_by(&self.key),
            method: Method::Post,
            path: abandonment_path(&self.key)?,
            body: "{}".to_owned(),
            ..self.clone()
        })
    }

    pub(super) fn is_abandonment(&self) -> bool {
        self.path.starts_with("/idempotency-keys/")
    }

    /// The idempotency key: one for each thing that is to happen once.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The workflow that it belongs to.
    pub fn workflow(&self) -> Option<&str> {
        self.workflow.as_deref()
    }

    /// The service it is for, as a URL without a trailing slash.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// `POST` or `PUT`.
    pub fn method(&self) -> &'static str {
        match self.method {
            Method::Post => "POST",
            Method::Put => "PUT",
        }
    }

    /// Below the service's URL: `/charges`.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// JSON, sent as it stands here.
    pub fn body(&self) -> &str {
        &self.body
    }

    /// Unix seconds, by this machine's clock.
    pub fn created_at(&self) -> u64 {
        self.created_at
    }

    /// Whether both ask for the same thing, under whichever key and in whichever workflow.
    pub fn asks_the_same_as(&self, other: &Self) -> bool {
        (self.method, &self.server, &self.path, &self.body)
            == (other.method, &other.server, &other.path, &other.body)
    }
}

/// The key of the request that gives `key` up. It is as long for each.
pub(super) fn abandoned_by(key: &str) -> String {
    format!("abandon-{}", hex::encode(Sha256::digest(key)))
}

/// Where `key` is given up.
pub(super) fn abandonment_path(key: &str) -> Result<String, Error> {
    Ok(named("/idempotency-keys", key)? + "/abandon")
}

/// Everything but the unreserved characters of RFC 3986, section 2.3.
const IN_A_SEGMENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// A path that ends with a name of the caller's, of any characters. Two names are no segment of a
/// URL however they are encoded (<https://url.spec.whatwg.org/#double-dot-path-segment>): `..`
/// would be another path.
pub(super) fn named(collection: &str, name: &str) -> Result<String, Error> {
    if ["", ".", ".."].contains(&name) {
        return Err(Error::Unusable(format!("no path can name this: {name:?}")));
    }
    let segment = utf8_percent_encode(name, IN_A_SEGMENT);
    Ok(format!("{collection}/{segment}"))
}

/// A name, if it is one that the service takes.
pub(super) fn checked(what: &str, name: String) -> Result<String, Error> {
    let plain = |byte: u8| matches!(byte, 0x21..=0x7E) && !b"\"\\,".contains(&byte);
    if name.is_empty() || name.len() > NAME_MAX_BYTES || !name.bytes().all(plain) {
        return Err(Error::Unusable(format!(
            "{what} is 1 to 255 bytes of visible ASCII without quotes, backslashes and commas"
        )));
    }
    Ok(name)
}
