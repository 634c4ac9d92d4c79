//! Finds the account that a request speaks for.

use std::{collections::HashMap, hash::Hash, net::IpAddr, sync::Arc, time::Duration};

use base64::{Engine, prelude::BASE64_STANDARD};
use moka::sync::Cache;
use sqlx::PgPool;
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

use crate::api_keys::{Account, KeyHash, KeyShape, Stay, Strangers, find_accounts, hash};

/// How long a key that was found is believed without asking again.
pub const REMEMBERED_FOR: Duration = Duration::from_secs(5);

/// How long a key that was not found is refused without asking again: a client that keeps trying
/// costs nothing, and a key that is made meanwhile works soon.
const REFUSED_FOR: Duration = Duration::from_secs(2);

/// How long after its last use a key is still known to be an account's. It is looked up again all
/// the same, but does not queue with those that are unknown.
const KNOWN_FOR: Duration = Duration::from_secs(3600);

/// Entries in each of the memories; a hash or an id each, or both.
const KEYS_MAX: u64 = 10_000;

/// Where keys are looked up: a pool, or what an application has in its place.
pub trait KeyDatabase: Clone + Send + Sync + 'static {
    /// Why a statement failed. Each request that waited for it is told.
    type Error: Clone + Send + Sync + 'static;

    /// Runs [`find_accounts`]. `known`: there is one key, and it was this account's a while ago.
    /// Its share of the connections may be taken, and it needn't wait for those of strangers.
    fn find(
        &self,
        hashes: Vec<KeyHash>,
        known: Option<Account>,
    ) -> impl Future<Output = Result<HashMap<KeyHash, Account>, Self::Error>> + Send;
}

impl KeyDatabase for PgPool {
    type Error = Arc<sqlx::Error>;

    async fn find(
        &self,
        hashes: Vec<KeyHash>,
        _: Option<Account>,
    ) -> Result<HashMap<KeyHash, Account>, Self::Error> {
        let mut connection = self.acquire().await?;
        Ok(find_accounts(&mut connection, &hashes).await?)
    }
}

/// Why a request speaks for no account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal<E> {
    /// It has no API key. 401.
    Missing,
    /// Its key can't be read, doesn't exist, or was revoked. 401.
    Invalid,
    /// So many keys that are no one's came from its address. 429, for so long.
    TooMany(Duration),
    /// The key could not be looked up: nothing is known of it. 503.
    LookUp(E),
    /// Nor was there an answer in time. 503.
    TooSlow,
    /// The task that looks keys up has ended, with its runtime or by a panic. 500.
    Ended,
}

/// Looks API keys up. Cheap to clone; all clones share the memory.
#[derive(Clone)]
pub struct ApiKeys<D: KeyDatabase> {
    databases: Vec<D>,
    shape: KeyShape,
    remembered: Cache<KeyHash, Account>,
    refused: Cache<KeyHash, ()>,
    known: Cache<KeyHash, Account>,
    homes: Cache<Uuid, usize>,
    unknown: Strangers<KeyHash, Account, D::Error>,
}

impl<D: KeyDatabase> ApiKeys<D> {
    /// Looks keys of this shape up in `database`. With `limits_failures`, 20 keys in a second that
    /// are no one's may come from one address. Panics outside a Tokio runtime.
    pub fn of(database: D, shape: KeyShape, limits_failures: bool) -> Self {
        Self::of_several(vec![database], shape, limits_failures)
    }

    /// Looks keys up as [`ApiKeys::of`] does, in several databases, of which each has accounts of
    /// its own with their keys. A key that one of them has is found while others are down, and a
    /// key is refused as no one's only when all of them have said so. While one is down, a key that
    /// the others don't have counts as a failure, or it could be guessed without a limit meanwhile.
    /// Panics outside a Tokio runtime.
    pub fn of_several(databases: Vec<D>, shape: KeyShape, limits_failures: bool) -> Self {
        let asked = databases.iter().cloned().map(|database| {
            move |hashes| {
                let database = database.clone();
                async move { database.find(hashes, None).await }
            }
        });
        Self {
            unknown: Strangers::of(asked, limits_failures),
            databases,
            shape,
            remembered: memory(REMEMBERED_FOR),
            refused: memory(REFUSED_FOR),
            known: Cache::builder()
                .max_capacity(KEYS_MAX)
                .time_to_idle(KNOWN_FOR)
                .build(),
            homes: memory(REMEMBERED_FOR),
        }
    }

    /// The account that a request speaks for, by `Authorization: Bearer` (RFC 6750) or Basic (RFC
    /// 7617) with the key as the user name and an empty password. `authorization`: the values of
    /// all such headers, where one that is no text is empty. `client` is who sent it. Gives up at
    /// `until`.
    pub async fn authenticate<'a>(
        &self,
        authorization: impl IntoIterator<Item = &'a str>,
        client: Option<IpAddr>,
        until: Instant,
    ) -> Result<Account, Refusal<D::Error>> {
        self.account_of(&only_key(authorization)?, client, until)
            .await
    }

    /// The account that a request speaks for, as [`ApiKeys::authenticate`] finds it, if it is known
    /// to speak for one. That it is no one's is not counted: the request is authenticated later.
    pub async fn find_of<'a>(
        &self,
        authorization: impl IntoIterator<Item = &'a str>,
        client: Option<IpAddr>,
        until: Instant,
    ) -> Result<Option<Account>, Refusal<D::Error>> {
        match only_key::<D::Error>(authorization) {
            Ok(key) => self.find(&key, client, until).await,
            Err(_) => Ok(None),
        }
    }

    /// The account that an API key speaks for, wherever it was given. `client` is who sent it.
    /// Gives up at `until`.
    pub async fn account_of(
        &self,
        key: &str,
        client: Option<IpAddr>,
        until: Instant,
    ) -> Result<Account, Refusal<D::Error>> {
        let found = self.find(key, client, until).await?;
        // Only now: an account's key is never refused for what its address did before.
        found.ok_or_else(|| match self.unknown.may_guess(client) {
            Ok(()) => Refusal::Invalid,
            Err(wait) => Refusal::TooMany(wait),
        })
    }

    /// The database of an account that a key was found for within [`REMEMBERED_FOR`].
    pub fn home_of(&self, account: Uuid) -> Option<usize> {
        self.homes.get(&account)
    }

    /// Looks the key of a request up anew: its account may have moved.
    pub fn forget<'a>(&self, authorization: impl IntoIterator<Item = &'a str>) {
        if let Ok(key) = only_key::<D::Error>(authorization)
            && let Some(account) = self.remembered.remove(&hash(&key))
        {
            self.homes.invalidate(&account.id);
        }
    }

    async fn find(
        &self,
        key: &str,
        client: Option<IpAddr>,
        until: Instant,
    ) -> Result<Option<Account>, Refusal<D::Error>> {
        if !self.shape.fits(key) {
            return Ok(None);
        }
        let hash = hash(key);
        if let Some(account) = self.remembered.get(&hash) {
            return Ok(Some(account));
        }
        if self.refused.contains_key(&hash) {
            return Ok(None);
        }
        let mut found = None;
        let known = self.known.get(&hash);
        if let Some(account) = known
            && let Some(database) = self.databases.get(account.database)
        {
            let asked = timeout_at(until, database.find(vec![hash], Some(account))).await;
            let asked = asked.map_err(|_| Refusal::TooSlow)?;
            found = asked.map_err(Refusal::LookUp)?.remove(&hash);
            found = found.map(|found| Account {
                database: account.database,
                ..found
            });
        }
        if found.is_none() && (known.is_none() || self.databases.len() > 1) {
            let asked = self.unknown.find(hash, client, until).await?;
            found = asked.map(|(database, found)| Account { database, ..found });
        }
        if let Some(account) = found.filter(|found| found.stay == Stay::Leaving) {
            let elsewhere = timeout_at(until, self.find_elsewhere(hash, account)).await;
            found = Some(elsewhere.ok().flatten().ok_or(Refusal::TooSlow)?);
        }
        if let Some(account) = found {
            if account.stay == Stay::Settled {
                self.remembered.insert(hash, account);
                self.homes.insert(account.id, account.database);
            }
            self.known.insert(hash, account);
        } else {
            self.known.invalidate(&hash);
            self.refused.insert(hash, ());
        }
        Ok(found)
    }

    /// Where an account is that may have left its database, once another one has it.
    async fn find_elsewhere(&self, hash: KeyHash, left: Account) -> Option<Account> {
        let databases = self.databases.iter().enumerate();
        for (number, database) in databases.filter(|(number, _)| *number != left.database) {
            if let Ok(found) = database.find(vec![hash], Some(left)).await
                && let Some(found) = found.get(&hash).filter(|it| it.stay != Stay::Leaving)
            {
                return Some(Account {
                    database: number,
                    ..*found
                });
            }
        }
        None
    }
}

/// Forgets each entry after that time.
fn memory<K, V>(time_to_live: Duration) -> Cache<K, V>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    let memory = Cache::builder().max_capacity(KEYS_MAX);
    memory.time_to_live(time_to_live).build()
}

/// The key of a request with one `Authorization` header.
fn only_key<'a, E>(values: impl IntoIterator<Item = &'a str>) -> Result<String, Refusal<E>> {
    let mut values = values.into_iter();
    let value = values.next().ok_or(Refusal::Missing)?;
    match values.next() {
        None => key_of(value).ok_or(Refusal::Invalid),
        Some(_) => Err(Refusal::Invalid),
    }
}

/// The key in the value of an `Authorization` header, as
/// [`authenticate`](ApiKeys::authenticate) reads it.
pub fn key_of(value: &str) -> Option<String> {
    let (scheme, credentials) = value.split_once(' ')?;
    let credentials = credentials.trim();
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(credentials.to_owned());
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = String::from_utf8(BASE64_STANDARD.decode(credentials).ok()?).ok()?;
    match decoded.split_once(':') {
        Some((key, "")) => Some(key.to_owned()),
        Some(_) | None => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    };

    use super::*;
    use crate::api_keys::strangers::{BATCH_MAX, PAUSE};

    const SHAPE: KeyShape = KeyShape::with_prefix("sk_test_");
    const KEY: &str = "sk_test_12345678";
    /// Far enough away.
    fn later() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    const ACCOUNT: Account = Account {
        id: Uuid::from_u128(7),
        is_test: false,
        database: 0,
        stay: Stay::Settled,
    };

    /// Knows one key or none, and how many each statement asked for.
    #[derive(Clone)]
    struct OneKey {
        is_down: Arc<AtomicBool>,
        has_key: bool,
        asked: Arc<Mutex<Vec<usize>>>,
    }

    impl OneKey {
        fn new(is_down: bool, has_key: bool) -> Self {
            Self {
                is_down: Arc::new(is_down.into()),
                has_key,
                asked: Arc::default(),
            }
        }

        fn statements(&self) -> Vec<usize> {
            let asked = self.asked.lock();
            asked.map(|asked| asked.clone()).unwrap_or_default()
        }
    }

    impl KeyDatabase for OneKey {
        type Error = &'static str;

        async fn find(
            &self,
            hashes: Vec<KeyHash>,
            _: Option<Account>,
        ) -> Result<HashMap<KeyHash, Account>, Self::Error> {
            if self.is_down.load(Ordering::SeqCst) {
                return Err("down");
            }
            let mut asked = self.asked.lock().map_err(|_| "it panicked")?;
            asked.push(hashes.len());
            let is_found = |found: &KeyHash| self.has_key && *found == hash(KEY);
            let found = hashes.into_iter().filter(is_found);
            Ok(found.map(|hash| (hash, ACCOUNT)).collect())
        }
    }

    #[tokio::test]
    async fn a_key_is_given_as_a_bearer_or_as_a_user_without_a_password() {
        let keys = ApiKeys::of(OneKey::new(false, true), SHAPE, false);
        let basic = |text: &str| format!("basic {}", BASE64_STANDARD.encode(text));
        for good in [
            format!("Bearer {KEY}"),
            format!("bearer   {KEY} "),
            basic(&format!("{KEY}:")),
        ] {
            let found = keys.authenticate([&*good], None, later()).await;
            assert_eq!(found, Ok(ACCOUNT));
        }
        let bad = [
            String::new(),
            KEY.to_owned(),
            format!("Digest {KEY}"),
            basic(KEY),
            basic(&format!("{KEY}:password")),
            "Basic ?".to_owned(),
        ];
        for bad in &bad {
            let refused = keys.authenticate([&**bad], None, later()).await;
            assert_eq!(refused, Err(Refusal::Invalid), "{bad}");
        }
        let refused = keys.authenticate([], None, later()).await;
        assert_eq!(refused, Err(Refusal::Missing));
        let twice = format!("Bearer {KEY}");
        let refused = keys.authenticate([&*twice, &*twice], None, later()).await;
        assert_eq!(refused, Err(Refusal::Invalid));
    }

    #[tokio::test]
    async fn strangers_share_statements_and_a_key_is_remembered() {
        let database = OneKey::new(false, true);
        let keys = ApiKeys::of(database.clone(), SHAPE, false);
        let began = std::time::Instant::now();
        for _ in 0..3 {
            assert_eq!(keys.account_of(KEY, None, later()).await, Ok(ACCOUNT));
            let refused = keys.account_of("sk_test_stranger", None, later()).await;
            assert_eq!(refused, Err(Refusal::Invalid));
        }
        if began.elapsed() < REFUSED_FOR {
            assert_eq!(database.statements(), [1, 1]);
        }

        let mut waiting = tokio::task::JoinSet::new();
        for number in 0..2 * BATCH_MAX {
            let keys = keys.clone();
            let stranger = format!("sk_test_stranger_{number}");
            waiting.spawn(async move { keys.account_of(&stranger, None, later()).await });
        }
        while let Some(refused) = waiting.join_next().await {
            assert!(matches!(refused, Ok(Err(Refusal::Invalid))), "{refused:?}");
        }
        let statements = database.statements().len() - 2;
        let most = began.elapsed().as_millis() / PAUSE.as_millis() + 1;
        assert!(statements < BATCH_MAX, "{statements}");
        assert!(statements as u128 <= most, "{statements}, {most}");
    }

    #[tokio::test]
    async fn a_key_is_no_one_s_only_when_each_database_says_so() {
        let database = OneKey::new;
        let theirs = Account {
            database: 1,
            ..ACCOUNT
        };
        let (empty, down) = (|| database(false, false), || database(true, false));
        let full = || database(false, true);
        for (first, second, expected) in [
            (empty(), full(), Ok(theirs)),
            (down(), full(), Ok(theirs)),
            (full(), down(), Ok(ACCOUNT)),
            (empty(), empty(), Err(Refusal::Invalid)),
            (down(), empty(), Err(Refusal::LookUp("down"))),
        ] {
            let keys = ApiKeys::of_several(vec![first, second], SHAPE, false);
            assert_eq!(keys.account_of(KEY, None, later()).await, expected);
        }
    }

    #[tokio::test]
    async fn an_address_that_guesses_keys_is_limited_and_an_account_s_key_is_not() {
        let client = Some(IpAddr::from([192, 0, 2, 7]));
        for limits_failures in [true, false] {
            let keys = ApiKeys::of(OneKey::new(false, true), SHAPE, limits_failures);
            let mut last = Ok(ACCOUNT);
            for _ in 0..1000 {
                last = keys.account_of("guess", client, later()).await;
            }
            match limits_failures {
                true => assert!(matches!(last, Err(Refusal::TooMany(_))), "{last:?}"),
                false => assert_eq!(last, Err(Refusal::Invalid)),
            }
            assert_eq!(keys.account_of(KEY, client, later()).await, Ok(ACCOUNT));
        }
    }

    #[tokio::test]
    async fn while_a_database_is_down_guesses_are_counted_and_its_accounts_are_not_refused() {
        let client = Some(IpAddr::from([192, 0, 2, 7]));
        let (up, other) = (OneKey::new(false, false), OneKey::new(false, true));
        let down = Arc::clone(&other.is_down);
        let keys = ApiKeys::of_several(vec![up.clone(), other], SHAPE, true);
        assert!(keys.account_of(KEY, client, later()).await.is_ok());
        down.store(true, Ordering::SeqCst);
        keys.remembered.invalidate_all();
        let guess = async |number: usize| {
            let guess = format!("sk_test_a_guess_{number}");
            keys.account_of(&guess, client, later()).await
        };
        assert_eq!(guess(0).await, Err(Refusal::LookUp("down")));
        let mut refused = 0;
        for number in 1..100 {
            refused += usize::from(matches!(guess(number).await, Err(Refusal::TooMany(_))));
        }
        assert!(refused > 0);
        let known = keys.account_of(KEY, client, later()).await;
        assert_eq!(known, Err(Refusal::LookUp("down")));

        // Nothing tells a guess from a key while none of them answers.
        up.is_down.store(true, Ordering::SeqCst);
        assert_eq!(guess(100).await, Err(Refusal::LookUp("down")));
    }
}
