//! The verbs of `/customers`.

mod create;
mod delete;
mod update;

pub use create::CreateCustomer;
pub use delete::delete_customer;
pub use update::UpdateCustomer;
