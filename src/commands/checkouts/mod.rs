//! `POST /checkouts`: how it begins and ends, its steps, and the run that leads from step to step.

mod create;
mod run;
pub(super) mod steps;

pub use create::CreateCheckout;
pub use run::{CheckoutPhases, CheckoutSteps};
pub use steps::{RefundedElsewhere, RunStep};
