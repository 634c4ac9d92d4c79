//! 4 · The entities and their rules, pure: no async, SQL, HTTP, clock or randomness in here.
//!
//! Promise: everything in this folder can be tested with a table, and a reader finds each business
//! rule in one place, stated without the machinery around it. What clients see of an entity is in
//! `wire/`.
//!
//! An entity is a row of its table: `store/` reads and writes it as JSON, and serde's attributes
//! say which column a member is, where the names differ. What no rule reads of customers and
//! intents is one column.

/// Makes an enum whose values have names, in `snake_case`: `as_str`, `parse`, and `ALL`. As JSON, a
/// value is its name. `pub enum Reason { NotPaid }` makes one with `Reason::NotPaid.as_str()`,
/// which is `"not_paid"`.
macro_rules! named {
    ($($(#[$about:meta])* pub enum $name:ident { $($variants:tt)+ })+) => {$(
        $(#[$about])*
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, strum::EnumString,
            strum::IntoStaticStr, strum::VariantArray,
        )]
        #[serde(into = "&'static str")]
        #[strum(serialize_all = "snake_case")]
        pub enum $name {
            $($variants)+
        }

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

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let name = String::deserialize(deserializer)?;
                let unknown = || format!("{name} is no {} of this release", stringify!($name));
                Self::parse(&name).ok_or_else(|| serde::de::Error::custom(unknown()))
            }
        }
    )+};
}

/// What most entities name.
mod prelude {
    pub(super) use chrono::{DateTime, Utc};
    pub(super) use serde::{Deserialize, Serialize};

    pub(super) use super::{columns, ids::*, metadata::Metadata, money::Money};
}

pub mod account;
pub mod api_key;
pub mod charge;
pub mod checkout;
mod columns;
pub mod customer;
pub mod dialect;
pub mod event;
pub mod expiry;
pub mod fault_plan;
pub mod ids;
pub mod inventory;
pub mod metadata;
pub mod money;
pub mod operation;
pub mod order;
pub mod payment_intent;
pub mod payment_method;
pub mod people;
pub mod refund;
pub mod setup_intent;

/// The cards that the simulated card processor knows, and its answers.
pub use charge_once_processor::test_cards;
