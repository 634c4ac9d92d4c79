//! Webhook endpoints as clients send and see them.

use utoipa::openapi::SchemaFormat;

use super::{
    api_version::ApiVersion,
    events::{EVENT_TYPE_MAX_CHARS, is_known_type, is_never_sent, known_types},
    prelude::*,
};
use crate::webhooks::{EVERY_EVENT, Endpoint, NewEndpoint, UrlRefusal, check_url};

/// What a request is granted whose `url` may name an address that is not public.
pub const PRIVATE_URLS: &str = "private URLs";

/// The longest URL that proxies and servers commonly take.
const URL_MAX_CHARS: usize = 2048;

/// How many endpoints an account may have: each multiplies what an event costs to write.
pub const ENDPOINTS_MAX: i64 = 16;

const ALLOW_PRIVATE: &str =
    " The server allows them with WEBHOOK_ALLOW_PRIVATE=true, for development.";

const ENABLED_EVENTS_MAX: usize = 100;

parameters! {
    /// The parameters of a new webhook endpoint.
    pub struct CreateWebhookEndpointParams as "CreateWebhookEndpoint" {
        /// Where to send events: https or http, without a user name and a fragment, and neither
        /// localhost nor a private address.
        url: EndpointUrl,
        /// Types of events; `*` is all of them.
        enabled_events: ListOf<EnabledEvent, ENABLED_EVENTS_MAX, 1>,
        /// The version of Stripe's API that events name there, for good. Without it, they name the
        /// version of the request that made them happen.
        api_version: Option<ApiVersion>,
        /// Whether events of connected accounts are sent there: there are none.
        connect: Option<OnlyFalse<Connect>>,
        /// For people.
        description: Option<Description>,
        metadata: MetadataParam,
        /// Whether the headers of Standard Webhooks are sent too.
        standard_webhooks: Option<bool>,
    }
    example {
        "url": "https://example.com/webhooks",
        "enabled_events": ["charge.succeeded", "charge.refunded"],
    }

    /// What may change of a webhook endpoint.
    pub struct UpdateWebhookEndpointParams as "UpdateWebhookEndpoint" {
        /// Where to send events, deliveries that are pending included.
        url: Kept<EndpointUrl>,
        /// Types of the events from now on; `*` is all of them.
        enabled_events: Kept<ListOf<EnabledEvent, ENABLED_EVENTS_MAX, 1>>,
        /// For people.
        description: Change<Description>,
        metadata: MetadataChange,
        /// `true`: send nothing there for now. `false`: send new events again.
        disabled: Kept<bool>,
        /// Whether the headers of Standard Webhooks are sent too.
        standard_webhooks: Kept<bool>,
    }
    example {"disabled": true}
}

impl From<CreateWebhookEndpointParams> for NewEndpoint {
    fn from(params: CreateWebhookEndpointParams) -> Self {
        Self {
            url: params.url,
            enabled_events: params.enabled_events,
            api_version: params.api_version,
            standard_webhooks: params.standard_webhooks.unwrap_or_default(),
            description: params.description,
            metadata: params.metadata,
        }
    }
}

/// A URL that events can be sent to.
pub struct EndpointUrl;

impl ValueKind for EndpointUrl {
    type Value = String;

    fn read(field: &mut Field<'_, '_>) -> Result<Option<String>, Error> {
        let url = field.fields.text(field.name, URL_MAX_CHARS)?;
        if let Some(url) = &url {
            check_url(url, field.fields.is_granted(PRIVATE_URLS)).map_err(|refusal| {
                let is_private = refusal == UrlRefusal::NotPublic;
                let remedy = if is_private { ALLOW_PRIVATE } else { "" };
                field.invalid(format!("{refusal}{remedy}"))
            })?;
        }
        Ok(url)
    }

    fn schema() -> RefOr<Schema> {
        let url = text()
            .max_length(Some(URL_MAX_CHARS))
            .format(Some(SchemaFormat::Custom("uri".to_owned())));
        with_example(url, "https://example.com/webhooks").into()
    }
}

/// Events of connected accounts would be sent.
pub struct Connect;

impl NeverTrue for Connect {
    const WHY: &'static str = "charge-once doesn't offer connected accounts.";
}

/// The name of a type of event, or `*`.
pub struct EnabledEvent;

impl TextKind for EnabledEvent {
    type Value = String;
    const MAX_CHARS: usize = EVENT_TYPE_MAX_CHARS;
    const MUST_BE: &'static str = "Must be * or a type of event, such as charge.succeeded.";

    fn parse(text: &str) -> Option<String> {
        (text == EVERY_EVENT || is_known_type(text)).then(|| text.to_owned())
    }

    fn schema() -> ObjectBuilder {
        let mut types: Vec<_> = known_types().collect();
        types.sort_unstable();
        types.dedup();
        text().enum_values(Some([EVERY_EVENT].into_iter().chain(types)))
    }
}

impl PartialSchema for EnabledEvent {
    fn schema() -> RefOr<Schema> {
        <Self as TextKind>::schema().into()
    }
}

impl ToSchema for EnabledEvent {}

/// The refusal of an endpoint too many.
pub fn too_many_endpoints() -> ApiError {
    let message =
        format!("An account has at most {ENDPOINTS_MAX} webhook endpoints. Delete one first.");
    ApiError::new(ErrorCode::ParameterInvalid, message)
}

views! {
    /// A webhook endpoint, as clients see it.
    pub struct WebhookEndpointView as WebhookEndpoint from endpoint: &Endpoint {
        /// `we_…`
        id: String [example = "we_01kar2w7n9e4xt8f5mq0v3z6yd"] =
            WebhookEndpointId(endpoint.id).to_string();
        /// Always `webhook_endpoint`.
        always object: &'static str = "webhook_endpoint";
        /// The version of Stripe's API that events name there; null: that of the request that made
        /// them happen.
        maybe api_version: String [example = "2026-10-28.endive"] = endpoint.api_version.clone();
        created = endpoint.created_at.timestamp();
        /// For people.
        maybe description: String = endpoint.description.clone();
        /// `*` for all, or types of events.
        enabled_events: Vec<String> [example = json!(["charge.succeeded", "charge.refunded"])] =
            endpoint.enabled_events.clone();
        /// Always false.
        always livemode: bool = false;
        metadata = endpoint.metadata.clone();
        /// Those of the enabled events that happen at Stripe only, and are never sent here.
        never_sent: Vec<String> [example = json!([])] =
            endpoint.enabled_events.iter().filter(|name| is_never_sent(name)).cloned().collect();
        /// What signatures are made with. Only in the reply to its creation, and in replays of
        /// that.
        #[serde(skip_serializing_if = "Option::is_none")]
        secret: Option<String> [example = "whsec_3kTq9v…"] = None;
        /// Whether the headers of Standard Webhooks are sent too.
        standard_webhooks: bool [example = false] = endpoint.standard_webhooks;
        /// `enabled`, or `disabled`: nothing is sent there.
        status: &'static str [example = "enabled", pattern = "^(enabled|disabled)$"] =
            if endpoint.disabled { "disabled" } else { "enabled" };
        /// Where events are sent.
        url: String [example = "https://example.com/webhooks"] = endpoint.url.clone();
    }

    /// What is left of a deleted endpoint.
    pub struct DeletedWebhookEndpointView as DeletedWebhookEndpoint of(id: String) {
        /// `we_…`
        id: String [example = "we_01kar2w7n9e4xt8f5mq0v3z6yd"] = id;
        /// Always `webhook_endpoint`.
        always object: &'static str = "webhook_endpoint";
        /// Always true.
        always deleted: bool = true;
    }
}

#[cfg(test)]
mod tests {
    use charge_once_strict_params::{Encoding, ParameterSet, Params};
    use serde_json::{Value, json};

    use super::*;

    fn parse(body: &Value, allow_private: bool) -> Result<NewEndpoint, ApiError> {
        let mut params = Params::new(Encoding::Json, Ok(body.as_object().unwrap().clone()));
        params.grant(PRIVATE_URLS, allow_private);
        Ok(NewEndpoint::from(CreateWebhookEndpointParams::parse(
            &params,
        )?))
    }

    #[test]
    fn a_url_is_refused_by_what_is_wrong_with_it() {
        for (url, allow_private, told) in [
            ("https://example.com/webhooks", false, None),
            ("http://10.1.2.3:8080/hook", true, None),
            ("/webhooks", true, Some("Must be an absolute URL.")),
            (
                "http://localhost/",
                false,
                Some("WEBHOOK_ALLOW_PRIVATE=true"),
            ),
        ] {
            let body = json!({"url": url, "enabled_events": ["*"]});
            let refused = parse(&body, allow_private).err();
            assert_eq!(refused.is_some(), told.is_some(), "{url}");
            if let (Some(refused), Some(told)) = (refused, told) {
                assert_eq!(refused.param.as_deref(), Some("url"), "{url}");
                assert_eq!(refused.code, ErrorCode::ParameterInvalid, "{url}");
                assert!(refused.message.contains(told), "{}", refused.message);
            }
        }
    }

    #[test]
    fn enabled_events_are_known_types_or_a_star() {
        for (events, param) in [
            (json!(["charge.succeeded", "*"]), None),
            (
                json!(["invoice.paid", "customer.subscription.created"]),
                None,
            ),
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
