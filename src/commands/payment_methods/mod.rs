//! The verbs of `/payment_methods`, and methods as other commands use them.

pub(in crate::commands) mod given;
