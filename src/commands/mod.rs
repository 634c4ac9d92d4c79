//! 3 · One verb, one file, whole.
//!
//! Promise: a command is a value with the verb's parameters. It decides by the rules in `domain/`,
//! and says how it ended: a reply to commit, a refusal to store, or a failure. It has no SQL and
//! waits for nothing.
//!
//! A verb is a function over the rows that it needs: [`Rules`]. `work/` runs it, for one request or
//! for many in one transaction, and `questions.rs` hands the answer of a card to the verb that
//! asked.

mod charges;
pub mod checkouts;
mod customers;
mod draft;
mod found_intents;
mod holder_pages;
mod inventory;
mod orders;
mod origin;
mod payment_intents;
mod payment_methods;
mod prelude;
pub(crate) mod questions;
mod refunds;
pub(crate) mod replies;
mod rows;
mod rules;
mod setup_intents;
mod unfinished;
mod update;

pub use {
    charges::{capture::CaptureCharge, create::CreateCharge},
    customers::create::CreateCustomer,
    draft::{Draft, Server},
    holder_pages::FAILED,
    inventory::set::SetInventory,
    orders::{cancel::CancelOrder, create::CreateOrder, pay::PayOrder},
    origin::Origin,
    payment_intents::{
        authenticate::AuthenticateIntent, cancel::CancelIntent, capture::CaptureIntent,
        confirm::ConfirmIntent, create::CreateIntent, update::UpdateIntent,
    },
    payment_methods::{
        attach::AttachPaymentMethod, create::CreatePaymentMethod, detach::DetachPaymentMethod,
        given::unwritten_method,
    },
    refunds::create::CreateRefund,
    rows::{Changes, Noun, RowId, RowName, Rows},
    rules::{Object, On, Rules, Said, SeenRows, Verdict, ask, show},
    setup_intents::{
        authenticate::AuthenticateSetup, cancel::CancelSetupIntent, confirm::ConfirmSetupIntent,
        create::CreateSetupIntent, update::UpdateSetupIntent,
    },
    unfinished::NO_PROCESSOR,
    update::{Editable, Update},
};
