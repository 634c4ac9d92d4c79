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
#[derive(Debug, Serialize)]
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
    #[serde(skip)]
    pub(crate) run: fn(&Api) -> LocalBoxFuture<'_, Seen>,
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

/// Writes the table: severity, name (function), source, rule, cost and mend of each check.
macro_rules! checks {
    ($($severity:ident $name:ident ($function:path), $source:literal: $rule:literal; $cost:literal;
        $mend:expr;)*) => {
        /// All checks, in the order in which they run.
        pub const CHECKS: &[Check] = &[$(Check {
            name: stringify!($name),
            rule: $rule,
            source: $source,
            severity: Severity::$severity,
            cost: $cost,
            mend: $mend,
            run: |api| Box::pin($function(api)),
        }),*];
    };
}

checks! {
    Must key_required (key::required), "draft 2.7, ACP 6.1":
        "a request without a key is refused with 400 and has no effect";
        "the client that forgets the key is the one that charges twice";
        PARSE;
    Should key_malformed (key::malformed), "draft 2.1, 5":
        "a key that is not a string of RFC 8941 is refused";
        "two parts of a system read one header as two different keys";
        PARSE;
    Must key_empty (key::empty), "draft 5":
        "an empty key is refused";
        "all requests of a client whose key is empty are taken for one, or none is protected";
        PARSE;
    Should key_too_long (key::too_long), "draft 5, Stripe, ACP 6.1":
        "the longest key works, and a longer one is refused";
        "a key that is cut off silently is equal to another one";
        PARSE;
    Should key_twice (key::twice), "draft 2.1":
        "two keys in one request are refused";
        "a proxy that keeps another one of the two makes a retry a new request";
        PARSE;
    Should key_quoted (key::quoted), "draft 2.1, charge-once":
        "\"key\" and key are one key";
        "a client library that begins to quote repeats what it did before";
        PARSE;
    Must replay_equal (replay::equal), "draft 2.6, Stripe, ACP 6.3":
        "a retry gets the first status and the first bytes, and has no effect";
        "a retry sees the object as it is now, or an error, and the client acts on it";
        STORED_REPLY;
    Should replay_headers (replay::headers), "draft 2.6, charge-once":
        "a retry gets the first reply's end-to-end headers";
        "Location, ETag or a media type is missing from exactly those replies that matter";
        STORED_REPLY;
    Should replay_marked (replay::marked), "ACP 6.3, Stripe":
        "a replay is marked, and the first reply is not";
        "support sees two replies and cannot tell whether there was one effect or two";
        "add Idempotent-Replayed: true to replays: crates/idempotency/src/http.rs";
    Must reuse_body (replay::reuse_body), "draft 2.2, 2.7, Stripe, ACP 6.4":
        "a key that was used for another body is refused and has no effect";
        "a client with a mistake in its keys takes another order's payment for its own";
        FINGERPRINT;
    Should reuse_path (replay::reuse_path), "ACP 6.1, charge-once":
        "a key that was used on another path is treated as promised";
        "a refund is answered with a charge";
        FINGERPRINT;
    Should reuse_query (replay::reuse_query), "charge-once":
        "a key that was used with another query is treated as promised";
        "a request with another meaning gets the answer of the first one";
        FINGERPRINT;
    Should respelled (replay::respelled), "draft 2.4, ACP 6.2":
        "JSON in another order of members is treated as promised";
        "a client that serializes its request again for a retry is refused";
        FINGERPRINT;
    Must two_accounts (replay::two_accounts), "draft 5, ACP 6.1":
        "one key of two accounts is two keys";
        "a stranger's reply is shown to a client that guesses or shares a key";
        ACCOUNT;
    Must rotated_credential (replay::rotated_credential), "ACP 6.1, charge-once":
        "a retry with the account's new credential is the same request";
        "every retry that waits while a secret is rotated has its effect again";
        ACCOUNT;
    Must refusal_stored (replay::refusal_stored), "draft 2.6, Stripe, ACP 6.3":
        "a refusal is replayed like a success";
        "a customer is told that a payment was declined, and the retry takes it";
        STORED_REPLY;
    Must refusal_before_key (replay::refusal_before_key), "Stripe":
        "a request that is refused before it executes does not use up its key";
        "a client that sends the right secret at last gets the old 401, or another account's";
        "check credentials, rates and sizes before the claim: src/http/request.rs";
    Must server_error (replay::server_error), "ACP 6.5, charge-once":
        "a 5xx is not kept: the retry executes, once";
        "an outage of a second fails its requests for as long as keys are kept";
        "roll back the claim with the work, and store definite outcomes only: \
                  crates/idempotency/src/transaction.rs";
    Must racers (faults::racers), "draft 2.6, Stripe, ACP 6.4":
        "many requests at once with one key have one effect and one answer, without 5xx";
        "a double click charges twice";
        CLAIM;
    Must in_flight (faults::in_flight), "draft 2.6, 2.7, Stripe, ACP 6.4":
        "a duplicate of a slow request gets 409 with Retry-After, or the first answer";
        "a client that times out early and retries has the effect twice";
        "keep the claim for as long as its request runs: crates/idempotency/src/in_flight.rs";
    Must lost_reply (faults::lost_reply), "draft 1, Stripe, ACP 6.3":
        "after lost replies, a retry gets a definite answer, and there is one effect";
        "this is what keys are for: the retry of a timeout charges again, or never ends";
        ONE_TRANSACTION;
    Must cut_request (faults::cut_request), "draft 1, charge-once":
        "half of a request has no effect, and its key can still be used";
        "a connection that ends in the middle of a body leaves a key that can't be used";
        "read the whole body before the claim: src/http/request.rs";
    Must disconnect (faults::disconnect), "draft 1, charge-once":
        "clients that send and go leave one effect and a definite answer";
        "a handler that is canceled between two steps has done one of them";
        ONE_TRANSACTION;
    Must second_replica (faults::second_replica), "charge-once":
        "two replicas know the same keys, also while requests race";
        "keys that are kept in a process protect only those retries that meet it again";
        CLAIM;
    Must expiry (faults::expiry), "draft 2.3, Stripe, ACP 6.6":
        "an expired key is new at once, and racers for it have one effect";
        "a key that is dead but not yet removed answers 409 or 500, or two requests take it";
        "take an expired record over in the statement that claims: crates/idempotency/src/claim.rs";
    Must storm (storm::calm), "draft 2.6, charge-once":
        "many clients, keys, lost replies and reused keys: one effect and one answer per key";
        "what goes wrong one time in a thousand happens every day";
        ONE_TRANSACTION;
    Must crash (storm::with_crashes), "charge-once":
        "killed and started again under load: one effect per key, nothing acknowledged is lost";
        "keys that lived in memory are forgotten, and effects are not";
        ONE_TRANSACTION;
    Must late_effects (faults::late_effects), "draft 2.6, charge-once":
        "no effect of an earlier check comes after its requests were answered";
        "a request that its client has given up does its work after the retry has done it";
        CLAIM;
}

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
    match tally.made(0).await?.and_then(|made| made.first().copied()) {
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
