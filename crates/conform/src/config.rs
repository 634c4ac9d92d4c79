//! What the API under test is: the requests to send, how their effects are counted, and what the
//! API promises where specifications differ. A TOML file, `--init` writes one.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use reqwest::{
    Method, Url,
    header::{HeaderName, HeaderValue},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::net::lookup_host;

use crate::{
    checks::{CHECKS, Check, RECEIVER_CHECKS, read},
    signature::Scheme,
};

/// Why nothing can be checked: the program exits with 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub String);

/// In seconds. What is waited for where no lease is promised.
const LEASE_USUAL: u64 = 30;

/// The names of the requests.
const REQUESTS: [&str; 13] = [
    "effect",
    "other",
    "refused",
    "refused_once",
    "invalid",
    "slow",
    "server_error",
    "change",
    "deletable",
    "delete",
    "expire",
    "abandon",
    "secret",
];

/// The whole file. `presets/api.toml` explains it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// What the environment filled in. No report shows it.
    #[serde(skip)]
    pub(crate) secrets: Vec<String>,
    /// How requests are signed, if they are deliveries of webhooks.
    #[serde(skip)]
    pub(crate) scheme: Option<Scheme>,
    /// In the place of those of this program.
    #[serde(skip)]
    pub(crate) checks: Option<&'static [Check]>,
    pub(crate) effect: Template,
    // Each says what differs from `effect`.
    pub(crate) other: Option<Template>,
    pub(crate) refused: Option<Template>,
    pub(crate) refused_once: Option<Template>,
    pub(crate) invalid: Option<Template>,
    pub(crate) slow: Option<Template>,
    pub(crate) server_error: Option<Template>,
    pub(crate) change: Option<Template>,
    pub(crate) deletable: Option<Template>,
    pub(crate) delete: Option<Template>,
    pub(crate) expire: Option<Template>,
    pub(crate) abandon: Option<Template>,
    pub(crate) secret: Option<Template>,
    pub(crate) stored: Option<Stored>,
    pub(crate) policy: Option<Policy>,
    #[serde(default)]
    pub(crate) accounts: Accounts,
    pub(crate) count: Option<Count>,
    #[serde(default)]
    pub(crate) promises: Promises,
    #[serde(default)]
    pub(crate) load: Load,
}

/// A request with placeholders.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Template {
    pub(crate) method: Option<String>,
    /// Below the URL that the program is given.
    pub(crate) path: Option<String>,
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) json: Option<String>,
    pub(crate) form: Option<String>,
}

/// Values of `{{credential}}`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Accounts {
    pub(crate) credential: String,
    /// Of the same account.
    pub(crate) rotated: Option<String>,
    /// Of another account.
    pub(crate) other: Option<String>,
    /// Refused before the key is looked at.
    pub(crate) wrong: Option<String>,
}

/// One of two ways to count effects.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, untagged)]
pub(crate) enum Count {
    /// A resource of the API, in which a JSON pointer finds an array or a number. `unique` is a
    /// pointer in each element to what tells whose effect it is.
    List {
        list: String,
        #[serde(default)]
        items: String,
        unique: Option<String>,
    },
    Command {
        command: String,
    },
    /// Of another service. It answers with the number.
    Url {
        url: String,
    },
}

impl Count {
    /// Whether it counts the effects of one request, and not all that there are.
    pub(crate) fn is_of_one_request(&self) -> bool {
        let names = ["{{unique}}", "{{number}}", "{{event}}"];
        let names_one = |text: &str| names.iter().any(|name| text.contains(name));
        match self {
            Self::List { list, unique, .. } => unique.is_some() || names_one(list),
            Self::Command { command: text } | Self::Url { url: text } => names_one(text),
        }
    }
}

/// What is stored of keys and replies.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Stored {
    /// Prints all of it.
    pub(crate) command: String,
    /// A JSON pointer to the secret in the reply of `[secret]`.
    pub(crate) secret: String,
}

/// A document in which the API says what it promises.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Policy {
    /// From the root of the host.
    pub(crate) path: String,
    /// JSON pointers, and what is there.
    pub(crate) says: BTreeMap<String, Value>,
}

/// Where the key is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum KeyIn {
    Header,
    /// A member of the body.
    Json,
    Form,
    Query,
}

/// How much of the first reply a retry gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Replay {
    /// Its status and its bytes.
    Bytes,
    /// `status_and_id`: its status, and the id of the object that was made.
    StatusAndId,
    /// A success that shows the object as it is now.
    LatestState,
}

/// `true`, `false` or `"open"`: nothing is promised.
#[derive(Debug, Clone, Copy, Deserialize, Serialize)]
#[serde(untagged)]
pub(crate) enum Promise {
    Made(bool),
    Open(Open),
}

#[derive(Debug, Clone, Copy, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Open {
    Open,
}

/// What a request is whose key was used with another body, path or query, or whose JSON was written
/// in another way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Difference {
    /// Another request: refused like another body.
    Refused,
    /// The same request: replayed.
    Same,
    /// One with a key of its own.
    Separate,
    /// Nothing is promised.
    Open,
}

/// A number, or `"open"`: nothing is promised.
#[derive(Debug, Clone, Copy, Deserialize, Serialize)]
#[serde(untagged)]
pub(crate) enum Lease {
    Seconds(u64),
    Open(Open),
}

/// What an expired key is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Expired {
    /// A new one, for one request.
    New,
    /// Remembered: a request with it is refused, and told what the first one made.
    Refused,
    /// Nothing is promised: any of them, or the first answer, if no work is repeated.
    Open,
}

/// What a duplicate gets while the first request executes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum InFlight {
    Conflict,
    /// The answer of the first request. "In progress" if that takes long.
    Waits,
}

/// What the API promises where specifications differ. The defaults are those of the IETF draft.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Promises {
    pub(crate) key_in: KeyIn,
    #[serde(alias = "key_header")]
    pub(crate) key_name: String,
    pub(crate) key_required: bool,
    /// 0: none.
    pub(crate) key_length_max: usize,
    /// Whether a key is a string of RFC 8941, so that `"key"` is the key `key`.
    pub(crate) key_quoted: bool,
    pub(crate) replay: Replay,
    /// A JSON pointer to the id of what was made.
    pub(crate) replay_id: String,
    pub(crate) other_body: Difference,
    /// Statuses. None: any 4xx.
    pub(crate) reuse: Vec<u16>,
    pub(crate) other_path: Difference,
    pub(crate) other_path_is: Option<String>,
    pub(crate) other_query: Difference,
    pub(crate) other_spelling: Difference,
    pub(crate) in_flight: InFlight,
    /// Statuses that say "in progress: come again".
    pub(crate) in_progress: Vec<u16>,
    pub(crate) retry_after: bool,
    /// Whether a retry gets the refusal again. Otherwise it executes.
    pub(crate) refusal_stored: Promise,
    /// Whether a request that fails validation uses up its key.
    pub(crate) invalid_stored: Promise,
    /// Whether a retry after 5xx executes. Otherwise the 5xx is replayed.
    pub(crate) server_error_retried: Promise,
    /// Whether a DELETE is replayed. Otherwise its key means nothing.
    pub(crate) delete_keyed: Promise,
    /// Whether refusals of keys are `application/problem+json`.
    pub(crate) problem_json: bool,
    /// `name` or `name: value`.
    pub(crate) replay_header: Option<String>,
    /// Headers that differ from delivery to delivery, besides those of HTTP itself.
    pub(crate) delivery_headers: Vec<String>,
    /// 0: none.
    pub(crate) retention_seconds: u64,
    /// Whether a key that has expired is `new`, or remembered and `refused`.
    pub(crate) expired: Expired,
    /// What the reply of `[abandon]` says if no request was executed: pointers, and what one of
    /// them may hold.
    pub(crate) given_up_says: BTreeMap<String, Vec<Value>>,
    /// As above: what a refusal says that stays, though its status is one of `in_progress`.
    pub(crate) refusal_says: BTreeMap<String, Vec<Value>>,
    /// How long a key may stay in use after the process that works for it has died. 0: its
    /// transaction ends with the process.
    pub(crate) lease_seconds: Lease,
}

impl Promises {
    /// In seconds, if it is promised.
    pub(crate) fn lease(&self) -> Option<u64> {
        match self.lease_seconds {
            Lease::Seconds(seconds) => Some(seconds),
            Lease::Open(_) => None,
        }
    }

    /// What must be equal in a reply and its replay.
    pub(crate) fn outcome(&self, status: u16, body: &[u8]) -> Vec<u8> {
        let is_success = (200..300).contains(&status);
        let id = || self.id(body).unwrap_or_default();
        match self.replay {
            Replay::Bytes => [status.to_string().as_bytes(), b" ", body].concat(),
            Replay::LatestState if is_success => id().into_bytes(),
            Replay::StatusAndId if is_success => format!("{status} {}", id()).into_bytes(),
            Replay::LatestState | Replay::StatusAndId => status.to_string().into_bytes(),
        }
    }

    /// The id of what a request has made.
    pub(crate) fn id(&self, body: &[u8]) -> Option<String> {
        let reply: Value = serde_json::from_slice(body).ok()?;
        Some(reply.pointer(&self.replay_id)?.to_string())
    }

    /// The name of the header that marks replays, and its value if that is promised, too.
    pub(crate) fn marker(&self) -> Option<(&str, Option<&str>)> {
        let header = self.replay_header.as_deref()?;
        Some(match header.split_once(':') {
            Some((name, value)) => (name.trim(), Some(value.trim())),
            None => (header.trim(), None),
        })
    }
}

impl Default for Promises {
    fn default() -> Self {
        Self {
            key_in: KeyIn::Header,
            key_name: "Idempotency-Key".to_owned(),
            key_required: false,
            key_length_max: 255,
            key_quoted: true,
            replay: Replay::Bytes,
            replay_id: "/id".to_owned(),
            other_body: Difference::Refused,
            reuse: vec![422],
            other_path: Difference::Open,
            other_path_is: None,
            other_query: Difference::Open,
            other_spelling: Difference::Open,
            in_flight: InFlight::Conflict,
            in_progress: vec![409, 423],
            retry_after: true,
            refusal_stored: Promise::Made(true),
            invalid_stored: Promise::Open(Open::Open),
            server_error_retried: Promise::Made(true),
            delete_keyed: Promise::Open(Open::Open),
            problem_json: false,
            replay_header: None,
            delivery_headers: Vec::new(),
            retention_seconds: 86_400,
            expired: Expired::Open,
            given_up_says: BTreeMap::new(),
            refusal_says: BTreeMap::new(),
            lease_seconds: Lease::Open(Open::Open),
        }
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Load {
    /// Requests at once.
    pub(crate) clients: usize,
    /// Keys of the storm.
    pub(crate) keys: usize,
    /// How long a retry may go on without a definite answer, once no lease is left.
    pub(crate) patience_seconds: u64,
}

impl Default for Load {
    fn default() -> Self {
        Self {
            clients: 16,
            keys: 40,
            patience_seconds: 15,
        }
    }
}

/// The promises of specifications, by name.
pub const PRESETS: [(&str, &str); 11] = [
    ("ietf-draft", include_str!("presets/ietf-draft.toml")),
    ("stripe-v1", include_str!("presets/stripe-v1.toml")),
    ("stripe-v2", include_str!("presets/stripe-v2.toml")),
    ("square", include_str!("presets/square.toml")),
    ("paypal", include_str!("presets/paypal.toml")),
    ("adyen", include_str!("presets/adyen.toml")),
    ("checkout", include_str!("presets/checkout.toml")),
    (
        "aws-client-token",
        include_str!("presets/aws-client-token.toml"),
    ),
    ("aip-155", include_str!("presets/aip-155.toml")),
    ("acp", include_str!("presets/acp.toml")),
    ("ucp", include_str!("presets/ucp.toml")),
];

/// The text that `--init` writes: a whole file with comments, and the promises of a specification
/// with their sources. Fails if there is no such preset.
pub fn init(name: &str) -> Result<String, ConfigError> {
    match PRESETS.iter().find(|(preset, _)| *preset == name) {
        Some((_, promises)) => Ok(format!("{}\n{promises}", include_str!("presets/api.toml"))),
        None => {
            let names: Vec<_> = PRESETS.iter().map(|(preset, _)| *preset).collect();
            let what = format!(
                "there is no preset {name}: it is one of {}",
                names.join(", ")
            );
            Err(ConfigError(what))
        }
    }
}

impl Config {
    /// Reads a file. `{{env.NAME}}` is replaced by a variable of the environment first. The message
    /// of an error names the place.
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        let (text, secrets) = with_environment(text)?;
        let config: Self = toml::from_str(&text).map_err(|error| ConfigError(error.to_string()))?;
        let config = Self { secrets, ..config };
        config.validate()?;
        Ok(config)
    }

    /// The config of a receiver of webhooks at a path. `event`: the JSON of an event, in the place
    /// of the preset's. `effect`: the URL or the command that counts.
    pub fn of_receiver(
        path: &str,
        scheme: Scheme,
        secret: &str,
        event: Option<String>,
        effect: &str,
    ) -> Result<Self, ConfigError> {
        if !scheme.takes(secret) {
            return Err(ConfigError("the secret is none of that scheme".to_owned()));
        }
        let mut config = Self::from_toml(scheme.preset())?;
        config.effect.path = Some(path.to_owned());
        config.effect.json = event.or(config.effect.json);
        config.accounts.credential = secret.to_owned();
        config.secrets = vec![secret.to_owned()];
        config.scheme = Some(scheme);
        let effect = effect.to_owned();
        config.count = Some(
            match effect.starts_with("http://") || effect.starts_with("https://") {
                true => Count::Url { url: effect },
                false => Count::Command { command: effect },
            },
        );
        if !config.count.as_ref().is_some_and(Count::is_of_one_request) {
            let what =
                "--effect: it must have {{unique}} or {{event}}, to count one event's effects";
            return Err(ConfigError(what.to_owned()));
        }
        config.validate()?;
        Ok(config)
    }

    /// Checks by another file of vectors.
    pub fn with_vectors(self, vectors: &str) -> Result<Self, ConfigError> {
        // A program reads few of them, and findings refer to them.
        let checks = Some(&*read(vectors)?.leak());
        Ok(Self { checks, ..self })
    }

    pub(crate) fn all_checks(&self) -> &'static [Check] {
        let own = match self.scheme {
            Some(_) => &RECEIVER_CHECKS,
            None => &CHECKS,
        };
        self.checks.unwrap_or(own)
    }

    /// The request of that name.
    pub(crate) fn request(&self, name: &str) -> Option<&Template> {
        match name {
            "effect" => Some(&self.effect),
            "other" => self.other.as_ref(),
            "refused" => self.refused.as_ref(),
            "refused_once" => self.refused_once.as_ref(),
            "invalid" => self.invalid.as_ref(),
            "slow" => self.slow.as_ref(),
            "server_error" => self.server_error.as_ref(),
            "change" => self.change.as_ref(),
            "deletable" => self.deletable.as_ref(),
            "delete" => self.delete.as_ref(),
            "expire" => self.expire.as_ref(),
            "abandon" => self.abandon.as_ref(),
            "secret" => self.secret.as_ref(),
            _ => None,
        }
    }

    /// How long a retry is repeated: longer than a lease.
    pub(crate) fn patience(&self) -> Duration {
        Duration::from_secs(
            self.load.patience_seconds + self.promises.lease().unwrap_or(LEASE_USUAL),
        )
    }

    fn validate(&self) -> Result<(), ConfigError> {
        let (load, promises) = (&self.load, &self.promises);
        let require = |holds: bool, what: &str| match holds {
            true => Ok(()),
            false => Err(ConfigError(what.to_owned())),
        };
        require((2..=64).contains(&load.clients), "load.clients: 2 to 64")?;
        require((2..=1000).contains(&load.keys), "load.keys: 2 to 1000")?;
        let is_bound = (1..=300).contains(&load.patience_seconds);
        require(is_bound, "load.patience_seconds: 1 to 300")?;
        let is_bound = promises.lease().is_none_or(|seconds| seconds <= 300);
        require(is_bound, "promises.lease_seconds: 0 to 300")?;
        let is_bound = matches!(promises.key_length_max, 0 | 36..=8000);
        require(is_bound, "promises.key_length_max: 36 to 8000, or 0")?;
        let is_header = promises.key_in == KeyIn::Header;
        let is_name = !is_header || HeaderName::try_from(&promises.key_name).is_ok();
        require(is_name, "promises.key_name: no name of a header")?;
        let is_pointer = promises.replay_id.starts_with('/');
        require(is_pointer, "promises.replay_id: it begins with /")?;
        let marker = promises.marker();
        let is_name = marker.is_none_or(|(name, _)| HeaderName::try_from(name).is_ok());
        require(is_name, "promises.replay_header: no name of a header")?;
        let are_refusals = promises.reuse.iter().all(|s| (400..500).contains(s));
        require(are_refusals, "promises.reuse: statuses from 400 to 499")?;
        let are_errors = promises.in_progress.iter().all(|s| (400..600).contains(s));
        require(are_errors, "promises.in_progress: statuses from 400 to 599")?;
        if let Some(Count::List { items, unique, .. }) = &self.count {
            let mut pointers = [Some(items), unique.as_ref()].into_iter().flatten();
            let are_pointers = pointers.all(|one| one.is_empty() || one.starts_with('/'));
            require(are_pointers, "count: a JSON pointer begins with /")?;
        }
        let stored = self.stored.as_ref();
        let is_pointer = stored.is_none_or(|stored| stored.secret.starts_with('/'));
        require(is_pointer, "stored.secret: it begins with /")?;
        require(self.effect.path.is_some(), "effect.path: missing")?;
        let other = self.other.as_ref();
        let holds = other.is_none_or(|other| other.body().is_some());
        require(holds, "other: it needs a body that differs: json or form")?;
        for name in REQUESTS {
            let template = self.request(name);
            if let Some(what) = template.and_then(Template::mistake) {
                return Err(ConfigError(format!("{name}.{what}")));
            }
            let has_no_place = template.is_some_and(|template| match promises.key_in {
                KeyIn::Json => template.form.is_some(),
                KeyIn::Form => template.json.is_some(),
                KeyIn::Header | KeyIn::Query => false,
            });
            require(
                !has_no_place,
                &format!("{name}: promises.key_in is another body"),
            )?;
        }
        Ok(())
    }
}

impl Template {
    fn mistake(&self) -> Option<String> {
        let method = self.method.as_deref().unwrap_or("POST");
        if Method::from_bytes(method.as_bytes()).is_err() {
            return Some(format!("method: {method} is none"));
        }
        let path = self.path.as_ref();
        if path.is_some_and(|path| !path.starts_with('/')) {
            return Some("path: it begins with /".to_owned());
        }
        if self.json.is_some() && self.form.is_some() {
            return Some("json: there is a form too".to_owned());
        }
        let mut headers = self.headers.iter();
        let is_wrong = |(name, value): &(&String, &String)| {
            HeaderName::try_from(*name).is_err() || HeaderValue::try_from(*value).is_err()
        };
        if let Some((name, _)) = headers.find(is_wrong) {
            return Some(format!("headers: {name} can't be sent"));
        }
        let json = fill(self.json.as_ref()?, 1, "").replace("{{created}}", "1");
        let error = serde_json::from_str::<Value>(&json).err()?;
        Some(format!("json: {error}"))
    }

    pub(crate) fn body(&self) -> Option<&str> {
        self.json.as_deref().or(self.form.as_deref())
    }

    /// Replaces `{{key}}` by the key of another request.
    pub(crate) fn fill_key(&mut self, key: &str) {
        for text in [&mut self.path, &mut self.json, &mut self.form]
            .into_iter()
            .flatten()
        {
            *text = text.replace("{{key}}", key);
        }
    }

    /// This request where it says something, and `base` where it doesn't. A request with another
    /// path has the body that it says, or none.
    pub(crate) fn over(&self, base: &Self) -> Self {
        let mut headers = base.headers.clone();
        headers.extend(self.headers.clone());
        let has_body = self.body().is_some() || self.path.is_some();
        let body = if has_body { self } else { base };
        Self {
            method: self.method.clone().or_else(|| base.method.clone()),
            path: self.path.clone().or_else(|| base.path.clone()),
            headers,
            json: body.json.clone(),
            form: body.form.clone(),
        }
    }
}

pub(crate) fn fill(text: &str, number: u32, credential: &str) -> String {
    text.replace("{{unique}}", &unique(number))
        .replace("{{number}}", &number.to_string())
        .replace("{{credential}}", credential)
}

/// Replaces `{{reply./pointer}}` in a request by what the reply holds there.
pub(crate) fn fill_from(template: &mut Template, reply: &[u8]) {
    let reply: Value = serde_json::from_slice(reply).unwrap_or_default();
    let texts = [&mut template.path, &mut template.json, &mut template.form];
    for text in texts.into_iter().flatten() {
        while let Some((before, pointer, after)) = placeholder(text, "{{reply.") {
            let value = match reply.pointer(pointer) {
                Some(Value::String(value)) => value.clone(),
                Some(value) => value.to_string(),
                None => String::new(),
            };
            *text = format!("{before}{value}{after}");
        }
    }
}

pub(crate) fn unique(number: u32) -> String {
    format!("conform-{number}")
}

/// Replaces `{{env.NAME}}`, except in comments, and returns what it filled in as well.
fn with_environment(text: &str) -> Result<(String, Vec<String>), ConfigError> {
    let (mut filled, mut secrets) = (String::new(), Vec::new());
    for line in text.lines() {
        let mut rest = line;
        while let Some((before, name, after)) = placeholder(rest, "{{env.")
            && !line.starts_with('#')
        {
            let value = std::env::var(name);
            let value = value.map_err(|_| ConfigError(format!("the environment has no {name}")))?;
            if value.contains(['"', '\'', '\\', '\n']) {
                let what =
                    format!("the variable {name} holds a quote, a backslash or a line break");
                return Err(ConfigError(what));
            }
            filled.push_str(before);
            filled.push_str(&value);
            secrets.push(value);
            rest = after;
        }
        filled.push_str(rest);
        filled.push('\n');
    }
    Ok((filled, secrets))
}

/// What is before a placeholder, its name, and what is after it.
fn placeholder<'a>(text: &'a str, begin: &str) -> Option<(&'a str, &'a str, &'a str)> {
    let (before, rest) = text.split_once(begin)?;
    let (name, after) = rest.split_once("}}")?;
    Some((before, name, after))
}

/// Parses the URL. Refuses one that is not of HTTP or has no address, and unless `is_own` an
/// address that is neither loopback nor private: the checks cut connections, repeat requests, and
/// make effects.
pub async fn target(url: &str, is_own: bool) -> Result<Url, ConfigError> {
    let wrong = |what: &str| ConfigError(format!("{url}: {what}"));
    let parsed = Url::parse(url).map_err(|error| wrong(&error.to_string()))?;
    if !matches!(parsed.scheme(), "http" | "https") {
        return Err(wrong("neither http:// nor https://"));
    }
    if is_own {
        return Ok(parsed);
    }
    let addresses = addresses_of(&parsed).await.map_err(|what| wrong(&what))?;
    match addresses.iter().find(|address| !is_near(address.ip())) {
        None => Ok(parsed),
        Some(address) => Err(wrong(&format!(
            "{} is a public address, and the checks make effects, repeat requests and cut \
             connections there. If the service is yours, add --i-own-this",
            address.ip()
        ))),
    }
}

/// At least one address.
pub(crate) async fn addresses_of(url: &Url) -> Result<Vec<SocketAddr>, String> {
    let host = url.host_str().unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let port = url.port_or_known_default().unwrap_or(80);
    let found = lookup_host((host, port)).await;
    let addresses: Vec<_> = found.map_err(|error| error.to_string())?.collect();
    if addresses.is_empty() {
        return Err("the host has no address".to_owned());
    }
    Ok(addresses)
}

/// Whether the address is of this machine, or of a private network.
fn is_near(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => v4.is_loopback() || v4.is_private() || v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unique_local() || v6.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    #[test]
    fn every_preset_is_a_file_that_can_be_read() {
        for (name, _) in PRESETS {
            let text = init(name).unwrap();
            // The key of some is in a form, in the place of the JSON.
            let text = match text.contains("\nkey_in = \"form\"") {
                true => text.replace("\njson = ", "\nform = "),
                false => text,
            };
            Config::from_toml(&text).unwrap();
        }
        assert!(init("http").is_err());
    }

    #[test]
    fn a_mistake_is_named() {
        for (text, named) in [
            ("[effect]\nmethod = 'POST'", "effect.path: missing"),
            ("[effect]\npath = 'x'", "effect.path: it begins with /"),
            ("[effect]\npath = '/x'\njson = '{'", "effect.json: EOF"),
            ("[effect]\npath = '/x'\nbody = ''", "unknown field `body`"),
            ("[effect]\npath = '/x'\n[other]", "other: it needs a body"),
            ("[effect]\npath = '/{{env.NO_SUCH}}'", "no NO_SUCH"),
            ("[effect]\npath = '/x'\n[load]\nkeys = 1", "load.keys: 2 to"),
            (
                "[effect]\npath = '/x'\n[stored]\ncommand = ''\nsecret = 'id'",
                "stored.secret: it begins with /",
            ),
            (
                "[effect]\npath = '/x'\n[promises]\nin_progress = [202]",
                "statuses from 400 to 599",
            ),
            (
                "[effect]\npath = '/x'\njson = '{}'\n[promises]\nkey_in = 'form'",
                "effect: promises.key_in is another body",
            ),
        ] {
            let error = Config::from_toml(text).unwrap_err().to_string();
            assert!(error.contains(named), "{text}: {error}");
        }
    }

    #[test]
    fn a_replay_repeats_as_much_as_is_promised() {
        let made = (201, r#"{"id": "a", "state": "new"}"#);
        let changed = (201, r#"{"id": "a", "state": "paid"}"#);
        let shown = (200, changed.1);
        let other = (201, r#"{"id": "b", "state": "new"}"#);
        let (refused, otherwise) = ((402, r#"{"code": 1}"#), (402, r#"{"code": 2}"#));
        for (replay, same) in [
            (Replay::Bytes, &[][..]),
            (
                Replay::StatusAndId,
                &[(made, changed), (refused, otherwise)],
            ),
            (
                Replay::LatestState,
                &[
                    (made, changed),
                    (made, shown),
                    (changed, shown),
                    (refused, otherwise),
                ],
            ),
        ] {
            let promises = Promises {
                replay,
                ..Promises::default()
            };
            let outcome = |(status, body): (u16, &str)| promises.outcome(status, body.as_bytes());
            let all = [made, changed, shown, other, refused, otherwise];
            for (number, first) in all.into_iter().enumerate() {
                for second in all.into_iter().skip(number + 1) {
                    let expected = same.contains(&(first, second));
                    let told = outcome(first) == outcome(second);
                    assert_eq!(told, expected, "{replay:?}: {first:?}, {second:?}");
                }
            }
        }
    }

    #[tokio::test]
    async fn a_public_address_is_refused_unless_it_is_ones_own() {
        for near in "127.0.0.1:1 [::1] 10.1.2.3 192.168.0.1 [fd00::1]".split(' ') {
            target(&format!("http://{near}/v1"), false).await.unwrap();
        }
        for far in "http://192.0.2.1 https://[2001:db8::1] ftp://127.0.0.1".split(' ') {
            assert!(target(far, false).await.is_err(), "{far}");
        }
        target("http://192.0.2.1", true).await.unwrap();
    }
}
