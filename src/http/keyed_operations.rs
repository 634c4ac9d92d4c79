//! Which operations of the OpenAPI document take an idempotency key.

use charge_once_service::openapi::has_parameter;
use utoipa::openapi::{
    OpenApi, RefOr, Required,
    path::{Operation, PathItem},
};

use super::parameters::IDEMPOTENCY_KEY;

/// The operations of the document that take a key: each with its method and path.
pub(super) fn with_keys(
    document: &mut OpenApi,
) -> impl Iterator<Item = (&'static str, &str, &mut Operation)> {
    let paths = document.paths.paths.iter_mut();
    let operations = paths.flat_map(|(path, item)| {
        let PathItem {
            post,
            put,
            patch,
            delete,
            ..
        } = item;
        let methods = [
            ("POST", post),
            ("PUT", put),
            ("PATCH", patch),
            ("DELETE", delete),
        ];
        let present = methods
            .into_iter()
            .filter_map(|(method, of)| Some((method, of.as_mut()?)));
        present.map(move |(method, operation)| (method, path.as_str(), operation))
    });
    operations.filter(|(_, _, operation)| has_parameter(operation, IDEMPOTENCY_KEY))
}

/// Whether it takes no request without one.
pub(super) fn needs_key(operation: &Operation) -> bool {
    operation.parameters.iter().flatten().any(|parameter| {
        matches!(parameter, RefOr::T(parameter)
            if parameter.name == IDEMPOTENCY_KEY && parameter.required == Required::True)
    })
}
