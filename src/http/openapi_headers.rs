//! The reply headers of the OpenAPI document.
//!
//! Promise: every header that a reply carries is documented where it can occur. An error's headers
//! are taken from the error as it is rendered, so the two can't disagree.

use actix_web::ResponseError;
use utoipa::{
    Modify,
    openapi::{
        HeaderBuilder, KnownFormat, ObjectBuilder, OpenApi, Ref, RefOr, Response, SchemaFormat,
        Type, extensions::Extensions, header::Header,
    },
};

use super::{
    error::EdgeError,
    openapi::{is_mutating, operations},
};
use crate::api::error::{ApiError, ErrorCode};

const REQUEST_ID: &str = r"^req_[0-7][0-9a-hjkmnp-tv-z]{25}$";

/// A header that replies carry.
struct ReplyHeader {
    name: &'static str,
    /// Whether it is on each reply that lists it.
    always: bool,
    about: &'static str,
    schema: fn(ObjectBuilder) -> ObjectBuilder,
}

const HEADERS: &[ReplyHeader] = &[
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
        about: "The `Prefer: wait=N` that is honoured.",
        schema: |schema| schema.pattern(Some("^wait=[0-9]+$")),
    },
    ReplyHeader {
        name: "Idempotent-Replayed",
        always: false,
        about: "On replays only.",
        schema: |schema| schema.enum_values(Some(["true"])),
    },
    ReplyHeader {
        name: "Original-Request",
        always: false,
        about: "On stored outcomes: the request that executed. On the first reply it names itself.",
        schema: |schema| schema.pattern(Some(REQUEST_ID)),
    },
    ReplyHeader {
        name: "Idempotency-Expires",
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
        schema: |schema| schema.schema_type(Type::Integer).minimum(Some(0)),
    },
    ReplyHeader {
        name: "WWW-Authenticate",
        always: true,
        about: "How to authenticate.",
        schema: |schema| schema,
    },
];

impl ReplyHeader {
    fn documented(&self) -> Header {
        let schema = (self.schema)(ObjectBuilder::new().schema_type(Type::String));
        // utoipa's Header has no field for `required`.
        let required = self.always.then_some([("required", true)]);
        HeaderBuilder::new()
            .schema(Some(schema))
            .description(Some(self.about))
            .extensions(required.map(Extensions::from_iter))
            .build()
    }
}

/// Lists a header on a response.
fn add(response: &mut Response, name: &str) {
    let header = RefOr::Ref(Ref::new(format!("#/components/headers/{name}")));
    response.headers.insert(name.to_owned(), header);
}

/// Lists the headers that an error with one of these codes carries.
pub(super) fn add_error_headers(response: &mut Response, codes: &[ErrorCode]) {
    for code in codes {
        let rendered = EdgeError::from(ApiError::explained(*code)).error_response();
        for ReplyHeader { name, .. } in HEADERS {
            if rendered.headers().contains_key(*name) {
                add(response, name);
            }
        }
    }
}

/// Describes the headers, and lists those that don't depend on an error's code.
pub(super) struct ReplyHeaders;

impl Modify for ReplyHeaders {
    fn modify(&self, document: &mut OpenApi) {
        let components = document.components.get_or_insert_default();
        for header in HEADERS {
            let documented = header.documented().into();
            components
                .headers
                .insert(header.name.to_owned(), documented);
        }
        for operation in operations(document) {
            let mutating = is_mutating(operation);
            for (status, response) in &mut operation.responses.responses {
                let RefOr::T(response) = response else {
                    continue;
                };
                add(response, "Request-Id");
                if mutating {
                    add(response, "Idempotency-Key");
                    add(response, "Preference-Applied");
                }
                let stored = matches!(status.as_str(), "200" | "201" | "400" | "402" | "404");
                if mutating && stored {
                    add(response, "Idempotent-Replayed");
                    add(response, "Original-Request");
                    add(response, "Idempotency-Expires");
                }
                if status == "201" {
                    add(response, "Location");
                }
            }
        }
    }
}
