//! References of the OpenAPI document to its own schemas.

use utoipa::{
    Modify,
    openapi::{
        Object, OpenApi, Ref, RefOr, Schema,
        schema::{AdditionalProperties, ArrayItems},
    },
};

/// Replaces each copy of a named schema within a schema by a reference. utoipa copies what a
/// generic type holds, the `T` of `List<T>`, and a generator makes a second type of a copy, or a
/// broken one.
///
/// It goes before modifiers that change schemas, while copies are as what they are copied from. The
/// bodies of forms stay copies: see [`FormBodies`](crate::openapi::FormBodies).
pub struct References;

type Named = Vec<(Object, Ref)>;

impl Modify for References {
    fn modify(&self, document: &mut OpenApi) {
        let schemas = &mut document.components.get_or_insert_default().schemas;
        let named = schemas.iter().filter_map(|(name, schema)| match schema {
            RefOr::T(Schema::Object(object)) if !object.properties.is_empty() => {
                Some((object.clone(), Ref::from_schema_name(name)))
            }
            RefOr::T(_) | RefOr::Ref(_) => None,
        });
        let named = named.collect();
        for schema in schemas.values_mut() {
            if let RefOr::T(schema) = schema {
                refer_within(schema, &named);
            }
        }
    }
}

fn refer_within(schema: &mut Schema, named: &Named) {
    let refer_in = |parts: &mut Vec<RefOr<Schema>>| {
        parts.iter_mut().for_each(|part| refer(part, named));
    };
    match schema {
        Schema::Array(array) => {
            if let ArrayItems::RefOrSchema(items) = &mut array.items {
                refer(items, named);
            }
        }
        Schema::Object(object) => {
            for property in object.properties.values_mut() {
                refer(property, named);
            }
            let others = object.additional_properties.as_deref_mut();
            if let Some(AdditionalProperties::RefOr(value)) = others {
                refer(value, named);
            }
        }
        Schema::OneOf(one_of) => refer_in(&mut one_of.items),
        Schema::AllOf(all_of) => refer_in(&mut all_of.items),
        Schema::AnyOf(any_of) => refer_in(&mut any_of.items),
        // utoipa may add kinds.
        _ => {}
    }
}

fn refer(schema: &mut RefOr<Schema>, named: &Named) {
    let RefOr::T(inline) = schema else {
        return;
    };
    let known = named
        .iter()
        .find(|(object, _)| matches!(inline, Schema::Object(inline) if inline == object));
    match known {
        Some((_, reference)) => *schema = reference.clone().into(),
        None => refer_within(inline, named),
    }
}
