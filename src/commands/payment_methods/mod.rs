//! The verbs of `/payment_methods`, and methods as other commands use them.

pub(super) mod attach;
pub(super) mod create;
pub(super) mod detach;
pub(super) mod given;
