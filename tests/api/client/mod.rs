//! The client library and `charge-once pay`.

mod calls;
mod checkouts;
mod key_stores;
mod pay;
mod retries;
