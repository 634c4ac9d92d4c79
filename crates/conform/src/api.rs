//! The API under test: how it is asked, what it answers, and how many effects it has made.

use std::{
    net::SocketAddr,
    process::Stdio,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::{StreamExt, TryStreamExt, stream};
use reqwest::{
    Client, Method, Url,
    header::{CONTENT_TYPE, HOST},
    redirect::Policy,
};
use serde_json::Value;
use tokio::process::Command;

use crate::{
    checks::{Flaw, quoted},
    config::{Config, ConfigError, Count, Template, fill, unique},
};

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
    /// The service, and perhaps another replica of it.
    pub(crate) urls: Vec<Url>,
    pub(crate) crash: Option<Crash>,
    http: Client,
    numbers: AtomicU32,
    /// Requests whose effects were as many as is right, with what is counted then.
    counted: Mutex<Vec<(Ask, u64)>>,
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
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    pub(crate) fn is_refusal(&self) -> bool {
        (400..500).contains(&self.status)
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        let found = headers.find(|(header, _)| header.eq_ignore_ascii_case(name));
        found.map(|(_, value)| &**value)
    }

    pub(crate) fn is_same_outcome(&self, other: &Self) -> bool {
        self.status == other.status && self.body == other.body
    }

    /// Neither "try again" nor "in use": an answer that stays.
    fn is_definite(&self) -> bool {
        self.status < 500 && !matches!(self.status, 408 | 409 | 425 | 429)
    }
}

impl std::fmt::Display for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.status, quoted(&self.body))
    }
}

impl Api {
    pub(crate) fn new(
        config: Config,
        urls: Vec<Url>,
        crash: Option<Crash>,
    ) -> Result<Self, ConfigError> {
        // Another part of the process may have chosen a provider before.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = Client::builder()
            .no_proxy()
            .redirect(Policy::none())
            // A connection for each request: one that an earlier check has cut must fail no later
            // one.
            .pool_max_idle_per_host(0)
            .timeout(config.load.patience() + Duration::from_secs(5))
            .build()
            .map_err(|error| ConfigError(error.to_string()))?;
        Ok(Self {
            config,
            urls,
            crash,
            http,
            numbers: AtomicU32::new(rand::random::<u32>() >> 1),
            counted: Mutex::default(),
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
        }
    }

    pub(crate) fn effect(&self) -> Ask {
        self.ask(&self.config.effect)
    }

    /// Another request under the same key.
    pub(crate) fn rival(&self, ask: &Ask) -> Result<Ask, Flaw> {
        let other = given(self.config.other.as_ref(), "other")?;
        let keys = ask.keys.clone();
        Ok(Ask {
            keys,
            ..self.ask(other)
        })
    }

    pub(crate) fn key(&self) -> String {
        format!("conform-{:032x}", rand::random::<u128>())
    }

    pub(crate) fn url(&self) -> Result<&Url, Flaw> {
        let first = self.urls.first();
        first.ok_or_else(|| Flaw::Unknown("there is no URL".to_owned()))
    }

    /// Makes one attempt. An error says why there was no reply.
    pub(crate) async fn attempt(&self, ask: &Ask, url: &Url) -> Result<Reply, String> {
        self.attempt_through(ask, url, None).await
    }

    /// As `attempt`, by way of a proxy.
    pub(crate) async fn attempt_through(
        &self,
        ask: &Ask,
        url: &Url,
        proxy: Option<SocketAddr>,
    ) -> Result<Reply, String> {
        let rendered = self.render(ask, url);
        let mut target = rendered.url;
        if let Some(proxy) = proxy {
            let authority = authority(&target);
            let _ = target.set_ip_host(proxy.ip());
            let _ = target.set_port(Some(proxy.port()));
            return self
                .exchange(
                    rendered.method,
                    target,
                    Some(authority),
                    rendered.headers,
                    rendered.body,
                )
                .await;
        }
        self.exchange(
            rendered.method,
            target,
            None,
            rendered.headers,
            rendered.body,
        )
        .await
    }

    async fn exchange(
        &self,
        method: Method,
        url: Url,
        host: Option<String>,
        headers: Vec<(String, String)>,
        body: String,
    ) -> Result<Reply, String> {
        let mut sending = self.http.request(method, url).body(body);
        if let Some(host) = host {
            sending = sending.header(HOST, host);
        }
        for (name, value) in headers {
            sending = sending.header(name, value.as_bytes());
        }
        let response = sending.send().await.map_err(|error| why(&error))?;
        let status = response.status().as_u16();
        let headers = response.headers().iter().map(|(name, value)| {
            let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
            (name.as_str().to_owned(), value)
        });
        let headers = headers.collect();
        let body = response.bytes().await.map_err(|error| why(&error))?;
        Ok(Reply {
            status,
            headers,
            body: body.to_vec(),
        })
    }

    fn render(&self, ask: &Ask, url: &Url) -> Rendered {
        let filled = |text: &str| fill(text, ask.number, &ask.credential);
        let template = &ask.template;
        let path = filled(template.path.as_deref().unwrap_or("/"));
        let mut headers: Vec<(String, String)> = template
            .headers
            .iter()
            .map(|(name, value)| (name.clone(), filled(value)))
            .collect();
        let names_type = headers
            .iter()
            .any(|(name, _)| name.eq_ignore_ascii_case(CONTENT_TYPE.as_str()));
        let media_type = match (&template.json, &template.form) {
            (Some(_), _) => Some("application/json"),
            (None, Some(_)) => Some("application/x-www-form-urlencoded"),
            (None, None) => None,
        };
        if let Some(media_type) = media_type.filter(|_| !names_type) {
            headers.push((CONTENT_TYPE.to_string(), media_type.to_owned()));
        }
        let name = &self.config.promises.key_header;
        headers.extend(ask.keys.iter().map(|key| (name.clone(), key.clone())));
        let mut body = filled(template.body().unwrap_or_default());
        if ask.is_respelled {
            body = respelled(&body);
        }
        let method = template.method.as_deref().unwrap_or("POST");
        Rendered {
            method: Method::from_bytes(method.as_bytes()).unwrap_or(Method::POST),
            url: below(url, &path),
            headers,
            body,
        }
    }

    /// The request as HTTP/1.1 writes it, for connections that end in the middle of it.
    pub(crate) fn bytes(&self, ask: &Ask) -> Result<Vec<u8>, Flaw> {
        let Rendered {
            method,
            url,
            headers,
            body,
        } = self.render(ask, self.url()?);
        let query = url.query().map(|query| format!("?{query}"));
        let query = query.unwrap_or_default();
        let (path, host, length) = (url.path(), authority(&url), body.len());
        let mut text = format!("{method} {path}{query} HTTP/1.1\r\nHost: {host}\r\n");
        for (name, value) in headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str(&format!("Content-Length: {length}\r\n\r\n{body}"));
        Ok(text.into_bytes())
    }

    /// Where connections can be cut. TLS hides what a connection carries, so it is plain HTTP only.
    pub(crate) async fn plain_address(&self) -> Result<SocketAddr, Flaw> {
        let url = self.url()?;
        let unknown = |what: &str| Flaw::Unknown(what.to_owned());
        if url.scheme() != "http" {
            return Err(unknown(
                "connections are cut on http:// only: test behind what ends TLS",
            ));
        }
        let host = url.host_str().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let port = url.port_or_known_default().unwrap_or(80);
        let found = tokio::net::lookup_host((host, port)).await;
        let address = found.ok().and_then(|mut addresses| addresses.next());
        address.ok_or_else(|| unknown("the host has no address"))
    }

    /// Makes one attempt and expects a reply.
    pub(crate) async fn send(&self, ask: &Ask) -> Result<Reply, Flaw> {
        let reply = self.attempt(ask, self.url()?).await;
        reply.map_err(|error| Flaw::Unknown(format!("no reply: {error}")))
    }

    /// Makes the first attempt, which must succeed.
    pub(crate) async fn executed(&self, ask: &Ask) -> Result<Reply, Flaw> {
        let reply = self.send(ask).await?;
        if reply.is_success() {
            Ok(reply)
        } else {
            Err(Flaw::Unknown(format!("a new request got {reply}")))
        }
    }

    /// Retries until there is an answer that stays, as a client does.
    pub(crate) async fn settle(&self, ask: &Ask) -> Result<Reply, Flaw> {
        let began = Instant::now();
        let mut attempts = 0_usize;
        loop {
            let url = self.urls.get(attempts % self.urls.len().max(1));
            let url = url.map_or_else(|| self.url(), Ok)?;
            let last = match self.attempt(ask, url).await {
                Ok(reply) if reply.is_definite() || self.is_marked(&reply) => return Ok(reply),
                Ok(reply) => reply.to_string(),
                Err(error) => error,
            };
            attempts += 1;
            if began.elapsed() > self.config.load.patience() {
                let seconds = self.config.load.patience_seconds;
                return Err(Flaw::Violated(format!(
                    "{attempts} retries within {seconds} s got no answer that stays, the last one: \
                     {last}"
                )));
            }
            tokio::time::sleep(BETWEEN_RETRIES).await;
        }
    }

    /// Whether the reply says that it is a replay.
    pub(crate) fn is_marked(&self, reply: &Reply) -> bool {
        let name = self.config.promises.replay_header.as_deref();
        name.and_then(|name| reply.header(name))
            .is_some_and(|value| value.eq_ignore_ascii_case("true"))
    }

    /// Begins to count the effects of some requests.
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

    /// Counts the effects of earlier checks' requests again. Returns how many requests that were.
    pub(crate) async fn recount(&self) -> Result<usize, Flaw> {
        let counted = std::mem::take(&mut *lock(&self.counted));
        for (ask, right) in &counted {
            let now = self.count(ask).await?;
            if now > *right {
                return Err(Flaw::Violated(format!(
                    "an effect of {} came after its check: {now} now, and {right} is right",
                    unique(ask.number)
                )));
            }
        }
        Ok(counted.len())
    }

    /// Of each request, or one number where all effects are counted.
    async fn count_all(&self, asks: &[Ask]) -> Result<Vec<u64>, Flaw> {
        /// Commands and lists at once.
        const COUNTED_AT_ONCE: usize = 4;
        let is_of_one = self
            .config
            .count
            .as_ref()
            .is_some_and(Count::is_of_one_request);
        let counted = if is_of_one { asks.len() } else { 1 };
        let counts = asks.iter().take(counted).map(|ask| self.count(ask));
        stream::iter(counts)
            .buffered(COUNTED_AT_ONCE)
            .try_collect()
            .await
    }

    async fn count(&self, ask: &Ask) -> Result<u64, Flaw> {
        let failed = |what: String| Flaw::Unknown(format!("effects can't be counted: {what}"));
        let filled = |text: &str| fill(text, ask.number, &ask.credential);
        match &self.config.count {
            None => Err(failed("the config has no [count]".to_owned())),
            Some(Count::Command { command }) => {
                let printed = print_of(&filled(command)).await.map_err(failed)?;
                let number = printed.trim().parse();
                number.map_err(|_| failed(format!("the command printed {printed:?}")))
            }
            Some(Count::List {
                list,
                items,
                unique: pointer,
            }) => {
                let url = below(self.url()?, &filled(list));
                let headers = self.config.effect.headers.iter();
                let headers = headers.map(|(name, value)| (name.clone(), filled(value)));
                let asking =
                    self.exchange(Method::GET, url, None, headers.collect(), String::new());
                let reply = asking.await.map_err(failed)?;
                let list = serde_json::from_slice::<Value>(&reply.body).ok();
                let found = list.as_ref().and_then(|list| list.pointer(items));
                match (found, pointer) {
                    (Some(Value::Array(elements)), Some(pointer)) => {
                        let values = elements.iter().filter_map(|one| one.pointer(pointer));
                        Ok(values.filter(|value| is_of(value, ask.number)).count() as u64)
                    }
                    (Some(Value::Array(elements)), None) => Ok(elements.len() as u64),
                    (Some(Value::Number(number)), None) => number
                        .as_u64()
                        .ok_or_else(|| failed(format!("{number} is no count"))),
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

struct Rendered {
    method: Method,
    url: Url,
    headers: Vec<(String, String)>,
    body: String,
}

fn is_of(value: &Value, number: u32) -> bool {
    value.as_str() == Some(&unique(number)) || value.as_u64() == Some(u64::from(number))
}

/// A part of the config that a check needs.
pub(crate) fn given<'a, T>(part: Option<&'a T>, name: &str) -> Result<&'a T, Flaw> {
    part.ok_or_else(|| Flaw::Unknown(format!("the config has no {name}")))
}

/// Effects since some moment.
pub(crate) struct Tally<'a> {
    api: &'a Api,
    asks: Vec<Ask>,
    before: Option<Vec<u64>>,
}

impl Tally<'_> {
    /// The effects of each request since. `None`: they can't be counted.
    pub(crate) async fn made(&self) -> Result<Option<Vec<u64>>, Flaw> {
        let Some(before) = &self.before else {
            return Ok(None);
        };
        let now = self.api.count_all(&self.asks).await?;
        let pairs = now.into_iter().zip(before);
        Ok(Some(pairs.map(|(now, b)| now.saturating_sub(*b)).collect()))
    }

    /// Expects so many effects of the first request.
    pub(crate) async fn expect(&self, expected: u64) -> Result<(), Flaw> {
        let made = self.made().await?;
        match made.and_then(|made| made.first().copied()) {
            None => Err(Flaw::Unknown(
                "the replies are right; effects aren't counted, the config has no [count]"
                    .to_owned(),
            )),
            Some(made) if made == expected => {
                let count = self.api.config.count.as_ref();
                if let (Some(ask), Some(true)) =
                    (self.asks.first(), count.map(Count::is_of_one_request))
                {
                    let before = self.before.iter().flatten().next().copied();
                    let right = before.unwrap_or_default() + expected;
                    lock(&self.api.counted).push((ask.clone(), right));
                }
                Ok(())
            }
            Some(made) => Err(Flaw::Violated(format!(
                "{made} effects, and {expected} is right"
            ))),
        }
    }
}

/// How long a command may run.
const COMMAND_LIMIT: Duration = Duration::from_secs(120);

fn shell(command: &str) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).stdin(Stdio::null());
    shell.kill_on_drop(true);
    shell
}

/// Runs a command of the shell. Returns what it printed, or why it failed.
async fn print_of(command: &str) -> Result<String, String> {
    let ended = tokio::time::timeout(COMMAND_LIMIT, shell(command).output()).await;
    let ended = ended.map_err(|_| format!("`{command}` ran for too long"))?;
    let output = ended.map_err(|error| format!("`{command}`: {error}"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        Err(format!("`{command}` failed: {}", error.trim()))
    }
}

/// Runs a command of the shell that may leave a process behind, which keeps its output open.
pub(crate) async fn execute(command: &str) -> Result<(), Flaw> {
    let mut shell = shell(command);
    shell.stdout(Stdio::null());
    let ended = tokio::time::timeout(COMMAND_LIMIT, shell.status()).await;
    let what = match ended {
        Ok(Ok(status)) if status.success() => return Ok(()),
        Ok(Ok(status)) => status.to_string(),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "it ran for too long".to_owned(),
    };
    Err(Flaw::Unknown(format!("`{command}` failed: {what}")))
}

/// The URL of a path with a query below the URL of the service.
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

fn authority(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    }
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

/// Why there was no reply, without the URL.
fn why(error: &reqwest::Error) -> String {
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
    fn json_is_respelled_with_the_same_meaning() {
        let text = r#"{"a":{"c":1},"b":[1,2]}"#;
        let again = respelled(text);
        assert_ne!(text, again);
        let read = |text: &str| serde_json::from_str::<Value>(text).ok();
        assert_eq!(read(text), read(&again));
        assert!(again.find("\"b\"") < again.find("\"a\""));
    }
}
