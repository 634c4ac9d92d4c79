//! The client library and `charge-once pay`.

pub mod calls;
mod checkouts;
mod pay;
