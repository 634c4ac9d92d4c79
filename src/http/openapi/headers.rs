//! The headers of successful replies, and the descriptions of all.

use charge_once_service::openapi::{describe_headers, has_parameter, list_header, operations};
use utoipa::{
    Modify,
    openapi::{OpenApi, RefOr},
};

use crate::http::{
    parameters::IDEMPOTENCY_KEY,
    reply_headers::{HEADERS, add_common, add_stored},
};

/// Describes every header once, and lists those of each successful reply.
pub(super) struct ReplyHeaders;

impl Modify for ReplyHeaders {
    fn modify(&self, document: &mut OpenApi) {
        describe_headers(document, HEADERS);
        for operation in operations(document) {
            let mutating = has_parameter(operation, IDEMPOTENCY_KEY);
            for (status, response) in &mut operation.responses.responses {
                let RefOr::T(response) = response else {
                    continue;
                };
                // An error's own headers are listed where the error is described.
                if !status.starts_with('2') {
                    continue;
                }
                add_common(response, mutating);
                if mutating {
                    add_stored(response);
                }
                // A test account is not shown again.
                let is_shown = operation.operation_id.as_deref() != Some("createTestAccount");
                if status == "201" && is_shown {
                    list_header(response, "Location");
                }
            }
        }
    }
}
