//! The verbs of `/orders`.

pub(super) mod cancel;
pub(super) mod create;
pub(super) mod pay;
