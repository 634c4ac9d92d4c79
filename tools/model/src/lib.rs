//! The protocol of `charge-once-idempotency`, as models of which a checker visits every state.
//!
//! Four models keep each of them small enough to be explored whole, and to be read:
//!
//! - [`claims`]: one transaction per key, batches, expiry, the sweep, a COMMIT without an answer;
//! - [`decisions`]: batches that decide in memory and claim last, beside requests that claim first;
//! - [`phases`]: an effect at a processor, with leases, takeovers, and a person who resolves;
//! - [`replay_cache`]: answers from memory, judged by clocks that err.
//!
//! [`naive`] is four designs that don't hold, and [`scenarios`] tells what happens to them and to
//! the protocol after the same event.
//!
//! Each model can be built without one of the protocol's guards. The tests show that every guard is
//! needed: without it, the checker finds steps that break a property. Names are those of the code.
//! `docs/model.md` says what is left out.
#![allow(
    clippy::indexing_slicing,
    reason = "indices are bounded by the arrays of a model, and one that is not ends the check"
)]

pub mod claims;
pub mod decisions;
pub mod naive;
pub mod phases;
pub mod replay_cache;
pub mod scenarios;

use std::{
    fmt::{self, Debug, Display, Write as _},
    hash::Hash,
    time::{Duration, Instant},
};

use stateright::{Checker, Expectation, HasDiscoveries, Model};

pub(crate) const KEYS: usize = 2;

/// The two processes, in traces.
pub(crate) const NAMES: [&str; 2] = ["A", "B"];

pub(crate) fn key_name(key: u8) -> String {
    format!("key {}", key + 1)
}

/// In the place of a fingerprint: the key is given up, and the record answers each request.
pub(crate) const GIVEN_UP: u8 = 2;

pub(crate) fn fingerprint_name(fingerprint: u8) -> &'static str {
    ["x", "y"][usize::from(fingerprint)]
}

pub(crate) fn request_name(key: u8, fingerprint: u8) -> String {
    let fingerprint = fingerprint_name(fingerprint);
    format!("request {fingerprint} with {}", key_name(key))
}

/// The keys of the next request, each with its fingerprints. They have no order: the first key that
/// is used is called 1, and the first request with a key x.
pub(crate) fn arrivals(has_arrived: [bool; KEYS]) -> impl Iterator<Item = (u8, u8)> {
    let keys = 0..=u8::from(has_arrived[0]);
    keys.flat_map(move |key| fingerprints(has_arrived, key).map(move |one| (key, one)))
}

/// The fingerprints of the next request with a key.
pub(crate) fn fingerprints(has_arrived: [bool; KEYS], key: u8) -> impl Iterator<Item = u8> {
    0..=u8::from(has_arrived[usize::from(key)])
}

/// How much happens in a run. Everything else follows in every possible order.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Requests that arrive, retries and late duplicates among them.
    pub requests: u8,
    /// Crashes, and messages and acknowledgments that are lost.
    pub faults: u8,
}

impl Bounds {
    const fn of(requests: u8, faults: u8) -> Self {
        Self { requests, faults }
    }
}

/// A model within bounds, whole or without a guard.
#[derive(Debug, Clone, Copy)]
pub struct Guarded<G> {
    without: Option<G>,
    bounds: Bounds,
}

impl<G: PartialEq> Guarded<G> {
    fn lacks(&self, guard: G) -> bool {
        self.without == Some(guard)
    }

    /// Whether keys are given up: the other guards are needed without that, too.
    fn gives_up(&self, guard: G) -> bool {
        self.without.is_none() || self.lacks(guard)
    }
}

/// A completed record of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Record {
    execution: u8,
    fingerprint: u8,
    expires_at: u8,
}

impl Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (execution, until) = (self.execution, self.expires_at);
        if self.fingerprint == GIVEN_UP {
            return write!(f, "given up, until {until}");
        }
        let request = fingerprint_name(self.fingerprint);
        write!(
            f,
            "execution {execution} of request {request}, until {until}"
        )
    }
}

/// A model whose guards can be taken out, and whose steps a person can read.
pub trait Protocol:
    Model<
        State: Clone + Debug + Hash + PartialEq + Send + Sync,
        Action: Clone + Debug + PartialEq + Send + Sync,
    > + Send
    + Sync
    + 'static
{
    /// What the protocol's promise rests on.
    type Guard: Copy + Debug + 'static;

    /// All guards.
    const GUARDS: &[Self::Guard];

    /// The bounds that CI explores: seconds.
    const NARROW: &[Bounds];

    /// Wider ones: minutes.
    const WIDE: &[Bounds];

    /// The model within these bounds, whole or without a guard.
    fn within(bounds: Bounds, without: Option<Self::Guard>) -> Self;

    /// What a step from this state is, in words.
    fn words(state: &Self::State, action: &Self::Action) -> String;

    /// What is true in a state, one fact a line. A trace shows the facts that a step made true.
    fn facts(state: &Self::State) -> Vec<String>;
}

/// What an exploration found.
#[derive(Debug)]
pub struct Exploration {
    /// How many different states were visited.
    pub states: usize,
    /// The length of the longest way from the beginning to a state.
    pub depth: usize,
    /// How long it took.
    pub took: Duration,
    /// Properties that don't hold, each with the steps that break it.
    pub broken: Vec<(&'static str, String)>,
    /// What should be possible, and never happened: the model would prove less than it seems.
    pub never_happened: Vec<&'static str>,
}

impl Exploration {
    /// Whether every property holds, and what should be possible happened.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.broken.is_empty() && self.never_happened.is_empty()
    }
}

/// The property that doesn't hold without a guard, and the steps that break it. `None`: the guard
/// is not needed, within these bounds.
#[must_use]
pub fn counterexample<P: Protocol>(guard: P::Guard) -> Option<(&'static str, String)> {
    let mut bounds = P::NARROW.iter();
    // One thread finds the same steps each time.
    bounds.find_map(|bounds| explore(P::within(*bounds, Some(guard)), 1).broken.pop())
}

/// Visits every state of a model, or as many as it takes to break a property.
pub fn explore<P: Protocol>(model: P, threads: usize) -> Exploration {
    let began = Instant::now();
    let checker = model.checker().threads(threads);
    let checker = checker.finish_when(HasDiscoveries::AnyFailures);
    let checker = checker.spawn_bfs().join();
    let (mut broken, mut never_happened) = (Vec::new(), Vec::new());
    let mut discoveries = checker.discoveries();
    for property in checker.model().properties() {
        match (property.expectation, discoveries.remove(property.name)) {
            (Expectation::Sometimes, None) => never_happened.push(property.name),
            (Expectation::Sometimes, Some(_)) | (_, None) => {}
            (_, Some(path)) => broken.push((property.name, steps::<P>(&path.into_vec()))),
        }
    }
    Exploration {
        states: checker.unique_state_count(),
        depth: checker.max_depth(),
        took: began.elapsed(),
        broken,
        never_happened,
    }
}

/// The steps of a path, numbered, each with what it made true.
fn steps<P: Protocol>(path: &[(P::State, Option<P::Action>)]) -> String {
    let mut text = String::new();
    for (number, pair) in path.windows(2).enumerate() {
        let [(before, Some(action)), (after, _)] = pair else {
            continue;
        };
        let _ = writeln!(text, "{:>3}. {}", number + 1, P::words(before, action));
        let known = P::facts(before);
        for fact in P::facts(after) {
            if !known.contains(&fact) {
                let _ = writeln!(text, "       {fact}");
            }
        }
    }
    text
}
