//! The table of checks: for each, the rule, where it comes from, what breaking it can cost, and how
//! to mend that. A flaw of another kind says its own cost. The functions are in `key.rs`,
//! `replay.rs` and `faults.rs`.

mod faults;
mod key;
mod mend;
mod receiver;
mod replay;

use futures_util::future::LocalBoxFuture;
use serde::Serialize;

use crate::{
    api::{Api, Ask, Reply},
    history::{Attempt, interleaving},
    storm,
};

use mend::*;
pub(crate) use mend::{FREE, ONE_TRANSACTION};

/// How much a rule weighs. The grades are those of this program: a source may weigh it less.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Without it, an effect can happen twice, be lost, or be of another client.
    Unsafe,
    /// Without it, clients can't know what happened, or a mistake of theirs stays hidden.
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
    pub(crate) cost: Option<&'static str>,
    pub(crate) mend: Option<Mend>,
}

/// How to mend what was found, in terms of no framework.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Mend {
    /// In words.
    pub words: &'static str,
    /// As SQL or pseudo-code.
    pub code: &'static str,
}

impl Flaw {
    pub(crate) fn violated(seen: impl Into<String>) -> Self {
        Self::Wrong(Box::new(Fault {
            seen: seen.into(),
            ..Fault::default()
        }))
    }

    /// What matters holds, and a detail is not as promised.
    pub(crate) fn lesser(seen: impl Into<String>, cost: &'static str, mend: Mend) -> Self {
        let flaw = Self::violated(seen).costing(cost).mended_by(mend);
        flaw.changed(|fault| fault.severity = Some(Severity::Unclear))
    }

    /// More effects than are right, or fewer than clients were told of.
    pub(crate) fn miscounted(made: u64, right: u64, attempts: Vec<Attempt>) -> Self {
        let flaw = Self::violated(format!("{made} effects, and {right} is right"));
        let flaw = if made > right {
            let how = interleaving(&attempts);
            let flaw = flaw.costing(REPEATED);
            flaw.changed(|fault| fault.how = Some(how))
        } else {
            flaw.costing(LOST).mended_by(ONE_TRANSACTION)
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

    pub(crate) fn mended_by(self, mend: Mend) -> Self {
        self.changed(|fault| fault.mend = Some(mend))
    }

    /// Says how to mend it if it costs that.
    pub(crate) fn mended_where(self, cost: &str, mend: Mend) -> Self {
        let is_it = |fault: &Fault| fault.cost == Some(cost);
        self.changed(|fault| fault.mend = if is_it(fault) { Some(mend) } else { fault.mend })
    }

    /// An effect that is missing because its request was taken for another one: what the check says
    /// is true of it.
    fn unless_lost(self) -> Self {
        match self {
            Self::Wrong(fault) if fault.cost == Some(LOST) => {
                Self::violated(fault.seen).because(fault.attempts)
            }
            Self::Wrong(_) | Self::Unknown(_) => self,
        }
    }

    pub(crate) fn because(self, attempts: Vec<Attempt>) -> Self {
        self.changed(|fault| fault.attempts = attempts)
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
    #[serde(skip)]
    pub(crate) cost: &'static str,
    #[serde(skip)]
    pub(crate) mend: Mend,
    #[serde(skip)]
    pub(crate) run: fn(&Api) -> LocalBoxFuture<'_, Seen>,
}

pub(crate) const REPEATED: &str =
    "what a client asked for once is done again: two payments, two orders or two messages";
/// No 2xx, or no effect.
const UNSEEN: &str = "the sender gives up after days, or takes the event for handled: an order stays unpaid for ever";
const LOST: &str =
    "a client was told of an effect that there isn't, and builds on it: it ships, or says \"paid\"";
pub(crate) const ENDLESS: &str =
    "the client never learns the outcome, and gives up, or has the effect again with a new key";
/// A success that is another one than before.
const CHANGED: &str =
    "the client takes another answer for the outcome of its request, and acts on it";
/// No success where there is one.
pub(crate) const FAILED: &str =
    "the client is told that its request failed, and asks again with a new key: it is done twice";

/// Writes the table. `Unsafe key_empty (key::empty), "draft 5": "rule"; "cost"; MEND;`
/// makes `Check { name: "key_empty", rule: "rule", source: "draft 5", … }`, whose severity is
/// `Unsafe`, and whose `run` is `|api| Box::pin(key::empty(api))`.
macro_rules! checks {
    ($(#[$about:meta])* $table:ident: $($severity:ident $name:ident ($function:path), $source:literal: $rule:literal; $cost:expr;
        $mend:expr;)*) => {
        $(#[$about])*
        pub const $table: &[Check] = &[$(Check {
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
    /// All checks of an API, in the order in which they run.
    CHECKS:
    Unsafe key_required (key::required), "draft 2.7, ACP 6.1":
        "a request without a key is refused with 400 and has no effect";
        "the client that forgets the key is the one whose retries do the work twice";
        PARSE;
    Unclear key_malformed (key::malformed), "draft 2.1, 5":
        "a key that is not a string of RFC 8941 is refused";
        "two parts of a system read one header as two different keys";
        PARSE;
    Unsafe key_empty (key::empty), "draft 5":
        "an empty key is refused";
        "all requests of a client whose key is empty are taken for one, or none is protected";
        PARSE;
    Unclear key_too_long (key::too_long), "draft 5, Stripe, ACP 6.1":
        "the longest key works, and a longer one is refused";
        "a key that is cut off silently is equal to another one";
        PARSE;
    Unclear key_twice (key::twice), "draft 2.1":
        "two keys in one request are refused";
        "a proxy that keeps another one of the two makes a retry a new request";
        PARSE;
    Unclear key_problem (key::problem), "draft 2.7, RFC 9457":
        "refusals of keys are application/problem+json, if that is promised";
        "a client finds no reason where it looks for one, and guesses";
        PROBLEM;
    Unclear policy (key::policy), "charge-once":
        "the document in which the API says its promises says these";
        "a client that reads the document retries too late, or sends a key again too early";
        POLICY;
    Unclear key_quoted (key::quoted), "draft 2.1, charge-once":
        "\"key\" and key are one key";
        "a client library that begins to quote repeats what it did before";
        PARSE;
    Unsafe replay_equal (replay::equal), "draft 2.6, Stripe, ACP 6.3":
        "a retry gets the first status and bytes, or what is promised, and has no effect";
        "a retry sees the object as it is now, or an error, and the client acts on it";
        STORED_REPLY;
    Unclear replay_headers (replay::headers), "draft 2.6, charge-once":
        "a retry gets the first reply's end-to-end headers";
        "Location, ETag or a media type is missing from exactly those replies that matter";
        STORED_REPLY;
    Unclear replay_marked (replay::marked), "ACP 6.3, Stripe":
        "a replay is marked, and the first reply is not";
        "support sees two replies and cannot tell whether there was one effect or two";
        MARK;
    Unsafe reuse_body (replay::reuse_body), "draft 2.2, 2.7, Stripe, ACP 6.4":
        "a key that was used for another body is refused and has no effect";
        "a client with a mistake in its keys takes another request's outcome for its own";
        FINGERPRINT;
    Unclear reuse_path (replay::reuse_path), "ACP 6.1, charge-once":
        "a key that was used on another path is treated as promised";
        "the answer to one kind of request is taken for that to another kind";
        FINGERPRINT;
    Unclear reuse_query (replay::reuse_query), "charge-once":
        "a key that was used with another query is treated as promised";
        "a request with another meaning gets the answer of the first one";
        FINGERPRINT;
    Unclear respelled (replay::respelled), "draft 2.4, ACP 6.2":
        "JSON in another order of members is treated as promised";
        "a client that serializes its request again for a retry is refused";
        FINGERPRINT;
    Unsafe two_accounts (replay::two_accounts), "draft 5, ACP 6.1":
        "one key of two accounts is two keys";
        "a stranger's reply is shown to a client that guesses or shares a key";
        ACCOUNT;
    Unsafe rotated_credential (replay::rotated_credential), "ACP 6.1, charge-once":
        "a retry with the account's new credential is the same request";
        "every retry that waits while a secret is rotated has its effect again";
        ACCOUNT;
    Unsafe refusal_stored (replay::refusal_stored), "draft 2.6, Stripe, ACP 6.3":
        "a refusal is replayed like a success, or executed again, as promised";
        "a client says \"refused\" to its customer, and the retry does the work";
        STORED_REPLY;
    Unclear invalid_stored (replay::invalid_stored), "Stripe, charge-once":
        "a request that fails validation uses up its key, or leaves it free, as promised";
        "a client that mends its request under the same key is refused, or does what it didn't mean to";
        REFUSE_FIRST;
    Unclear delete_key (replay::delete), "Stripe v2, charge-once":
        "a key on a DELETE is replayed, or means nothing, as promised";
        "a client that retries a DELETE is told that there was nothing to delete";
        CLAIM;
    Unsafe refusal_before_key (replay::refusal_before_key), "Stripe":
        "a request that is refused before it executes does not use up its key";
        "a client that sends the right secret at last gets the old 401, or another account's";
        REFUSE_FIRST;
    Unsafe server_error (replay::server_error), "ACP 6.5, charge-once":
        "a retry after 5xx executes, once, or gets the 5xx again, as promised";
        "an outage of a second fails its requests for as long as keys are kept";
        ROLL_BACK;
    Unsafe racers (faults::racers), "draft 2.6, Stripe, ACP 6.4":
        "many requests at once with one key have one effect and one answer, without 5xx";
        FAILED;
        CLAIM;
    Unsafe in_flight (faults::in_flight), "draft 2.6, 2.7, Stripe, ACP 6.4":
        "while a slow request works, and after it, each duplicate gets \"in progress\" or the \
         first answer";
        FAILED;
        LEASE;
    Unsafe lease (faults::lease), "draft 2.6, Stripe, charge-once":
        "a retry late in the work of a slow request, without another one before, has no effect";
        FAILED;
        LEASE;
    Unsafe lost_reply (faults::lost_reply), "draft 1, Stripe, ACP 6.3":
        "after lost replies, a retry gets a definite answer, and there is one effect";
        FAILED;
        ONE_TRANSACTION;
    Unsafe cut_request (faults::cut_request), "draft 1, charge-once":
        "half of a request has no effect, and its key can still be used";
        "a connection that ends in the middle of a body leaves a key that can't be used";
        WHOLE_BODY;
    Unsafe disconnect (faults::disconnect), "draft 1, charge-once":
        "clients that send and go leave one effect and a definite answer";
        FAILED;
        ONE_TRANSACTION;
    Unsafe second_replica (faults::second_replica), "charge-once":
        "two replicas know the same keys, also while requests race";
        FAILED;
        SHARED;
    Unsafe expiry (faults::expiry), "draft 2.3, Stripe, ACP 6.6":
        "an expired key is new at once, and racers for it have one effect";
        "a new request gets the outcome of an old one";
        TAKE_OVER;
    Unsafe storm (storm::calm), "draft 2.6, charge-once":
        "many clients, keys, lost replies and reused keys: one effect and one answer per key";
        FAILED;
        ONE_TRANSACTION;
    Unsafe crash (storm::with_crashes), "charge-once":
        "killed after an effect, and under load: one effect per key, nothing acknowledged is lost";
        FAILED;
        SHARED;
    Unsafe late_effects (faults::late_effects), "draft 2.6, charge-once":
        "no effect of an earlier check comes after its requests were answered";
        REPEATED;
        CLAIM;
}

checks! {
    /// All checks of a receiver of webhooks.
    RECEIVER_CHECKS:
    Unsafe delivered_twice (receiver::twice), "Stripe webhooks, Standard Webhooks":
        "an event that is delivered twice has one effect, and 2xx both times";
        REPEATED;
        SEEN;
    Unsafe delivered_at_once (receiver::at_once), "Stripe webhooks, Standard Webhooks":
        "an event that is delivered many times at once has one effect";
        REPEATED;
        SEEN;
    Unsafe lost_2xx (receiver::lost_reply), "Stripe webhooks, Standard Webhooks":
        "an event whose acknowledgments are lost has one effect";
        UNSEEN;
        SEEN;
    Unsafe out_of_order (receiver::disordered), "Stripe webhooks":
        "an older event after a newer one has its effect";
        UNSEEN;
        EACH_EVENT;
    Unsafe late (receiver::late), "Stripe webhooks, Standard Webhooks":
        "an event of three days ago that is signed now has one effect";
        UNSEEN;
        EACH_EVENT;
    Unsafe forged (receiver::forged), "Stripe webhooks, Standard Webhooks":
        "a wrong signature is refused, has no effect, and does not use up the event";
        "a stranger says that an order is paid";
        VERIFY;
    Unsafe unsigned (receiver::unsigned), "Stripe webhooks, Standard Webhooks":
        "a delivery without a signature is refused, and does not use up the event";
        "a stranger says that an order is paid";
        VERIFY;
    Unclear old_signature (receiver::old), "Stripe webhooks, Standard Webhooks":
        "a signature of an hour ago is refused, and does not use up the event";
        "a delivery that was read on its way can be sent again at any time";
        VERIFY;
}

/// The outcome of a check that can't be made.
pub(crate) fn unknown<T>(what: impl Into<String>) -> Result<T, Flaw> {
    Err(Flaw::Unknown(what.into()))
}

/// Whether the API makes a promise. `otherwise` says what is true without it.
fn promised(is_made: bool, name: &str, otherwise: &str) -> Result<(), Flaw> {
    match is_made {
        true => Ok(()),
        false => unknown(format!("{otherwise}, says promises.{name}")),
    }
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

/// Sends a request that must be refused with 4xx and have no effect.
async fn refused(api: &Api, ask: &Ask) -> Result<Reply, Flaw> {
    let tally = api.tally(&[ask]).await?;
    let reply = api.send(ask).await?;
    if !reply.is_refusal() {
        return Err(Flaw::violated(format!("it got {reply}")));
    }
    match tally.made_by_first(0).await? {
        None | Some(0) => Ok(reply),
        Some(made) => {
            let flaw = Flaw::violated(format!("{made} effects, and {reply}"));
            Err(flaw.costing(FAILED).mended_by(ONE_TRANSACTION))
        }
    }
}

pub(crate) fn same(first: &Reply, retry: &Reply) -> Result<(), Flaw> {
    if first.is_same_outcome(retry) {
        return Ok(());
    }
    let flaw = Flaw::violated(format!("first {first}, then {retry}"));
    Err(match first.status == retry.status {
        true => flaw.costing(CHANGED).mended_by(STORED_REPLY),
        false if first.is_success() && retry.is_success() => flaw.costing(CHANGED),
        false => flaw.costing(FAILED),
    })
}

/// Sends a request and another one, which must be taken for its retry.
async fn replayed(api: &Api, ask: &Ask, retry: &Ask) -> Result<(), Flaw> {
    let twice = async {
        let first = api.executed(ask).await?;
        same(&first, &api.send(retry).await?)
    };
    api.with_effects(ask, 1, twice).await
}

/// Expects the answer to a request that succeeds under a new key.
pub(crate) fn succeeded(what: &str, answer: &Reply) -> Result<(), Flaw> {
    if answer.is_success() {
        return Ok(());
    }
    Err(Flaw::violated(format!("{what} got {answer}")).costing(FAILED))
}
