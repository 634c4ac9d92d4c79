//! Where an account wants its events sent.

use std::{fmt, net::IpAddr};

use serde::Serialize;
use url::{Host, Position, Url};

use super::{
    charge::DESCRIPTION_MAX_CHARS,
    error::{ApiError, ErrorCode},
    event::EventType,
    params::{Fields, Metadata, Params},
    public_addresses::is_public,
};

/// How many endpoints an account may have: each multiplies what an event costs to write.
pub const ENDPOINTS_MAX: i64 = 16;

/// The longest URL that proxies and servers commonly take.
const URL_MAX_CHARS: usize = 2048;

const ENABLED_EVENTS_MAX: usize = 100;
const EVENT_TYPE_MAX_CHARS: usize = 100;

/// Stands for every type of event, those to come included.
const EVERY_EVENT: &str = "*";

/// What is signed with. It shows itself only where [`Secret::reveal`] is called, so that no log line
/// can hold it by accident.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// What every secret begins with, so that scanners and people know one.
    pub const PREFIX: &'static str = "whsec_";

    /// A secret that is known already.
    pub fn of(text: String) -> Self {
        Self(text)
    }

    /// The secret itself, prefix included.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("whsec_…")
    }
}

/// The checked parameters of a new endpoint.
#[derive(Debug, Clone)]
pub struct NewWebhookEndpoint {
    /// As the client wrote it, which is as it is parsed.
    pub url: String,
    /// [`EVERY_EVENT`], or names of [`EventType`]s.
    pub enabled_events: Vec<String>,
    /// For people.
    pub description: Option<String>,
    /// The client's own names.
    pub metadata: Metadata,
}

impl NewWebhookEndpoint {
    /// Checks the parameters of `POST /webhook_endpoints`. With `allow_private`, the URL may name an
    /// address that is not public.
    pub fn parse(params: &Params, allow_private: bool) -> Result<Self, ApiError> {
        let mut fields = params.fields()?;
        let Some(url) = fields.text("url", URL_MAX_CHARS)? else {
            return Err(fields.missing("url"));
        };
        check_url(&url, allow_private).map_err(|message| fields.invalid("url", message))?;
        let new = Self {
            url,
            enabled_events: enabled_events(&mut fields)?,
            description: fields.text("description", DESCRIPTION_MAX_CHARS)?,
            metadata: fields.metadata()?,
        };
        fields.finish()?;
        Ok(new)
    }
}

/// What a host that is a name resolves to is checked when something is sent; names change.
fn check_url(text: &str, allow_private: bool) -> Result<(), &'static str> {
    let Ok(url) = Url::parse(text) else {
        return Err("Must be an absolute URL.");
    };
    if !["http", "https"].contains(&url.scheme()) {
        return Err("Must begin with https:// or http://.");
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("Must not hold a user name or a password.");
    }
    if url.fragment().is_some() {
        return Err("Must not have a fragment.");
    }
    if url.port() == Some(0) {
        return Err("Must not name port 0.");
    }
    if !allow_private && literal_address(&url).is_some_and(|address| !is_public(address)) {
        return Err("Must not name a private, local or reserved address.");
    }
    if !is_written_plainly(text, &url) {
        return Err(
            "Must be written in the form that is sent to: no space, // after the scheme, scheme and \
             host in lower case, no default port, an address or a path in its shortest usual form, \
             and what is not ASCII encoded.",
        );
    }
    Ok(())
}

/// Whether the text is the URL itself, up to the slash of an empty path, and not something that a
/// parser makes one of: what is stored and shown is what is sent to, whoever reads it.
fn is_written_plainly(text: &str, url: &Url) -> bool {
    if text == url.as_str() {
        return true;
    }
    let (before, after) = (&url[..Position::BeforePath], &url[Position::AfterPath..]);
    url.path() == "/" && text.strip_prefix(before) == Some(after)
}

/// The address that the URL names in place of a host name, in any of the forms that URLs have for it.
pub fn literal_address(url: &Url) -> Option<IpAddr> {
    match url.host()? {
        Host::Domain(_) => None,
        Host::Ipv4(address) => Some(address.into()),
        Host::Ipv6(address) => Some(address.into()),
    }
}

fn enabled_events(fields: &mut Fields<'_>) -> Result<Vec<String>, ApiError> {
    const NAME: &str = "enabled_events";
    let names = fields.texts(NAME, 0..=ENABLED_EVENTS_MAX, EVENT_TYPE_MAX_CHARS)?;
    if names.is_empty() {
        return Err(fields.missing(NAME));
    }
    let unknown = |name: &String| name != EVERY_EVENT && EventType::parse(name).is_none();
    match names.iter().position(unknown) {
        None => Ok(names),
        Some(index) => {
            let message = "Must be * or a type of event, such as charge.succeeded.";
            Err(fields.invalid_element(NAME, index, message))
        }
    }
}

/// The refusal of an endpoint too many.
pub fn too_many_endpoints() -> ApiError {
    let message =
        format!("An account has at most {ENDPOINTS_MAX} webhook endpoints. Delete one first.");
    ApiError::new(ErrorCode::ParameterInvalid, message)
}

/// A webhook endpoint, as clients see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct WebhookEndpoint {
    /// `we_…`
    #[schema(example = "we_01kar2w7n9e4xt8f5mq0v3z6yd")]
    pub id: String,
    /// Always `webhook_endpoint`.
    #[schema(example = "webhook_endpoint")]
    pub object: &'static str,
    /// Always null: there is one version of this API.
    #[schema(required = true, value_type = Option<String>)]
    pub api_version: (),
    /// Unix seconds.
    #[schema(example = 1_795_000_000)]
    pub created: i64,
    /// For people.
    #[schema(required = true)]
    pub description: Option<String>,
    /// `*` for all, or types of events.
    #[schema(example = json!(["charge.succeeded", "charge.refunded"]))]
    pub enabled_events: Vec<String>,
    /// Always false.
    #[schema(example = false)]
    pub livemode: bool,
    /// Your own names.
    #[schema(value_type = BTreeMap<String, String>)]
    pub metadata: Metadata,
    /// What signatures are made with. Only in the reply to its creation, and in replays of that.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "whsec_3kTq9v…")]
    pub secret: Option<String>,
    /// Always `enabled`.
    #[schema(example = "enabled")]
    pub status: &'static str,
    /// Where events are sent.
    #[schema(example = "https://example.com/webhooks")]
    pub url: String,
}

/// What is left of a deleted endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct DeletedWebhookEndpoint {
    /// `we_…`
    #[schema(example = "we_01kar2w7n9e4xt8f5mq0v3z6yd")]
    pub id: String,
    /// Always `webhook_endpoint`.
    #[schema(example = "webhook_endpoint")]
    pub object: &'static str,
    /// Always true.
    #[schema(example = true)]
    pub deleted: bool,
}

impl DeletedWebhookEndpoint {
    /// Of the endpoint `id`.
    pub fn new(id: String) -> Self {
        Self {
            id,
            object: "webhook_endpoint",
            deleted: true,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
    use serde_json::{Value, json};

    use super::*;
    use crate::domain::params::Encoding;

    fn parse(body: &Value, allow_private: bool) -> Result<NewWebhookEndpoint, ApiError> {
        let params = Params {
            encoding: Encoding::Json,
            tree: Ok(body.as_object().unwrap().clone()),
        };
        NewWebhookEndpoint::parse(&params, allow_private)
    }

    fn with_url(url: &str, allow_private: bool) -> Result<NewWebhookEndpoint, ApiError> {
        parse(&json!({"url": url, "enabled_events": ["*"]}), allow_private)
    }

    #[test]
    fn a_url_is_http_or_https_without_a_user_and_a_fragment() {
        for good in [
            "https://example.com/webhooks",
            "http://example.com:8080/?a=b",
            "https://1.1.1.1/",
            "https://[2606:4700::1111]/",
            // Checked when something is sent.
            "http://localhost/",
            // The slash of an empty path may be missing.
            "https://example.com",
            "https://example.com:8443",
            "https://example.com?a=b",
            "https://example.com/a//b/?a=/&b=%20",
            "https://xn--bcher-kva.example/",
        ] {
            assert!(with_url(good, false).is_ok(), "{good}");
        }
        for bad in [
            "example.com",
            "/webhooks",
            "https://",
            "ftp://example.com/",
            "file:///etc/passwd",
            "https://user@example.com/",
            "https://:password@example.com/",
            "https://example.com/#part",
            "https://example.com:0/",
            // What a parser makes another text of.
            " http://example.com/ ",
            "http://example.com/\ta",
            "http://exam\nple.com/",
            "http:example.com",
            "http:/example.com/",
            "http:///example.com/",
            "http:\\\\example.com\\",
            "https://Example.com/",
            "HTTPS://example.com/",
            "https://example.com:443/",
            "https://example.com:/",
            "https://@example.com/",
            "https://example.com/a/../b",
            "https://example.com/a b",
            "https://example.com/?a b",
            "https://bücher.example/",
        ] {
            let refused = with_url(bad, true).unwrap_err();
            assert_eq!(refused.param.as_deref(), Some("url"), "{bad}");
            assert_eq!(refused.code, ErrorCode::ParameterInvalid, "{bad}");
        }
    }

    #[test]
    fn a_private_address_is_refused_in_every_way_of_writing_it_unless_it_is_allowed() {
        // Whether the way of writing it is accepted at all.
        for (private, plain) in [
            ("http://127.0.0.1/", true),
            ("http://127.1/", false),
            ("http://2130706433/", false),
            ("http://0x7f000001/", false),
            ("http://0177.0.0.1/", false),
            ("http://127。0。0。1/", false),
            ("http://169.254.169.254/latest/meta-data", true),
            ("http://[::1]/", true),
            ("http://[::ffff:10.0.0.1]/", false),
            ("http://[::ffff:a00:1]/", true),
            ("http://[fd00::1]/", true),
        ] {
            let refused = with_url(private, false).unwrap_err();
            assert_eq!(refused.param.as_deref(), Some("url"), "{private}");
            assert!(refused.message.contains("private"), "{private}");
            assert_eq!(with_url(private, true).is_ok(), plain, "{private}");
        }
    }

    #[test]
    fn enabled_events_are_known_types_or_a_star() {
        for (events, param) in [
            (json!(["charge.succeeded", "*"]), None),
            (json!([]), Some("enabled_events")),
            (json!("*"), Some("enabled_events")),
            (json!(["charge.stolen"]), Some("enabled_events[0]")),
            (json!(["*", "charge.*"]), Some("enabled_events[1]")),
            (json!(["*", 1]), Some("enabled_events[1]")),
            (json!(vec!["*"; 101]), Some("enabled_events")),
        ] {
            let body = json!({"url": "https://example.com/", "enabled_events": events});
            let refused = parse(&body, false).err().map(|error| error.param.unwrap());
            assert_eq!(refused.as_deref(), param, "{events}");
        }
    }

    #[test]
    fn a_secret_does_not_show_itself() {
        let secret = Secret::of("whsec_hidden".to_owned());
        assert!(!format!("{secret:?}").contains("hidden"));
    }
}
