//! What APIs promise in different ways. The server is honest in each, unless it makes a mistake.

use axum::http::HeaderMap;
use serde_json::{Map, Value};

/// Where the key is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyIn {
    Header,
    Json,
    Form,
    Query,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Profile {
    pub(crate) name: &'static str,
    pub(crate) key_in: KeyIn,
    pub(crate) key_name: &'static str,
    pub(crate) is_required: bool,
    pub(crate) is_quoted: bool,
    pub(crate) length_max: usize,
    /// The status of a key with another body. `None`: bodies are not compared.
    pub(crate) reuse: Option<u16>,
    /// Whether JSON that is written in another way is another body.
    pub(crate) compares_bytes: bool,
    pub(crate) in_use: u16,
    /// Whether a replay is 200 with the effect as it is now.
    pub(crate) shows_latest: bool,
    pub(crate) keeps_refusals: bool,
    pub(crate) keeps_invalid: bool,
    pub(crate) keeps_server_errors: bool,
    pub(crate) has_keyed_delete: bool,
    pub(crate) marks: bool,
    pub(crate) has_problems: bool,
}

const OWN: Profile = Profile {
    name: "own",
    key_in: KeyIn::Header,
    key_name: "Idempotency-Key",
    is_required: true,
    is_quoted: true,
    length_max: 255,
    reuse: Some(422),
    compares_bytes: false,
    in_use: 409,
    shows_latest: false,
    keeps_refusals: true,
    keeps_invalid: true,
    keeps_server_errors: false,
    has_keyed_delete: true,
    marks: true,
    has_problems: true,
};

/// An API whose clients may leave the key out, and whose keys are any text.
const OPTIONAL: Profile = Profile {
    is_required: false,
    is_quoted: false,
    marks: false,
    has_problems: false,
    has_keyed_delete: false,
    ..OWN
};

/// The names are those of the presets.
pub(crate) const PROFILES: [Profile; 13] = [
    OWN,
    Profile {
        name: "form",
        key_in: KeyIn::Form,
        key_name: "token",
        ..OWN
    },
    Profile {
        name: "ietf-draft",
        is_required: false,
        ..OWN
    },
    Profile {
        name: "stripe-v1",
        reuse: Some(400),
        keeps_invalid: false,
        keeps_server_errors: true,
        marks: true,
        ..OPTIONAL
    },
    Profile {
        name: "stripe-v2",
        shows_latest: true,
        keeps_refusals: false,
        keeps_invalid: false,
        has_keyed_delete: true,
        ..OPTIONAL
    },
    Profile {
        name: "square",
        key_in: KeyIn::Json,
        key_name: "idempotency_key",
        is_required: true,
        length_max: 45,
        reuse: Some(400),
        ..OPTIONAL
    },
    Profile {
        name: "paypal",
        key_name: "PayPal-Request-Id",
        length_max: 108,
        reuse: None,
        in_use: 422,
        shows_latest: true,
        ..OPTIONAL
    },
    Profile {
        name: "adyen",
        key_name: "idempotency-key",
        length_max: 64,
        reuse: None,
        in_use: 422,
        ..OPTIONAL
    },
    Profile {
        name: "checkout",
        key_name: "Cko-Idempotency-Key",
        reuse: None,
        keeps_refusals: false,
        keeps_invalid: false,
        ..OPTIONAL
    },
    Profile {
        name: "aws-client-token",
        key_in: KeyIn::Query,
        key_name: "ClientToken",
        length_max: 64,
        reuse: Some(400),
        shows_latest: true,
        ..OPTIONAL
    },
    Profile {
        name: "aip-155",
        key_in: KeyIn::Json,
        key_name: "request_id",
        length_max: 36,
        reuse: None,
        shows_latest: true,
        ..OPTIONAL
    },
    Profile {
        name: "acp",
        is_required: true,
        marks: true,
        ..OPTIONAL
    },
    Profile {
        name: "ucp",
        reuse: Some(409),
        in_use: 503,
        compares_bytes: true,
        ..OPTIONAL
    },
];

/// A request's key, and the rest of it.
pub(crate) struct Asked {
    /// `None`: there is none. An error: it is malformed.
    pub(crate) key: Result<Option<String>, ()>,
    pub(crate) query: Option<String>,
    /// `None`: it can't be read.
    pub(crate) body: Option<Value>,
}

impl Profile {
    pub(crate) fn read(&self, headers: &HeaderMap, query: Option<&str>, bytes: &[u8]) -> Asked {
        let form = "application/x-www-form-urlencoded";
        let is_form = headers.get("content-type").is_some_and(|it| it == form);
        let mut form = pairs(&String::from_utf8_lossy(bytes));
        let mut queried = pairs(query.unwrap_or_default());
        let mut json = serde_json::from_slice(bytes).ok();
        let found: Vec<Option<String>> = match self.key_in {
            KeyIn::Header => {
                let values = headers.get_all(self.key_name).iter();
                values
                    .map(|value| value.to_str().ok().map(str::to_owned))
                    .collect()
            }
            KeyIn::Json => {
                let members = json.as_mut().and_then(Value::as_object_mut);
                let member = members.and_then(|members| members.remove(self.key_name));
                member
                    .iter()
                    .map(|it| it.as_str().map(str::to_owned))
                    .collect()
            }
            KeyIn::Form => taken(&mut form, self.key_name),
            KeyIn::Query => taken(&mut queried, self.key_name),
        };
        let typed = form
            .into_iter()
            .map(|(name, value)| match value.parse::<u64>() {
                Ok(number) => (name, Value::from(number)),
                Err(_) => (name, Value::from(value)),
            });
        let mut body = match is_form {
            true => Some(Value::Object(typed.collect::<Map<_, _>>())),
            false => json,
        };
        let query: Vec<String> = queried
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        if self.compares_bytes
            && let Some(Value::Object(members)) = &mut body
        {
            members.insert(
                "bytes".to_owned(),
                Value::from(String::from_utf8_lossy(bytes)),
            );
        }
        Asked {
            key: self.one_key(&found),
            query: (!query.is_empty()).then(|| query.join("&")),
            body,
        }
    }

    /// One key of visible characters, bare or, where keys are quoted, as one quoted string.
    fn one_key(&self, found: &[Option<String>]) -> Result<Option<String>, ()> {
        let key = match found {
            [] => return Ok(None),
            [Some(key)] => key.as_str(),
            _ => return Err(()),
        };
        let bare = match key.strip_prefix('"') {
            Some(rest) if self.is_quoted => rest.strip_suffix('"').ok_or(())?,
            _ => key,
        };
        let is_quote = |c: char| self.is_quoted && (c == '"' || c == '\\');
        let is_visible = |c: char| c.is_ascii_graphic() && !is_quote(c);
        let is_key = (1..=self.length_max).contains(&bare.len()) && bare.chars().all(is_visible);
        is_key.then(|| Some(bare.to_owned())).ok_or(())
    }
}

/// Takes the values of a name out of the pairs.
fn taken(pairs: &mut Vec<(String, String)>, name: &str) -> Vec<Option<String>> {
    let taken = pairs.extract_if(.., |(other, _)| other == name);
    taken.map(|(_, value)| Some(value)).collect()
}

/// The pairs of a query or a form. No value of this example has an escape.
fn pairs(text: &str) -> Vec<(String, String)> {
    let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
    pairs
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}
