//! The views of payments: charges, refunds, intents, methods and customers.
//!
//! They are one module, because each can show others whole: a charge its intent, an intent its
//! charge, a refund both. None of these views stands without the others.

pub mod charges;
pub mod customers;
pub mod payment_intents;
pub mod payment_methods;
pub mod people;
pub mod setup_intents;
