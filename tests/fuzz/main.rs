//! Fuzzing of everything that reads what strangers write: nothing panics, nothing takes long, and
//! what is accepted has one meaning.
//!
//! Inputs are the corpus, in random combinations and mutations. `make fuzz SECONDS=10` gives each
//! target its time; `cargo test` gives each a moment. A find that must stay found goes into
//! `corpus/`.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may stop at the first surprise"
)]

mod decoders;
mod mutation;
mod values;

use std::{
    cell::Cell,
    env,
    time::{Duration, Instant},
};

use proptest::{
    strategy::Strategy,
    test_runner::{Config, TestCaseError, TestRunner},
};

/// The longest that one input may take. Inputs have at most 64 KiB, and a body of that size takes
/// some milliseconds without optimization; only an algorithm that isn't linear takes longer.
const INPUT_LIMIT: Duration = Duration::from_secs(2);

/// The fewest inputs that a target gets, however short its time is and however busy the machine.
const INPUTS_MIN: u32 = 64;

/// Gives a target inputs until its time is over. Fails with the smallest input that fails.
fn fuzz<S: Strategy>(inputs: &S, target: impl Fn(S::Value) -> Result<(), TestCaseError>) {
    let seconds = env::var("FUZZ_SECONDS")
        .ok()
        .map(|text| text.parse().unwrap());
    let until = Instant::now() + seconds.map_or(Duration::from_millis(500), Duration::from_secs);
    let config = Config {
        cases: 16,
        failure_persistence: None,
        ..Config::default()
    };
    let tried = Cell::new(0_u32);
    while Instant::now() < until || tried.get() < INPUTS_MIN {
        // A runner counts its successes, and gives no input after `cases` of them.
        let run = TestRunner::new(config.clone()).run(inputs, |input| {
            tried.set(tried.get().saturating_add(1));
            let began = Instant::now();
            target(input)?;
            let took = began.elapsed();
            if took > INPUT_LIMIT {
                return Err(TestCaseError::fail(format!("took {took:?}")));
            }
            Ok(())
        });
        if let Err(failure) = run {
            panic!("{failure}");
        }
    }
    println!("{} inputs", tried.get());
}
