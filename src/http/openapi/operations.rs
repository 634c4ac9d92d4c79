//! The operations of the OpenAPI document.

use utoipa::openapi::{
    OpenApi, RefOr,
    path::{Operation, PathItem},
};

use crate::http::parameters::IDEMPOTENCY_KEY;

/// Every operation of the document.
pub(super) fn operations(document: &mut OpenApi) -> impl Iterator<Item = &mut Operation> {
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
