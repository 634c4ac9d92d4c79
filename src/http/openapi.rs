//! The OpenAPI 3.1 document and Swagger UI.
//!
//! Promise: the document lists every status that an endpoint really answers, with the codes of the
//! one error table, and its examples work when sent as they are.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    sync::{Arc, LazyLock},
};

use actix_web::{HttpRequest, HttpResponse, http::header};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use utoipa::{
    IntoParams, Modify, OpenApi, PartialSchema, ToSchema,
    openapi::{
        ContentBuilder, ObjectBuilder, Ref, RefOr, Response, ResponseBuilder, Schema, Type,
        example::Example,
        path::{Operation, ParameterBuilder, PathItem},
        schema::SchemaType,
        security::{Http, HttpAuthScheme, SecurityScheme},
    },
};
use utoipa_swagger_ui::Config;

use super::{
    error::EdgeError,
    openapi_cards::CardExamples,
    openapi_encoding::RequestBodies,
    openapi_headers::{ReplyHeaders, add_error_headers},
};
use crate::{
    api::{
        dialect::Dialect,
        error::{ApiError, Envelope, ErrorCode, ErrorType},
    },
    domain::{event::EventType, test_cards::TEST_CARDS},
    idempotency::Failure,
};

/// As [`IdempotencyHeaders`] names it.
const IDEMPOTENCY_KEY: &str = "Idempotency-Key";

/// The headers of every mutating request.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "describes headers; the edge reads them by hand")]
pub struct IdempotencyHeaders {
    /// Made by you, once per operation, before the first attempt; every retry sends the same. 1 to
    /// 255 bytes of visible ASCII without quotes, backslashes and commas.
    #[param(
        rename = "Idempotency-Key",
        required = true,
        min_length = 1,
        max_length = 257,
        pattern = r##"^("[\x21\x23-\x2b\x2d-\x5b\x5d-\x7e]{1,255}"|[\x21\x23-\x2b\x2d-\x5b\x5d-\x7e]{1,255})$"##
    )]
    idempotency_key: String,
    /// Your name for the requests that this one belongs to; GET /workflows/{name} lists them. It is
    /// written like a key, and is no part of what makes two requests the same.
    #[param(
        rename = "Idempotency-Workflow",
        required = false,
        min_length = 1,
        max_length = 257,
        pattern = r##"^("[\x21\x23-\x2b\x2d-\x5b\x5d-\x7e]{1,255}"|[\x21\x23-\x2b\x2d-\x5b\x5d-\x7e]{1,255})$"##
    )]
    idempotency_workflow: Option<String>,
}

/// How long a duplicate waits.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "describes a header; the edge reads it by hand")]
pub struct PreferHeader {
    /// `wait=N`: how many seconds, up to 30, a duplicate waits for the first request's answer
    /// before 409.
    #[param(rename = "Prefer", required = false)]
    prefer: Option<String>,
}

/// The parameters that every list has.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "describes a query; list.rs reads it by hand")]
pub struct PageQuery {
    /// Objects on a page.
    #[param(minimum = 1, maximum = 100, default = 10)]
    limit: Option<i64>,
    /// The page after this object: older ones.
    #[param(pattern = "^[a-z]+_[0-7][0-9a-hjkmnp-tv-z]{25}$")]
    starting_after: Option<String>,
    /// The page before this object: newer ones. Not together with starting_after.
    #[param(pattern = "^[a-z]+_[0-7][0-9a-hjkmnp-tv-z]{25}$")]
    ending_before: Option<String>,
    /// Created later than this, in unix seconds.
    #[param(rename = "created[gt]", minimum = 0, maximum = 253_402_300_799_i64)]
    created_gt: Option<i64>,
    /// Created at this or later, in unix seconds.
    #[param(rename = "created[gte]", minimum = 0, maximum = 253_402_300_799_i64)]
    created_gte: Option<i64>,
    /// Created earlier than this, in unix seconds.
    #[param(rename = "created[lt]", minimum = 0, maximum = 253_402_300_799_i64)]
    created_lt: Option<i64>,
    /// Created at this or earlier, in unix seconds.
    #[param(rename = "created[lte]", minimum = 0, maximum = 253_402_300_799_i64)]
    created_lte: Option<i64>,
}

/// Which part of a workflow.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "describes a query; workflows.rs reads it by hand")]
pub struct StepsQuery {
    /// Keys on a page.
    #[param(minimum = 1, maximum = 100, default = 100)]
    limit: Option<i64>,
    /// The page after this key: later ones.
    #[param(pattern = r"^[\x21\x23-\x2b\x2d-\x5b\x5d-\x7e]{1,255}$")]
    starting_after: Option<String>,
}

/// The parameters of a new charge.
#[derive(Deserialize, ToSchema)]
#[schema(as = CreateCharge, example = json!({
    "amount": 2000, "currency": "usd", "source": "tok_visa", "description": "Two mugs",
    "metadata": {"order_id": "6735"},
}))]
#[serde(deny_unknown_fields)]
#[expect(
    dead_code,
    reason = "describes a body; api/charges.rs reads it by hand"
)]
pub struct CreateChargeBody {
    /// Minor units.
    #[schema(minimum = 1, maximum = 99_999_999)]
    amount: i64,
    /// The ISO 4217 code of a currency in use, in any case.
    #[schema(format = "iso-4217", pattern = "^[A-Za-z]{3}$", example = "usd")]
    currency: String,
    /// A test token, or a test card. Default: tok_visa.
    source: Option<SourceParam>,
    /// Whether to take the money at once. Default: true.
    capture: Option<bool>,
    /// Your own reference.
    #[schema(max_length = 255)]
    customer: Option<String>,
    /// For people.
    #[schema(max_length = 1000)]
    description: Option<String>,
    /// On the card statement.
    #[schema(max_length = 22)]
    statement_descriptor: Option<String>,
    /// Where the receipt goes.
    #[schema(
        max_length = 254,
        example = "jenny@example.com",
        pattern = r"^[^@\s\u0000-\u001f\u007f-\u009f]+@[^@\s\u0000-\u001f\u007f-\u009f]+$"
    )]
    receipt_email: Option<String>,
    /// Your own names: at most 50 keys of 40 characters with values of 500.
    metadata: Option<BTreeMap<String, String>>,
    /// What the reply shows besides.
    #[schema(max_items = 20)]
    expand: Option<Vec<ExpandRefunds>>,
}

/// What may change of a charge.
#[derive(Deserialize, ToSchema)]
#[schema(as = UpdateCharge, example = json!({"description": "Two mugs, blue"}))]
#[serde(deny_unknown_fields)]
#[expect(
    dead_code,
    reason = "describes a body; api/charges.rs reads it by hand"
)]
pub struct UpdateChargeBody {
    /// For people.
    #[schema(max_length = 1000)]
    description: Option<String>,
    /// Where the receipt goes.
    #[schema(
        max_length = 254,
        example = "jenny@example.com",
        pattern = r"^[^@\s\u0000-\u001f\u007f-\u009f]+@[^@\s\u0000-\u001f\u007f-\u009f]+$"
    )]
    receipt_email: Option<String>,
    /// Your own names; an empty or null value unsets one.
    metadata: Option<BTreeMap<String, Option<String>>>,
    /// What the reply shows besides.
    #[schema(max_items = 20)]
    expand: Option<Vec<ExpandRefunds>>,
}

/// How much is captured.
#[derive(Deserialize, ToSchema)]
#[schema(as = CaptureCharge, example = json!({"amount": 1500}))]
#[serde(deny_unknown_fields)]
#[expect(
    dead_code,
    reason = "describes a body; api/charges.rs reads it by hand"
)]
pub struct CaptureChargeBody {
    /// Minor units. Default: all of it.
    #[schema(minimum = 1, maximum = 99_999_999)]
    amount: Option<i64>,
    /// What the reply shows besides.
    #[schema(max_items = 20)]
    expand: Option<Vec<ExpandRefunds>>,
}

/// The parameters of a new refund.
#[derive(Deserialize, ToSchema)]
#[schema(as = CreateRefund, example = json!({
    "charge": "ch_01kar2w7n9e4xt8f5mq0v3z6yd", "amount": 500, "reason": "requested_by_customer",
}))]
#[serde(deny_unknown_fields)]
#[expect(
    dead_code,
    reason = "describes a body; api/refunds.rs reads it by hand"
)]
pub struct CreateRefundBody {
    /// Which charge: ch_…
    #[schema(pattern = "^ch_[0-7][0-9a-hjkmnp-tv-z]{25}$")]
    charge: String,
    /// Minor units. Default: what remains.
    #[schema(minimum = 1, maximum = 99_999_999)]
    amount: Option<i64>,
    /// duplicate, fraudulent or requested_by_customer.
    #[schema(pattern = "^(duplicate|fraudulent|requested_by_customer)$")]
    reason: Option<String>,
    /// Your own names: at most 50 keys of 40 characters with values of 500.
    metadata: Option<BTreeMap<String, String>>,
    /// What the reply shows as a whole instead of by its id.
    #[schema(max_items = 20)]
    expand: Option<Vec<ExpandCharge>>,
}

/// What may change of an order or a refund.
#[derive(Deserialize, ToSchema)]
#[schema(as = UpdateMetadata, example = json!({"metadata": {"channel": "telephone"}}))]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "describes a body; api/ reads it by hand")]
pub struct UpdateMetadataBody {
    /// Your own names; an empty or null value unsets one.
    metadata: Option<BTreeMap<String, Option<String>>>,
    /// What the reply shows as a whole instead of by its id.
    #[schema(max_items = 20)]
    expand: Option<Vec<ExpandCharge>>,
}

/// How an order is paid.
#[derive(Deserialize, ToSchema)]
#[schema(as = PayOrder, example = json!({"source": "tok_visa"}))]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "describes a body; api/orders.rs reads it by hand")]
pub struct PayOrderBody {
    /// A test token, or a test card. Default: tok_visa.
    source: Option<SourceParam>,
    /// What the reply shows as a whole instead of by its id.
    #[schema(max_items = 20)]
    expand: Option<Vec<ExpandCharge>>,
}

/// No parameters but how the reply is shown.
#[derive(Deserialize, ToSchema)]
#[schema(as = Expand, example = json!({}))]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "describes a body; api/orders.rs reads it by hand")]
pub struct ExpandBody {
    /// What the reply shows as a whole instead of by its id.
    #[schema(max_items = 20)]
    expand: Option<Vec<ExpandCharge>>,
}

/// Shows the whole charge.
#[derive(Deserialize, ToSchema)]
pub enum ExpandCharge {
    /// Shows the whole charge.
    #[serde(rename = "charge")]
    Charge,
}

/// Shows the refunds of the charge.
#[derive(Deserialize, ToSchema)]
pub enum ExpandRefunds {
    /// Shows the refunds of the charge.
    #[serde(rename = "refunds")]
    Refunds,
}

/// Shows the whole charge in each object of a list.
#[derive(Deserialize, ToSchema)]
pub enum ExpandDataCharge {
    /// Shows the whole charge in each object of a list.
    #[serde(rename = "data.charge")]
    Charge,
}

/// Shows the refunds in each charge of a list.
#[derive(Deserialize, ToSchema)]
pub enum ExpandDataRefunds {
    /// Shows the refunds in each charge of a list.
    #[serde(rename = "data.refunds")]
    Refunds,
}

/// The name of a type of event.
#[derive(Deserialize)]
#[expect(dead_code, reason = "describes a string; events.rs reads it by hand")]
pub struct EventTypeParam(String);

impl PartialSchema for EventTypeParam {
    fn schema() -> RefOr<Schema> {
        let types = EventType::ALL.iter().map(|event_type| event_type.as_str());
        ObjectBuilder::new()
            .schema_type(Type::String)
            .enum_values(Some(types))
            .into()
    }
}

impl ToSchema for EventTypeParam {
    fn name() -> Cow<'static, str> {
        "EventType".into()
    }
}

/// The name of a type of event, or `*`.
#[derive(Deserialize)]
#[expect(
    dead_code,
    reason = "describes a string; api/webhook_endpoints.rs reads it by hand"
)]
pub struct EnabledEvent(String);

impl PartialSchema for EnabledEvent {
    fn schema() -> RefOr<Schema> {
        let types = EventType::ALL.iter().map(|event_type| event_type.as_str());
        ObjectBuilder::new()
            .schema_type(Type::String)
            .enum_values(Some(["*"].into_iter().chain(types)))
            .into()
    }
}

impl ToSchema for EnabledEvent {}

/// What is charged.
#[derive(Deserialize, ToSchema)]
#[schema(as = Source)]
#[serde(untagged)]
pub enum SourceParam {
    /// A test token.
    Token(TestToken),
    /// A test card.
    Card(CardParam),
}

/// The name of a test card.
#[derive(Deserialize)]
#[expect(
    dead_code,
    reason = "describes a string; api/charges.rs reads it by hand"
)]
pub struct TestToken(String);

impl PartialSchema for TestToken {
    fn schema() -> RefOr<Schema> {
        let tokens = TEST_CARDS.iter().flat_map(|card| card.tokens);
        ObjectBuilder::new()
            .schema_type(Type::String)
            .description(Some(
                "A test token; each gets its own answer, always the same.",
            ))
            .enum_values(Some(tokens.copied()))
            .into()
    }
}

impl ToSchema for TestToken {}

/// The number of a test card; spaces and dashes between digits are allowed.
fn test_number() -> ObjectBuilder {
    ObjectBuilder::new()
        .schema_type(Type::String)
        .description(Some(
            "The number of a test card. Any other card's is refused, and nothing of it is stored.",
        ))
        .enum_values(Some(TEST_CARDS.iter().filter_map(|card| card.number)))
}

/// A test card by its number.
#[derive(Deserialize, ToSchema)]
#[schema(as = Card)]
#[serde(deny_unknown_fields)]
#[expect(
    dead_code,
    reason = "describes a body; api/charges.rs reads it by hand"
)]
pub struct CardParam {
    /// Always card.
    #[schema(pattern = "^card$")]
    object: Option<String>,
    /// A test card's number, such as 4242424242424242.
    #[schema(schema_with = test_number)]
    number: String,
    /// 1 to 12.
    #[schema(minimum = 1, maximum = 12)]
    exp_month: i64,
    /// Four digits.
    #[schema(minimum = 2000, maximum = 2099)]
    exp_year: i64,
    /// Three or four digits.
    #[schema(pattern = "^[0-9]{3,4}$")]
    cvc: Option<String>,
}

/// The parameters of a new order.
#[derive(Deserialize, ToSchema)]
#[schema(as = CreateOrder, example = json!({
    "currency": "eur", "items": [{"sku": "mug", "quantity": 2, "unit_amount": 1200}],
    "metadata": {"channel": "web"},
}))]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "describes a body; api/orders.rs reads it by hand")]
pub struct CreateOrderBody {
    /// The ISO 4217 code of a currency in use, in any case.
    #[schema(format = "iso-4217", pattern = "^[A-Za-z]{3}$", example = "usd")]
    currency: String,
    /// The lines.
    #[schema(min_items = 1, max_items = 100)]
    items: Vec<ItemParam>,
    /// Your own reference.
    #[schema(max_length = 255)]
    customer: Option<String>,
    /// Your own id of the order, unique in the account: a second create with it and the same
    /// content answers 200 with the order as it is then.
    #[schema(max_length = 255)]
    client_order_id: Option<String>,
    /// Your own names: at most 50 keys of 40 characters with values of 500.
    metadata: Option<BTreeMap<String, String>>,
    /// What the reply shows as a whole instead of by its id.
    #[schema(max_items = 20)]
    expand: Option<Vec<ExpandCharge>>,
}

/// One line.
#[derive(Deserialize, ToSchema)]
#[schema(as = CreateOrderItem)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "describes a body; api/orders.rs reads it by hand")]
pub struct ItemParam {
    /// Your stock-keeping unit.
    #[schema(max_length = 255)]
    sku: Option<String>,
    /// For people.
    #[schema(max_length = 255)]
    description: Option<String>,
    /// How many.
    #[schema(minimum = 1, maximum = 10_000)]
    quantity: i64,
    /// Minor units.
    #[schema(minimum = 0, maximum = 99_999_999)]
    unit_amount: i64,
}

/// The parameters of a new checkout.
#[derive(Deserialize, ToSchema)]
#[schema(as = CreateCheckout, example = json!({
    "currency": "usd", "source": "tok_visa",
    "items": [{"sku": "mug", "quantity": 2, "unit_amount": 1200}],
}))]
#[serde(deny_unknown_fields)]
#[expect(
    dead_code,
    reason = "describes a body; api/checkouts.rs reads it by hand"
)]
pub struct CreateCheckoutBody {
    /// The ISO 4217 code of a currency in use, in any case.
    #[schema(format = "iso-4217", pattern = "^[A-Za-z]{3}$", example = "usd")]
    currency: String,
    /// The lines.
    #[schema(min_items = 1, max_items = 100)]
    items: Vec<CheckoutItemParam>,
    /// A test token, or a test card. Default: tok_visa.
    source: Option<SourceParam>,
    /// Your own reference.
    #[schema(max_length = 255)]
    customer: Option<String>,
    /// Your own names: at most 50 keys of 40 characters with values of 500. The order gets them too.
    metadata: Option<BTreeMap<String, String>>,
}

/// One line.
#[derive(Deserialize, ToSchema)]
#[schema(as = CreateCheckoutItem)]
#[serde(deny_unknown_fields)]
#[expect(
    dead_code,
    reason = "describes a body; api/checkouts.rs reads it by hand"
)]
pub struct CheckoutItemParam {
    /// Your stock-keeping unit: its level in the inventory is what there is to sell.
    #[schema(min_length = 1, max_length = 255)]
    sku: String,
    /// For people.
    #[schema(max_length = 255)]
    description: Option<String>,
    /// How many.
    #[schema(minimum = 1, maximum = 10_000)]
    quantity: i64,
    /// Minor units.
    #[schema(minimum = 0, maximum = 99_999_999)]
    unit_amount: i64,
}

/// A level of inventory.
#[derive(Deserialize, ToSchema)]
#[schema(as = SetInventory, example = json!({"quantity": 40}))]
#[serde(deny_unknown_fields)]
#[expect(
    dead_code,
    reason = "describes a body; api/inventory.rs reads it by hand"
)]
pub struct SetInventoryBody {
    /// How many are there to be sold.
    #[schema(minimum = 0, maximum = 1_000_000_000_i64)]
    quantity: i64,
}

/// The parameters of a new webhook endpoint.
#[derive(Deserialize, ToSchema)]
#[schema(as = CreateWebhookEndpoint, example = json!({
    "url": "https://example.com/webhooks",
    "enabled_events": ["charge.succeeded", "charge.refunded"],
}))]
#[serde(deny_unknown_fields)]
#[expect(
    dead_code,
    reason = "describes a body; api/webhook_endpoints.rs reads it by hand"
)]
pub struct CreateWebhookEndpointBody {
    /// Where to send events: https or http, without a user name and a fragment, and not a private
    /// address.
    #[schema(
        max_length = 2048,
        format = "uri",
        example = "https://example.com/webhooks"
    )]
    url: String,
    /// Types of events; `*` is all of them.
    #[schema(min_items = 1, max_items = 100)]
    enabled_events: Vec<EnabledEvent>,
    /// For people.
    #[schema(max_length = 1000)]
    description: Option<String>,
    /// Your own names: at most 50 keys of 40 characters with values of 500.
    metadata: Option<BTreeMap<String, String>>,
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "charge-once",
        description = "A payments API in which a retried request never charges twice.\n\nEvery \
            POST and PUT needs an `Idempotency-Key`. Send a request twice with the same key and \
            you get the same answer twice, and one charge.\n\n**Try it:** Authorize with the API key that \
            the start-up banner shows, open `POST /charges`, Try it out, Execute. Execute again: \
            the same charge, and the header `idempotent-replayed: true`.\n\nEvery error code is \
            explained at [/errors](/errors).",
    ),
    servers(
        (url = "/", description = "IETF dialect: key reuse is 422, a duplicate in flight is 409 at once"),
        (url = "/v1", description = "Stripe's dialect: key reuse is 400, a duplicate in flight waits"),
    ),
    paths(
        super::charges::create, super::charges::list, super::charges::retrieve,
        super::charges::update, super::charges::capture,
        super::refunds::create, super::refunds::list, super::refunds::retrieve,
        super::refunds::update, super::refunds::list_of_charge,
        super::orders::create, super::orders::list, super::orders::retrieve,
        super::orders::update, super::orders::pay, super::orders::cancel,
        super::checkouts::create, super::checkouts::list, super::checkouts::retrieve,
        super::inventory::set, super::inventory::retrieve,
        super::events::list, super::events::retrieve,
        super::webhook_endpoints::create, super::webhook_endpoints::list,
        super::webhook_endpoints::retrieve, super::webhook_endpoints::delete,
        super::webhook_endpoints::list_deliveries,
        super::idempotency_keys::retrieve, super::idempotency_keys::look_up,
        super::workflows::list, super::workflows::look_up,
        super::health::livez, super::health::readyz,
    ),
    // Schemas of parameters don't come by themselves.
    components(schemas(Envelope<'static>, EventTypeParam, ExpandDataCharge, ExpandDataRefunds)),
    security(("bearer" = []), ("basic" = [])),
    modifiers(
        &SecuritySchemes,
        &ErrorResponses, &ReplyHeaders, &ExampleKeys, &CardExamples, &MetadataLimits,
        &RequestBodies,
    ),
)]
struct Document;

/// The document, as `openapi/openapi.json` holds it.
pub fn document() -> utoipa::openapi::OpenApi {
    Document::openapi()
}

static SERVED_DOCUMENT: LazyLock<utoipa::openapi::OpenApi> = LazyLock::new(document);

static SWAGGER_UI: LazyLock<Arc<Config<'static>>> = LazyLock::new(|| {
    // No validator badge: it would send the document to a server elsewhere.
    let config = Config::from("/openapi.json")
        .validator_url("none")
        .display_request_duration(true)
        .persist_authorization(true);
    Arc::new(config)
});

/// The document, for programs.
pub async fn show() -> HttpResponse {
    HttpResponse::Ok().json(&*SERVED_DOCUMENT)
}

/// A file of Swagger UI; all of them are compiled in.
pub async fn swagger_ui(request: HttpRequest) -> Result<HttpResponse, EdgeError> {
    let path = request.match_info().query("file");
    let file = utoipa_swagger_ui::serve(path, Arc::clone(&SWAGGER_UI))
        .map_err(|error| EdgeError::failed_read(Failure::internal(error)))?
        .ok_or_else(|| ApiError::explained(ErrorCode::RouteNotFound))?;
    Ok(HttpResponse::Ok()
        .content_type(file.content_type)
        .body(file.bytes.into_owned()))
}

/// `/swagger-ui` without its slash would resolve the page's relative files wrongly.
pub async fn to_swagger_ui() -> HttpResponse {
    HttpResponse::PermanentRedirect()
        .insert_header((header::LOCATION, "/swagger-ui/"))
        .finish()
}

struct SecuritySchemes;

impl Modify for SecuritySchemes {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let components = document.components.get_or_insert_default();
        for (name, scheme) in [
            ("bearer", HttpAuthScheme::Bearer),
            ("basic", HttpAuthScheme::Basic),
        ] {
            let scheme = SecurityScheme::Http(Http::new(scheme));
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

/// The limits of `metadata`, which are the same in every request.
struct MetadataLimits;

impl Modify for MetadataLimits {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let text = || ObjectBuilder::new().schema_type(Type::String);
        let value = SchemaType::from_iter([Type::String, Type::Null]);
        let metadata = ObjectBuilder::new()
            .schema_type(SchemaType::from_iter([Type::Object, Type::Null]))
            .description(Some(
                "Your own names. An empty or null value is none; in an update it unsets the name.",
            ))
            .max_properties(Some(50))
            .property_names(Some(
                text()
                    .min_length(Some(1))
                    .max_length(Some(40))
                    .pattern(Some(r"^[^\[\]]+$")),
            ))
            .additional_properties(Some(text().schema_type(value).max_length(Some(500))));
        let components = document.components.get_or_insert_default();
        for schema in components.schemas.values_mut() {
            // A request refuses unknown members; a reply has no need to.
            if let RefOr::T(Schema::Object(object)) = schema
                && object.additional_properties.is_some()
                && let Some(property) = object.properties.get_mut("metadata")
            {
                *property = Ref::from_schema_name("Metadata").into();
            }
        }
        components
            .schemas
            .insert("Metadata".to_owned(), metadata.into());
    }
}

/// Adds the errors that each operation really answers.
struct ErrorResponses;

/// What any request with an API key may meet.
const AUTHENTICATED: &[ErrorCode] = &[
    ErrorCode::ParameterInvalid,
    ErrorCode::ParameterUnknown,
    ErrorCode::CardNumberForbidden,
    ErrorCode::ApiKeyMissing,
    ErrorCode::ApiKeyInvalid,
    ErrorCode::ResourceBusy,
    ErrorCode::RateLimited,
    ErrorCode::InternalError,
    ErrorCode::ServiceUnavailable,
];

/// What a mutating request may meet besides.
const MUTATING: &[ErrorCode] = &[
    ErrorCode::IdempotencyKeyRequired,
    ErrorCode::IdempotencyKeyInvalid,
    ErrorCode::BodyInvalid,
    ErrorCode::RequestTimeout,
    ErrorCode::IdempotencyKeyInUse,
    ErrorCode::BodyTooLarge,
    ErrorCode::UnsupportedMediaType,
    ErrorCode::IdempotencyKeyReused,
];

fn codes(operation: &str, mutating: bool) -> Vec<ErrorCode> {
    let card_errors = ErrorCode::ALL
        .iter()
        .copied()
        .filter(|code| code.error_type() == ErrorType::Card);
    let own: &[ErrorCode] = match operation {
        "livez" => return vec![],
        "readyz" => return vec![ErrorCode::ServiceUnavailable],
        "createCharge" => &[ErrorCode::ParameterMissing, ErrorCode::AmountTooLarge],
        "createOrder" => &[ErrorCode::ParameterMissing, ErrorCode::AmountTooLarge],
        "createCheckout" => &[
            ErrorCode::ParameterMissing,
            ErrorCode::AmountTooLarge,
            ErrorCode::OutOfStock,
        ],
        "captureCharge" => &[
            ErrorCode::ResourceMissing,
            ErrorCode::AmountTooLarge,
            ErrorCode::ChargeAlreadyCaptured,
            ErrorCode::ChargeAlreadyRefunded,
            ErrorCode::CaptureAmountTooLarge,
        ],
        "createRefund" => &[
            ErrorCode::ParameterMissing,
            ErrorCode::ResourceMissing,
            ErrorCode::AmountTooLarge,
            ErrorCode::ChargeAlreadyRefunded,
            ErrorCode::ChargeNotCaptured,
            ErrorCode::RefundAmountTooLarge,
        ],
        "payOrder" | "cancelOrder" => &[
            ErrorCode::ParameterMissing,
            ErrorCode::ResourceMissing,
            ErrorCode::OrderAlreadyPaid,
            ErrorCode::OrderCanceled,
        ],
        "setInventory" => &[ErrorCode::ParameterMissing, ErrorCode::ResourceMissing],
        "createWebhookEndpoint" => &[ErrorCode::ParameterMissing],
        "deleteWebhookEndpoint" => &[ErrorCode::ResourceMissing, ErrorCode::ResourceBusy],
        "listCharges"
        | "listOrders"
        | "listRefunds"
        | "listCheckouts"
        | "listEvents"
        | "listWebhookEndpoints"
        | "listWorkflow" => &[],
        "lookUpWorkflow" => &[ErrorCode::ParameterMissing],
        "lookUpIdempotencyKey" => &[ErrorCode::ParameterMissing, ErrorCode::ResourceMissing],
        _ => &[ErrorCode::ResourceMissing],
    };
    let mut codes = [AUTHENTICATED, own].concat();
    if mutating {
        codes.extend(MUTATING);
    }
    if matches!(operation, "createCharge" | "payOrder" | "createCheckout") {
        codes.extend(card_errors);
    }
    // In the order of the table, whatever the order above.
    let table = ErrorCode::ALL.iter().copied();
    table.filter(|code| codes.contains(code)).collect()
}

impl Modify for ErrorResponses {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        for operation in operations(document) {
            let mut by_status = BTreeMap::<u16, Vec<ErrorCode>>::new();
            let mutating = is_mutating(operation);
            let name = operation.operation_id.as_deref().unwrap_or_default();
            for code in codes(name, mutating) {
                by_status.entry(code.status()).or_default().push(code);
                if code == ErrorCode::IdempotencyKeyReused {
                    let under_v1 = Dialect::Stripe.key_reused_status();
                    by_status.entry(under_v1).or_default().push(code);
                }
            }
            for (status, codes) in by_status {
                let response = RefOr::T(error_response(&codes));
                operation
                    .responses
                    .responses
                    .insert(status.to_string(), response);
            }
        }
    }
}

/// One status with an example for each of its codes.
fn error_response(codes: &[ErrorCode]) -> Response {
    let examples = codes.iter().map(|code| {
        let error = ApiError::explained(*code);
        let example = Example::builder()
            .summary(code.as_str())
            .value(serde_json::to_value(error.envelope()).ok())
            .build();
        (code.as_str(), example)
    });
    let content = ContentBuilder::new()
        .schema(Some(Ref::from_schema_name("Error")))
        .examples_from_iter(examples)
        .build();
    let names: Vec<_> = codes.iter().map(|code| code.as_str()).collect();
    let mut response = ResponseBuilder::new()
        .description(names.join(", "))
        .content("application/json", content)
        .build();
    add_error_headers(&mut response, codes);
    response
}

/// Every operation of the document.
pub(super) fn operations(
    document: &mut utoipa::openapi::OpenApi,
) -> impl Iterator<Item = &mut Operation> {
    document.paths.paths.values_mut().flat_map(
        |PathItem {
             get,
             put,
             post,
             delete,
             ..
         }| {
            [get.as_mut(), put.as_mut(), post.as_mut(), delete.as_mut()]
                .into_iter()
                .flatten()
        },
    )
}

/// Whether an operation changes something: then it needs a key.
pub(super) fn is_mutating(operation: &Operation) -> bool {
    let parameters = operation.parameters.iter().flatten();
    parameters.into_iter().any(
        |parameter| matches!(parameter, RefOr::T(parameter) if parameter.name == IDEMPOTENCY_KEY),
    )
}
