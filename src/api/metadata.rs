//! The parameter `metadata`: a client's own names.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    error::ApiError,
    param_path::Step,
    params::{Fields, invalid, is_empty},
};
use crate::domain::metadata::{
    METADATA_KEY_MAX_CHARS, METADATA_KEYS_MAX, METADATA_VALUE_MAX_CHARS, Metadata, MetadataChange,
    TooManyKeys,
};

impl Fields<'_> {
    /// `metadata` on a create: strings by name. An empty or `null` value means absent.
    pub fn metadata(&mut self) -> Result<Metadata, ApiError> {
        Ok(self.metadata_change()?.apply(Metadata::new())?)
    }

    /// `metadata` on an update: an empty or `null` value unsets its name, and in the place of the
    /// whole object all names.
    pub fn metadata_change(&mut self) -> Result<MetadataChange, ApiError> {
        let members = match self.take_given("metadata") {
            None => return Ok(MetadataChange::Merge(BTreeMap::new())),
            Some(value) if is_empty(value) => return Ok(MetadataChange::Clear),
            Some(Value::Object(members)) => members,
            Some(_) => return Err(self.invalid("metadata", "Must be an object of strings.")),
        };
        let root = self.place.within(Step::Name("metadata"));
        let mut changes = BTreeMap::new();
        for (key, value) in members {
            let refuse = |message: &str| invalid(root.within(Step::Name(key)).to_param(), message);
            // With brackets no form could ever name it again, to unset it.
            let is_bracketed = key.contains(['[', ']']);
            if key.is_empty() || key.chars().count() > METADATA_KEY_MAX_CHARS || is_bracketed {
                return Err(refuse(&format!(
                    "Keys have 1 to {METADATA_KEY_MAX_CHARS} characters, none of them a bracket."
                )));
            }
            let change = match value {
                value if is_empty(value) => None,
                Value::String(text) if text.chars().count() > METADATA_VALUE_MAX_CHARS => {
                    let limit = METADATA_VALUE_MAX_CHARS;
                    return Err(refuse(&format!("Values have at most {limit} characters.")));
                }
                Value::String(text) => Some(text.clone()),
                Value::Null
                | Value::Bool(_)
                | Value::Number(_)
                | Value::Array(_)
                | Value::Object(_) => return Err(refuse("Values are strings.")),
            };
            changes.insert(key.clone(), change);
        }
        Ok(MetadataChange::Merge(changes))
    }
}

impl From<TooManyKeys> for ApiError {
    fn from(TooManyKeys: TooManyKeys) -> Self {
        let message = format!("Must have at most {METADATA_KEYS_MAX} keys.");
        invalid(Some("metadata".to_owned()), &message)
    }
}
