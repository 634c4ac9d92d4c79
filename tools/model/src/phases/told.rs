//! The steps of [`PhasesModel`](super::PhasesModel), for a reader who knows no code.

use super::{
    AtProcessor, BegunOperation, Called, Holder, KeyRow, PhasesAction, PhasesModel, PhasesState,
    RowState,
};
use crate::scenarios::{KEY, LANES, Row, Told, arrival, charge, row};

impl Told for PhasesModel {
    fn tell(&self, before: &PhasesState, action: &PhasesAction) -> (String, String) {
        let (lanes, says) = match *action {
            PhasesAction::Arrives(at, ..) => {
                let (lanes, arrives) = arrival(at, before.has_arrived[0]);
                let (more, claims) = claim(before.rows[0], at);
                return (lanes + &more, format!("{arrives} {claims}"));
            }
            PhasesAction::Calls(at) => {
                let lane = LANES[at].0;
                let says = format!("Server {lane} asks the provider to charge, under op_1.");
                return (format!("{lane}P"), says);
            }
            PhasesAction::Delivered(message, _, is_lost) => {
                return delivery(before, message, is_lost);
            }
            PhasesAction::Completes(at, is_lost) => return completion(before, at, is_lost),
            PhasesAction::CallTimeout(at) => {
                let lane = LANES[at].0;
                let says = format!("Server {lane} gets no answer in time, and can't know.");
                return (format!("{lane}!"), says);
            }
            PhasesAction::Dies(at) => {
                let lane = LANES[at].0;
                let left = match before.rows[0].is_some_and(|row| row.is_in_flight()) {
                    true => "The key and op_1 are committed, and the outcome is not.",
                    false => "Everything is committed, and client A hears nothing.",
                };
                return (format!("{lane}!"), format!("Server {lane} dies. {left}"));
            }
            PhasesAction::TimeGoesOn => ("D", "Time goes on, and the lease of op_1 with it."),
            PhasesAction::ClaimsAgain(_)
            | PhasesAction::CannotSend(_)
            | PhasesAction::MessageLost(_)
            | PhasesAction::Recovers(..)
            | PhasesAction::Resolves(..)
            | PhasesAction::Decides(_)
            | PhasesAction::Abandons(_)
            | PhasesAction::Expires(_)
            | PhasesAction::SweptInFlight(_)
            | PhasesAction::Ages(_)
            | PhasesAction::Forgets(_) => return Default::default(),
        };
        (lanes.to_owned(), says.to_owned())
    }

    fn tables(&self, state: &PhasesState) -> Vec<Vec<Row>> {
        let (mut keys, mut charges) = (Vec::new(), Vec::new());
        if let Some(key) = state.rows[0] {
            let ch = charge(key.operation + 1);
            let (says, paid) = match key.state {
                RowState::InFlight { left: 0, .. } => ("op_1, lease over", "pending"),
                RowState::InFlight { token: 1, .. } => ("op_1, lease 1", "pending"),
                RowState::InFlight { .. } => ("op_1, lease 2", "pending"),
                RowState::Completed { .. } => ("201", ch.1.as_str()),
            };
            keys.push(row(KEY, says));
            charges.push(row(&ch.0, paid));
        }
        let at_provider = (1..).zip(state.operations.iter().flatten());
        let at_provider = at_provider.filter(|(_, begun)| begun.had_effect());
        let at_provider = at_provider.map(|(number, _)| row(&format!("op_{number}"), "charged"));
        vec![keys, charges, at_provider.collect()]
    }

    fn effects(state: &PhasesState) -> u8 {
        let begun = state.operations.iter().flatten();
        begun.map(|begun| u8::from(begun.had_effect())).sum()
    }

    fn is_waiting(&self, _: &PhasesState, _: usize) -> bool {
        false
    }
}

/// What an attempt finds under the key.
fn claim(found: Option<KeyRow>, process: usize) -> (String, String) {
    let (lane, client) = LANES[process];
    let says = match found.map(|row| row.state) {
        None => "commits the key, and an operation with a name of its own: op_1.",
        Some(RowState::Completed { .. }) => "finds the reply, and sends it: the same 201.",
        Some(RowState::InFlight { left: 0, .. }) => "takes over op_1. It makes no other.",
        Some(RowState::InFlight { .. }) => "finds it in flight, and answers 409: try again.",
    };
    let answers = match found {
        Some(row) if !row.is_lease_over() => format!("D{lane}{client}"),
        Some(_) | None => "D".to_owned(),
    };
    (answers, format!("Server {lane} {says}"))
}

/// The provider gets an instruction.
fn delivery(state: &PhasesState, message: usize, is_lost: bool) -> (String, String) {
    let sent = state.messages[message];
    let begun = sent.and_then(|sent| state.operations[usize::from(sent.asks_under)]);
    let is_new = |begun: BegunOperation| begun.at_processor == AtProcessor::Unknown;
    let says = match (begun.is_some_and(is_new), is_lost) {
        (true, false) => "The provider charges under op_1, and says so.",
        (true, true) => "The provider charges under op_1, and its answer gets lost.",
        (false, _) => "The provider knows op_1. It says what it did, and does nothing.",
    };
    let by = sent.and_then(|sent| sent.awaited_by).map_or(0, usize::from);
    let lost = if is_lost { "!" } else { "" };
    (format!("P{}{lost}", LANES[by].0), says.to_owned())
}

/// A process writes what its call came to.
fn completion(state: &PhasesState, process: usize, is_lost: bool) -> (String, String) {
    let (lane, client) = LANES[process];
    match (state.holders[process], is_lost) {
        (Holder::Answered(_, Called::Answered { .. }), false) => (
            format!("{lane}D{lane}{client}"),
            format!("Server {lane} commits the outcome with the key, and answers 201."),
        ),
        (Holder::Answered(_, Called::Answered { .. }), true) => (
            format!("{lane}D"),
            format!("Server {lane} commits the outcome with the key."),
        ),
        _ => (
            format!("{lane}D{lane}{client}"),
            format!("Server {lane} keeps op_1, gives its lease back, and answers 503: not known."),
        ),
    }
}
