//! The headers of successful replies, and the descriptions of all.

use utoipa::{
    Modify,
    openapi::{OpenApi, RefOr},
};

use super::operations::{is_mutating, operations};
use crate::http::reply_headers::{HEADERS, add, add_common, add_stored};

/// Describes every header once, and lists those of each successful reply.
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
                    add(response, "Location");
                }
            }
        }
    }
}
