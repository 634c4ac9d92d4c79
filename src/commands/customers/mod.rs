//! The verbs of `/customers`.

pub(super) mod create;
