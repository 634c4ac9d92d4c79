//! The operations of a document, and an example of an idempotency key for each.

use sha2::{Digest, Sha256};
use utoipa::{
    Modify,
    openapi::{
        OpenApi, RefOr,
        path::{Operation, ParameterBuilder, PathItem},
    },
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

/// Gives the parameter `header` of each operation an example key of its own. Swagger UI fills it
/// in, and one key for two operations is a mistake that an idempotent API refuses.
pub struct ExampleKeys {
    /// As the document names it: `Idempotency-Key`.
    pub header: &'static str,
}

impl Modify for ExampleKeys {
    fn modify(&self, document: &mut OpenApi) {
        for operation in operations(document) {
            let key = example_key(operation.operation_id.as_deref().unwrap_or_default());
            for parameter in operation.parameters.iter_mut().flatten() {
                if let RefOr::T(parameter) = parameter
                    && parameter.name == self.header
                {
                    let builder = ParameterBuilder::from(parameter.clone());
                    *parameter = builder.example(Some(key.clone().into())).build();
                }
            }
        }
    }
}

/// A UUID that is the same in every build, so that a committed document doesn't change by itself.
fn example_key(operation_id: &str) -> String {
    let mut bytes = [0; 16];
    for (byte, digest) in bytes.iter_mut().zip(Sha256::digest(operation_id)) {
        *byte = digest;
    }
    let key = uuid::Builder::from_random_bytes(bytes).into_uuid();
    key.to_string()
}
