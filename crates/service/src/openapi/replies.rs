//! The replies of operations, and their headers, described once.

use utoipa::{
    Modify,
    openapi::{
        HeaderBuilder, ObjectBuilder, OpenApi, Ref, RefOr, Response, Type, extensions::Extensions,
        header::Header,
    },
};

use crate::openapi::operations;

/// A header that replies carry.
pub struct ReplyHeader {
    /// Its name.
    pub name: &'static str,
    /// Whether it is on each reply that lists it.
    pub always: bool,
    /// What it says.
    pub about: &'static str,
    /// What its text looks like. It is given the schema of any text.
    pub schema: fn(ObjectBuilder) -> ObjectBuilder,
}

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

/// Describes each header once, in `components/headers`.
pub fn describe_headers(document: &mut OpenApi, headers: &[ReplyHeader]) {
    let components = document.components.get_or_insert_default();
    for header in headers {
        let (name, documented) = (header.name.to_owned(), header.documented());
        components.headers.insert(name, documented.into());
    }
}

/// Lists a header on a response, by a reference to its description.
pub fn list_header(response: &mut Response, name: &str) {
    let header = RefOr::Ref(Ref::new(format!("#/components/headers/{name}")));
    response.headers.insert(name.to_owned(), header);
}

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
