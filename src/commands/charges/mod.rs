//! The verbs of `/charges`.

pub(super) mod capture;
pub(super) mod create;
