//! The parameter `metadata`: a client's own names.

use std::borrow::Cow;

use charge_once_strict_params::{
    Error, Field, Parameter, is_empty,
    schema::{described, reference, text_map},
};
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{RefOr, Schema},
};

use super::error::ApiError;
use crate::domain::metadata::{
    METADATA_KEY_MAX_CHARS, METADATA_KEYS_MAX, METADATA_VALUE_MAX_CHARS, Metadata, MetadataChange,
    TooManyKeys,
};

/// The parameter whose members have names that the client chooses.
pub const MAPS: &[&str] = &["metadata"];

/// Strings by name. An empty or `null` value means absent.
pub struct MetadataParam;

impl Parameter for MetadataParam {
    type Value = Metadata;

    fn read(field: &mut Field<'_, '_>) -> Result<Metadata, Error> {
        let given = MetadataChange::read(field)?;
        given.apply(Metadata::new()).map_err(too_many_keys)
    }

    fn schema(about: String) -> RefOr<Schema> {
        described(reference::<Self>(), about)
    }
}

/// On an update, an empty or `null` value unsets its name, and in the place of the whole object all
/// names.
impl Parameter for MetadataChange {
    type Value = Self;

    fn read(field: &mut Field<'_, '_>) -> Result<Self, Error> {
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
        <MetadataParam as Parameter>::schema(about)
    }
}

impl PartialSchema for MetadataParam {
    fn schema() -> RefOr<Schema> {
        let names = text_map(
            METADATA_KEYS_MAX,
            METADATA_KEY_MAX_CHARS,
            METADATA_VALUE_MAX_CHARS,
        );
        let about =
            "Your own names. An empty or null value is none; in an update it unsets the name.";
        names.description(Some(about)).into()
    }
}

impl ToSchema for MetadataParam {
    fn name() -> Cow<'static, str> {
        "Metadata".into()
    }
}

fn too_many_keys(TooManyKeys: TooManyKeys) -> Error {
    let message = format!("Must have at most {METADATA_KEYS_MAX} keys.");
    Error::invalid(Some("metadata".to_owned()), &message)
}

impl From<TooManyKeys> for ApiError {
    fn from(refusal: TooManyKeys) -> Self {
        too_many_keys(refusal).into()
    }
}
