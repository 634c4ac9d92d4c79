//! The verbs of `/inventory`.

pub(super) mod set;
