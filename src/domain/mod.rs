//! 4 · The entities and their rules, pure: no async, SQL, HTTP, JSON, clock or randomness in here.
//!
//! Promise: everything in this folder can be tested with a table, and a reader finds each business
//! rule in one place, stated without the machinery around it. What clients see of an entity is in
//! `wire/`, how it is stored is in `store/`.

/// Gives an enum `ALL`, `as_str` and `parse`, by the names that `strum` derives.
macro_rules! named {
    ($name:ident) => {
        impl $name {
            /// All of them, in the order of their declaration.
            pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

            /// Its name, in requests, replies and tables.
            pub fn as_str(self) -> &'static str {
                self.into()
            }

            /// The one with this name.
            pub fn parse(name: &str) -> Option<Self> {
                name.parse().ok()
            }
        }
    };
}

pub mod account;
pub mod api_key;
pub mod charge;
pub mod checkout;
pub mod customer;
pub mod dialect;
pub mod event;
pub mod expiry;
pub mod ids;
pub mod inventory;
pub mod metadata;
pub mod money;
pub mod operation;
pub mod order;
pub mod payment_intent;
pub mod payment_method;
pub mod refund;
pub mod setup_intent;

/// The cards that the simulated card processor knows, and its answers.
pub use charge_once_processor::test_cards;
