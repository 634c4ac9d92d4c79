//! The checks. What each asks, expects and says is data, in `vectors/`: `vector.rs` follows its
//! steps. What depends on time is a procedure with parameters, in `headers.rs` and `faults.rs`.

mod faults;
mod headers;
mod vector;

use std::{collections::BTreeMap, sync::LazyLock};

use serde::{Deserialize, Deserializer, Serialize};

use crate::{
    api::{Api, Reply},
    config::ConfigError,
    history::{Attempt, interleaving},
    storm,
};

/// How much a rule weighs. The grades are those of this program: a source may weigh it less.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Without it, an effect can happen twice, be lost, or be of another client.
    Unsafe,
    /// Without it, clients can't know what happened, a mistake of theirs stays hidden, or a copy of
    /// the table shows secrets.
    Unclear,
}

/// Why a check did not hold.
#[derive(Debug)]
pub(crate) enum Flaw {
    Wrong(Box<Fault>),
    /// It can't be said, and why.
    Unknown(String),
}

/// What is wrong. Where it says nothing of its own, what the check says is true of it.
#[derive(Debug, Default)]
pub(crate) struct Fault {
    pub(crate) seen: String,
    /// How two requests came to do the work of one.
    pub(crate) how: Option<String>,
    /// Which requests led to it. Without them, those under the key that was used last.
    pub(crate) attempts: Vec<Attempt>,
    pub(crate) severity: Option<Severity>,
    /// The name of a cost or of a mend in `words.json`.
    pub(crate) cost: Option<&'static str>,
    pub(crate) mend: Option<&'static str>,
}

/// How to mend what was found, in terms of no framework.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Mend {
    /// In words.
    pub words: String,
    /// As SQL or pseudo-code.
    #[serde(deserialize_with = "lines")]
    pub code: String,
}

fn lines<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    Ok(Vec::<String>::deserialize(from)?.join("\n"))
}

/// What faults cost, and how they are mended.
#[derive(Debug, Default, Deserialize)]
struct Words {
    costs: BTreeMap<String, String>,
    mends: BTreeMap<String, Mend>,
}

static WORDS: LazyLock<Words> = LazyLock::new(|| {
    let words = serde_json::from_str(include_str!("../../vectors/words.json"));
    words.unwrap_or_default()
});

/// The words of a cost, which may be its name.
pub(crate) fn cost(name: &'static str) -> &'static str {
    WORDS.costs.get(name).map_or(name, String::as_str)
}

pub(crate) fn mend(name: &str) -> Option<&'static Mend> {
    WORDS.mends.get(name)
}

impl Flaw {
    pub(crate) fn violated(seen: impl Into<String>) -> Self {
        Self::Wrong(Box::new(Fault {
            seen: seen.into(),
            ..Fault::default()
        }))
    }

    /// What matters holds, and a detail is not as promised.
    pub(crate) fn lesser(seen: impl Into<String>, cost: &'static str, mend: &'static str) -> Self {
        let flaw = Self::violated(seen).costing(cost).mended_by(mend);
        flaw.changed(|fault| fault.severity = Some(Severity::Unclear))
    }

    /// More effects than are right, or fewer than clients were told of.
    pub(crate) fn miscounted(made: u64, right: u64, attempts: Vec<Attempt>) -> Self {
        let flaw = Self::violated(format!("{made} effects, and {right} is right"));
        let flaw = if made > right && right > 0 {
            let how = interleaving(&attempts);
            let flaw = flaw.costing("repeated");
            flaw.changed(|fault| fault.how = Some(how))
        } else if made > right {
            flaw.costing("failed").mended_by("one_transaction")
        } else {
            flaw.costing("lost").mended_by("one_transaction")
        };
        flaw.because(attempts)
    }

    fn changed(mut self, change: impl FnOnce(&mut Fault)) -> Self {
        if let Self::Wrong(fault) = &mut self {
            change(fault);
        }
        self
    }

    pub(crate) fn costing(self, cost: &'static str) -> Self {
        self.changed(|fault| fault.cost = Some(cost))
    }

    pub(crate) fn mended_by(self, mend: &'static str) -> Self {
        self.changed(|fault| fault.mend = Some(mend))
    }

    pub(crate) fn because(self, attempts: Vec<Attempt>) -> Self {
        self.changed(|fault| fault.attempts = attempts)
    }
}

/// What was seen where the rule holds, or the flaw.
pub(crate) type Seen = Result<String, Flaw>;

/// One check, as `vectors/schema.json` describes it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// Its name, for `--only` and for reports.
    pub name: String,
    /// What must hold.
    pub rule: String,
    /// The sections that say so. `draft` is the IETF draft, `Stripe` the page "Idempotent
    /// requests", `ACP` the Agentic Commerce Protocol, and `charge-once` its contract.
    pub source: String,
    /// How much it weighs.
    pub severity: Severity,
    #[serde(skip_serializing)]
    pub(crate) cost: String,
    #[serde(skip_serializing)]
    pub(crate) mend: String,
    /// How to mend it where the work is repeated.
    #[serde(default, skip_serializing)]
    repeated_mend: Option<String>,
    /// An effect that is missing because its request was taken for another one: what the check
    /// says is true of it.
    #[serde(default, skip_serializing)]
    lost_is_own: bool,
    /// Earlier checks whose faults are seen here, too.
    #[serde(default, skip_serializing)]
    pub(crate) echo_of: Vec<String>,
    #[serde(default, skip_serializing)]
    cases: Vec<vector::Case>,
    #[serde(default, skip_serializing)]
    procedure: String,
    #[serde(default, skip_serializing)]
    parameters: Parameters,
}

/// What a procedure varies. Each has a few of them.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Parameters {
    pub(crate) keys: usize,
    pub(crate) rounds: usize,
    pub(crate) pause_ms: u64,
    pub(crate) work_min_ms: u64,
    pub(crate) retry_percent: u32,
    pub(crate) waited_max_seconds: u64,
    /// How long after it was sent a request's connection is cut. Once more, its reply is dropped.
    pub(crate) cuts_ms: Vec<u64>,
    pub(crate) stays_ms: Vec<u64>,
    /// Of a key's first request, and of its second one.
    pub(crate) visits: Vec<usize>,
}

#[derive(Deserialize)]
struct Vectors {
    checks: Vec<Check>,
}

/// Reads a file of checks.
pub(crate) fn read(vectors: &str) -> Result<Vec<Check>, ConfigError> {
    let read = serde_json::from_str::<Vectors>(vectors);
    let read = read.map_err(|error| ConfigError(format!("vectors: {error}")))?;
    Ok(read.checks)
}

/// All checks of an API, in the order in which they run.
pub static CHECKS: LazyLock<Vec<Check>> = LazyLock::new(|| {
    let files = [
        include_str!("../../vectors/keys.json"),
        include_str!("../../vectors/replies.json"),
        include_str!("../../vectors/procedures.json"),
    ];
    files.into_iter().flat_map(read).flatten().collect()
});

/// All checks of a receiver of webhooks.
pub static RECEIVER_CHECKS: LazyLock<Vec<Check>> =
    LazyLock::new(|| read(include_str!("../../vectors/webhooks.json")).unwrap_or_default());

impl Check {
    pub(crate) async fn run(&'static self, api: &Api) -> Seen {
        let with = &self.parameters;
        let seen = match self.procedure.as_str() {
            "" => vector::follow(api, &self.cases).await,
            "policy" => headers::policy(api).await,
            "replay_headers" => headers::replayed(api).await,
            "replay_marked" => headers::marked(api).await,
            "racers" => faults::racers(api, with).await,
            "in_flight" => faults::in_flight(api, with).await,
            "lease" => faults::lease(api, with).await,
            "lost_reply" | "lost_2xx" => faults::lost_reply(api, with).await,
            "cut_request" => faults::cut_request(api).await,
            "disconnect" => faults::disconnect(api, with).await,
            "second_replica" => faults::second_replica(api, with).await,
            "expiry" => faults::expiry(api, with).await,
            "giving_up" => faults::giving_up(api, with).await,
            "delivered_at_once" => faults::delivered_at_once(api, with).await,
            "sealed" => headers::sealed(api).await,
            "storm" => storm::storm(api, with, None).await,
            "crash" => storm::with_crashes(api, with).await,
            "late_effects" => faults::late_effects(api).await,
            other => unknown(format!("there is no procedure {other}")),
        };
        let seen = seen.map_err(|flaw| flaw.changed(|fault| self.put_right(fault)));
        match seen {
            Err(Flaw::Wrong(fault)) => match api.cause(self, &fault) {
                Some(cause) => unknown(format!(
                    "{}; that can be an echo of {cause}: mend it, and ask again",
                    fault.seen
                )),
                None => Err(Flaw::Wrong(fault)),
            },
            Ok(_) | Err(Flaw::Unknown(_)) => seen,
        }
    }

    fn put_right(&'static self, fault: &mut Fault) {
        if fault.cost == Some("lost") && self.lost_is_own {
            (fault.cost, fault.mend) = (None, None);
        }
        if fault.cost == Some("repeated") {
            fault.mend = self.repeated_mend.as_deref().or(fault.mend);
        }
    }
}

/// The outcome of a check that can't be made.
pub(crate) fn unknown<T>(what: impl Into<String>) -> Result<T, Flaw> {
    Err(Flaw::Unknown(what.into()))
}

/// The beginning of a body, on one line.
pub(crate) fn quoted(body: &[u8]) -> String {
    const SHOWN: usize = 160;
    let text = String::from_utf8_lossy(body);
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
        None => line,
    }
}

pub(crate) fn same(first: &Reply, retry: &Reply) -> Result<(), Flaw> {
    if first.is_same_outcome(retry) {
        return Ok(());
    }
    let flaw = Flaw::violated(format!("first {first}, then {retry}"));
    Err(match first.status == retry.status {
        true => flaw.costing("changed").mended_by("stored_reply"),
        false if first.is_success() && retry.is_success() => flaw.costing("changed"),
        false => flaw.costing("failed"),
    })
}

/// Expects the answer to a request that succeeds under a new key.
pub(crate) fn succeeded(what: &str, answer: &Reply) -> Result<(), Flaw> {
    if answer.is_success() {
        return Ok(());
    }
    Err(Flaw::violated(format!("{what} got {answer}")).costing("failed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_check_names_what_there_is() {
        assert_eq!((CHECKS.len(), RECEIVER_CHECKS.len()), (37, 8));
        for (number, check) in CHECKS.iter().chain(RECEIVER_CHECKS.iter()).enumerate() {
            let name = &check.name;
            let mends = std::iter::once(&check.mend).chain(&check.repeated_mend);
            assert!(mends.clone().all(|one| mend(one).is_some()), "{name}");
            // An echo comes later than what it is of.
            let earlier = CHECKS.iter().take(number).map(|one| &one.name);
            for cause in &check.echo_of {
                assert!(earlier.clone().any(|one| one == cause), "{name}: {cause}");
            }
        }
    }
}
