//! Finds the account that a request speaks for, or the page that a card's holder asks for, and
//! limits how often they may ask.
//!
//! Promise: an API key is compared by its hash and never stored or logged. A revoked key stops
//! working within [`charge_once_postgres::api_keys::REMEMBERED_FOR`], and so does a key of a test
//! account that has ended.

use std::{collections::HashMap, net::IpAddr, num::NonZeroU32, sync::Arc, time::Duration};

use actix_web::http::header::{AUTHORIZATION, HeaderMap};
use charge_once_postgres::api_keys::{
    self as api_keys, KeyHash, RateLimit, Refusal, Stay, Strangers, find_moving, names_of_accounts,
};
use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::time::{Instant, timeout_at};

use super::error::HttpError;
use crate::{
    database::{Database, PgConnection, Reading},
    domain::{
        account::Account,
        api_key::{API_KEY, is_of_test_mode, is_publishable},
        ids::AccountId,
    },
    idempotency::Failure,
    store::holder_pages::{self, AskedPage},
    wire::error::{ApiError, ErrorCode},
};

/// Looks up API keys and holders' pages, and counts requests. Cheap to clone; all clones share the
/// memory.
#[derive(Clone)]
pub struct ApiKeys {
    databases: Arc<[Database]>,
    keys: api_keys::ApiKeys<Accounts>,
    /// The key that stands in for each key of test mode that is no account's, if any does.
    stand_in: Option<Arc<str>>,
    pages: Strangers<AskedPage, Stay, Failure>,
    rate_limit: RateLimit<AccountId>,
}

impl ApiKeys {
    /// Looks API keys and pages up in all `databases`. Without a `rate_limit` for accounts,
    /// requests with unknown ones have no limit either. With a `stand_in`, an unknown key of test
    /// mode opens that key's account. Panics outside a Tokio runtime.
    pub fn of(
        databases: Vec<Database>,
        rate_limit: Option<NonZeroU32>,
        stand_in: Option<Arc<str>>,
    ) -> Self {
        let limits_failures = rate_limit.is_some();
        let several = databases.len() > 1;
        let accounts = databases.iter().cloned();
        let accounts = accounts
            .map(|database| Accounts { database, several })
            .collect();
        let pages = databases.iter().cloned().map(|database| {
            move |asked| {
                let database = database.clone();
                async move {
                    let found = database.read(move |tx| find_pages(tx, asked, several));
                    Ok(found.await?)
                }
            }
        });
        Self {
            pages: Strangers::of(pages, limits_failures),
            databases: databases.into(),
            stand_in,
            keys: api_keys::ApiKeys::of_several(accounts, API_KEY, limits_failures),
            rate_limit: RateLimit::new(rate_limit),
        }
    }

    /// The database of the account that a request speaks for, by its `Authorization`. `None`: it
    /// speaks for no account, and is refused where it must. `client` is who sent it. Gives up at
    /// `until`: a look-up that takes longer leaves the work too little time.
    pub async fn home_of_request(
        &self,
        headers: &HeaderMap,
        client: Option<IpAddr>,
        until: Instant,
    ) -> Result<Option<usize>, HttpError> {
        if let Some(key) = self.stand_in(headers, client, until).await? {
            let account = self.account_of(key, client, until).await?;
            return Ok(Some(account.database));
        }
        let found = self.keys.find_of(authorization(headers), client, until);
        let found = found.await.map_err(|refusal| refused(refusal, ""))?;
        Ok(found.map(|account| account.database))
    }

    /// Looks for the account of a request anew: it may have moved.
    pub fn forget_home(&self, headers: &HeaderMap) {
        self.keys.forget(authorization(headers));
        let stand_in = self.stand_in.iter();
        stand_in.for_each(|key| self.keys.forget([&*format!("Bearer {key}")]));
    }

    /// The database in which an account lives. `None`: there is no such account.
    pub async fn home_of(&self, account: AccountId) -> Result<Option<usize>, HttpError> {
        if let [_] = *self.databases {
            return Ok(Some(0));
        }
        if let Some(home) = self.keys.home_of(account.0) {
            return Ok(Some(home));
        }
        let databases = self.databases.iter().enumerate();
        let mut asked: FuturesUnordered<_> = databases
            .map(|(number, database)| async move {
                let found = database.read(move |connection| {
                    Box::pin(async move { names_of_accounts(connection, &[account.0]).await })
                });
                (number, found.await.map(|names| !names.is_empty()))
            })
            .collect();
        let mut failed = None;
        while let Some((number, lives_there)) = asked.next().await {
            match lives_there {
                Ok(true) => return Ok(Some(number)),
                Ok(false) => {}
                Err(error) => failed = Some(HttpError::failed_without_key(error)),
            }
        }
        failed.map_or(Ok(None), Err)
    }

    /// The account that a request speaks for, by its `Authorization`. Gives up at `until`.
    pub async fn authenticate(
        &self,
        headers: &HeaderMap,
        client: Option<IpAddr>,
        until: Instant,
    ) -> Result<Account, HttpError> {
        if let Some(key) = self.stand_in(headers, client, until).await? {
            return self.account_of(key, client, until).await;
        }
        let given = authorization(headers);
        let found = self.keys.authenticate(given, client, until).await;
        found.map(Account::from).map_err(|refusal| {
            let first = authorization(headers).next();
            let key = first.and_then(api_keys::key_of).unwrap_or_default();
            refused(refusal, &key)
        })
    }

    /// The key that stands in for that of a request, where `ANY_TEST_KEY` lets one.
    async fn stand_in(
        &self,
        headers: &HeaderMap,
        client: Option<IpAddr>,
        until: Instant,
    ) -> Result<Option<&str>, HttpError> {
        let mut given = authorization(headers);
        let (Some(stand_in), Some(value), None) = (&self.stand_in, given.next(), given.next())
        else {
            return Ok(None);
        };
        if !api_keys::key_of(value).is_some_and(|key| is_of_test_mode(&key)) {
            return Ok(None);
        }
        let found = self.keys.find_of([value], client, until).await;
        let found = found.map_err(|refusal| refused(refusal, ""))?;
        Ok(found.is_none().then_some(&**stand_in))
    }

    /// The account that an API key speaks for, wherever it was given. `client` is who sent it.
    /// Gives up at `until`.
    pub async fn account_of(
        &self,
        key: &str,
        client: Option<IpAddr>,
        until: Instant,
    ) -> Result<Account, HttpError> {
        let found = self.keys.account_of(key, client, until).await;
        let found = found.map_err(|refusal| refused(refusal, key));
        found.map(Account::from)
    }

    /// The database that has a page. `None`: none has it, which
    /// [`check_stranger`](Self::check_stranger) is to count. Gives up at `until`.
    pub async fn home_of_page(
        &self,
        asked: AskedPage,
        client: Option<IpAddr>,
        until: Instant,
    ) -> Result<Option<usize>, HttpError> {
        let found = self.pages.find(asked.clone(), client, until).await;
        let found = found.map_err(|refusal| {
            if let Refusal::TooMany(wait) = refusal {
                too_many_guesses(wait)
            } else {
                refused(refusal, "")
            }
        })?;
        match found {
            Some((left, Stay::Leaving)) => {
                let elsewhere = timeout_at(until, self.find_page_elsewhere(asked, left)).await;
                // The page is needed, although neither database serves it yet.
                let moves = || Failure::unavailable("the account of a page moves just now");
                let found = elsewhere.ok().flatten();
                let found = found.ok_or_else(|| HttpError::failed_without_key(moves()))?;
                Ok(Some(found))
            }
            _ => Ok(found.map(|(database, _)| database)),
        }
    }

    /// The database that has a page whose account leaves `left`, once the account is open there.
    async fn find_page_elsewhere(&self, asked: AskedPage, left: usize) -> Option<usize> {
        let databases = self.databases.iter().enumerate();
        for (number, database) in databases.filter(|(number, _)| *number != left) {
            let asked = vec![asked.clone()];
            let found = database.read(move |connection| find_pages(connection, asked, true));
            if let Ok(found) = found.await
                && found.into_values().any(|stay| stay != Stay::Leaving)
            {
                return Some(number);
            }
        }
        None
    }

    /// Counts the request of a client for a page that isn't there, or refuses it.
    pub fn check_stranger(&self, client: Option<IpAddr>) -> Result<(), HttpError> {
        self.pages.may_guess(client).map_err(too_many_guesses)
    }

    /// Counts a request of `account`, or refuses it.
    pub fn check_rate(&self, account: AccountId) -> Result<(), HttpError> {
        let checked = self.rate_limit.check(account);
        checked.map_err(|wait| limited(ApiError::explained(ErrorCode::RateLimited), wait))
    }
}

fn limited(error: ApiError, wait: Duration) -> HttpError {
    HttpError::from(error).after(Some(wait))
}

fn too_many_guesses(wait: Duration) -> HttpError {
    let message = "Too many requests for pages that don't exist came from this address. Retry after \
                   Retry-After.";
    limited(ApiError::new(ErrorCode::RateLimited, message), wait)
}

fn authorization(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(AUTHORIZATION);
    values.map(|value| value.to_str().unwrap_or_default())
}

/// The pages of accounts that live here, and whether these stay. While an account moves, both homes
/// have its intents.
fn find_pages(
    connection: &mut PgConnection,
    asked: Vec<AskedPage>,
    several: bool,
) -> Reading<'_, HashMap<AskedPage, Stay>> {
    Box::pin(async move {
        let found = holder_pages::find_all(&mut *connection, asked).await?;
        let found = found.into_keys().map(|page| (page, Stay::Settled));
        let mut found: HashMap<_, _> = found.collect();
        if several && !found.is_empty() {
            let accounts: Vec<_> = found.keys().map(|page| page.account.0).collect();
            let living = names_of_accounts(&mut *connection, &accounts).await?;
            let moving = find_moving(connection, &accounts).await?;
            found.retain(|AskedPage { account, .. }, stay| {
                *stay = moving.get(&account.0).copied().unwrap_or_default();
                living.contains_key(&account.0)
            });
        }
        Ok(found)
    })
}

/// Where keys are looked up.
#[derive(Clone)]
struct Accounts {
    database: Database,
    /// Whether there are others, to which an account may move.
    several: bool,
}

impl api_keys::KeyDatabase for Accounts {
    type Error = Failure;

    async fn find(
        &self,
        hashes: Vec<KeyHash>,
        known: Option<api_keys::Account>,
    ) -> Result<HashMap<KeyHash, api_keys::Account>, Failure> {
        let Self { database, several } = self.clone();
        let database = known.map_or(database.clone(), |account| database.of(account.id));
        let found = database.read(move |connection| {
            Box::pin(async move {
                let mut found = api_keys::find_accounts(connection, &hashes).await?;
                if several && !found.is_empty() {
                    let accounts: Vec<_> = found.values().map(|account| account.id).collect();
                    let moving = find_moving(connection, &accounts).await?;
                    for account in found.values_mut() {
                        account.stay = moving.get(&account.id).copied().unwrap_or_default();
                    }
                }
                Ok(found)
            })
        });
        Ok(found.await?)
    }
}

fn refused(refusal: Refusal<Failure>, key: &str) -> HttpError {
    match refusal {
        Refusal::Missing => ApiError::explained(ErrorCode::ApiKeyMissing).into(),
        Refusal::Invalid if is_publishable(key) => ApiError::new(
            ErrorCode::ApiKeyInvalid,
            "Publishable keys aren't offered: confirm from your server.",
        )
        .into(),
        Refusal::Invalid => ApiError::explained(ErrorCode::ApiKeyInvalid).into(),
        Refusal::TooMany(wait) => {
            let message = "Too many requests with an API key that no account is known to have came \
                           from this address. Check the key, and retry after Retry-After. Nothing \
                           was done.";
            limited(ApiError::new(ErrorCode::RateLimited, message), wait)
        }
        Refusal::TooSlow => HttpError::failed_without_key(Failure::unavailable(
            "the look-up of an API key or a page takes too long",
        )),
        Refusal::LookUp(failure) => HttpError::failed_without_key(failure),
        Refusal::Ended => HttpError::failed_without_key(Failure::internal(
            "the task that looks up API keys or pages has ended",
        )),
    }
}
