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
