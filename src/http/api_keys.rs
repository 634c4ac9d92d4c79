//! Finds the account that a request speaks for.
//!
//! Promise: an API key is compared by its hash and never stored or logged; what was looked up is
//! remembered briefly, so a revoked key stops working within [`REMEMBERED_FOR`].

use std::time::Duration;

use actix_web::http::header::{AUTHORIZATION, HeaderMap};
use base64::{Engine, prelude::BASE64_STANDARD};
use moka::sync::Cache;

use super::error::HttpError;
use crate::{
    api::error::{ApiError, ErrorCode},
    database::Database,
    domain::ids::AccountId,
    store,
};

/// How long a key that was found is believed without asking again.
pub const REMEMBERED_FOR: Duration = Duration::from_secs(5);

/// Keys remembered at a time; a hash and an id each.
const REMEMBERED_MAX: u64 = 10_000;

/// Longest API key that is worth hashing, in bytes.
const KEY_MAX_BYTES: usize = 255;

/// Looks API keys up. Cheap to clone; all clones share the memory.
#[derive(Clone)]
pub struct ApiKeys {
    database: Database,
    remembered: Cache<[u8; 32], AccountId>,
}

impl ApiKeys {
    /// Keys are looked up in `database`.
    pub fn new(database: Database) -> Self {
        let remembered = Cache::builder()
            .max_capacity(REMEMBERED_MAX)
            .time_to_live(REMEMBERED_FOR)
            .build();
        Self {
            database,
            remembered,
        }
    }

    /// The account that a request speaks for, by `Authorization: Bearer` (RFC 6750) or Basic (RFC
    /// 7617) with the key as the user name and an empty password.
    pub async fn authenticate(&self, headers: &HeaderMap) -> Result<AccountId, HttpError> {
        let key = key_of(headers)?;
        let hash = store::api_keys::hash(&key);
        if let Some(account) = self.remembered.get(&hash) {
            return Ok(account);
        }
        let found = self
            .database
            .read(move |connection| {
                Box::pin(async move { store::api_keys::find_account(connection, &hash).await })
            })
            .await
            .map_err(HttpError::failed_read)?;
        let Some(account) = found.map(AccountId) else {
            return Err(ApiError::explained(ErrorCode::ApiKeyInvalid).into());
        };
        self.remembered.insert(hash, account);
        Ok(account)
    }
}

fn key_of(headers: &HeaderMap) -> Result<String, HttpError> {
    let invalid = || HttpError::from(ApiError::explained(ErrorCode::ApiKeyInvalid));
    let mut values = headers.get_all(AUTHORIZATION);
    let Some(value) = values.next() else {
        return Err(ApiError::explained(ErrorCode::ApiKeyMissing).into());
    };
    if values.next().is_some() {
        return Err(invalid());
    }
    let (scheme, credentials) = value
        .to_str()
        .ok()
        .and_then(|value| value.split_once(' '))
        .ok_or_else(invalid)?;
    let credentials = credentials.trim();
    let key = if scheme.eq_ignore_ascii_case("bearer") {
        credentials.to_owned()
    } else if scheme.eq_ignore_ascii_case("basic") {
        let decoded = BASE64_STANDARD.decode(credentials).map_err(|_| invalid())?;
        let decoded = String::from_utf8(decoded).map_err(|_| invalid())?;
        match decoded.split_once(':') {
            Some((key, "")) => key.to_owned(),
            Some(_) | None => return Err(invalid()),
        }
    } else {
        return Err(invalid());
    };
    if key.is_empty() || key.len() > KEY_MAX_BYTES {
        Err(invalid())
    } else {
        Ok(key)
    }
}
