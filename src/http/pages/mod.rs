//! Pages for people.

pub(super) mod authenticate;
pub(super) mod errors;
pub(super) mod home;
pub(super) mod layout;
