//! The API under test: how it is asked, what it answers, and how many effects it has made.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    process::Stdio,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use futures_util::{StreamExt, TryStreamExt, stream};
use reqwest::{
    Body, Client, Method, Request, Url,
    header::{CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue},
    redirect::Policy,
};
use serde_json::Value;
use tokio::process::Command;

use crate::{
    checks::{Check, Fault, Flaw, Severity, cost, quoted, unknown},
    config::{Config, ConfigError, Count, KeyIn, Template, addresses_of, fill, unique},
    history::History,
    proxy::{CutAt, Loss, Proxy},
    report::Finding,
};

/// Where the service runs.
#[derive(Debug, Clone)]
pub struct Service {
    /// Its URL, below which all paths are.
    pub url: Url,
    /// Other processes on the same database.
    pub replicas: Vec<Url>,
    /// How its process at `url` is killed.
    pub crash: Option<Crash>,
}

/// Commands that end the service and start it again.
#[derive(Debug, Clone)]
pub struct Crash {
    /// Ends it as a crash does: `kill -9`.
    pub kill: String,
    /// Starts it, and returns.
    pub start: String,
}

#[derive(Debug)]
pub(crate) struct Api {
    pub(crate) config: Config,
    pub(crate) service: Service,
    pub(crate) history: History,
    http: Client,
    numbers: AtomicU32,
    /// Requests whose effects were as many as is right, with what is counted then.
    counted: Mutex<Vec<(Ask, u64)>>,
    /// The checks that have found something, and what it costs.
    found: Mutex<Vec<(&'static Check, &'static str)>>,
}

/// A request under a key. Every attempt sends the same.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(crate) template: Template,
    /// What tells it from all other requests.
    pub(crate) number: u32,
    pub(crate) credential: String,
    /// Usually one. Each is sent as a header of its own.
    pub(crate) keys: Vec<String>,
    /// Its JSON in another order of members, with other whitespace.
    pub(crate) is_respelled: bool,
    /// When the event of a delivery was made, in unix seconds.
    created: u64,
    /// How many seconds ago it is signed.
    age: u64,
}

impl Ask {
    /// Empty if it has none.
    pub(crate) fn key(&self) -> &str {
        self.keys.first().map_or("", String::as_str)
    }

    /// Its method and its path, without what may hold a secret.
    pub(crate) fn asked(&self) -> String {
        let method = self.template.method.as_deref().unwrap_or("POST");
        let path = self.template.path.as_deref().unwrap_or("/");
        let path = path.split('?').next().unwrap_or_default();
        let path = fill(path, self.number, "{{credential}}");
        format!("{method} {path}")
    }

    pub(crate) fn with_keys(self, keys: Vec<String>) -> Self {
        Self { keys, ..self }
    }

    pub(crate) fn created_before(self, seconds: u64) -> Self {
        let created = self.created - seconds;
        Self { created, ..self }
    }

    pub(crate) fn signed_before(self, seconds: u64) -> Self {
        let age = seconds;
        Self { age, ..self }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
    /// What a replay must have in common with it.
    pub(crate) outcome: Vec<u8>,
}

impl Reply {
    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    pub(crate) fn is_refusal(&self) -> bool {
        (400..500).contains(&self.status)
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    pub(crate) fn is_same_outcome(&self, other: &Self) -> bool {
        self.outcome == other.outcome
    }
}

impl std::fmt::Display for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.status, quoted(&self.body))
    }
}

impl Api {
    pub(crate) fn new(config: Config, service: Service) -> Result<Self, ConfigError> {
        // Another part of the process may have chosen a provider before.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = Client::builder()
            .no_proxy()
            .redirect(Policy::none())
            // A connection for each request: one that an earlier check has cut must fail no later
            // one.
            .pool_max_idle_per_host(0)
            .timeout(config.patience() + Duration::from_secs(5))
            .build()
            .map_err(|error| ConfigError(error.to_string()))?;
        Ok(Self {
            history: History::without(config.secrets.clone()),
            config,
            service,
            http,
            numbers: AtomicU32::new(rand::random::<u32>() >> 1),
            counted: Mutex::default(),
            found: Mutex::default(),
        })
    }

    /// The request of a template, new, under a new key.
    pub(crate) fn ask(&self, template: &Template) -> Ask {
        let number = (self.numbers.fetch_add(1, Ordering::Relaxed) & 0x7fff_ffff).max(1);
        Ask {
            template: template.over(&self.config.effect),
            number,
            credential: self.config.accounts.credential.clone(),
            keys: vec![self.key()],
            is_respelled: false,
            created: unix_now(),
            age: 0,
        }
    }

    pub(crate) fn effect(&self) -> Ask {
        self.ask(&self.config.effect)
    }

    pub(crate) fn rival(&self, ask: &Ask) -> Result<Ask, Flaw> {
        let other = given(self.config.other.as_ref(), "other")?;
        Ok(self.ask(other).with_keys(ask.keys.clone()))
    }

    pub(crate) fn key(&self) -> String {
        // A UUID of version 4: some APIs take nothing else.
        let random = rand::random::<u128>() & !(0xf000 << 64 | 0xc000 << 48);
        let hex = format!("{:032x}", random | 0x4000 << 64 | 0x8000 << 48);
        let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| hex.get(part));
        parts.map(Option::unwrap_or_default).join("-")
    }

    pub(crate) fn url(&self) -> &Url {
        &self.service.url
    }

    /// The URL of each replica in turn, without an end.
    pub(crate) fn each_url(&self) -> impl Iterator<Item = &Url> {
        let first = std::iter::once(self.url());
        first.chain(&self.service.replicas).cycle()
    }

    /// Makes one attempt. An error says why there was no reply.
    pub(crate) async fn attempt(&self, ask: &Ask, url: &Url) -> Result<Reply, String> {
        let sending = self.exchange(self.request(ask, url)?);
        self.history.record(ask, sending).await
    }

    /// Prepares to lose replies.
    pub(crate) async fn losing(&self, cut: CutAt) -> Result<Loss, Flaw> {
        if self.url().scheme() == "http" {
            let target = self.plain_address().await?;
            return Proxy::start(target, cut).await.map(Loss::Proxy);
        }
        let began = Instant::now();
        self.document("/").await.map_err(Flaw::Unknown)?;
        Ok(Loss::Client(cut, began.elapsed()))
    }

    /// As `attempt`, and the reply is lost.
    pub(crate) async fn attempt_losing(&self, ask: &Ask, loss: &Loss) -> Result<Reply, String> {
        let mut request = self.request(ask, self.url())?;
        let lost = || "it was lost on purpose".to_owned();
        let sending = async {
            match loss {
                Loss::Proxy(proxy) => {
                    let host = HeaderValue::try_from(authority(self.url())).map_err(text_of)?;
                    request.headers_mut().insert(HOST, host);
                    let _ = request.url_mut().set_ip_host(proxy.address.ip());
                    let _ = request.url_mut().set_port(Some(proxy.address.port()));
                    self.exchange(request).await.map_err(|_| lost())
                }
                Loss::Client(CutAt::Reply, _) => {
                    let _ = self.http.execute(request).await;
                    Err(lost())
                }
                Loss::Client(CutAt::After(stays), connecting) => {
                    let sending = self.http.execute(request);
                    let _ = tokio::time::timeout(*connecting + *stays, sending).await;
                    Err(lost())
                }
            }
        };
        self.history.record(ask, sending).await
    }

    async fn exchange(&self, request: Request) -> Result<Reply, String> {
        let executing = self.http.execute(request);
        let response = executing.await.map_err(why)?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let body = response.bytes().await.map_err(why)?.to_vec();
        Ok(Reply {
            outcome: self.config.promises.outcome(status, &body),
            status,
            headers,
            body,
        })
    }

    fn request(&self, ask: &Ask, url: &Url) -> Result<Request, String> {
        let created = ask.created.to_string();
        let filled =
            |text: &str| fill(text, ask.number, &ask.credential).replace("{{created}}", &created);
        let template = &ask.template;
        let method = template.method.as_deref().unwrap_or("POST");
        let method = Method::from_bytes(method.as_bytes()).map_err(text_of)?;
        let mut path = filled(template.path.as_deref().unwrap_or("/"));
        let mut body = filled(template.body().unwrap_or_default());
        if ask.is_respelled {
            body = respelled(&body);
        }
        let (place, key_name) = (self.config.promises.key_in, &self.config.promises.key_name);
        let (mut is_json, mut is_form) = (template.json.is_some(), template.form.is_some());
        for key in &ask.keys {
            match place {
                KeyIn::Header => {}
                KeyIn::Query => {
                    let mark = if path.contains('?') { "&" } else { "?" };
                    path = format!("{path}{mark}{}", pair(key_name, key));
                }
                KeyIn::Form => {
                    is_form = true;
                    let mark = if body.is_empty() { "" } else { "&" };
                    body = format!("{body}{mark}{}", pair(key_name, key));
                }
                KeyIn::Json => {
                    is_json = true;
                    body = with_member(&body, key_name, key);
                }
            }
        }
        let mut request = Request::new(method, below(url, &path));
        let headers = request.headers_mut();
        if is_json {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        } else if is_form {
            let form = HeaderValue::from_static("application/x-www-form-urlencoded");
            headers.insert(CONTENT_TYPE, form);
        }
        let value = |text: &str| HeaderValue::from_bytes(text.as_bytes()).map_err(text_of);
        for (name, text) in &template.headers {
            let name = HeaderName::try_from(name).map_err(text_of)?;
            headers.insert(name, value(&filled(text))?);
        }
        if place == KeyIn::Header {
            let name = HeaderName::try_from(key_name).map_err(text_of)?;
            for key in &ask.keys {
                headers.append(name.clone(), value(key)?);
            }
        }
        if let Some(scheme) = self.config.scheme {
            let t = unix_now() - ask.age;
            for (name, text) in scheme.headers(&ask.credential, ask.key(), t, &body) {
                headers.insert(name, value(&text)?);
            }
        }
        *request.body_mut() = Some(body.into());
        Ok(request)
    }

    /// The request as HTTP/1.1 writes it, for connections that end in the middle of it.
    pub(crate) fn bytes(&self, ask: &Ask) -> Result<Vec<u8>, Flaw> {
        let request = self.request(ask, self.url()).map_err(Flaw::Unknown)?;
        let (url, method) = (request.url(), request.method());
        let query = url.query().map(|query| format!("?{query}"));
        let (path, query, host) = (url.path(), query.unwrap_or_default(), authority(url));
        let mut bytes = format!("{method} {path}{query} HTTP/1.1\r\nHost: {host}\r\n").into_bytes();
        for (name, value) in request.headers() {
            bytes.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
        }
        let body = request.body().and_then(Body::as_bytes).unwrap_or_default();
        bytes.extend(format!("Content-Length: {}\r\n\r\n", body.len()).bytes());
        bytes.extend(body);
        Ok(bytes)
    }

    /// Asks for a document at the root of the host, as one without credentials.
    pub(crate) async fn document(&self, path: &str) -> Result<Reply, String> {
        let mut url = self.url().clone();
        url.set_path(path);
        url.set_query(None);
        self.exchange(Request::new(Method::GET, url)).await
    }

    /// Where bytes can be written as they are: not over TLS.
    pub(crate) async fn plain_address(&self) -> Result<SocketAddr, Flaw> {
        let url = self.url();
        if url.scheme() != "http" {
            return unknown("half of a request can be sent on http:// only");
        }
        let addresses = addresses_of(url).await.map_err(Flaw::Unknown)?;
        match addresses.first() {
            Some(first) => Ok(*first),
            None => unknown("the host has no address"),
        }
    }

    pub(crate) async fn send(&self, ask: &Ask) -> Result<Reply, Flaw> {
        let reply = self.attempt(ask, self.url()).await;
        reply.map_err(|error| Flaw::Unknown(format!("no reply: {error}")))
    }

    /// Makes the first attempt, which must succeed.
    pub(crate) async fn executed(&self, ask: &Ask) -> Result<Reply, Flaw> {
        match self.send(ask).await? {
            reply if reply.is_success() => Ok(reply),
            reply => unknown(format!("a new request got {reply}")),
        }
    }

    /// Retries until there is an answer that stays, as a client does.
    pub(crate) async fn settle(&self, ask: &Ask) -> Result<Reply, Flaw> {
        let began = Instant::now();
        for (attempts, url) in (1..).zip(self.each_url()) {
            let (last, is_in_use) = match self.attempt(ask, url).await {
                Ok(reply) if self.is_definite(&reply) || self.is_marked(&reply) => {
                    return Ok(reply);
                }
                Ok(reply) => (reply.to_string(), self.is_in_progress(&reply)),
                Err(error) => (error, false),
            };
            if began.elapsed() > self.config.patience() {
                let seconds = self.config.patience().as_secs();
                let what = format!(
                    "{attempts} retries within {seconds} s got no answer that stays, the last one: \
                     {last}"
                );
                let attempts = self.history.of(ask.key());
                let flaw = match is_in_use && self.config.promises.lease().is_none() {
                    true => Flaw::lesser(what, "endless", "free"),
                    false => Flaw::violated(what).costing("endless").mended_by("free"),
                };
                return Err(flaw.because(attempts));
            }
            tokio::time::sleep(BETWEEN_RETRIES).await;
        }
        unknown("there is no URL")
    }

    pub(crate) fn is_in_progress(&self, reply: &Reply) -> bool {
        let promises = &self.config.promises;
        let is_such = promises.in_progress.contains(&reply.status);
        is_such && !says(&promises.refusal_says, &reply.body)
    }

    /// Neither "try again" nor "in progress": an answer that stays.
    pub(crate) fn is_definite(&self, reply: &Reply) -> bool {
        reply.status < 500
            && !matches!(reply.status, 408 | 425 | 429)
            && !self.is_in_progress(reply)
    }

    pub(crate) fn is_marked(&self, reply: &Reply) -> bool {
        let Some((name, promised)) = self.config.promises.marker() else {
            return false;
        };
        reply.header(name).is_some_and(|value| {
            let is = |other: &&str| value.eq_ignore_ascii_case(other);
            match promised {
                Some(promised) => is(&promised),
                None => !["false", "no", "0", "miss"].iter().any(is),
            }
        })
    }

    pub(crate) async fn tally<'a>(&'a self, asks: &[&Ask]) -> Result<Tally<'a>, Flaw> {
        let asks: Vec<Ask> = asks.iter().map(|&ask| ask.clone()).collect();
        let before = match &self.config.count {
            Some(_) => Some(self.count_all(&asks).await?),
            None => None,
        };
        Ok(Tally {
            api: self,
            asks,
            before,
        })
    }

    /// Does `work`, which must leave so many effects of the request.
    pub(crate) async fn with_effects<T>(
        &self,
        ask: &Ask,
        expected: u64,
        work: impl Future<Output = Result<T, Flaw>>,
    ) -> Result<T, Flaw> {
        let tally = self.tally(&[ask]).await?;
        let seen = work.await;
        self.counted(&tally, ask, expected, seen).await
    }

    /// Expects so many effects. More of them weigh more than whatever else went wrong.
    pub(crate) async fn counted<T>(
        &self,
        tally: &Tally<'_>,
        ask: &Ask,
        expected: u64,
        seen: Result<T, Flaw>,
    ) -> Result<T, Flaw> {
        // After a flaw, effects that are missing are not waited for.
        let awaited = if seen.is_ok() { expected } else { 0 };
        let made = tally.made_by_first(awaited).await;
        let miscounted = |made| Flaw::miscounted(made, expected, self.history.of(ask.key()));
        if let Ok(Some(made)) = made
            && made > expected
            && (expected > 0 || seen.is_ok())
        {
            return Err(miscounted(made));
        }
        let seen = seen?;
        match made? {
            None if expected == 0 => Ok(seen),
            None => unknown(UNCOUNTED),
            Some(made) if made < expected => Err(miscounted(made)),
            Some(made) => {
                if self.counts_one_request() && expected > 0 {
                    let before = tally.before.iter().flatten().next().copied();
                    let right = before.unwrap_or_default() + made;
                    lock(&self.counted).push((ask.clone(), right));
                }
                Ok(seen)
            }
        }
    }

    pub(crate) fn keep(&self, finding: &Finding) {
        if let Some(cost) = finding.cost {
            lock(&self.found).push((finding.check, cost));
        }
    }

    pub(crate) fn is_found_by(&self, check: &str) -> bool {
        lock(&self.found).iter().any(|(one, _)| one.name == check)
    }

    /// The earlier check, of those of which this one can be an echo, with a fault of the same cost.
    /// What matters less has no cost of its own beside such a fault.
    pub(crate) fn cause(&self, check: &'static Check, fault: &Fault) -> Option<&'static str> {
        let its = cost(fault.cost.unwrap_or(&check.cost));
        let is_less = fault.cost.is_none() && check.severity == Severity::Unclear;
        let found = lock(&self.found);
        let is_cause = |(one, told): &&(&Check, &str)| {
            check.echo_of.contains(&one.name) && (is_less || *told == its)
        };
        found
            .iter()
            .find(is_cause)
            .map(|(one, _)| one.name.as_str())
    }

    /// Counts the effects of earlier checks' requests again. Returns how many requests that were.
    pub(crate) async fn recount(&self) -> Result<usize, Flaw> {
        let counted = std::mem::take(&mut *lock(&self.counted));
        for (ask, right) in &counted {
            let now = self.count(ask).await?;
            if now > *right {
                let what = format!(
                    "an effect of {} came after its check: {now} now, and {right} is right",
                    unique(ask.number)
                );
                let flaw = Flaw::violated(what).costing("repeated");
                return Err(flaw.because(self.history.of(ask.key())));
            }
        }
        Ok(counted.len())
    }

    pub(crate) fn counts_one_request(&self) -> bool {
        let count = self.config.count.as_ref();
        count.is_some_and(Count::is_of_one_request)
    }

    /// Of each request, or one number where all effects are counted.
    async fn count_all(&self, asks: &[Ask]) -> Result<Vec<u64>, Flaw> {
        /// Commands and lists at once.
        const COUNTED_AT_ONCE: usize = 4;
        let is_of_one = self.counts_one_request();
        let counted = if is_of_one { asks.len() } else { 1 };
        let counts = asks.iter().take(counted).map(|ask| self.count(ask));
        stream::iter(counts)
            .buffered(COUNTED_AT_ONCE)
            .try_collect()
            .await
    }

    async fn count(&self, ask: &Ask) -> Result<u64, Flaw> {
        let failed = |what: String| Flaw::Unknown(format!("effects can't be counted: {what}"));
        let filled =
            |text: &str| fill(text, ask.number, &ask.credential).replace("{{event}}", ask.key());
        match &self.config.count {
            None => Err(failed("the config has no [count]".to_owned())),
            Some(Count::Command { command }) => {
                let printed = shell(&filled(command), true).await.map_err(failed)?;
                let number = printed.trim().parse();
                number.map_err(|_| failed(format!("the command printed {printed:?}")))
            }
            Some(Count::Url { url }) => {
                let url = Url::parse(&filled(url)).map_err(|error| failed(error.to_string()))?;
                let asking = self.exchange(Request::new(Method::GET, url));
                let reply = asking.await.map_err(failed)?;
                let number = String::from_utf8_lossy(&reply.body).trim().parse().ok();
                let number = number.filter(|_| reply.is_success());
                number.ok_or_else(|| failed(format!("the URL got {reply}")))
            }
            Some(Count::List {
                list,
                items,
                unique: pointer,
            }) => {
                let listing = Ask {
                    template: Template {
                        method: Some("GET".to_owned()),
                        path: Some(list.clone()),
                        headers: self.config.effect.headers.clone(),
                        ..Template::default()
                    },
                    keys: Vec::new(),
                    ..ask.clone()
                };
                let listing = self.request(&listing, self.url()).map_err(failed)?;
                let reply = self.exchange(listing).await.map_err(failed)?;
                let list = serde_json::from_slice::<Value>(&reply.body).ok();
                let found = list.as_ref().and_then(|list| list.pointer(items));
                match (found, pointer) {
                    (Some(Value::Array(elements)), Some(pointer)) => {
                        let values = elements.iter().filter_map(|one| one.pointer(pointer));
                        Ok(values.filter(|value| is_of(value, ask.number)).count() as u64)
                    }
                    // It would not grow when the list shows as much as it can.
                    (Some(Value::Array(_)), None) => {
                        Err(failed("a list needs count.unique".to_owned()))
                    }
                    (Some(Value::Number(number)), None) => {
                        let count = number.as_u64();
                        count.ok_or_else(|| failed(format!("{number} is no count")))
                    }
                    _ => Err(failed(format!("the list got {reply}"))),
                }
            }
        }
    }
}

/// So that a service which answers 409 at once is not asked more often than a client would.
const BETWEEN_RETRIES: Duration = Duration::from_millis(50);

/// Locks whatever a panic left.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_of(value: &Value, number: u32) -> bool {
    value.as_str() == Some(&unique(number)) || value.as_u64() == Some(u64::from(number))
}

pub(crate) fn given<'a, T>(part: Option<&'a T>, name: &str) -> Result<&'a T, Flaw> {
    part.ok_or_else(|| Flaw::Unknown(format!("the config has no {name}")))
}

/// Whether the JSON has one of these values at one of these pointers.
pub(crate) fn says(any: &BTreeMap<String, Vec<Value>>, body: &[u8]) -> bool {
    let told: Value = serde_json::from_slice(body).unwrap_or_default();
    let is_there = |(pointer, values): (&String, &Vec<Value>)| {
        told.pointer(pointer)
            .is_some_and(|value| values.contains(value))
    };
    any.iter().any(is_there)
}

pub(crate) struct Tally<'a> {
    api: &'a Api,
    asks: Vec<Ask>,
    before: Option<Vec<u64>>,
}

impl Tally<'_> {
    /// The effects of each request since. `None`: they can't be counted. A list may lag, so as long
    /// as there are fewer than these, they are counted again.
    pub(crate) async fn made(&self, expected: u64) -> Result<Option<Vec<u64>>, Flaw> {
        self.made_at_last(expected, BETWEEN_RETRIES).await
    }

    /// Returns as soon as the first request's effect is counted.
    pub(crate) async fn begins(&self) -> Result<bool, Flaw> {
        /// Short, so that what follows the effect has not happened yet.
        const BETWEEN_COUNTS: Duration = Duration::from_millis(10);
        let made = self.made_at_last(1, BETWEEN_COUNTS).await?;
        Ok(made.and_then(|made| made.first().copied()) > Some(0))
    }

    async fn made_at_last(&self, expected: u64, pause: Duration) -> Result<Option<Vec<u64>>, Flaw> {
        let Some(before) = &self.before else {
            return Ok(None);
        };
        let began = Instant::now();
        loop {
            let now = self.api.count_all(&self.asks).await?;
            let pairs = now.into_iter().zip(before);
            let made: Vec<u64> = pairs.map(|(now, b)| now.saturating_sub(*b)).collect();
            let lacks = made.iter().sum::<u64>() < expected;
            if !lacks || began.elapsed() > self.api.config.patience() {
                return Ok(Some(made));
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// The effects of the first request, or of all requests where all are counted.
    pub(crate) async fn made_by_first(&self, expected: u64) -> Result<Option<u64>, Flaw> {
        let made = self.made(expected).await?;
        Ok(made.and_then(|made| made.first().copied()))
    }
}

/// What was seen where only replies can be compared.
pub(crate) const UNCOUNTED: &str =
    "the replies are right; effects aren't counted, the config has no [count]";

const COMMAND_LIMIT: Duration = Duration::from_secs(120);

/// Runs a command of the shell. Returns what it printed, if it is read, or why it failed. A process
/// that the command leaves behind may keep an output open that is not read.
pub(crate) async fn shell(command: &str, reads: bool) -> Result<String, String> {
    let stdout = if reads { Stdio::piped() } else { Stdio::null() };
    let mut shell = Command::new("sh");
    shell
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(stdout)
        .kill_on_drop(true);
    let running = async { shell.spawn()?.wait_with_output().await };
    let ended = tokio::time::timeout(COMMAND_LIMIT, running).await;
    let failed = |what: String| format!("`{command}` failed: {what}");
    match ended {
        Err(_) => Err(failed("it ran for too long".to_owned())),
        Ok(Err(error)) => Err(failed(error.to_string())),
        Ok(Ok(output)) if !output.status.success() => Err(failed(output.status.to_string())),
        Ok(Ok(output)) => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
    }
}

fn below(base: &Url, path: &str) -> Url {
    let (path, query) = match path.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (path, None),
    };
    let mut url = base.clone();
    url.set_path(&format!("{}{path}", base.path().trim_end_matches('/')));
    url.set_query(query);
    url
}

/// A pair of a query or a form.
fn pair(name: &str, value: &str) -> String {
    let encoded = |text: &str| -> String {
        let bytes = text.bytes().map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
                char::from(byte).to_string()
            }
            other => format!("%{other:02X}"),
        });
        bytes.collect()
    };
    format!("{}={}", encoded(name), encoded(value))
}

/// The JSON with one more member, its first.
fn with_member(body: &str, name: &str, value: &str) -> String {
    let member = format!("{}: {}", Value::from(name), Value::from(value));
    match body.trim_start().strip_prefix('{') {
        Some(rest) if rest.trim_start().starts_with('}') => format!("{{{member}{rest}"),
        Some(rest) => format!("{{{member}, {rest}"),
        None if body.is_empty() => format!("{{{member}}}"),
        // No object: there is no place for a key.
        None => body.to_owned(),
    }
}

fn unix_now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// Its host, with the port if that is not the default.
fn authority(url: &Url) -> &str {
    let authority = url.authority();
    let parts = authority.rsplit_once('@');
    parts.map_or(authority, |(_, host)| host)
}

/// The same JSON: members in reverse order, on lines of their own.
fn respelled(body: &str) -> String {
    match serde_json::from_str::<Value>(body) {
        Ok(Value::Object(members)) => {
            let reversed = members.iter().rev().map(|(name, value)| {
                let name = Value::String(name.clone());
                format!("{name} : {value}")
            });
            format!("{{\n  {}\n}}", reversed.collect::<Vec<_>>().join(",\n  "))
        }
        Ok(other) => format!(" {other} "),
        Err(_) => body.to_owned(),
    }
}

#[allow(clippy::needless_pass_by_value, reason = "`map_err` passes it")]
fn text_of(error: impl ToString) -> String {
    error.to_string()
}

/// Why there was no reply, without the URL.
#[allow(clippy::needless_pass_by_value, reason = "`map_err` passes it")]
fn why(error: reqwest::Error) -> String {
    let kind = if error.is_timeout() {
        "no answer in time"
    } else if error.is_connect() {
        "no connection"
    } else {
        "the connection ended"
    };
    kind.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_below_the_url_of_the_service() -> Result<(), Box<dyn std::error::Error>> {
        for (base, path, whole) in [
            ("http://h", "/a", "http://h/a"),
            ("http://h/v1", "/a?b=c", "http://h/v1/a?b=c"),
            ("http://h:1/v1/", "/a", "http://h:1/v1/a"),
        ] {
            assert_eq!(below(&Url::parse(base)?, path).as_str(), whole);
        }
        Ok(())
    }

    #[test]
    fn a_key_is_the_first_member_of_an_object() {
        for (body, whole) in [
            ("", r#"{"k": "v"}"#),
            ("{}", r#"{"k": "v"}"#),
            (" { } ", r#"{"k": "v" } "#),
            (r#"{"a": 1}"#, r#"{"k": "v", "a": 1}"#),
            ("7", "7"),
        ] {
            assert_eq!(with_member(body, "k", "v"), whole);
        }
        assert_eq!(pair("a b", "c&d"), "a%20b=c%26d");
    }

    #[test]
    fn json_is_respelled_with_the_same_meaning() {
        let text = r#"{"a":{"c":1},"b":[1,2]}"#;
        let again = respelled(text);
        assert_ne!(text, again);
        let read = |text: &str| serde_json::from_str::<Value>(text).ok();
        assert_eq!(read(text), read(&again));
        assert!(again.find("\"b\"") < again.find("\"a\""));
    }
}
