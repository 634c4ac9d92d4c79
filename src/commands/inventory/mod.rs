//! The verbs of `/inventory`.

mod set;

pub use set::SetInventory;
