//! JSON that a row holds as text, and that is part of the row's own JSON.

use serde::{Deserialize, Deserializer, Serialize, Serializer, ser::Error};
use serde_json::value::RawValue;

pub(super) fn serialize<S: Serializer>(
    json: &Option<String>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let json = json.clone().map(RawValue::from_string).transpose();
    json.map_err(S::Error::custom)?.serialize(serializer)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<String>, D::Error> {
    let json: Option<Box<RawValue>> = Deserialize::deserialize(deserializer)?;
    Ok(json.map(|json| json.get().to_owned()))
}
