//! The parameter `metadata`: a client's own names.

use charge_once_strict_params::{Error, Fields, is_empty};

use super::error::ApiError;
use crate::domain::metadata::{
    METADATA_KEY_MAX_CHARS, METADATA_KEYS_MAX, METADATA_VALUE_MAX_CHARS, Metadata, MetadataChange,
    TooManyKeys,
};

/// `metadata` on a create: strings by name. An empty or `null` value means absent.
pub fn metadata(fields: &mut Fields<'_>) -> Result<Metadata, ApiError> {
    Ok(metadata_change(fields)?.apply(Metadata::new())?)
}

/// `metadata` on an update: an empty or `null` value unsets its name, and in the place of the
/// whole object all names.
pub fn metadata_change(fields: &mut Fields<'_>) -> Result<MetadataChange, Error> {
    if fields.given("metadata").is_some_and(is_empty) {
        return Ok(MetadataChange::Clear);
    }
    fields
        .text_map("metadata", METADATA_KEY_MAX_CHARS, METADATA_VALUE_MAX_CHARS)
        .map(MetadataChange::Merge)
}

impl From<TooManyKeys> for ApiError {
    fn from(TooManyKeys: TooManyKeys) -> Self {
        let message = format!("Must have at most {METADATA_KEYS_MAX} keys.");
        Error::invalid(Some("metadata".to_owned()), &message).into()
    }
}
