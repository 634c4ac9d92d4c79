//! Error replies, described once.

use utoipa::{
    Modify,
    openapi::{OpenApi, Ref, RefOr},
};

use super::operations::operations;
use crate::http::error_responses::component;

/// Moves the error replies of all endpoints into `components/responses`.
pub(super) struct SharedErrors;

impl Modify for SharedErrors {
    fn modify(&self, document: &mut OpenApi) {
        let mut components = document.components.take().unwrap_or_default();
        for operation in operations(document) {
            for response in operation.responses.responses.values_mut() {
                if let RefOr::T(described) = response
                    && let Some(name) = component(described).map(str::to_owned)
                {
                    let reference = Ref::new(format!("#/components/responses/{name}"));
                    described.extensions = None;
                    let described = std::mem::replace(response, RefOr::Ref(reference));
                    components.responses.insert(name, described);
                }
            }
        }
        document.components = Some(components);
    }
}
