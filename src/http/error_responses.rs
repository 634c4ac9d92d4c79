//! The errors of each endpoint, for the OpenAPI document.
//!
//! Promise: a handler declares the codes that it answers beside itself, with [`errors!`] or
//! `endpoints!`; what every request may meet is added here. Each kind of error reply is described
//! once, in the document's `components/responses`. Its headers are taken from the error as it is
//! rendered, so the two can't disagree.

use std::collections::BTreeMap;

use actix_web::ResponseError;
use charge_once_service::openapi::{list_header, shared};
use utoipa::openapi::{ContentBuilder, Ref, RefOr, Response, ResponseBuilder, example::Example};

use super::{
    error::HttpError,
    problems::PROBLEM,
    reply_headers::{HEADERS, add_common, add_stored},
};
use crate::wire::{
    dialect::Dialect,
    error::{ApiError, ErrorCode, ErrorType},
};

/// Which errors an endpoint answers besides those that it declares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// It needs no API key.
    Open,
    /// It reads.
    Reading,
    /// It deletes: an idempotency key is optional.
    Deleting,
    /// It needs an idempotency key.
    Mutating,
    /// It needs an idempotency key, and charges a card.
    Charging,
}

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
    ErrorCode::IdempotencyKeyInvalid,
    ErrorCode::BodyInvalid,
    ErrorCode::RequestTimeout,
    ErrorCode::IdempotencyKeyInUse,
    ErrorCode::BodyTooLarge,
    ErrorCode::UnsupportedMediaType,
    ErrorCode::IdempotencyKeyReused,
];

impl Kind {
    fn is_mutating(self) -> bool {
        self == Self::Deleting || self.needs_key()
    }

    fn needs_key(self) -> bool {
        matches!(self, Self::Mutating | Self::Charging)
    }

    /// What every endpoint of this kind answers.
    fn has(self, code: ErrorCode) -> bool {
        code == ErrorCode::HostNotAllowed
            || (self != Self::Open && AUTHENTICATED.contains(&code))
            || (self.is_mutating() && MUTATING.contains(&code))
            || (self.needs_key() && code == ErrorCode::IdempotencyKeyRequired)
            || (self == Self::Charging && code.error_type() == ErrorType::Card)
    }

    /// What the names of replies begin with that differ between kinds.
    fn prefix(self, status: u16) -> &'static str {
        match self {
            Self::Open => "Open",
            Self::Reading => "Read",
            // A key that is required is all that a DELETE lacks.
            Self::Deleting if status == 400 => "Delete",
            Self::Deleting | Self::Mutating | Self::Charging => "",
        }
    }
}

/// Declares the errors of an endpoint: their kind, and the codes besides those of every endpoint of
/// that kind. The name goes into the `responses` of the handler's `#[utoipa::path]`. It says which
/// endpoint that is, unless the endpoint's id follows, as in `endpoints!`.
///
/// `errors! { CreateOrderErrors: Mutating [AmountTooLarge] }` makes `struct CreateOrderErrors;`
/// with an `impl utoipa::IntoResponses`, which describes those errors by their status.
macro_rules! errors {
    ($name:ident: $kind:ident [$($code:ident),*]) => {
        $crate::http::error_responses::errors! {
            struct $name, stringify!($name).trim_end_matches("Errors"); $kind [$($code),*]
        }
    };
    ($visible:vis struct $name:ident, $endpoint:expr; $kind:ident [$($code:ident),*]) => {
        $visible struct $name;

        impl utoipa::IntoResponses for $name {
            fn responses() -> $crate::http::error_responses::ByStatus {
                $crate::http::error_responses::responses(
                    $endpoint,
                    $crate::http::error_responses::Kind::$kind,
                    &[$($crate::wire::error::ErrorCode::$code),*],
                )
            }
        }
    };
}
pub(super) use errors;

// What several endpoints answer that have no other codes of their own.
errors! { pub(super) struct ReadErrors, "Read"; Reading [] }
errors! { pub(super) struct ObjectErrors, "Object"; Reading [ResourceMissing] }
errors! { pub(super) struct MutatingErrors, "Mutating"; Mutating [] }
errors! { pub(super) struct DeletionErrors, "Deletion"; Deleting [ResourceMissing] }

/// Replies by their status.
pub(super) type ByStatus = BTreeMap<String, RefOr<Response>>;

/// The error replies of an endpoint, by status. Its id may begin with a small letter, as in the
/// document, or with a capital one.
pub(super) fn responses(endpoint: &str, kind: Kind, own: &[ErrorCode]) -> ByStatus {
    let mut by_status = BTreeMap::<u16, Vec<ErrorCode>>::new();
    // In the order of the table, whatever the order of the declaration.
    for code in ErrorCode::ALL.iter().copied() {
        if kind.has(code) || own.contains(&code) {
            by_status.entry(code.status()).or_default().push(code);
            if code == ErrorCode::IdempotencyKeyReused {
                let under_v1 = Dialect::Stripe.key_reused_status();
                by_status.entry(under_v1).or_default().push(code);
            }
        }
    }
    let named = by_status.into_iter().map(|(status, codes)| {
        // Endpoints share a reply, unless it lists several codes, one of them the endpoint's own.
        let is_own = codes.len() > 1 && codes.iter().any(|code| !kind.has(*code));
        let name = if is_own {
            let (first, rest) = endpoint.split_at(1);
            format!("{}{rest}{}", first.to_uppercase(), phrase(status))
        } else {
            format!("{}{}", kind.prefix(status), phrase(status))
        };
        let mut response = describe(&codes);
        add_common(&mut response, kind.is_mutating());
        if kind.is_mutating() && [400, 402, 404].contains(&status) {
            add_stored(&mut response);
        }
        if kind.is_mutating() && [409, 429, 500, 503].contains(&status) {
            list_header(&mut response, "Fault");
        }
        (status.to_string(), shared(response, name).into())
    });
    named.collect()
}

fn phrase(status: u16) -> &'static str {
    match status {
        400 => "BadRequest",
        401 => "Unauthorized",
        402 => "CardError",
        404 => "NotFound",
        408 => "RequestTimeout",
        409 => "Conflict",
        413 => "BodyTooLarge",
        415 => "UnsupportedMediaType",
        422 => "KeyReused",
        429 => "RateLimited",
        503 => "ServiceUnavailable",
        _ => "InternalError",
    }
}

/// One status with an example for each of its codes.
fn describe(codes: &[ErrorCode]) -> Response {
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
    let problem = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem")));
    let problem = problem.build();
    let names: Vec<_> = codes.iter().map(|code| code.as_str()).collect();
    let mut response = ResponseBuilder::new()
        .description(names.join(", "))
        .content("application/json", content)
        .content(PROBLEM, problem)
        .build();
    for code in codes {
        let rendered = HttpError::from(ApiError::explained(*code)).error_response();
        for header in HEADERS {
            if rendered.headers().contains_key(header.name) {
                list_header(&mut response, header.name);
            }
        }
    }
    response
}
