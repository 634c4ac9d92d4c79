//! Intents, payment methods and customers, beside what clients were told of them.
//!
//! Promise: only what can't change any more is held against a row that a client was told about
//! earlier.

use std::collections::{HashMap, HashSet};

use chrono::{DateTime, Utc};
use serde_json::Value;
use sqlx::{PgConnection, Row, postgres::PgRow};
use uuid::Uuid;

use crate::{
    history::{Attempt, History, KeyHistory, SharedKey, Stored, Told, lock},
    ids,
    requests::Verb,
};

/// The state of every object that clients are told about: its prefix, its id, and a word.
const STATES: &str = "
    SELECT 'pi', id, concat_ws(' ', status, nullif(amount_received, 0)) FROM payment_intents
    UNION ALL
    SELECT 'seti', id, status FROM setup_intents
    UNION ALL
    SELECT 'cus', id, CASE WHEN deleted_at IS NULL THEN 'exists' ELSE 'deleted' END FROM customers
    UNION ALL
    SELECT 'pm', id, CASE WHEN detached_at IS NOT NULL THEN 'detached'
                          WHEN customer_id IS NOT NULL THEN 'attached' ELSE 'loose' END
      FROM payment_methods";

/// Charges that the decline of a confirmation left, each with its intent.
const DECLINES: &str = "
    SELECT id, payment_intent_id FROM charges
     WHERE status = 'failed' AND payment_intent_id IS NOT NULL";

/// The charges whose decline an event tells of.
const TOLD_DECLINES: &str = "
    SELECT object #>> '{last_payment_error,charge}' FROM events
     WHERE type = 'payment_intent.payment_failed'
       AND object #>> '{last_payment_error,charge}' IS NOT NULL";

/// Intents whose last charge was declined, and that don't say why.
const SILENT: &str = "
    SELECT intent.id
      FROM payment_intents AS intent JOIN charges AS charge
        ON charge.account_id = intent.account_id AND charge.id = intent.latest_charge_id
     WHERE intent.status = 'requires_payment_method' AND intent.last_payment_error IS NULL
       AND charge.status = 'failed'";

/// Charges of payment methods, since then or all of them, and when their transactions began.
const PAYMENTS: &str = "
    SELECT payment_method_id, id, created_at FROM charges
     WHERE payment_method_id IS NOT NULL AND ($1::timestamptz IS NULL OR created_at >= $1)";

/// What every client was told still holds, and every decline has left its charge and its reason.
pub(super) async fn are_as_told(
    session: &mut PgConnection,
    history: &History,
) -> Result<(), sqlx::Error> {
    let mut states: HashMap<String, String> = HashMap::new();
    for row in sqlx::query(STATES).fetch_all(&mut *session).await? {
        states.insert(ids::public(row.get(0), row.get(1)), row.get(2));
    }
    for told in all_told(history) {
        let is = states.get(&told.id).map(String::as_str);
        if !is.is_some_and(|is| may_be(is, &told.state)) {
            let what = format!("{} was said to be {}, and is {is:?}", told.id, told.state);
            history.violate_about("G2", what, &told.id);
        }
    }
    let now = Utc::now();
    declines_are_there(session, history, now).await?;
    for row in sqlx::query(SILENT).fetch_all(session).await? {
        let intent = ids::public("pi", row.get(0));
        let keys = history.keys_about([&*intent]);
        let is_updated = keys.iter().any(|key| {
            let key = lock(key);
            key.variants
                .iter()
                .any(|one| one.verb == Verb::UpdateIntent)
        });
        if !is_updated {
            let what = format!("{intent} was declined, and doesn't say why");
            history.violate_at("G2", what, keys);
        }
    }
    Ok(())
}

/// Whether what was told to be `told` may be `is` now.
fn may_be(is: &str, told: &str) -> bool {
    let is_paid = is.starts_with("succeeded") || is == "requires_capture";
    match told {
        "requires_capture" | "authenticated" => is_paid || is == "canceled",
        "attached" => matches!(is, "attached" | "detached"),
        told => is == told,
    }
}

/// What the clients were told that is to last.
fn all_told(history: &History) -> Vec<Told> {
    let mut all = history.told();
    for key in history.keys() {
        let key = lock(&key);
        let answers = key.answers();
        all.extend(answers.filter_map(|(request, attempt, stored)| {
            told(key.account, request.verb, attempt, stored)
        }));
    }
    all
}

fn told(account: usize, verb: Verb, attempt: &Attempt, stored: &Stored) -> Option<Told> {
    if stored.status >= 300 {
        return None;
    }
    let text = |name: &str| stored.body.get(name).and_then(Value::as_str);
    let state = match (text("object")?, text("status").unwrap_or_default()) {
        ("payment_intent", "succeeded") => {
            format!("succeeded {}", stored.body.get("amount_received")?)
        }
        ("payment_intent", status @ ("requires_capture" | "canceled"))
        | ("setup_intent", status @ ("succeeded" | "canceled")) => status.to_owned(),
        ("payment_method", _) if verb == Verb::AttachMethod => "attached".to_owned(),
        ("payment_method", _) if verb == Verb::DetachMethod => "detached".to_owned(),
        (_, _) => return None,
    };
    Some(Told {
        account,
        id: text("id")?.to_owned(),
        state,
        at: attempt.ended,
    })
}

/// Each decline that a client was told of before `until` has left a failed charge and an event.
pub(super) async fn declines_are_there(
    session: &mut PgConnection,
    history: &History,
    until: DateTime<Utc>,
) -> Result<(), sqlx::Error> {
    let failed = sqlx::query(DECLINES).fetch_all(&mut *session).await?;
    let of_row = |row: &PgRow| (ids::public("pi", row.get(1)), ids::public("ch", row.get(0)));
    let failed: HashSet<(String, String)> = failed.iter().map(of_row).collect();
    let told = sqlx::query_scalar(TOLD_DECLINES).fetch_all(session);
    let told: HashSet<String> = told.await?.into_iter().collect();
    for key in history.keys() {
        for decline in declines(&lock(&key), until) {
            let (intent, charge) = &decline;
            let (is_there, is_told) = (failed.contains(&decline), told.contains(charge));
            if !is_there || !is_told {
                let what = format!(
                    "a client was told that {charge} of {intent} was declined; is it there: \
                     {is_there}; does an event tell of it: {is_told}"
                );
                history.violate_at("G2", what, vec![SharedKey::clone(&key)]);
            }
        }
    }
    Ok(())
}

/// The declines that a key's answers tell of: the intent and the failed charge.
fn declines(key: &KeyHistory, until: DateTime<Utc>) -> HashSet<(String, String)> {
    let text = |stored: &Stored, path| {
        let value = stored.body.pointer(path).and_then(Value::as_str);
        value.map(str::to_owned)
    };
    let declines = key.answers().filter_map(|(_, attempt, stored)| {
        let intent = text(stored, "/error/payment_intent/id")?;
        let charge = text(stored, "/error/charge")?;
        (stored.status == 402 && attempt.ended < until).then_some((intent, charge))
    });
    declines.collect()
}

/// No method was charged in a transaction that began after a client was told of its detachment.
pub(super) async fn no_detached_method_pays(
    session: &mut PgConnection,
    history: &History,
    since: Option<DateTime<Utc>>,
) -> Result<(), sqlx::Error> {
    let mut detached: HashMap<String, DateTime<Utc>> = HashMap::new();
    for told in all_told(history) {
        if told.state == "detached" {
            let at = detached.entry(told.id).or_insert(told.at);
            *at = told.at.min(*at);
        }
    }
    for row in sqlx::query(PAYMENTS).bind(since).fetch_all(session).await? {
        let method = ids::public("pm", row.get::<Uuid, _>(0));
        let charge = ids::public("ch", row.get(1));
        let began: DateTime<Utc> = row.get(2);
        if detached.get(&method).is_some_and(|at| began > *at) {
            let what = format!("{charge} is of {method}, which had been detached before");
            let keys = history.keys_about([&*method, &*charge]);
            history.violate_at("G5", what, keys);
        }
    }
    Ok(())
}
