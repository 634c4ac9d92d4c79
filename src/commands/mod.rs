//! 3 · One verb, one file, whole.
//!
//! Promise: a command is a value with the verb's parameters as they were decoded. It checks their
//! meaning, decides by the rules in `domain/`, writes through `store/`, and says how it ended: a
//! reply to commit, a refusal to store, or a failure. It never begins or commits a transaction.
//!
//! A verb is a function over the rows that it needs: [`Rules`]. `work/` runs it, for one request or
//! for many in one transaction, and `questions.rs` hands the answer of a card to the verb that
//! asked. Some verbs have the older shape, with SQL between their rules:
//!
//! | shape | function | verbs |
//! |---|---|---|
//! | reads, decides, writes | `reads`, `decide`, `answered`, `withdraw` | all verbs but those below |
//! | one transaction | `execute` | of webhook endpoints and test accounts; each step of a checkout |
//! | in phases | `begin`, `complete`, `release` | checkouts |

mod card_answers;
pub mod charges;
pub mod checkouts;
pub mod customers;
pub mod expansions;
mod holder_pages;
pub mod inventory;
pub mod orders;
mod origin;
pub mod payment_intents;
pub mod payment_methods;
mod processor_effect;
mod questions;
pub mod refunds;
mod replies;
pub mod setup_intents;
pub mod test_accounts;
mod unfinished;
pub mod webhook_endpoints;
mod work;

pub use card_answers::SlowLane;
pub use charges::{CaptureCharge, CreateCharge, UpdateCharge};
pub use checkouts::{CheckoutPhases, CheckoutSteps, CreateCheckout, RefundedElsewhere, RunStep};
pub use customers::{CreateCustomer, UpdateCustomer, delete_customer};
pub use holder_pages::FAILED;
pub use inventory::SetInventory;
pub use orders::{CancelOrder, CreateOrder, PayOrder, UpdateOrder};
pub use origin::Origin;
pub use payment_intents::{
    AuthenticateIntent, CancelIntent, CaptureIntent, ConfirmIntent, CreateIntent, UpdateIntent,
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
pub use unfinished::NO_PROCESSOR;
pub use webhook_endpoints::{CreateWebhookEndpoint, UpdateWebhookEndpoint};
pub use work::{Draft, RowId, Rows, Rules, RunVerb, Said, SeenRows, Verdict};
