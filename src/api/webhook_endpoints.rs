//! Webhook endpoints as clients send and see them.

use charge_once_strict_params::{Error, Fields, is_empty};
use serde::Serialize;
use serde_json::Value;

use super::{
    error::{ApiError, ErrorCode},
    metadata::{metadata, metadata_change},
    params::{DESCRIPTION_MAX_CHARS, Params, text_change},
};
use crate::{
    domain::{
        change::Change,
        event::EventType,
        metadata::{Metadata, MetadataChange},
        webhook_endpoint::{ENDPOINTS_MAX, EVERY_EVENT, NewWebhookEndpoint, WebhookEndpoint},
    },
    webhooks::{UrlRefusal, check_url},
};

/// The longest URL that proxies and servers commonly take.
const URL_MAX_CHARS: usize = 2048;

const ENABLED_EVENTS: &str = "enabled_events";
const ENABLED_EVENTS_MAX: usize = 100;
const EVENT_TYPE_MAX_CHARS: usize = 100;

/// The parameters of `POST /webhook_endpoints`.
#[derive(Debug, Clone)]
pub struct CreateWebhookEndpointParams {
    /// What is to be made.
    pub new: NewWebhookEndpoint,
}

impl CreateWebhookEndpointParams {
    /// Checks them. With `allow_private`, the URL may name an address that is not public.
    pub fn parse(params: &Params, allow_private: bool) -> Result<Self, ApiError> {
        let mut fields = params.fields()?;
        let new = NewWebhookEndpoint {
            url: url(&mut fields, allow_private)?.ok_or_else(|| fields.missing("url"))?,
            enabled_events: enabled_events(&mut fields)?
                .ok_or_else(|| fields.missing(ENABLED_EVENTS))?,
            description: fields.text("description", DESCRIPTION_MAX_CHARS)?,
            metadata: metadata(&mut fields)?,
        };
        fields.finish()?;
        Ok(Self { new })
    }
}

/// The parameters of `POST /webhook_endpoints/{id}`. `None`: it stays as it is.
#[derive(Debug, Clone)]
pub struct UpdateWebhookEndpointParams {
    /// Where to send events.
    pub url: Option<String>,
    /// Which events.
    pub enabled_events: Option<Vec<String>>,
    /// For people.
    pub description: Change<String>,
    /// The client's own names.
    pub metadata: MetadataChange,
    /// Whether to send nothing for now.
    pub disabled: Option<bool>,
}

impl UpdateWebhookEndpointParams {
    /// Checks them. With `allow_private`, the URL may name an address that is not public.
    pub fn parse(params: &Params, allow_private: bool) -> Result<Self, ApiError> {
        let mut fields = params.fields()?;
        let unsets = |value: &Value| is_empty(value) || value.as_array().is_some_and(Vec::is_empty);
        for name in ["url", ENABLED_EVENTS, "disabled"] {
            // Every endpoint has these, so an update can't unset them.
            if fields.given(name).is_some_and(unsets) {
                return Err(fields.invalid(name, "Must not be empty.").into());
            }
        }
        let update = Self {
            url: url(&mut fields, allow_private)?,
            enabled_events: enabled_events(&mut fields)?,
            description: text_change(&mut fields, "description", DESCRIPTION_MAX_CHARS)?,
            metadata: metadata_change(&mut fields)?,
            disabled: fields.boolean("disabled")?,
        };
        fields.finish()?;
        Ok(update)
    }
}

fn url(fields: &mut Fields<'_>, allow_private: bool) -> Result<Option<String>, Error> {
    let url = fields.text("url", URL_MAX_CHARS)?;
    if let Some(url) = &url {
        check_url(url, allow_private).map_err(|refusal| fields.invalid("url", explain(refusal)))?;
    }
    Ok(url)
}

fn explain(refusal: UrlRefusal) -> &'static str {
    match refusal {
        UrlRefusal::NotAbsolute => "Must be an absolute URL.",
        UrlRefusal::Scheme => "Must begin with https:// or http://.",
        UrlRefusal::Credentials => "Must not hold a user name or a password.",
        UrlRefusal::Fragment => "Must not have a fragment.",
        UrlRefusal::PortZero => "Must not name port 0.",
        UrlRefusal::NotPublic => {
            "Must not name a private, local or reserved address, or localhost. The server allows them \
             with WEBHOOK_ALLOW_PRIVATE=true, for development."
        }
        UrlRefusal::NotPlain => {
            "Must be written in the form that is sent to: no space, // after the scheme, scheme \
             and host in lower case, no default port, an address or a path in its shortest usual \
             form, and what is not ASCII encoded."
        }
    }
}

/// `None` where the list is absent or empty.
fn enabled_events(fields: &mut Fields<'_>) -> Result<Option<Vec<String>>, Error> {
    let names = fields.texts(ENABLED_EVENTS, 0..=ENABLED_EVENTS_MAX, EVENT_TYPE_MAX_CHARS)?;
    let unknown = |name: &String| name != EVERY_EVENT && EventType::parse(name).is_none();
    match names.iter().position(unknown) {
        None => Ok((!names.is_empty()).then_some(names)),
        Some(index) => {
            let message = "Must be * or a type of event, such as charge.succeeded.";
            Err(fields.invalid_element(ENABLED_EVENTS, index, message))
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
#[schema(as = WebhookEndpoint)]
pub struct WebhookEndpointView {
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
    /// `enabled`, or `disabled`: nothing is sent there.
    #[schema(example = "enabled", pattern = "^(enabled|disabled)$")]
    pub status: &'static str,
    /// Where events are sent.
    #[schema(example = "https://example.com/webhooks")]
    pub url: String,
}

/// What is left of a deleted endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[schema(as = DeletedWebhookEndpoint)]
pub struct DeletedWebhookEndpointView {
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

impl DeletedWebhookEndpointView {
    /// Of the endpoint `id`.
    pub fn new(id: String) -> Self {
        Self {
            id,
            object: "webhook_endpoint",
            deleted: true,
        }
    }
}

impl From<&WebhookEndpoint> for WebhookEndpointView {
    fn from(endpoint: &WebhookEndpoint) -> Self {
        Self {
            id: endpoint.id.to_string(),
            object: "webhook_endpoint",
            api_version: (),
            created: endpoint.created_at.timestamp(),
            description: endpoint.description.clone(),
            enabled_events: endpoint.enabled_events.clone(),
            livemode: false,
            metadata: endpoint.metadata.clone(),
            secret: None,
            status: if endpoint.disabled {
                "disabled"
            } else {
                "enabled"
            },
            url: endpoint.url.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
    use charge_once_strict_params::Encoding;
    use serde_json::json;

    use super::*;

    fn parse(body: &Value, allow_private: bool) -> Result<NewWebhookEndpoint, ApiError> {
        let params = Params::new(Encoding::Json, Ok(body.as_object().unwrap().clone()));
        CreateWebhookEndpointParams::parse(&params, allow_private).map(|create| create.new)
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
            // Other names are checked when something is sent.
            "http://localhost.example/",
            "http://notlocalhost/",
            "http://nowhere.invalid/",
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
            ("http://[::]/", true),
            ("http://0.0.0.0/", true),
            ("http://10.1.2.3:8080/hook", true),
            ("http://localhost/", true),
            ("https://localhost:8443/hook", true),
            ("http://localhost./", true),
            ("http://shop.localhost/", true),
            ("http://LOCALHOST/", false),
        ] {
            let refused = with_url(private, false).unwrap_err();
            assert_eq!(refused.param.as_deref(), Some("url"), "{private}");
            assert!(refused.message.contains("private"), "{private}");
            assert!(
                refused.message.contains("WEBHOOK_ALLOW_PRIVATE"),
                "{private}"
            );
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
}
