//! The headers of replies.

use utoipa::openapi::{
    HeaderBuilder, ObjectBuilder, OpenApi, Ref, RefOr, Response, Type, extensions::Extensions,
    header::Header,
};

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
