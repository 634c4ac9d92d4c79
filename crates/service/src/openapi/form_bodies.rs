//! What the OpenAPI document says of every request body alike: that it may be JSON or a form,
//! whether there must be one, and how parameters with members are written in forms.
//!
//! Promise: it holds for every operation, because it is derived from what the operation declares.

use std::collections::BTreeMap;

use serde_json::Value;
use utoipa::{
    Modify,
    openapi::{
        Object, OpenApi, RefOr, Required, Schema, Type,
        encoding::Encoding,
        path::ParameterStyle,
        schema::{ArrayItems, SchemaType},
    },
};

use crate::openapi::operations;

const FORM: &str = "application/x-www-form-urlencoded";

type Schemas = BTreeMap<String, RefOr<Schema>>;

/// `source[number]=…`, `metadata[order_id]=…`, `expand[]=…`: without this, OpenAPI's default for a
/// value with members in a form is `number=…`, and for a list `expand=…`, which are refused.
/// OpenAPI names no style for a list of objects, `items[0][quantity]=…`; Stripe's document says
/// `deepObject` of such a list, and so does this one.
///
/// A form has a schema of its own, even where it is the one of JSON: generated clients tell by the
/// type of a body how to write it.
///
/// A body may be left out where no parameter is required: nothing is an empty object.
pub struct FormBodies;

impl Modify for FormBodies {
    fn modify(&self, document: &mut OpenApi) {
        let schemas = document.components.clone().unwrap_or_default().schemas;
        for operation in operations(document) {
            let Some(RefOr::T(body)) = &mut operation.request_body else {
                continue;
            };
            // Every body can be written both ways, and handlers describe it once, as JSON.
            let Some(RefOr::T(json)) = body.content.get("application/json") else {
                continue;
            };
            let mut form = json.clone();
            let Some(Schema::Object(parameters)) = resolve(&schemas, form.schema.as_ref()) else {
                continue;
            };
            body.required = Some(match parameters.required.as_slice() {
                [] => Required::False,
                [_, ..] => Required::True,
            });
            let mut written = parameters.clone();
            for (name, parameter) in &parameters.properties {
                if is_list_of_texts(&schemas, parameter) {
                    rename(&mut written, name, format!("{name}[]"));
                } else if has_members(&schemas, parameter) {
                    let encoding = Encoding::builder()
                        .style(Some(ParameterStyle::DeepObject))
                        .explode(Some(true));
                    form.encoding.insert(name.clone(), encoding.build());
                }
            }
            form.schema = Some(Schema::Object(written).into());
            body.content.insert(FORM.to_owned(), form.into());
        }
    }
}

fn rename(object: &mut Object, name: &str, to: String) {
    for required in &mut object.required {
        if required == name {
            required.clone_from(&to);
        }
    }
    if let Some(Value::Object(example)) = &mut object.example
        && let Some(value) = example.remove(name)
    {
        example.insert(to.clone(), value);
    }
    if let Some(parameter) = object.properties.remove(name) {
        object.properties.insert(to, parameter);
    }
}

fn is_list_of_texts(schemas: &Schemas, schema: &RefOr<Schema>) -> bool {
    let Some(Schema::Array(array)) = resolve(schemas, Some(schema)) else {
        return false;
    };
    matches!(&array.items, ArrayItems::RefOrSchema(item) if !has_members(schemas, item))
}

fn resolve<'a>(schemas: &'a Schemas, schema: Option<&'a RefOr<Schema>>) -> Option<&'a Schema> {
    match schema? {
        RefOr::T(schema) => Some(schema),
        RefOr::Ref(reference) => {
            let name = reference.ref_location.rsplit('/').next()?;
            resolve(schemas, schemas.get(name))
        }
    }
}

/// Whether a value can be a list or an object.
fn has_members(schemas: &Schemas, schema: &RefOr<Schema>) -> bool {
    let any = |alternatives: &[RefOr<Schema>]| {
        let mut alternatives = alternatives.iter();
        alternatives.any(|schema| has_members(schemas, schema))
    };
    match resolve(schemas, Some(schema)) {
        Some(Schema::Array(_)) => true,
        Some(Schema::Object(object)) => match &object.schema_type {
            SchemaType::Type(only) => *only == Type::Object,
            SchemaType::Array(types) => types.contains(&Type::Object),
            SchemaType::AnyValue => true,
        },
        Some(Schema::OneOf(one_of)) => any(&one_of.items),
        Some(Schema::AllOf(all_of)) => any(&all_of.items),
        Some(Schema::AnyOf(any_of)) => any(&any_of.items),
        Some(_) | None => false,
    }
}
