//! Parameters that several endpoints share, as the OpenAPI document describes them.
//!
//! They are read by hand, in `api/` and in `request.rs`; these types only describe them.

use std::collections::BTreeMap;

use serde::Deserialize;
use utoipa::{
    IntoParams, PartialSchema, ToSchema,
    openapi::{ObjectBuilder, RefOr, Schema, Type},
};

use crate::domain::test_cards::TEST_CARDS;

/// As [`MutatingHeaders`] names it.
pub(super) const IDEMPOTENCY_KEY: &str = "Idempotency-Key";

/// The headers of every mutating request.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "describes headers; `request.rs` reads them")]
pub(super) struct MutatingHeaders {
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
    /// `wait=N`: how many seconds, up to 30, a duplicate waits for the first request's answer
    /// before 409.
    #[param(rename = "Prefer", required = false)]
    prefer: Option<String>,
    /// For tests of retries, on servers with FAULTS and for test accounts: what goes wrong with the first
    /// requests that carry this key. One of `reply_lost`, `request_lost`, `delay; seconds=2`, `500`, `503`,
    /// `429` and `in_use; seconds=2`; all but the last take `requests=3` too.
    #[param(rename = "Fault", required = false)]
    fault: Option<String>,
}

/// The parameters that every list has.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "describes a query; `list.rs` reads it")]
pub(super) struct PageQuery {
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

/// What may change of an order or a refund.
#[derive(Deserialize, ToSchema)]
#[schema(as = UpdateMetadata, example = json!({"metadata": {"channel": "telephone"}}))]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "describes the body; `parse` reads it")]
pub(super) struct UpdateMetadataBody {
    /// Your own names; an empty or null value unsets one.
    metadata: Option<BTreeMap<String, Option<String>>>,
    /// References to expand in the reply.
    #[schema(max_items = 20)]
    expand: Option<Vec<ExpandCharge>>,
}

/// Shows the whole charge.
#[derive(Deserialize, ToSchema)]
pub(super) enum ExpandCharge {
    /// Shows the whole charge.
    #[serde(rename = "charge")]
    Charge,
}

/// Shows the refunds of the charge.
#[derive(Deserialize, ToSchema)]
pub(super) enum ExpandRefunds {
    /// Shows the refunds of the charge.
    #[serde(rename = "refunds")]
    Refunds,
}

/// Shows the whole charge in each object of a list.
#[derive(Deserialize, ToSchema)]
pub(super) enum ExpandDataCharge {
    /// Shows the whole charge in each object of a list.
    #[serde(rename = "data.charge")]
    Charge,
}

/// Shows the refunds in each charge of a list.
#[derive(Deserialize, ToSchema)]
pub(super) enum ExpandDataRefunds {
    /// Shows the refunds in each charge of a list.
    #[serde(rename = "data.refunds")]
    Refunds,
}

/// What is charged.
#[derive(Deserialize, ToSchema)]
#[schema(as = Source)]
#[serde(untagged)]
#[expect(dead_code, reason = "describes a value; `api/source.rs` reads it")]
pub(super) enum SourceParam {
    /// A test token.
    Token(TestToken),
    /// A test card.
    Card(CardParam),
}

/// The name of a test card.
#[derive(Deserialize)]
#[expect(dead_code, reason = "describes a string; `api/source.rs` reads it")]
pub(super) struct TestToken(String);

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
#[expect(dead_code, reason = "describes an object; `api/source.rs` reads it")]
pub(super) struct CardParam {
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
