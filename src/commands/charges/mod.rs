//! The verbs of `/charges`.

pub(super) mod capture;
pub(super) mod create;
mod update;

pub use capture::CaptureCharge;
pub use create::CreateCharge;
pub use update::UpdateCharge;

pub(super) use create::{end, open};
