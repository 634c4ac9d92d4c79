//! The verbs of `/customers`.

mod create;

pub use create::CreateCustomer;
