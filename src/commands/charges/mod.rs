//! The verbs of `/charges`.

pub(super) mod capture;
pub(super) mod create;

pub use capture::CaptureCharge;
pub use create::CreateCharge;

pub(super) use create::{end, open};
