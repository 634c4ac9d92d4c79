//! The operations of a document.

use utoipa::openapi::{
    OpenApi, RefOr,
    path::{Operation, PathItem},
};

/// Every operation of the document, to be changed.
pub fn operations(document: &mut OpenApi) -> impl Iterator<Item = &mut Operation> {
    document.paths.paths.values_mut().flat_map(|item| {
        let PathItem {
            get,
            put,
            post,
            delete,
            options,
            head,
            patch,
            trace,
            ..
        } = item;
        let all = [get, put, post, delete, options, head, patch, trace];
        all.into_iter().flatten()
    })
}

/// Whether an operation has the parameter `name`, such as a header that only some need.
pub fn has_parameter(operation: &Operation, name: &str) -> bool {
    let mut parameters = operation.parameters.iter().flatten();
    parameters.any(|parameter| matches!(parameter, RefOr::T(parameter) if parameter.name == name))
}
