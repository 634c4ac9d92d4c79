//! Faults that an application has act on deliveries, for tests of what receivers do then.

use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::Claimed;

/// What goes wrong with a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeliveryFault {
    /// Once the endpoint has taken it, it is sent again when the worker looks next. If the endpoint
    /// doesn't take it, it is retried as any other.
    Twice,
    /// Its first attempt is made after this pause.
    Late(Duration),
    /// Nothing is sent, and it counts as taken. Its attempt has an error that says so.
    Lost,
}

/// Decides which faults act on deliveries.
pub trait Interference: Send + Sync + 'static {
    /// The fault that acts on a delivery. Asked before its first attempt, and never again. If
    /// the answer takes longer than `Settings::timeout`, no fault acts.
    fn fault<'a>(&'a self, delivery: &'a Claimed) -> BoxFuture<'a, Option<DeliveryFault>>;
}
