//! What the API under test is: the requests to send, how their effects are counted, and what the
//! API promises where specifications differ. A TOML file, `--init` writes one.

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use reqwest::{
    Method, Url,
    header::{HeaderName, HeaderValue},
};
use serde::Deserialize;
use serde_json::Value;
use tokio::net::lookup_host;

/// Why nothing can be checked: the program exits with 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub String);

/// The whole file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// A request that makes one effect.
    pub effect: Template,
    /// Another request that makes another effect. Like all that follow, it says what differs from
    /// `effect`.
    pub other: Option<Template>,
    /// A request that a rule of the API refuses with 4xx, such as a card that is declined.
    pub refused: Option<Template>,
    /// A request that takes a second or longer.
    pub slow: Option<Template>,
    /// A request that fails with 5xx the first time, and succeeds when it is repeated.
    pub server_error: Option<Template>,
    /// A request that changes what `effect` has made. It may hold `{{reply./id}}`: what a JSON pointer
    /// finds in the reply to `effect`.
    pub change: Option<Template>,
    /// A request, under a key of its own, that lets all completed keys of the account expire.
    pub expire: Option<Template>,
    /// Who sends the requests.
    #[serde(default)]
    pub accounts: Accounts,
    /// How effects are counted.
    pub count: Option<Count>,
    /// What the API promises.
    #[serde(default)]
    pub promises: Promises,
    /// How much is sent.
    #[serde(default)]
    pub load: Load,
}

/// A request with placeholders: `{{unique}}`, `{{number}}` and `{{credential}}`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Template {
    /// POST, if it is left out.
    pub method: Option<String>,
    /// Below the URL that the program is given.
    pub path: Option<String>,
    /// Added to those of `effect`.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// A body that is sent as `application/json`.
    pub json: Option<String>,
    /// A body that is sent as `application/x-www-form-urlencoded`.
    pub form: Option<String>,
}

/// Values of `{{credential}}`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Accounts {
    /// The account that is tested.
    pub credential: String,
    /// Another credential of the same account.
    pub rotated: Option<String>,
    /// A credential of another account.
    pub other: Option<String>,
    /// A credential that is refused before the key is looked at.
    pub wrong: Option<String>,
}

/// One of two ways to count effects.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, untagged)]
pub enum Count {
    /// A resource of the API.
    List {
        /// Its path, with placeholders.
        list: String,
        /// A JSON pointer to an array, whose elements are counted, or to a number.
        #[serde(default)]
        items: String,
        /// In each element, a JSON pointer to the `{{unique}}` or the `{{number}}` of the request
        /// that made it. Other elements are not counted.
        unique: Option<String>,
    },
    /// A command of the shell that prints a number.
    Command {
        /// The command, with placeholders.
        command: String,
    },
}

impl Count {
    /// Whether it counts the effects of one request, and not all that there are.
    pub(crate) fn is_of_one_request(&self) -> bool {
        let names_one = |text: &str| text.contains("{{unique}}") || text.contains("{{number}}");
        match self {
            Self::List { list, unique, .. } => unique.is_some() || names_one(list),
            Self::Command { command } => names_one(command),
        }
    }
}

/// How a request is treated whose key was used with another path or query, or whose JSON was
/// written in another way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Difference {
    /// It is another request: refused like another body.
    Refused,
    /// It is the same request: replayed.
    Same,
    /// The key is a new one there.
    Separate,
    /// Nothing is promised.
    Open,
}

/// What a duplicate gets while the first request executes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InFlight {
    /// 409.
    Conflict,
    /// It waits, and gets the answer of the first request. 409 if that takes long.
    Waits,
}

/// What the API promises where specifications differ. The defaults are those of the IETF draft.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Promises {
    /// The header that carries the key.
    pub key_header: String,
    /// Whether a request without a key is refused.
    pub key_required: bool,
    /// The longest key that is accepted.
    pub key_length_max: usize,
    /// Whether a key is a string of RFC 8941, so that `"key"` is the key `key`.
    pub key_quoted: bool,
    /// The statuses with which a key is refused that was used for another body.
    pub reuse: Vec<u16>,
    /// The same key and body on another path.
    pub other_path: Difference,
    /// The path for that.
    pub other_path_is: Option<String>,
    /// The same key and body with another query.
    pub other_query: Difference,
    /// The same JSON in another order of members, with other whitespace.
    pub other_spelling: Difference,
    /// A duplicate while the first request executes.
    pub in_flight: InFlight,
    /// Whether a refusal (4xx) of a request that began to execute is stored and replayed.
    pub refusal_stored: bool,
    /// Whether a retry after 5xx executes. Otherwise the 5xx is replayed.
    pub server_error_retried: bool,
    /// The header that marks a replay.
    pub replay_header: Option<String>,
    /// Headers that differ from delivery to delivery, besides those of HTTP itself.
    pub delivery_headers: Vec<String>,
    /// How long a key is kept.
    pub retention_seconds: u64,
}

impl Default for Promises {
    fn default() -> Self {
        Self {
            key_header: "Idempotency-Key".to_owned(),
            key_required: true,
            key_length_max: 255,
            key_quoted: true,
            reuse: vec![422],
            other_path: Difference::Open,
            other_path_is: None,
            other_query: Difference::Open,
            other_spelling: Difference::Open,
            in_flight: InFlight::Conflict,
            refusal_stored: true,
            server_error_retried: true,
            replay_header: None,
            delivery_headers: Vec::new(),
            retention_seconds: 86_400,
        }
    }
}

/// Bounds of what is sent.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Load {
    /// Requests at once, 2 to 64.
    pub clients: usize,
    /// Keys of the storm, 2 to 1000.
    pub keys: usize,
    /// How long a retry may go on without a definite answer, in seconds, 1 to 300.
    pub patience_seconds: u64,
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

impl Load {
    pub(crate) fn patience(&self) -> Duration {
        Duration::from_secs(self.patience_seconds)
    }
}

/// The promises of a specification, with their sources, as part of a file.
fn preset(name: &str) -> Option<&'static str> {
    match name {
        "ietf" => Some(include_str!("presets/ietf.toml")),
        "stripe" => Some(include_str!("presets/stripe.toml")),
        "acp" => Some(include_str!("presets/acp.toml")),
        _ => None,
    }
}

/// The text that `--init` writes: a whole file with comments.
///
/// # Errors
///
/// If there is no such preset.
pub fn init(name: &str) -> Result<String, ConfigError> {
    let promises = preset(name).ok_or_else(|| {
        ConfigError(format!(
            "there is no preset {name}: it is ietf, stripe or acp"
        ))
    })?;
    Ok(format!("{}\n{promises}", include_str!("presets/api.toml")))
}

impl Config {
    /// Reads a file. `{{env.NAME}}` is replaced by a variable of the environment first.
    ///
    /// # Errors
    ///
    /// If it can't be used. The message names the place.
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        let text = with_environment(text)?;
        let config: Self = toml::from_str(&text).map_err(|error| ConfigError(error.to_string()))?;
        config.validate()?;
        Ok(config)
    }

    fn validate(&self) -> Result<(), ConfigError> {
        let Load {
            clients,
            keys,
            patience_seconds,
        } = self.load;
        let wrong = |place: &str, what: &str| Err(ConfigError(format!("{place}: {what}")));
        if !(2..=64).contains(&clients) {
            return wrong("load.clients", "2 to 64");
        }
        if !(2..=1000).contains(&keys) {
            return wrong("load.keys", "2 to 1000");
        }
        if !(1..=300).contains(&patience_seconds) {
            return wrong("load.patience_seconds", "1 to 300");
        }
        if HeaderName::try_from(&self.promises.key_header).is_err() {
            return wrong("promises.key_header", "not the name of a header");
        }
        if self.promises.reuse.iter().any(|s| !(400..500).contains(s)) {
            return wrong("promises.reuse", "a list of statuses from 400 to 499");
        }
        if let Some(Count::List { items, unique, .. }) = &self.count {
            for pointer in [Some(items), unique.as_ref()].into_iter().flatten() {
                if !pointer.is_empty() && !pointer.starts_with('/') {
                    return wrong("count", "a JSON pointer begins with /");
                }
            }
        }
        if self.effect.path.is_none() {
            return wrong("effect.path", "missing");
        }
        if self
            .other
            .as_ref()
            .is_some_and(|other| other.body().is_none())
        {
            return wrong("other", "it needs a body that differs: json or form");
        }
        let templates = [
            ("effect", Some(&self.effect)),
            ("other", self.other.as_ref()),
            ("refused", self.refused.as_ref()),
            ("slow", self.slow.as_ref()),
            ("server_error", self.server_error.as_ref()),
            ("change", self.change.as_ref()),
            ("expire", self.expire.as_ref()),
        ];
        for (name, template) in templates {
            if let Some(template) = template {
                template.validate(name)?;
            }
        }
        Ok(())
    }
}

impl Template {
    fn validate(&self, name: &str) -> Result<(), ConfigError> {
        let wrong = |what: String| Err(ConfigError(format!("{name}.{what}")));
        if let Some(method) = &self.method
            && Method::from_bytes(method.as_bytes()).is_err()
        {
            return wrong(format!("method: {method} is none"));
        }
        if self
            .path
            .as_ref()
            .is_some_and(|path| !path.starts_with('/'))
        {
            return wrong("path: it begins with /".to_owned());
        }
        if self.json.is_some() && self.form.is_some() {
            return wrong("json: there is a form too".to_owned());
        }
        for (header, value) in &self.headers {
            if HeaderName::try_from(header).is_err() || HeaderValue::try_from(value).is_err() {
                return wrong(format!("headers: {header} can't be sent"));
            }
        }
        if let Some(json) = &self.json {
            let filled = fill(json, 1, "");
            if let Err(error) = serde_json::from_str::<Value>(&filled) {
                return wrong(format!("json: {error}"));
            }
        }
        Ok(())
    }

    pub(crate) fn body(&self) -> Option<&str> {
        self.json.as_deref().or(self.form.as_deref())
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

/// Replaces the placeholders.
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

/// Replaces `{{env.NAME}}`, except in comments.
fn with_environment(text: &str) -> Result<String, ConfigError> {
    let mut filled = String::new();
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
            rest = after;
        }
        filled.push_str(rest);
        filled.push('\n');
    }
    Ok(filled)
}

/// What is before a placeholder, its name, and what is after it.
fn placeholder<'a>(text: &'a str, begin: &str) -> Option<(&'a str, &'a str, &'a str)> {
    let (before, rest) = text.split_once(begin)?;
    let (name, after) = rest.split_once("}}")?;
    Some((before, name, after))
}

/// Parses the URL. Refuses an address that is neither loopback nor private: the checks cut
/// connections, repeat requests, and make effects.
///
/// # Errors
///
/// If it is not a URL of HTTP, has no address, or has a public one that `is_own` does not allow.
pub async fn target(url: &str, is_own: bool) -> Result<Url, ConfigError> {
    let wrong = |what: &str| ConfigError(format!("{url}: {what}"));
    let parsed = Url::parse(url).map_err(|error| wrong(&error.to_string()))?;
    if !matches!(parsed.scheme(), "http" | "https") {
        return Err(wrong("neither http:// nor https://"));
    }
    if is_own {
        return Ok(parsed);
    }
    let host = parsed.host_str().unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let port = parsed.port_or_known_default().unwrap_or(80);
    let found = lookup_host((host, port)).await;
    let addresses: Vec<_> = found.map_err(|error| wrong(&error.to_string()))?.collect();
    if addresses.is_empty() {
        return Err(wrong("the host has no address"));
    }
    match addresses.iter().find(|address| !is_near(address.ip())) {
        None => Ok(parsed),
        Some(address) => Err(wrong(&format!(
            "{} is a public address, and the checks make effects, repeat requests and cut \
             connections there. If the service is yours, add --i-own-this",
            address.ip()
        ))),
    }
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
        for name in ["ietf", "stripe", "acp"] {
            Config::from_toml(&init(name).unwrap()).unwrap();
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
        ] {
            let error = Config::from_toml(text).unwrap_err().to_string();
            assert!(error.contains(named), "{text}: {error}");
        }
    }

    #[tokio::test]
    async fn a_public_address_is_refused_unless_it_is_ones_own() {
        for near in [
            "127.0.0.1:1",
            "[::1]",
            "10.1.2.3",
            "192.168.0.1",
            "[fd00::1]",
        ] {
            target(&format!("http://{near}/v1"), false).await.unwrap();
        }
        for far in [
            "http://192.0.2.1",
            "https://[2001:db8::1]",
            "ftp://127.0.0.1",
        ] {
            assert!(target(far, false).await.is_err(), "{far}");
        }
        target("http://192.0.2.1", true).await.unwrap();
    }
}
