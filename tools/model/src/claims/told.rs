//! The steps of [`Claims`](super::Claims), for a reader who knows no code.

use super::{Claims, ClaimsAction, ClaimsState, MemberState, Orphan, Transaction, Worker};
use crate::scenarios::{KEY, LANES, Row, Told, arrival, charge, row};

impl Told for Claims {
    fn tell(&self, before: &ClaimsState, action: &ClaimsAction) -> (String, String) {
        match *action {
            ClaimsAction::Arrives(at, ..) => arrival(at, before.has_arrived[0]),
            ClaimsAction::Statement(of) => statement(before, of),
            ClaimsAction::Commits(_) => (
                "D".to_owned(),
                "PostgreSQL commits the key, the charge and the reply at one moment.".to_owned(),
            ),
            ClaimsAction::Acknowledged(of) => {
                let (lane, client) = LANES[of];
                let says = format!("Server {lane} hears of it, and answers 201.");
                (format!("{lane}{client}"), says)
            }
            ClaimsAction::Crashes(of) => {
                let left = match before.workers[of] {
                    Worker::Committing(_) => {
                        "It has written the key and the charge, and its COMMIT has not arrived."
                    }
                    Worker::Committed(_) => "Its COMMIT was executed, and client A hears nothing.",
                    Worker::Idle | Worker::Running(_) => "It has written nothing.",
                };
                let lane = LANES[of].0;
                (format!("{lane}!"), format!("Server {lane} dies. {left}"))
            }
            ClaimsAction::OrphanRollsBack(_) => (
                "D".to_owned(),
                "PostgreSQL ends the dead session, and undoes what it wrote. The key is free."
                    .to_owned(),
            ),
            ClaimsAction::Tick => (
                "A!".to_owned(),
                "Server A sleeps, for a pause of its machine. Its row stays: a transaction needs no lease."
                    .to_owned(),
            ),
            ClaimsAction::Batch(..)
            | ClaimsAction::LockTimeout(_)
            | ClaimsAction::LosesAcknowledgment(_)
            | ClaimsAction::OrphanCommits(_)
            | ClaimsAction::SweepLocks(_)
            | ClaimsAction::SweepCommits
            | ClaimsAction::SweepDies => Default::default(),
        }
    }

    fn short(&self, before: &ClaimsState, action: &ClaimsAction) -> Option<(usize, &'static str)> {
        let is_taken = before.rows[0].is_some();
        match *action {
            ClaimsAction::Statement(of) => {
                let Worker::Running(tx) = before.workers[of] else {
                    return None;
                };
                let name = match (tx.has(MemberState::ToInsert), tx.has(MemberState::ToRead)) {
                    (true, _) if is_taken => "taken",
                    (true, _) => "INSERT key",
                    (false, true) => "replay",
                    (false, false) => "charge",
                };
                Some((of, name))
            }
            ClaimsAction::Commits(of) => Some((of, "COMMIT")),
            ClaimsAction::Crashes(of) => Some((of, "✗ killed")),
            ClaimsAction::OrphanRollsBack(of) => Some((of, "undone")),
            ClaimsAction::Tick => Some((0, "(sleeps)")),
            ClaimsAction::Arrives(..)
            | ClaimsAction::Acknowledged(_)
            | ClaimsAction::Batch(..)
            | ClaimsAction::LockTimeout(_)
            | ClaimsAction::LosesAcknowledgment(_)
            | ClaimsAction::OrphanCommits(_)
            | ClaimsAction::SweepLocks(_)
            | ClaimsAction::SweepCommits
            | ClaimsAction::SweepDies => None,
        }
    }

    fn tables(&self, state: &ClaimsState) -> Vec<Vec<Row>> {
        let of_process = |worker: &Worker| match worker {
            Worker::Running(tx) => Some((*tx, false)),
            Worker::Committing(tx) => Some((*tx, true)),
            Worker::Idle | Worker::Committed(_) => None,
        };
        let left = |orphan: &Orphan| (orphan.transaction, orphan.is_committing);
        let open = state.workers.iter().filter_map(of_process);
        let mut open = open.chain(state.orphans.iter().flatten().map(left));
        // The one that has written the key; and whether it has written more.
        let writing: Option<(Transaction, bool)> = open.find(|(tx, _)| tx.holds(0));
        let has_charged = writing.is_some_and(|(_, has_charged)| has_charged);
        let key = match state.rows[0] {
            Some(_) => Some(row(KEY, "201")),
            None => writing.map(|_| row(KEY, NOT_COMMITTED)),
        };
        let mut charges: Vec<Row> = (1..=state.effects).map(charge).collect();
        charges.extend(has_charged.then(|| row(&charge(state.effects + 1).0, NOT_COMMITTED)));
        vec![key.into_iter().collect(), charges]
    }

    fn effects(state: &ClaimsState) -> u8 {
        state.effects
    }

    fn is_waiting(&self, state: &ClaimsState, process: usize) -> bool {
        match &state.workers[process] {
            Worker::Running(tx) => self.waits(state, process, tx),
            Worker::Idle | Worker::Committing(_) | Worker::Committed(_) => false,
        }
    }
}

const NOT_COMMITTED: &str = "not committed";

/// The next statement of a process.
fn statement(state: &ClaimsState, process: usize) -> (String, String) {
    let Worker::Running(mut tx) = state.workers[process] else {
        return Default::default();
    };
    let (lane, client) = LANES[process];
    if tx.first(MemberState::ToInsert).is_some() {
        let says = match state.rows[0] {
            None => "inserts the key. Until COMMIT, this row is its lock.",
            Some(_) => "tries to insert the key, and learns that it is taken.",
        };
        (format!("{lane}D"), format!("Server {lane} {says}"))
    } else if tx.has(MemberState::ToRead) {
        let says = format!("Server {lane} reads the row, and sends its reply: the same 201.");
        (format!("D{lane}{client}"), says)
    } else {
        let says = format!(
            "Server {lane} writes the charge and the reply in the same transaction, and sends \
             COMMIT."
        );
        (format!("{lane}D"), says)
    }
}
