//! The headers of replies, as the OpenAPI document describes them.

use charge_once_service::openapi::{ReplyHeader, list_header};
use utoipa::openapi::{KnownFormat, Response, SchemaFormat, Type};

const REQUEST_ID: &str = r"^req_[0-7][0-9a-hjkmnp-tv-z]{25}$";

/// On replays only.
pub(super) const REPLAYED: &str = "Idempotent-Replayed";
/// Names the request that executed, on stored outcomes.
pub(super) const ORIGINAL_REQUEST: &str = "Original-Request";
/// When a stored outcome is forgotten.
pub(super) const EXPIRES: &str = "Idempotency-Expires";

/// All of them.
pub(super) const HEADERS: &[ReplyHeader] = &[
    ReplyHeader {
        name: "Request-Id",
        always: true,
        about: "Names this request in every log line; fresh on every reply.",
        schema: |schema| schema.pattern(Some(REQUEST_ID)),
    },
    ReplyHeader {
        name: "Idempotency-Key",
        always: false,
        about: "The key as it was sent, unless it was no key.",
        schema: |schema| schema,
    },
    ReplyHeader {
        name: "Preference-Applied",
        always: false,
        about: "What is honored of the `Prefer: wait=N, retain=N` that was sent.",
        schema: |schema| schema.pattern(Some("^(wait|retain)=[0-9]+(, retain=[0-9]+)?$")),
    },
    ReplyHeader {
        name: REPLAYED,
        always: false,
        about: "On replays only.",
        schema: |schema| schema.enum_values(Some(["true"])),
    },
    ReplyHeader {
        name: ORIGINAL_REQUEST,
        always: false,
        about: "On stored outcomes: the request that executed. On the first reply it names itself.",
        schema: |schema| schema.pattern(Some(REQUEST_ID)),
    },
    ReplyHeader {
        name: EXPIRES,
        always: false,
        about: "On stored outcomes: when the key and its outcome are forgotten.",
        schema: |schema| schema.format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime))),
    },
    ReplyHeader {
        name: "Location",
        always: true,
        about: "The path of what was created.",
        schema: |schema| schema.pattern(Some("^(/v1)?/[a-z_-]+/")),
    },
    ReplyHeader {
        name: "Link",
        always: true,
        about: "Where the error is explained.",
        schema: |schema| schema.pattern(Some("^</errors#[a-z_]+>; rel=\"describedby\"$")),
    },
    ReplyHeader {
        name: "Stripe-Should-Retry",
        always: true,
        about: "Whether the same request with the same key may end otherwise.",
        schema: |schema| schema.enum_values(Some(["true", "false"])),
    },
    ReplyHeader {
        name: "Retry-After",
        always: false,
        about: "Seconds until a retry makes sense.",
        schema: |schema| {
            let seconds = schema.schema_type(Type::Integer);
            seconds.minimum(Some(1)).maximum(Some(60))
        },
    },
    ReplyHeader {
        name: "Fault",
        always: false,
        about: "On errors that the client asked for: which one.",
        schema: |schema| schema.enum_values(Some(["500", "503", "429", "in_use"])),
    },
    ReplyHeader {
        name: "WWW-Authenticate",
        always: true,
        about: "How to authenticate.",
        schema: |schema| schema,
    },
];

/// Lists the headers that every reply carries, and those of every reply to a mutating request.
pub(super) fn add_common(response: &mut Response, mutating: bool) {
    list_header(response, "Request-Id");
    if mutating {
        list_header(response, "Idempotency-Key");
        list_header(response, "Preference-Applied");
    }
}

/// Lists the headers of an outcome that is stored under a key.
pub(super) fn add_stored(response: &mut Response) {
    list_header(response, REPLAYED);
    list_header(response, ORIGINAL_REQUEST);
    list_header(response, EXPIRES);
}
