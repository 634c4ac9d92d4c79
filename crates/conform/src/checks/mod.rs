//! The table of checks: for each, the rule, where it comes from, what a violation can cost, and how
//! to mend it. The functions are in `key.rs`, `replay.rs` and `faults.rs`.

mod faults;
mod key;
mod replay;

use futures_util::future::LocalBoxFuture;
use serde::Serialize;

use crate::{
    api::{Api, Ask, Reply},
    storm,
};

/// How much a rule weighs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Severity {
    /// Without it, an effect can happen twice, be lost, or be of another client.
    #[serde(rename = "MUST")]
    Must,
    /// Without it, clients can't know what happened, or a mistake of theirs stays hidden.
    #[serde(rename = "SHOULD")]
    Should,
}

/// Why a check did not hold.
#[derive(Debug)]
pub(crate) enum Flaw {
    /// The rule is broken.
    Violated(String),
    /// What matters holds, and a detail is not as promised: SHOULD at most.
    Lesser(String),
    /// It can't be said, and why.
    Unknown(String),
}

impl Flaw {
    pub(crate) fn seen(self) -> String {
        match self {
            Self::Violated(seen) | Self::Lesser(seen) | Self::Unknown(seen) => seen,
        }
    }
}

/// What was seen where the rule holds, or the flaw.
pub(crate) type Seen = Result<String, Flaw>;

/// One check.
pub struct Check {
    /// Its name, for `--only` and for reports.
    pub name: &'static str,
    /// What must hold.
    pub rule: &'static str,
    /// The sections that say so. `draft` is the IETF draft, `Stripe` the page "Idempotent
    /// requests", `ACP` the Agentic Commerce Protocol, and `charge-once` its contract.
    pub source: &'static str,
    /// How much it weighs.
    pub severity: Severity,
    /// What a violation can cost.
    pub cost: &'static str,
    /// How to mend it.
    pub mend: &'static str,
    pub(crate) run: fn(&Api) -> LocalBoxFuture<'_, Seen>,
}

impl std::fmt::Debug for Check {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

const ONE_TRANSACTION: &str = "commit the key's record, its reply and the effect in one transaction, in a task that a \
     disconnect can't cancel: crates/idempotency/examples/smallest.rs";
const CLAIM: &str = "claim the key before the work with a unique index, INSERT … ON CONFLICT DO NOTHING, and never by \
     looking first: crates/idempotency/src/claim.rs";
const PARSE: &str = "parse the header once, before everything else: crates/idempotency/src/key.rs";
const FINGERPRINT: &str = "store a digest of the request with the key and compare it on every use: \
     crates/idempotency/src/fingerprint.rs";
const STORED_REPLY: &str =
    "store status, headers and bytes, and send them again: crates/idempotency/src/reply.rs";
const ACCOUNT: &str =
    "make the account that the credential belongs to part of the record's key: docs/contract.md";

/// All checks, in the order in which they run.
pub const CHECKS: &[Check] = &[
    Check {
        name: "key_required",
        rule: "a request without a key is refused with 400 and has no effect",
        source: "draft 2.7, ACP 6.1",
        severity: Severity::Must,
        cost: "the client that forgets the key is the one that charges twice",
        mend: PARSE,
        run: |api| Box::pin(key::required(api)),
    },
    Check {
        name: "key_malformed",
        rule: "a key that is not a string of RFC 8941 is refused",
        source: "draft 2.1, 5",
        severity: Severity::Should,
        cost: "two parts of a system read one header as two different keys",
        mend: PARSE,
        run: |api| Box::pin(key::malformed(api)),
    },
    Check {
        name: "key_empty",
        rule: "an empty key is refused",
        source: "draft 5",
        severity: Severity::Must,
        cost: "all requests of a client whose key is empty are taken for one, or none is protected",
        mend: PARSE,
        run: |api| Box::pin(key::empty(api)),
    },
    Check {
        name: "key_too_long",
        rule: "the longest key works, and a longer one is refused",
        source: "draft 5, Stripe, ACP 6.1",
        severity: Severity::Should,
        cost: "a key that is cut off silently is equal to another one",
        mend: PARSE,
        run: |api| Box::pin(key::too_long(api)),
    },
    Check {
        name: "key_twice",
        rule: "two keys in one request are refused",
        source: "draft 2.1",
        severity: Severity::Should,
        cost: "a proxy that keeps another one of the two makes a retry a new request",
        mend: PARSE,
        run: |api| Box::pin(key::twice(api)),
    },
    Check {
        name: "key_quoted",
        rule: "\"key\" and key are one key",
        source: "draft 2.1, charge-once",
        severity: Severity::Should,
        cost: "a client library that begins to quote repeats what it did before",
        mend: PARSE,
        run: |api| Box::pin(key::quoted(api)),
    },
    Check {
        name: "replay_equal",
        rule: "a retry gets the first status and the first bytes, and has no effect",
        source: "draft 2.6, Stripe, ACP 6.3",
        severity: Severity::Must,
        cost: "a retry sees the object as it is now, or an error, and the client acts on it",
        mend: STORED_REPLY,
        run: |api| Box::pin(replay::equal(api)),
    },
    Check {
        name: "replay_headers",
        rule: "a retry gets the first reply's end-to-end headers",
        source: "draft 2.6, charge-once",
        severity: Severity::Should,
        cost: "Location, ETag or a media type is missing from exactly those replies that matter",
        mend: STORED_REPLY,
        run: |api| Box::pin(replay::headers(api)),
    },
    Check {
        name: "replay_marked",
        rule: "a replay is marked, and the first reply is not",
        source: "ACP 6.3, Stripe",
        severity: Severity::Should,
        cost: "support sees two replies and cannot tell whether there was one effect or two",
        mend: "add Idempotent-Replayed: true to replays: crates/idempotency/src/http.rs",
        run: |api| Box::pin(replay::marked(api)),
    },
    Check {
        name: "reuse_body",
        rule: "a key that was used for another body is refused and has no effect",
        source: "draft 2.2, 2.7, Stripe, ACP 6.4",
        severity: Severity::Must,
        cost: "a client with a mistake in its keys takes another order's payment for its own",
        mend: FINGERPRINT,
        run: |api| Box::pin(replay::reuse_body(api)),
    },
    Check {
        name: "reuse_path",
        rule: "a key that was used on another path is treated as promised",
        source: "ACP 6.1, charge-once",
        severity: Severity::Should,
        cost: "a refund is answered with a charge",
        mend: FINGERPRINT,
        run: |api| Box::pin(replay::reuse_path(api)),
    },
    Check {
        name: "reuse_query",
        rule: "a key that was used with another query is treated as promised",
        source: "charge-once",
        severity: Severity::Should,
        cost: "a request with another meaning gets the answer of the first one",
        mend: FINGERPRINT,
        run: |api| Box::pin(replay::reuse_query(api)),
    },
    Check {
        name: "respelled",
        rule: "JSON in another order of members is treated as promised",
        source: "draft 2.4, ACP 6.2",
        severity: Severity::Should,
        cost: "a client that serializes its request again for a retry is refused",
        mend: FINGERPRINT,
        run: |api| Box::pin(replay::respelled(api)),
    },
    Check {
        name: "two_accounts",
        rule: "one key of two accounts is two keys",
        source: "draft 5, ACP 6.1",
        severity: Severity::Must,
        cost: "a stranger's reply is shown to a client that guesses or shares a key",
        mend: ACCOUNT,
        run: |api| Box::pin(replay::two_accounts(api)),
    },
    Check {
        name: "rotated_credential",
        rule: "a retry with the account's new credential is the same request",
        source: "ACP 6.1, charge-once",
        severity: Severity::Must,
        cost: "every retry that waits while a secret is rotated has its effect again",
        mend: ACCOUNT,
        run: |api| Box::pin(replay::rotated_credential(api)),
    },
    Check {
        name: "refusal_stored",
        rule: "a refusal is replayed like a success",
        source: "draft 2.6, Stripe, ACP 6.3",
        severity: Severity::Must,
        cost: "a customer is told that a payment was declined, and the retry takes it",
        mend: STORED_REPLY,
        run: |api| Box::pin(replay::refusal_stored(api)),
    },
    Check {
        name: "refusal_before_key",
        rule: "a request that is refused before it executes does not use up its key",
        source: "Stripe",
        severity: Severity::Must,
        cost: "a client that sends the right secret at last gets the old 401, or another account's",
        mend: "check credentials, rates and sizes before the claim: src/http/request.rs",
        run: |api| Box::pin(replay::refusal_before_key(api)),
    },
    Check {
        name: "server_error",
        rule: "a 5xx is not kept: the retry executes, once",
        source: "ACP 6.5, charge-once",
        severity: Severity::Must,
        cost: "an outage of a second fails its requests for as long as keys are kept",
        mend: "roll back the claim with the work, and store definite outcomes only: \
               crates/idempotency/src/transaction.rs",
        run: |api| Box::pin(replay::server_error(api)),
    },
    Check {
        name: "racers",
        rule: "many requests at once with one key have one effect and one answer, without 5xx",
        source: "draft 2.6, Stripe, ACP 6.4",
        severity: Severity::Must,
        cost: "a double click charges twice",
        mend: CLAIM,
        run: |api| Box::pin(faults::racers(api)),
    },
    Check {
        name: "in_flight",
        rule: "a duplicate of a slow request gets 409 with Retry-After, or the first answer",
        source: "draft 2.6, 2.7, Stripe, ACP 6.4",
        severity: Severity::Must,
        cost: "a client that times out early and retries has the effect twice",
        mend: "keep the claim for as long as its request runs: crates/idempotency/src/in_flight.rs",
        run: |api| Box::pin(faults::in_flight(api)),
    },
    Check {
        name: "lost_reply",
        rule: "after lost replies, a retry gets a definite answer, and there is one effect",
        source: "draft 1, Stripe, ACP 6.3",
        severity: Severity::Must,
        cost: "this is what keys are for: the retry of a timeout charges again, or never ends",
        mend: ONE_TRANSACTION,
        run: |api| Box::pin(faults::lost_reply(api)),
    },
    Check {
        name: "cut_request",
        rule: "half of a request has no effect, and its key can still be used",
        source: "draft 1, charge-once",
        severity: Severity::Must,
        cost: "a connection that ends in the middle of a body leaves a key that can't be used",
        mend: "read the whole body before the claim: src/http/request.rs",
        run: |api| Box::pin(faults::cut_request(api)),
    },
    Check {
        name: "disconnect",
        rule: "clients that send and go leave one effect and a definite answer",
        source: "draft 1, charge-once",
        severity: Severity::Must,
        cost: "a handler that is canceled between two steps has done one of them",
        mend: ONE_TRANSACTION,
        run: |api| Box::pin(faults::disconnect(api)),
    },
    Check {
        name: "second_replica",
        rule: "two replicas know the same keys, also while requests race",
        source: "charge-once",
        severity: Severity::Must,
        cost: "keys that are kept in a process protect only those retries that meet it again",
        mend: CLAIM,
        run: |api| Box::pin(faults::second_replica(api)),
    },
    Check {
        name: "expiry",
        rule: "an expired key is new at once, and racers for it have one effect",
        source: "draft 2.3, Stripe, ACP 6.6",
        severity: Severity::Must,
        cost: "a key that is dead but not yet removed answers 409 or 500, or two requests take it",
        mend: "take an expired record over in the statement that claims: crates/idempotency/src/claim.rs",
        run: |api| Box::pin(faults::expiry(api)),
    },
    Check {
        name: "storm",
        rule: "many clients, keys, lost replies and reused keys: one effect and one answer per key",
        source: "draft 2.6, charge-once",
        severity: Severity::Must,
        cost: "what goes wrong one time in a thousand happens every day",
        mend: ONE_TRANSACTION,
        run: |api| Box::pin(storm::calm(api)),
    },
    Check {
        name: "crash",
        rule: "killed and started again under load: one effect per key, nothing acknowledged is lost",
        source: "charge-once",
        severity: Severity::Must,
        cost: "keys that lived in memory are forgotten, and effects are not",
        mend: ONE_TRANSACTION,
        run: |api| Box::pin(storm::with_crashes(api)),
    },
    Check {
        name: "late_effects",
        rule: "no effect of an earlier check comes after its requests were answered",
        source: "draft 2.6, charge-once",
        severity: Severity::Must,
        cost: "a request that its client has given up does its work after the retry has done it",
        mend: CLAIM,
        run: |api| Box::pin(faults::late_effects(api)),
    },
];

/// The beginning of a body, on one line.
pub(crate) fn quoted(body: &[u8]) -> String {
    const SHOWN: usize = 160;
    let text = String::from_utf8_lossy(body);
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let shown: String = line.chars().take(SHOWN).collect();
    if shown.len() < line.len() {
        format!("{shown}…")
    } else {
        shown
    }
}

/// Sends a request that must be refused with 4xx and have no effect.
async fn refused(api: &Api, ask: &Ask) -> Result<Reply, Flaw> {
    let tally = api.tally(&[ask]).await?;
    let reply = api.send(ask).await?;
    if !reply.is_refusal() {
        return Err(Flaw::Violated(format!("it got {reply}")));
    }
    match tally.made().await?.and_then(|made| made.first().copied()) {
        None | Some(0) => Ok(reply),
        Some(made) => Err(Flaw::Violated(format!("{made} effects, and {reply}"))),
    }
}

/// Expects two replies to be one outcome.
fn same(first: &Reply, retry: &Reply) -> Result<(), Flaw> {
    if first.is_same_outcome(retry) {
        Ok(())
    } else {
        Err(Flaw::Violated(format!("first {first}, then {retry}")))
    }
}
