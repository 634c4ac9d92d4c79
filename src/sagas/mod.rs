//! 1½ · Several commands as one request, and what undoes them.
//!
//! Promise: a saga holds no transaction and writes nothing by itself. It runs commands one after
//! the other, each through `idempotency/` under a key of its own, and what has run is written down by
//! the commands; so it can be dropped at any point, and anybody may go on with it.

mod checkouts;

pub use checkouts::{CheckoutPhases, CheckoutSteps};
