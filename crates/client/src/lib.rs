#![doc = include_str!("../README.md")]

mod calls;
mod error;
mod key_store;
mod keyed_request;
mod lists;
mod objects;
mod requests;
mod retry;
mod sending;
pub mod transport;

pub use self::{
    calls::Request,
    error::{AttemptFailure, Error, GaveUp, Reason, Refusal},
    key_store::{FileKeyStore, Kept, KeyStore, KeyStoreError, Saved},
    keyed_request::KeyedRequest,
    lists::{ListQuery, Page},
    objects::*,
    requests::*,
    retry::{Clock, DEADLINE_MAX, RetryPolicy, SystemClock},
    sending::Reply,
};

use std::{collections::HashSet, fmt, sync::Arc, time::Duration};

use reqwest::{
    Url,
    header::{HeaderMap, HeaderName, HeaderValue},
};

use self::{
    keyed_request::abandoned_by,
    retry::Budget,
    sending::{Message, send},
};

const USER_AGENT: &str = concat!("charge-once-client/", env!("CARGO_PKG_VERSION"));

/// A client of one account on one service. Cheap to clone; clones share connections and the retry
/// budget.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    server: String,
    api_key: String,
    http: reqwest::Client,
    policy: RetryPolicy,
    give_up_within: Option<Duration>,
    budget: Budget,
    clock: Arc<dyn Clock>,
    store: Option<Arc<dyn KeyStore>>,
    on_retry: Option<Arc<OnRetry>>,
}

type OnRetry = dyn Fn(&Retry) + Send + Sync;

/// A pause that begins now, before another attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retry {
    /// How often it was sent so far.
    pub attempts: u32,
    /// How long the pause is.
    pub pause: Duration,
    /// How the last attempt ended.
    pub failure: AttemptFailure,
}

/// The outcome of an operation that was found in the store.
#[derive(Debug)]
pub enum Resumed {
    /// It was sent again; [`Error::is_outcome`] says which errors are an end.
    Sent {
        /// What was sent.
        operation: KeyedRequest,
        /// What came back.
        outcome: Result<Reply, Error>,
    },
    /// It was not sent: too old, or for another server. It stays in the store until a person has
    /// found out its outcome ([`Client::look_up_key`], lists) and calls [`Client::forget`].
    NotSent {
        /// What was not sent.
        operation: KeyedRequest,
        /// Why not.
        reason: &'static str,
    },
    /// The store holds something that can't be read, and keeps it.
    Corrupt {
        /// Where it is.
        place: String,
        /// What is wrong with it.
        reason: String,
    },
}

/// Sets a [`Client`] up.
#[must_use]
pub struct ClientBuilder {
    server: String,
    api_key: String,
    policy: RetryPolicy,
    give_up_within: Option<Duration>,
    clock: Arc<dyn Clock>,
    store: Option<Arc<dyn KeyStore>>,
    on_retry: Option<Arc<OnRetry>>,
    headers: Vec<(String, String)>,
}

impl ClientBuilder {
    /// Keeps operations until their outcome is known. Without one, an operation ends with the
    /// process, and its caller has to keep the key.
    pub fn key_store(mut self, store: impl KeyStore + 'static) -> Self {
        self.store = Some(Arc::new(store));
        self
    }

    /// Other limits than the default ones.
    pub fn retry_policy(mut self, policy: RetryPolicy) -> Self {
        self.policy = policy;
        self
    }

    /// A call that would end with [`Error::GaveUp`] first gives its key up, as [`Request::give_up`]
    /// does. That may take so long beyond the deadline, and as long again to ask for an outcome.
    /// Without it, the operation stays open, to be sent again.
    pub fn give_up_within(mut self, limit: Duration) -> Self {
        self.give_up_within = Some(limit);
        self
    }

    /// Called before each pause, to log or to show it.
    pub fn on_retry(mut self, observe: impl Fn(&Retry) + Send + Sync + 'static) -> Self {
        self.on_retry = Some(Arc::new(observe));
        self
    }

    /// A header that goes with every request besides the client's own, which it can't replace: for
    /// a trace, or to ask a server with `FAULTS` for a fault.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Another clock, for tests.
    pub fn clock(mut self, clock: impl Clock + 'static) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// The client. Nothing is sent yet.
    pub fn build(self) -> Result<Client, Error> {
        self.policy.check()?;
        if self
            .give_up_within
            .is_some_and(|limit| limit > DEADLINE_MAX)
        {
            let wrong = "giving up may take longer than an hour";
            return Err(Error::Unusable(wrong.to_owned()));
        }
        let http = http_client(headers(&self.headers)?)
            .map_err(|why| Error::Unusable(format!("HTTP client: {why}")))?;
        Ok(Client {
            inner: Arc::new(Inner {
                server: server(&self.server)?,
                api_key: self.api_key,
                http,
                budget: Budget::of(self.policy.budget),
                policy: self.policy,
                give_up_within: self.give_up_within,
                clock: self.clock,
                store: self.store,
                on_retry: self.on_retry,
            }),
        })
    }
}

/// The URL of a service, without a trailing slash.
fn server(text: &str) -> Result<String, Error> {
    let usable = Url::parse(text).is_ok_and(|url| {
        matches!(url.scheme(), "http" | "https")
            && url.username().is_empty()
            && url.password().is_none()
            && url.query().is_none()
            && url.fragment().is_none()
    });
    if usable {
        Ok(text.trim_end_matches('/').to_owned())
    } else {
        let why = "the service's URL must be http:// or https://, a host, and nothing secret";
        Err(Error::Unusable(why.to_owned()))
    }
}

/// The value is in no error: it may be a secret.
fn headers(given: &[(String, String)]) -> Result<HeaderMap, Error> {
    let mut headers = HeaderMap::new();
    for (name, value) in given {
        let unusable = || Error::Unusable(format!("{name:?} with this value is no header"));
        let value = HeaderValue::try_from(value).map_err(|_| unusable())?;
        let name = HeaderName::try_from(name).map_err(|_| unusable())?;
        headers.append(name, value);
    }
    Ok(headers)
}

fn http_client(
    headers: HeaderMap,
) -> Result<reqwest::Client, Box<dyn std::error::Error + Send + Sync>> {
    Ok(transport::http_client_builder()?
        .user_agent(USER_AGENT)
        .default_headers(headers)
        .build()?)
}

impl Client {
    /// For the account of `api_key` on the service at `server`, with or without `/v1`.
    pub fn builder(server: impl Into<String>, api_key: impl Into<String>) -> ClientBuilder {
        ClientBuilder {
            server: server.into(),
            api_key: api_key.into(),
            policy: RetryPolicy::default(),
            give_up_within: None,
            clock: Arc::new(SystemClock::default()),
            store: None,
            on_retry: None,
            headers: Vec::new(),
        }
    }

    /// Sends what earlier processes left unfinished, oldest first, each under its own key, or goes
    /// on to give it up. Call it at every start, before anything new.
    pub async fn resume(&self) -> Result<Vec<Resumed>, Error> {
        let kept = self.with_store(|store| store.unfinished()).await?;
        let kept = kept.unwrap_or_default();
        // What gives a key up goes with the operation of that key, where both are kept.
        let keys: HashSet<String> = kept.iter().filter_map(Kept::key).collect();
        let abandonments = kept.iter().filter_map(Kept::abandonment_key);
        let abandonments: HashSet<String> = abandonments.collect();
        let mut all = Vec::new();
        for kept in kept {
            let is_given_up = |key: String| keys.contains(&key);
            let is_given_up = kept.abandonment_key().is_some_and(is_given_up);
            all.push(match kept {
                Kept::Corrupt { place, reason } => Resumed::Corrupt { place, reason },
                Kept::Request(operation) if abandonments.contains(&operation.key) => continue,
                Kept::Request(operation) if operation.server != self.inner.server => {
                    let reason = "it is for another server";
                    Resumed::NotSent { operation, reason }
                }
                Kept::Request(operation) => {
                    let outcome = match is_given_up {
                        true => self.give_up(&operation).await,
                        false => self.execute(&operation, true).await,
                    };
                    match outcome {
                        Err(Error::Expired(_)) => {
                            let reason = "it is too old: its key may be forgotten";
                            Resumed::NotSent { operation, reason }
                        }
                        outcome => Resumed::Sent { operation, outcome },
                    }
                }
            });
        }
        Ok(all)
    }

    /// Removes an operation from the store, and what gives its key up. Only for one whose outcome
    /// was found by other means.
    pub async fn forget(&self, key: &str) -> Result<(), Error> {
        for key in [key.to_owned(), abandoned_by(key)] {
            self.with_store(move |store| store.remove(&key)).await?;
        }
        Ok(())
    }

    /// Writes the operation down, sends it until its outcome is known, and removes it from the
    /// store.
    async fn execute(&self, operation: &KeyedRequest, was_sent: bool) -> Result<Reply, Error> {
        let RetryPolicy { deadline, .. } = self.inner.policy;
        let longest = deadline + 2 * self.inner.give_up_within.unwrap_or_default();
        if !self.may_send(operation, longest) {
            return Err(Error::Expired(Box::new(operation.clone())));
        }
        let to_save = operation.clone();
        let saved = self.with_store(move |store| store.save(&to_save)).await?;
        // The one that was there is the same request, but older.
        let (operation, was_sent) = match &saved {
            Some(Saved::Found(found)) if !self.may_send(found, longest) => {
                return Err(Error::Expired(Box::new(found.clone())));
            }
            Some(Saved::Found(found)) => (found, true),
            Some(Saved::New) | None => (operation, was_sent),
        };
        let gives_up = self.inner.give_up_within.is_some() && !operation.is_abandonment();
        let change = Message::Change(operation);
        match send(&self.inner, &change, was_sent, deadline).await {
            Err(Error::GaveUp(unknown)) if unknown.sent && gives_up => {
                match self.give_up(operation).await {
                    // This says no more.
                    Err(error) if !error.is_outcome() => Err(Error::GaveUp(unknown)),
                    outcome => outcome,
                }
            }
            outcome => {
                // An earlier call may have failed to give its key up.
                let keys = [&operation.key, &abandoned_by(&operation.key)];
                self.settle(&outcome, keys).await;
                outcome
            }
        }
    }

    /// Gives the key of an operation up, and returns its outcome if it has one. Which key is to be
    /// given up is on disk before that is sent.
    async fn give_up(&self, operation: &KeyedRequest) -> Result<Reply, Error> {
        let limit = self.inner.give_up_within;
        let limit = limit.unwrap_or(self.inner.policy.deadline);
        if !self.may_send(operation, 2 * limit) {
            return Err(Error::Expired(Box::new(operation.clone())));
        }
        let abandonment = operation.abandonment()?;
        let to_save = abandonment.clone();
        self.with_store(move |store| store.save(&to_save)).await?;
        let reply = send(&self.inner, &Message::Change(&abandonment), true, limit).await;
        let given_up = reply.and_then(Reply::object::<KeyStatus>);
        let given_up = given_up.map_err(|error| error.of_giving_up(operation))?;
        let outcome = match &*given_up.status {
            "abandoned" => Err(Error::Abandoned),
            // It is recorded: this is a replay.
            "completed" => send(&self.inner, &Message::Change(operation), true, limit).await,
            other => {
                let error = Error::Unusable(format!("the key is {other}"));
                return Err(error.of_giving_up(operation));
            }
        };
        // In this order: what a crash leaves of both still gives up.
        self.settle(&outcome, [&operation.key, &abandonment.key])
            .await;
        outcome
    }

    /// Removes from the store what has an outcome now.
    async fn settle<const N: usize>(&self, outcome: &Result<Reply, Error>, keys: [&String; N]) {
        if !outcome.as_ref().map_or_else(Error::is_outcome, |_| true) {
            return;
        }
        for key in keys.map(String::clone) {
            if let Err(error) = self.with_store(move |store| store.remove(&key)).await {
                // The outcome matters more. A later `resume` gets it once more.
                tracing::warn!(%error, "an operation that is done stays in the key store");
                return;
            }
        }
    }

    fn may_send(&self, operation: &KeyedRequest, longest: Duration) -> bool {
        let now = self.inner.clock.unix_time();
        let policy = &self.inner.policy;
        policy.may_send(operation.created_at, now, longest)
    }

    /// Waits for a disk where waiting is allowed. `None` without a store.
    async fn with_store<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn KeyStore) -> Result<T, KeyStoreError> + Send + 'static,
    ) -> Result<Option<T>, Error> {
        let Some(store) = self.inner.store.clone() else {
            return Ok(None);
        };
        match tokio::task::spawn_blocking(move || work(store.as_ref())).await {
            Ok(done) => Ok(Some(done?)),
            Err(_) => Err(Error::Unusable("the key store panicked".to_owned())),
        }
    }
}

/// Without the API key.
impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("server", &self.inner.server)
            .field("policy", &self.inner.policy)
            .finish_non_exhaustive()
    }
}
