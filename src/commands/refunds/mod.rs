//! The verbs of `/refunds`.

pub(super) mod create;
