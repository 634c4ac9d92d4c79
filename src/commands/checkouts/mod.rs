//! `POST /checkouts`: how it begins and ends, and its steps. `work/checkouts.rs` leads from step to
//! step.

mod create;
pub(super) mod steps;

pub use create::{begin, end};
pub use steps::{RunStep, refund_elsewhere, refund_elsewhere_reads};
