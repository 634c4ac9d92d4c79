//! What is measured at the service, and beside it.

use uuid::Uuid;

use crate::{
    data::{Shape, api_key, random},
    load::Call,
};

/// One account sends everything: the cost of looking up API keys is not what is measured.
const ACCOUNT: u64 = 0;

/// Different keys that are replayed.
pub(crate) const REPLAYED: u64 = 10_000;

/// Load of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// `GET /livez`: HTTP alone.
    Alive,
    /// `POST /charges`, each with a key of its own.
    Create,
    /// One key again and again.
    ReplayHot,
    /// Many keys at random.
    ReplayMany,
    /// The rows of a charge, in the transaction of a service without this project's library.
    Classic,
    /// The least that a charge under a key can be.
    Bare,
}

/// Work on so many connections.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case {
    pub(crate) work: Work,
    pub(crate) connections: usize,
}

/// What is measured in each round.
pub(crate) const CASES: [Case; 13] = [
    case(Work::Alive, 16),
    case(Work::Create, 1),
    case(Work::Classic, 1),
    case(Work::Create, 16),
    case(Work::Classic, 16),
    case(Work::Bare, 16),
    case(Work::Create, 64),
    case(Work::Classic, 64),
    case(Work::Bare, 64),
    case(Work::Create, 256),
    case(Work::Classic, 256),
    case(Work::ReplayHot, 16),
    case(Work::ReplayMany, 16),
];

const fn case(work: Work, connections: usize) -> Case {
    Case { work, connections }
}

impl Work {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Alive => "GET /livez",
            Self::Create => "POST /charges, new keys",
            Self::ReplayHot => "replay of one key",
            Self::ReplayMany => "replay of 10,000 keys",
            Self::Classic => "pgbench: the same rows, one transaction",
            Self::Bare => "pgbench: two bare tables",
        }
    }
}

/// Makes the request with a number; `None` for what pgbench does.
pub(crate) fn requests(work: Work) -> Option<fn(&Shape, u64) -> Call> {
    match work {
        Work::Alive => Some(|_, _| Call::get("/livez".to_owned(), String::new())),
        Work::Create => Some(|shape, number| {
            let key = Uuid::new_v4().to_string();
            with_api_key(shape.create(shape.approved(number), key))
        }),
        Work::ReplayHot => Some(|shape, _| with_api_key(shape.replay(shape.approved(0)))),
        Work::ReplayMany => Some(|shape, number| {
            let row = random(number, 3_000) % REPLAYED;
            with_api_key(shape.replay(row))
        }),
        Work::Classic | Work::Bare => None,
    }
}

/// The request whose key [`Work::ReplayMany`] replays.
pub(crate) fn first_use(shape: &Shape, n: u64) -> Call {
    let replay = shape.replay(n);
    with_api_key(Call {
        is_replay: false,
        ..replay
    })
}

fn with_api_key(call: Call) -> Call {
    Call {
        api_key: api_key(ACCOUNT),
        ..call
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use anyhow::Context;

    use super::*;

    const SHAPE: Shape = Shape {
        rows: REPLAYED,
        until_micros: 1_795_000_000_000_000,
    };

    #[test]
    fn a_replay_repeats_a_request_that_was_made() -> anyhow::Result<()> {
        let made: HashMap<_, _> = (0..REPLAYED)
            .map(|n| first_use(&SHAPE, n))
            .map(|call| (call.idempotency_key.clone(), call.body))
            .collect();
        assert_eq!(made.len() as u64, REPLAYED);
        for number in 0..1_000 {
            for work in [Work::ReplayHot, Work::ReplayMany] {
                let call = requests(work).context("requests")?(&SHAPE, number);
                assert!(call.is_replay);
                assert_eq!(made.get(&call.idempotency_key), Some(&call.body));
            }
        }
        Ok(())
    }

    #[test]
    fn a_new_charge_has_a_key_of_its_own_and_is_approved() -> anyhow::Result<()> {
        let create = requests(Work::Create).context("requests")?;
        let mut keys = HashSet::new();
        for number in 0..100 {
            let call = create(&SHAPE, number);
            assert_eq!((call.status, call.is_replay), (201, false));
            assert!(keys.insert(call.idempotency_key));
        }
        Ok(())
    }
}
