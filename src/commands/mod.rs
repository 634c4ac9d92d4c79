//! 3 · One verb, one file, whole.
//!
//! Promise: a command is a value with the verb's parameters. It decides by the rules in `domain/`,
//! and says how it ended: a reply to commit, a refusal to store, or a failure. It has no SQL and
//! waits for nothing.
//!
//! A verb is a function over the rows that it needs: [`Rules`]. `work/` runs it, for one request or
//! for many in one transaction, and `questions.rs` hands the answer of a card to the verb that
//! asked.

pub mod charges;
pub mod checkouts;
pub mod customers;
mod draft;
mod holder_pages;
pub mod inventory;
pub mod orders;
mod origin;
pub mod payment_intents;
pub mod payment_methods;
mod prelude;
pub(crate) mod questions;
pub mod refunds;
pub(crate) mod replies;
mod rows;
mod rules;
pub mod setup_intents;
mod unfinished;
mod update;

pub use charges::{CaptureCharge, CreateCharge};
pub use customers::CreateCustomer;
pub use draft::Draft;
pub use holder_pages::FAILED;
pub use inventory::SetInventory;
pub use orders::{CancelOrder, CreateOrder, PayOrder};
pub use origin::Origin;
pub use payment_intents::{
    AuthenticateIntent, CancelIntent, CaptureIntent, ConfirmIntent, CreateIntent, UpdateIntent,
};
pub use payment_methods::{AttachPaymentMethod, CreatePaymentMethod, DetachPaymentMethod};
pub use refunds::CreateRefund;
pub use rows::{Changes, Noun, RowId, RowName, Rows};
pub use rules::{Object, Rules, Said, SeenRows, Verdict};
pub use setup_intents::{
    AuthenticateSetup, CancelSetupIntent, ConfirmSetupIntent, CreateSetupIntent, UpdateSetupIntent,
};
pub use unfinished::NO_PROCESSOR;
pub use update::{Editable, Update};
