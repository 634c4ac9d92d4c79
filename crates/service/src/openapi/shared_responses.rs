//! Replies of several operations, described once.

use utoipa::{
    Modify,
    openapi::{OpenApi, Ref, RefOr, Response, extensions::Extensions},
};

use crate::openapi::operations;

/// Where a reply carries the name of its component until the document is put together.
const COMPONENT: &str = "x-component";

/// A reply that [`SharedResponses`] moves to `components/responses` under `name`. Operations may
/// share it: replies of one name have to be equal.
#[must_use]
pub fn shared(mut response: Response, name: String) -> Response {
    response.extensions = Some(Extensions::from_iter([(COMPONENT, name)]));
    response
}

/// Replaces each [`shared`] reply of all operations by a reference to its component.
pub struct SharedResponses;

impl Modify for SharedResponses {
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

fn component(response: &Response) -> Option<&str> {
    response.extensions.as_ref()?.get(COMPONENT)?.as_str()
}
