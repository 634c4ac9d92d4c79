//! Metadata: a client's own names on an object.

use std::collections::BTreeMap;

/// The most keys on one object, as in Stripe's API.
pub const METADATA_KEYS_MAX: usize = 50;
/// The longest key, in characters.
pub const METADATA_KEY_MAX_CHARS: usize = 40;
/// The longest value, in characters.
pub const METADATA_VALUE_MAX_CHARS: usize = 500;

/// Values by key, in the order of their keys.
pub type Metadata = BTreeMap<String, String>;

/// What an update does to metadata. Keys that it doesn't mention stay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MetadataChange {
    /// All keys go.
    Clear,
    /// Each of these is set, or removed where there is no value.
    Merge(BTreeMap<String, Option<String>>),
}

/// More than [`METADATA_KEYS_MAX`] keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooManyKeys;

impl MetadataChange {
    /// The metadata after the change.
    pub fn apply(self, mut current: Metadata) -> Result<Metadata, TooManyKeys> {
        match self {
            Self::Clear => current.clear(),
            Self::Merge(changes) => {
                for (key, value) in changes {
                    match value {
                        Some(value) => current.insert(key, value),
                        None => current.remove(&key),
                    };
                }
            }
        }
        if current.len() > METADATA_KEYS_MAX {
            return Err(TooManyKeys);
        }
        Ok(current)
    }
}
