//! 3 · One verb, one file, whole.
//!
//! Promise: a command is a value with the verb's parameters as they were decoded. It checks their
//! meaning, decides by the rules in `domain/`, writes through `store/`, and says how it ended: a
//! reply to commit, a refusal to store, or a failure. It never begins or commits a transaction.
//!
//! A request has one of two shapes. Phases are an add-on for effects outside the database.
//!
//! | shape | function | verbs |
//! |---|---|---|
//! | decides without reading | `decide` | new charges, orders and bare payment intents |
//! | reads, locks, decides | `execute` | every other verb, and each step of a checkout |
//! | in phases | `begin`, `complete`, `release` | checkouts; what moves money, with `PROCESSOR_URL` |
//!
//! A verb that decides has no `execute` of its own: the idempotency crate makes one of `decide`,
//! for a request that must read first. `decide_alone` has what such a verb does with SQL before it
//! decides. `processor_effect.rs` finds the verb that an operation belongs to.

mod card_answers;
pub mod charges;
pub mod checkouts;
mod creation;
pub mod customers;
pub mod expansions;
mod holder_pages;
pub mod inventory;
mod mode;
pub mod orders;
mod origin;
pub mod payment_intents;
pub mod payment_methods;
mod processor_effect;
pub mod refunds;
mod replies;
pub mod setup_intents;
pub mod test_accounts;
pub mod webhook_endpoints;

pub use card_answers::SlowLane;
pub use charges::{CaptureCharge, CreateCharge, UpdateCharge};
pub use checkouts::{CheckoutPhases, CheckoutSteps, CreateCheckout, RefundedElsewhere, RunStep};
pub use creation::Creation;
pub use customers::{CreateCustomer, UpdateCustomer, delete_customer};
pub use holder_pages::FAILED;
pub use inventory::SetInventory;
pub use mode::NO_PROCESSOR;
pub use orders::{CancelOrder, CreateOrder, PayOrder, UpdateOrder};
pub use origin::Origin;
pub use payment_intents::{
    AuthenticateIntent, CancelIntent, CaptureIntent, ConfirmIntent, CreateBareIntent, CreateIntent,
    UpdateIntent,
};
pub use payment_methods::{
    AttachPaymentMethod, CreatePaymentMethod, DetachPaymentMethod, UpdatePaymentMethod,
};
pub use processor_effect::{NetworkPhases, ProcessorEffect};
pub use refunds::{CreateRefund, UpdateRefund};
pub use setup_intents::{
    AuthenticateSetup, CancelSetupIntent, ConfirmSetupIntent, CreateSetupIntent, UpdateSetupIntent,
};
pub use test_accounts::{CreateTestAccount, ExpireKeys};
pub use webhook_endpoints::{CreateWebhookEndpoint, UpdateWebhookEndpoint};
