//! What the OpenAPI document says of webhooks: one for each type of event.

use charge_once_strict_params::schema::text;
use utoipa::{
    Modify,
    openapi::{
        HttpMethod, OpenApi, PathItem, PathsBuilder, Ref, Required, Response,
        content::ContentBuilder,
        path::{Operation, OperationBuilder},
        request_body::RequestBodyBuilder,
    },
};

use crate::{domain::event::EventType, http::parameters::header};

pub(super) struct WebhooksSection;

impl Modify for WebhooksSection {
    fn modify(&self, document: &mut OpenApi) {
        let mut webhooks = PathsBuilder::new();
        for event_type in EventType::ALL {
            let item = PathItem::new(HttpMethod::Post, delivery(*event_type));
            webhooks = webhooks.path(event_type.as_str(), item);
        }
        document.webhooks = Some(webhooks.build());
    }
}

/// What an endpoint with `standard_webhooks` gets besides.
const STANDARD_HEADERS: [(&str, &str); 3] = [
    ("webhook-id", "With `standard_webhooks`: the event's id."),
    (
        "webhook-timestamp",
        "With `standard_webhooks`: the attempt's time in Unix seconds.",
    ),
    (
        "webhook-signature",
        "With `standard_webhooks`: `v1,…`, the HMAC-SHA256, in Base64, of `webhook-id`, a dot, \
         `webhook-timestamp`, a dot and the body, with the bytes that the secret has behind `whsec_` \
         in Base64 as the key.",
    ),
];

/// What a webhook endpoint receives, and what it should answer.
fn delivery(event_type: EventType) -> Operation {
    let name = event_type.as_str();
    let noun = name.split('.').next().unwrap_or_default();
    let signature = header(
        "Stripe-Signature",
        "`t=…,v1=…`: the attempt's time in Unix seconds, and the HMAC-SHA256, in hexadecimal, of \
         `t`, a dot and the body, with the endpoint's secret as the key.",
        Required::True,
        text().pattern(Some("^t=[0-9]+,v1=[0-9a-f]{64}$")),
    );
    let event = ContentBuilder::new().schema(Some(Ref::from_schema_name("Event")));
    let body = RequestBodyBuilder::new()
        .description(Some(format!("The event. `data.object` is the {noun}.")))
        .required(Some(Required::True))
        .content("application/json", event.build());
    let mut operation = OperationBuilder::new()
        .tag("Webhooks")
        .operation_id(Some(format!("receive {name}").replace([' ', '.'], "_")))
        .summary(Some(event_type.about()))
        // The receiver knows the sender by the signature, not by an API key.
        .securities(Some([]))
        .parameter(signature);
    for (name, about) in STANDARD_HEADERS {
        operation = operation.parameter(header(name, about, Required::False, text()));
    }
    operation
        .request_body(Some(body.build()))
        .response("2XX", Response::new("The event is acknowledged."))
        .response(
            "default",
            Response::new("Any other answer, and none: the event is sent again."),
        )
        .build()
}
