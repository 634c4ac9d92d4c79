//! The requests whose cost should not depend on how many rows there are.

use uuid::Uuid;

use crate::{
    data::{Id, Shape, id_text, random},
    load::Call,
};

pub(crate) const CONNECTIONS: usize = 16;

pub(crate) struct TimedCall {
    pub(crate) name: &'static str,
    /// In one round: some seconds' worth on two cores.
    pub(crate) requests: u64,
    /// How much more it may cost on the large database, in hundredths.
    pub(crate) bar: u64,
    pub(crate) call: fn(&Shape, u64) -> Call,
}

pub(crate) static TIMED: [TimedCall; 5] = [
    TimedCall {
        name: "create a charge",
        requests: 2_000,
        bar: 150,
        call: create,
    },
    TimedCall {
        name: "replay a random stored key",
        requests: 4_000,
        bar: 120,
        call: Shape::replay,
    },
    TimedCall {
        name: "read a random charge",
        requests: 5_000,
        bar: 120,
        call: |shape, n| Call::get(format!("/charges/{}", charge(shape, n)), shape.api_key(n)),
    },
    TimedCall {
        name: "list a customer's charges of ten days, a page in the middle",
        requests: 2_500,
        bar: 120,
        call: |shape, n| {
            let path = format!("{}&customer={}", list(shape, n), shape.customer(n));
            Call::get(path, shape.api_key(n))
        },
    },
    TimedCall {
        name: "list an account's charges of ten days, a page in the middle",
        requests: 2_500,
        bar: 120,
        call: |shape, n| Call::get(list(shape, n), shape.api_key(n)),
    },
];

impl TimedCall {
    /// The request with this number of this round: about a row that follows from both, so that all
    /// sides and all runs ask for the same.
    pub(crate) fn request(&self, shape: &Shape, round: u64, number: u64) -> Call {
        (self.call)(shape, random(number, 1_000 + round) % shape.rows)
    }
}

/// A new charge like that of a stored row that was not declined.
pub(crate) fn create(shape: &Shape, n: u64) -> Call {
    shape.create(shape.approved(n), Uuid::new_v4().to_string())
}

/// The page after charge `n`, back to ten days before it.
fn list(shape: &Shape, n: u64) -> String {
    let from = shape.created_seconds(n) - 10 * 24 * 3_600;
    let after = charge(shape, n);
    format!("/charges?created%5Bgte%5D={from}&starting_after={after}")
}

fn charge(shape: &Shape, n: u64) -> String {
    format!("ch_{}", id_text(shape.id(Id::Charge, n)))
}
