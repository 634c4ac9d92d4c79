//! The steps of [`Naive`](super::Naive), for a reader who knows no code.

use super::{Design, Event, Naive, NaiveAction, NaiveState, Statement};
use crate::scenarios::{KEY, LANES, Row, Told, arrival, charge, row};

impl Told for Naive {
    fn tell(&self, before: &NaiveState, action: &NaiveAction) -> (String, String) {
        let (lanes, says) = match *action {
            NaiveAction::Arrives(at) => return arrival(at, before.has_arrived[0]),
            NaiveAction::Step(of) => {
                let (lanes, says) = self.step(before, of);
                let (lane, client) = LANES[of];
                let lanes = lanes.replace('S', lane).replace('s', client);
                return (lanes, format!("Server {lane} {says}"));
            }
            NaiveAction::Strikes(_) => self.strike(),
            NaiveAction::LeaseEnds if self.event == Event::LeaseEndsEarly => (
                "A!",
                "Server A sleeps, for a pause of its machine. Its lease ends meanwhile.",
            ),
            NaiveAction::LeaseEnds => ("C", "The lease of the dead server ends."),
            NaiveAction::CacheForgets => ("C!", "The cache is started again, and is empty."),
        };
        (lanes.to_owned(), says.to_owned())
    }

    fn short(&self, before: &NaiveState, action: &NaiveAction) -> Option<(usize, &'static str)> {
        let of = match *action {
            NaiveAction::Arrives(_) | NaiveAction::CacheForgets => return None,
            NaiveAction::LeaseEnds => return Some((0, "(sleeps)")),
            NaiveAction::Strikes(of) => return Some((of, "✗ killed")),
            NaiveAction::Step(of) => of,
        };
        let name = match self.statement(before, of)?.0 {
            Statement::Look | Statement::LookInCache => "look: nothing",
            Statement::TakeLease => "lease",
            Statement::ClaimAndCharge if before.key.is_some() => "no reply: charge",
            Statement::ClaimAndCharge => "key and charge",
            Statement::Charge => "charge",
            Statement::Call | Statement::Save | Statement::SaveInCache | Statement::Reply => {
                return None;
            }
        };
        Some((of, name))
    }

    fn tables(&self, state: &NaiveState) -> Vec<Vec<Row>> {
        let charges = (1..=state.charges).map(charge).collect();
        match self.design {
            Design::CheckThenAct | Design::TwoTransactions => {
                let key = state.key.map(|has_reply| match has_reply {
                    true => row(KEY, "201"),
                    false => row(KEY, "no reply yet"),
                });
                vec![key.into_iter().collect(), charges]
            }
            Design::Lease => {
                let lease = state
                    .lease
                    .map(|of| row("lease", &format!("server {}", LANES[of].0)));
                let reply = state.is_cached.then(|| row(KEY, "201"));
                vec![charges, lease.into_iter().chain(reply).collect()]
            }
            Design::ProviderKey => {
                let calls = 1..=state.charges_at_provider;
                let calls = calls.map(|number| row(&format!("call_{number}"), "charged"));
                vec![charges, calls.collect()]
            }
        }
    }

    fn effects(state: &NaiveState) -> u8 {
        state.effects()
    }

    fn is_waiting(&self, _: &NaiveState, _: usize) -> bool {
        false
    }
}

impl Naive {
    /// The next statement of a server, which is `S` here, and its client `s`.
    fn step(&self, state: &NaiveState, server: usize) -> (&'static str, &'static str) {
        let is_again = state.effects() > 0;
        let is_late = self.design == Design::Lease && state.lease != Some(server);
        let Some((statement, _)) = self.statement(state, server) else {
            return ("", "");
        };
        match statement {
            Statement::Look => ("SD", "looks the key up, and finds nothing."),
            Statement::TakeLease => ("SC", "takes the lease on the key."),
            Statement::LookInCache => ("SC", "finds no reply in the cache."),
            Statement::Charge if self.design == Design::ProviderKey => {
                ("SD", "writes down the charge.")
            }
            Statement::Charge if is_late => (
                "SD",
                "wakes up, and charges too. It took its lease before it slept.",
            ),
            Statement::Charge if is_again => ("SD", "charges too."),
            Statement::Charge => ("SD", "charges, and commits."),
            Statement::ClaimAndCharge if is_again => (
                "SD",
                "finds a key without a reply, on which no server works, and charges again.",
            ),
            Statement::ClaimAndCharge => ("SD", "writes the key and the charge, and commits."),
            Statement::Call if is_again => (
                "SP",
                "calls the provider under another fresh key, and the provider charges again.",
            ),
            Statement::Call => (
                "SP",
                "calls the provider under a fresh key, and the provider charges.",
            ),
            Statement::Save => ("SD", "saves the key with its reply."),
            Statement::SaveInCache => ("SC", "puts its reply in the cache, and ends its lease."),
            Statement::Reply => ("Ss", "answers 201."),
        }
    }

    /// The event, at server A.
    fn strike(&self) -> (&'static str, &'static str) {
        match (self.event, self.design) {
            (Event::LostReply, _) => ("Aa!", "The reply gets lost. Client A can't know."),
            (Event::ProviderTimeout, _) => (
                "PA!",
                "The provider's answer comes too late. Server A takes that for a no.",
            ),
            (_, Design::CheckThenAct) => (
                "A!",
                "Server A dies. It has charged, and not saved the key.",
            ),
            (_, Design::Lease) => ("A!", "Server A dies. The cache has no reply yet."),
            (_, Design::TwoTransactions) => (
                "A!",
                "Server A dies. The charge is committed, and the reply is not.",
            ),
            (Event::CrashAfterCommit, Design::ProviderKey) => {
                ("A!", "Server A dies. Client A hears nothing.")
            }
            (_, Design::ProviderKey) => (
                "A!",
                "Server A dies. Only the provider knows of the charge.",
            ),
        }
    }
}
