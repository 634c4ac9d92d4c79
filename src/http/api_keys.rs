//! Finds the account that a request speaks for.
//!
//! Promise: an API key is compared by its hash and never stored or logged; what was looked up is
//! remembered briefly, so a revoked key stops working within [`REMEMBERED_FOR`], and so does a key
//! of a test account that has ended. However many keys strangers try, a key that is known to be an
//! account's never waits for their look-ups.

use std::{net::IpAddr, num::NonZeroU32, time::Duration};

use actix_web::http::header::{AUTHORIZATION, HeaderMap};
use base64::{Engine, prelude::BASE64_STANDARD};
use moka::sync::Cache;

use super::{
    error::HttpError,
    failed_keys::{FailedKeys, invalid},
    unknown_api_keys::UnknownApiKeys,
};
use crate::{
    database::Database,
    domain::{account::Account, api_key},
    idempotency::Failure,
    store,
    wire::error::{ApiError, ErrorCode},
};

/// How long a key that was found is believed without asking again.
pub const REMEMBERED_FOR: Duration = Duration::from_secs(5);

/// How long a key that was not found is refused without asking again: a client that keeps trying
/// costs nothing, and a key that is made meanwhile works soon.
const REFUSED_FOR: Duration = Duration::from_secs(2);

/// How long after its last use a key is still known to be an account's. It is looked up again all
/// the same, but does not queue with those that are unknown.
const KNOWN_FOR: Duration = Duration::from_secs(3600);

/// Keys in each of the three memories; a hash and an id each.
const KEYS_MAX: u64 = 10_000;

/// Looks API keys up. Cheap to clone; all clones share the memory.
#[derive(Clone)]
pub struct ApiKeys {
    database: Database,
    remembered: Cache<[u8; 32], Account>,
    refused: Cache<[u8; 32], ()>,
    known: Cache<[u8; 32], Account>,
    unknown: UnknownApiKeys,
    failed: FailedKeys,
}

impl ApiKeys {
    /// Looks API keys up in `database`. Without a `rate_limit` for accounts, requests with unknown
    /// keys have no limit either. Panics outside a Tokio runtime.
    pub fn of(database: Database, rate_limit: Option<NonZeroU32>) -> Self {
        Self {
            failed: FailedKeys::new(rate_limit),
            unknown: UnknownApiKeys::of(database.clone()),
            database,
            remembered: Cache::builder()
                .max_capacity(KEYS_MAX)
                .time_to_live(REMEMBERED_FOR)
                .build(),
            refused: Cache::builder()
                .max_capacity(KEYS_MAX)
                .time_to_live(REFUSED_FOR)
                .build(),
            known: Cache::builder()
                .max_capacity(KEYS_MAX)
                .time_to_idle(KNOWN_FOR)
                .build(),
        }
    }

    /// The account that a request speaks for, by `Authorization: Bearer` (RFC 6750) or Basic (RFC
    /// 7617) with the key as the user name and an empty password.
    pub async fn authenticate(
        &self,
        headers: &HeaderMap,
        client: Option<IpAddr>,
    ) -> Result<Account, HttpError> {
        self.account_of(&key_of(headers)?, client).await
    }

    /// The account that an API key speaks for, wherever it was given. `client` is who sent it.
    pub async fn account_of(
        &self,
        key: &str,
        client: Option<IpAddr>,
    ) -> Result<Account, HttpError> {
        let found = self.find(key).await?;
        found.ok_or_else(|| self.failed.failed(client))
    }

    async fn find(&self, key: &str) -> Result<Option<Account>, HttpError> {
        if !api_key::has_shape(key) {
            return Ok(None);
        }
        let hash = store::api_keys::hash(key);
        if let Some(account) = self.remembered.get(&hash) {
            return Ok(Some(account));
        }
        if self.refused.contains_key(&hash) {
            return Ok(None);
        }
        let looked_up = match self.known.get(&hash) {
            Some(account) => self.look_up_again(account, hash).await,
            None => self.unknown.find_account(hash).await,
        };
        let found = looked_up.map_err(HttpError::failed_without_key)?;
        if let Some(account) = found {
            self.remembered.insert(hash, account);
            self.known.insert(hash, account);
        } else {
            self.known.invalidate(&hash);
            self.refused.insert(hash, ());
        }
        Ok(found)
    }

    /// Looks a key up that was `account`'s a while ago, with the account's share of the pool.
    async fn look_up_again(
        &self,
        account: Account,
        hash: [u8; 32],
    ) -> Result<Option<Account>, Failure> {
        let database = self.database.of(account.id.0);
        let found = database.read(move |connection| {
            Box::pin(async move { store::api_keys::find_account(connection, &hash).await })
        });
        Ok(found.await?)
    }
}

fn key_of(headers: &HeaderMap) -> Result<String, HttpError> {
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
    Ok(key)
}
