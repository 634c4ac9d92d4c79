//! 1½ · Several commands as one request, and what undoes them.
//!
//! Promise: a saga holds no transaction and writes nothing by itself. It runs commands one after
//! the other, each through `idempotency/` under a key of its own, and the commands record what has
//! run. So it can stop at any point, and another process can continue it.

mod checkouts;

pub use checkouts::{CheckoutPhases, CheckoutSteps};
