//! Parameters that several endpoints share.

use charge_once_strict_params::{
    Error, Field, ValueKind,
    schema::{nullable, text},
};
use utoipa::{
    IntoParams,
    openapi::{
        RefOr, Required, Schema,
        path::{Parameter, ParameterIn},
    },
};

use crate::{
    idempotency::KEY_MAX_BYTES,
    wire::api_version::{API_VERSION_PATTERN, STRIPE_VERSION},
};

/// As [`MutatingHeaders`] names it.
pub(super) const IDEMPOTENCY_KEY: &str = "Idempotency-Key";

/// The characters of keys and names of workflows: visible ASCII without quotes, backslashes and
/// commas.
const KEY_CHARACTERS: &str = r"[\x21\x23-\x2b\x2d-\x5b\x5d-\x7e]";

/// A key or the name of a workflow, as a query writes it. Its characters are checked where it is
/// used, as they are where a path names it.
pub(super) struct KeyText;

impl ValueKind for KeyText {
    type Value = String;

    fn read(field: &mut Field<'_, '_>) -> Result<Option<String>, Error> {
        field.fields.text(field.name, KEY_MAX_BYTES)
    }

    fn schema() -> RefOr<Schema> {
        let pattern = format!("^{KEY_CHARACTERS}{{1,{KEY_MAX_BYTES}}}$");
        text().pattern(Some(pattern)).into()
    }
}

/// What the header of a key looks like.
pub(super) fn key_pattern() -> String {
    let bare = format!("{KEY_CHARACTERS}{{1,{KEY_MAX_BYTES}}}");
    format!("^(\"{bare}\"|{bare})$")
}

/// A header that a request has, or may have.
pub(super) fn header(
    name: &str,
    about: &str,
    required: Required,
    schema: impl Into<RefOr<Schema>>,
) -> Parameter {
    Parameter::builder()
        .name(name)
        .parameter_in(ParameterIn::Header)
        .description(Some(about))
        .required(required)
        .schema(Some(schema))
        .build()
}

/// The headers of every mutating request. `request.rs` reads them.
pub(super) struct MutatingHeaders;

impl IntoParams for MutatingHeaders {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        let key = || {
            text()
                .min_length(Some(1))
                .max_length(Some(KEY_MAX_BYTES + "\"\"".len()))
                .pattern(Some(key_pattern()))
        };
        vec![
            header(
                IDEMPOTENCY_KEY,
                "Made by you, once per operation, before the first attempt; every retry sends the same. \
                 1 to\n255 bytes of visible ASCII without quotes, backslashes and commas.",
                Required::True,
                key(),
            ),
            header(
                "Idempotency-Workflow",
                "Your name for the requests that this one belongs to; GET /workflows/{name} lists them. \
                 It is\nwritten like a key, and is no part of what makes two requests the same.",
                Required::False,
                nullable(key().into()),
            ),
            header(
                STRIPE_VERSION,
                "The version of Stripe's API that your SDK is made for. The events of this request \
                 name it.\nObjects look the same in each version.",
                Required::False,
                text().pattern(Some(format!("^{API_VERSION_PATTERN}( *;.*)?$"))),
            ),
            header(
                "Prefer",
                "`wait=N`: how many seconds, up to 30, a duplicate waits for the first request's \
                 answer\nbefore 409. `retain=N`, in seconds or as `7d`: how long the key is kept, within the \
                 server's bounds.",
                Required::False,
                nullable(text().into()),
            ),
            header(
                "Fault",
                "For tests of retries, on servers with FAULTS and for test accounts: what goes wrong with \
                 the first\nrequests that carry this key. One of `reply_lost`, `request_lost`, `delay; \
                 seconds=2`, `500`, `503`,\n`429` and `in_use; seconds=2`; all but the last take \
                 `requests=3` too.",
                Required::False,
                nullable(text().into()),
            ),
        ]
    }
}

/// The headers of a DELETE: those of any mutating request, but its key is optional.
pub(super) struct DeletionHeaders;

impl IntoParams for DeletionHeaders {
    fn into_params(parameter_in: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        let mut headers = MutatingHeaders::into_params(parameter_in);
        for header in &mut headers {
            header.required = Required::False;
        }
        headers
    }
}
