//! Schemas of an OpenAPI document, as parameters are made of them.

use serde_json::Value;
use utoipa::{
    ToSchema,
    openapi::{
        Array, ArrayBuilder, Object, ObjectBuilder, OneOfBuilder, Ref, RefOr, Schema, Type,
        path::Parameter as QueryParameter,
        schema::{AdditionalProperties, SchemaType},
    },
};

use crate::{Parameter, parameter::plain};

/// The schema of any text.
pub fn text() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String)
}

/// A reference to the schema of `T`. The document has to list it among its components: schemas of
/// parameters don't come by themselves.
pub fn reference<T: ToSchema>() -> RefOr<Schema> {
    Ref::from_schema_name(T::name()).into()
}

/// The schema of a list.
pub fn list_of<T: ToSchema>() -> ArrayBuilder {
    ArrayBuilder::new().items(reference::<T>())
}

/// The schema of what [`Fields::text_map`](crate::Fields::text_map) reads with the same limits: at
/// most `keys_max` strings by names that the client chooses, or `null`.
pub fn text_map(keys_max: usize, key_chars_max: usize, value_chars_max: usize) -> ObjectBuilder {
    let names = text()
        .min_length(Some(1))
        .max_length(Some(key_chars_max))
        .pattern(Some(r"^[^\[\]]+$"));
    let values = text().max_length(Some(value_chars_max));
    ObjectBuilder::new()
        .schema_type(SchemaType::from_iter([Type::Object, Type::Null]))
        .max_properties(Some(keys_max))
        .property_names(Some(names))
        .additional_properties(Some(nullable(values.into())))
}

/// What the ids of a kind look like: `prefix`, which is a regular expression, an underscore, and
/// TypeID's 26 characters, the first of which has three bits.
pub fn id_pattern(prefix: &str) -> String {
    format!("^{prefix}_[0-7][0-9a-hjkmnp-tv-z]{{25}}$")
}

/// A schema with an example. Swagger UI fills in `example`, and none of `examples`.
pub fn with_example(schema: ObjectBuilder, example: impl Into<Value>) -> ObjectBuilder {
    let mut schema = schema.build();
    schema.example = Some(example.into());
    schema.into()
}

/// A schema with what it means, unless that is empty.
pub fn described(mut schema: RefOr<Schema>, about: impl Into<String>) -> RefOr<Schema> {
    let about = about.into();
    match &mut schema {
        _ if about.is_empty() => {}
        RefOr::Ref(reference) => reference.description = about,
        RefOr::T(Schema::Object(Object { description, .. }))
        | RefOr::T(Schema::Array(Array { description, .. })) => *description = Some(about),
        RefOr::T(_) => {}
    }
    schema
}

/// What a schema allows, and `null`, which means that there is none.
pub fn nullable(mut schema: RefOr<Schema>) -> RefOr<Schema> {
    if let RefOr::T(
        Schema::Object(Object { schema_type, .. }) | Schema::Array(Array { schema_type, .. }),
    ) = &mut schema
    {
        if let SchemaType::Type(only) = schema_type {
            *schema_type = SchemaType::from_iter([only.clone(), Type::Null]);
        }
        return schema;
    }
    let null = ObjectBuilder::new().schema_type(Type::Null);
    OneOfBuilder::new().item(schema).item(null).into()
}

/// What a schema allows, without the empty text and the empty list.
pub fn not_empty(mut schema: RefOr<Schema>) -> RefOr<Schema> {
    match &mut schema {
        RefOr::T(Schema::Array(list)) => list.min_items = list.min_items.or(Some(1)),
        RefOr::T(Schema::Object(text))
            if text.schema_type == SchemaType::Type(Type::String)
                && text.pattern.is_none()
                && text.enum_values.is_none() =>
        {
            text.min_length = text.min_length.or(Some(1));
        }
        RefOr::T(_) | RefOr::Ref(_) => {}
    }
    schema
}

/// The schema of an object without properties. `about` are the lines of a comment.
pub fn object(about: &[&str]) -> ObjectBuilder {
    ObjectBuilder::new()
        .schema_type(Type::Object)
        .description(Some(text_of(about)))
        .additional_properties(Some(AdditionalProperties::FreeForm(false)))
}

/// The schema of an object with one more parameter.
pub fn with_member<P: Parameter>(
    object: ObjectBuilder,
    name: &str,
    about: &[&str],
) -> ObjectBuilder {
    P::in_object(object, plain(name), text_of(about))
}

/// How a query names and describes a parameter.
pub fn in_query<P: Parameter>(name: &str, about: &[&str]) -> Vec<QueryParameter> {
    P::in_query(plain(name), text_of(about))
}

fn text_of(comment: &[&str]) -> String {
    let lines: Vec<_> = comment.iter().map(|line| line.trim()).collect();
    lines.join("\n")
}
