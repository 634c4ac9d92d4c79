//! The parameter `metadata`: a client's own names.

use std::borrow::Cow;

use charge_once_strict_params::{Error, is_empty};
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{ObjectBuilder, RefOr, Schema, Type, schema::SchemaType},
};

use super::{
    error::ApiError,
    parameter::{
        Expand, ExpandCharge, Field, Parameter, described, nullable, parameters, reference, text,
    },
};
use crate::domain::metadata::{
    METADATA_KEY_MAX_CHARS, METADATA_KEYS_MAX, METADATA_VALUE_MAX_CHARS, Metadata, MetadataChange,
    TooManyKeys,
};

parameters! {
    /// What may change of an order or a refund.
    pub struct UpdateMetadataParams as "UpdateMetadata" {
        metadata: MetadataChange,
        expand: Expand<ExpandCharge>,
    }
    example {"metadata": {"channel": "telephone"}}
}

/// Strings by name. An empty or `null` value means absent.
impl Parameter for Metadata {
    type Value = Self;

    fn read(field: &mut Field<'_, '_>) -> Result<Self, ApiError> {
        Ok(MetadataChange::read(field)?.apply(Self::new())?)
    }

    fn schema(about: String) -> RefOr<Schema> {
        MetadataChange::schema(about)
    }
}

/// On an update, an empty or `null` value unsets its name, and in the place of the whole object all
/// names.
impl Parameter for MetadataChange {
    type Value = Self;

    fn read(field: &mut Field<'_, '_>) -> Result<Self, ApiError> {
        if field.fields.given(field.name).is_some_and(is_empty) {
            return Ok(Self::Clear);
        }
        let names =
            field
                .fields
                .text_map(field.name, METADATA_KEY_MAX_CHARS, METADATA_VALUE_MAX_CHARS)?;
        Ok(Self::Merge(names))
    }

    fn schema(about: String) -> RefOr<Schema> {
        described(reference::<MetadataSchema>(), about)
    }
}

/// What OpenAPI says of metadata in requests.
pub struct MetadataSchema;

impl PartialSchema for MetadataSchema {
    fn schema() -> RefOr<Schema> {
        let names = text()
            .min_length(Some(1))
            .max_length(Some(METADATA_KEY_MAX_CHARS))
            .pattern(Some(r"^[^\[\]]+$"));
        let values = text().max_length(Some(METADATA_VALUE_MAX_CHARS));
        ObjectBuilder::new()
            .schema_type(SchemaType::from_iter([Type::Object, Type::Null]))
            .description(Some(
                "Your own names. An empty or null value is none; in an update it unsets the name.",
            ))
            .max_properties(Some(METADATA_KEYS_MAX))
            .property_names(Some(names))
            .additional_properties(Some(nullable(values.into())))
            .into()
    }
}

impl ToSchema for MetadataSchema {
    fn name() -> Cow<'static, str> {
        "Metadata".into()
    }
}

impl From<TooManyKeys> for ApiError {
    fn from(TooManyKeys: TooManyKeys) -> Self {
        let message = format!("Must have at most {METADATA_KEYS_MAX} keys.");
        Error::invalid(Some("metadata".to_owned()), &message).into()
    }
}
