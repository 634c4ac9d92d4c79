//! The OpenAPI 3.1 document.
//!
//! Promise: an endpoint is described where its handler is: parameters, body, replies and the codes
//! that it answers. This folder puts the descriptions together and adds what follows from them.

mod cards;
mod errors;
mod headers;
mod operations;
mod references;
mod request_bodies;
mod served;
mod webhooks;

use sha2::{Digest, Sha256};
use utoipa::{
    Modify, OpenApi,
    openapi::{
        RefOr,
        path::ParameterBuilder,
        security::{HttpAuthScheme, HttpBuilder, SecurityScheme},
    },
};

pub use self::served::{ServedDocument, show};
use self::{
    cards::CardExamples, errors::SharedErrors, headers::ReplyHeaders, operations::operations,
    references::References, request_bodies::RequestBodies, webhooks::Webhooks,
};
use super::parameters::IDEMPOTENCY_KEY;
use crate::{
    domain::event::EventType,
    wire::{
        checkouts::ItemWithSkuParams,
        error::Envelope,
        metadata::MetadataSchema,
        orders::ItemParams,
        parameter::{ExpandCharge, ExpandDataCharge, ExpandDataRefunds, ExpandRefunds},
        source::{CardParams, SourceParam, TestToken},
        webhook_endpoints::EnabledEvent,
    },
};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "charge-once",
        description = "A payments API in which a retried request never charges twice.\n\nEvery \
            POST and PUT needs an `Idempotency-Key`. Send a request twice with the same key and \
            you get the same answer twice, and one charge.\n\n**Try it:** Authorize with the \
            API key that the start-up banner shows, \
            open `POST /charges`, Try it out, Execute. Execute again: \
            the same charge, and the header `idempotent-replayed: true`.\n\nEvery error code is \
            explained at [/errors](/errors).",
    ),
    servers(
        (
            url = "/",
            description = "IETF dialect: key reuse is 422, a duplicate in flight is 409 at once",
        ),
        (
            url = "/v1",
            description = "Stripe's dialect: key reuse is 400, a duplicate in flight waits",
        ),
    ),
    paths(
        crate::http::charges::create, crate::http::charges::list, crate::http::charges::retrieve,
        crate::http::charges::update, crate::http::charges::capture,
        crate::http::refunds::create, crate::http::refunds::list, crate::http::refunds::retrieve,
        crate::http::refunds::update, crate::http::refunds::list_of_charge,
        crate::http::orders::create, crate::http::orders::list, crate::http::orders::retrieve,
        crate::http::orders::update, crate::http::orders::pay, crate::http::orders::cancel,
        crate::http::checkouts::create, crate::http::checkouts::list,
        crate::http::checkouts::retrieve,
        crate::http::inventory::set, crate::http::inventory::retrieve,
        crate::http::inventory::list,
        crate::http::events::list, crate::http::events::retrieve,
        crate::http::webhook_endpoints::create, crate::http::webhook_endpoints::list,
        crate::http::webhook_endpoints::retrieve, crate::http::webhook_endpoints::update,
        crate::http::webhook_endpoints::delete, crate::http::webhook_endpoints::list_deliveries,
        crate::http::idempotency_keys::retrieve, crate::http::idempotency_keys::look_up,
        crate::http::workflows::list, crate::http::workflows::look_up,
        crate::http::health::livez, crate::http::health::readyz,
        crate::http::test_accounts::create, crate::http::test_accounts::expire_keys,
    ),
    // Schemas of parameters don't come by themselves.
    components(schemas(
        Envelope<'static>, CardParams, EnabledEvent, EventType, ExpandCharge, ExpandDataCharge,
        ExpandDataRefunds, ExpandRefunds, ItemParams, ItemWithSkuParams, MetadataSchema, SourceParam,
        TestToken,
    )),
    tags(
        (name = "Charges"), (name = "Refunds"), (name = "Orders"), (name = "Checkouts"),
        (name = "Inventory"), (name = "Events"), (name = "Webhooks"), (name = "Idempotency keys"),
        (name = "Workflows"), (name = "Health"),
        (
            name = "Test",
            description = "For tests of a client's retries. These routes exist only where the server \
                runs with FAULTS=true, as `make run` starts it, and take the API key of a test account \
                or DEV_API_KEY. With such a key, the header `Fault` of a POST or PUT asks for a fault.",
        ),
    ),
    security(("bearer" = []), ("basic" = [])),
    modifiers(
        &SecuritySchemes,
        // First, while copies are as what they are copied from.
        &References,
        &RequestBodies, &ReplyHeaders, &SharedErrors, &ExampleKeys, &CardExamples,
        &Webhooks,
    ),
)]
struct Document;

/// The document, as `openapi/openapi.json` holds it.
pub fn document() -> utoipa::openapi::OpenApi {
    Document::openapi()
}

struct SecuritySchemes;

impl Modify for SecuritySchemes {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let components = document.components.get_or_insert_default();
        for (name, scheme, hint) in [
            (
                "bearer",
                HttpAuthScheme::Bearer,
                "An API key: `sk_test_…`. A server that was started for development shows one in \
                 its start-up banner.",
            ),
            (
                "basic",
                HttpAuthScheme::Basic,
                "The API key, `sk_test_…`, as the user name, and no password.",
            ),
        ] {
            let http = HttpBuilder::new().scheme(scheme).description(Some(hint));
            let scheme = SecurityScheme::Http(http.build());
            components
                .security_schemes
                .insert(name.to_owned(), scheme.into());
        }
    }
}

/// Gives each operation an example key of its own. Swagger UI fills it in, and one key for two
/// operations is a mistake that would be answered with 422.
struct ExampleKeys;

impl Modify for ExampleKeys {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        for operation in operations(document) {
            let key = example_key(operation.operation_id.as_deref().unwrap_or_default());
            for parameter in operation.parameters.iter_mut().flatten() {
                if let RefOr::T(parameter) = parameter
                    && parameter.name == IDEMPOTENCY_KEY
                {
                    let builder = ParameterBuilder::from(parameter.clone());
                    *parameter = builder.example(Some(key.clone().into())).build();
                }
            }
        }
    }
}

/// A UUID that is the same in every build, so that the committed document doesn't change by itself.
fn example_key(operation_id: &str) -> String {
    let mut bytes = [0; 16];
    for (byte, digest) in bytes.iter_mut().zip(Sha256::digest(operation_id)) {
        *byte = digest;
    }
    uuid::Builder::from_random_bytes(bytes)
        .into_uuid()
        .to_string()
}
