//! Ids as clients see them.

use type_safe_id::{DynamicType, TypeSafeId};
use uuid::Uuid;

/// `evt` and a UUID are `evt_01h455vb4pex5vsknk084sn02q`.
pub(crate) fn public(prefix: &str, id: Uuid) -> String {
    match DynamicType::new(prefix) {
        Ok(prefix) => TypeSafeId::from_type_and_uuid(prefix, id).to_string(),
        Err(_) => id.to_string(),
    }
}

/// What a row names: `ch` and a UUID as clients see the id, and anything else as it is.
pub(crate) fn of_row(name: &str) -> String {
    let id = name.split_once(' ').and_then(|(prefix, id)| {
        let id = Uuid::parse_str(id).ok()?;
        Some(public(prefix, id))
    });
    id.unwrap_or_else(|| name.to_owned())
}

/// What a line of text may name: its words, and UUIDs among them as ids of every kind.
pub(crate) fn in_text(line: &str) -> Vec<String> {
    let words = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '-');
    let names = words.flat_map(|word| match Uuid::parse_str(word) {
        Ok(id) => ["ch", "re", "or", "co", "pi", "pm", "cus", "seti"]
            .map(|kind| public(kind, id))
            .to_vec(),
        Err(_) => vec![word.to_owned()],
    });
    names.collect()
}
