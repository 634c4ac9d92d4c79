//! What became of each object, beside what its events and the clients' answers say.

use std::collections::HashMap;

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::Value;
use sqlx::{AssertSqlSafe, PgPool, Row};
use uuid::Uuid;

use crate::{
    history::{History, KeyHistory, Request, Verdict, lock},
    ids,
    requests::Expected,
};

/// What an object's newest event says of it, and what its row says. Ids differ in their spelling.
const OBJECTS: [(&str, &str, &str); 8] = [
    (
        "ch",
        "SELECT object ->> 'id', concat_ws(' ', object ->> 'status', object ->> 'amount',
                                           object ->> 'amount_captured',
                                           object ->> 'amount_refunded',
                                           object ->> 'description'), type, id, account_id
           FROM events WHERE type LIKE 'charge.%'",
        "SELECT id, concat_ws(' ', status, amount, amount_captured, amount_refunded, description)
           FROM charges WHERE status <> 'pending'",
    ),
    (
        "or",
        "SELECT object ->> 'id', concat_ws(' ', object ->> 'status', object ->> 'amount',
                                           object #>> '{metadata,note}'), type, id, account_id
           FROM events WHERE type LIKE 'order.%'",
        "SELECT id, concat_ws(' ', status, amount, metadata ->> 'note') FROM orders",
    ),
    (
        "re",
        "SELECT object ->> 'id', concat_ws(' ', object ->> 'status', object ->> 'amount',
                                           object #>> '{metadata,note}'), type, id, account_id
           FROM events WHERE type LIKE 'refund.%'",
        "SELECT id, concat_ws(' ', status, amount, metadata ->> 'note')
           FROM refunds WHERE status <> 'pending'",
    ),
    (
        "co",
        "SELECT object ->> 'id', concat_ws(' ', object ->> 'status', object ->> 'amount'),
                type, id, account_id
           FROM events WHERE type LIKE 'checkout.%'",
        "SELECT id, concat_ws(' ', status, amount) FROM checkouts WHERE status <> 'in_progress'",
    ),
    // An update of an intent makes no event, so only where its money is can be compared.
    (
        "pi",
        "SELECT object ->> 'id',
                CASE WHEN object ->> 'status' IN ('requires_capture', 'succeeded', 'canceled')
                THEN concat_ws(' ', object ->> 'status', object ->> 'amount',
                               object ->> 'amount_capturable', object ->> 'amount_received')
                ELSE 'open' END, type, id, account_id
           FROM events WHERE type LIKE 'payment_intent.%'",
        "SELECT id,
                CASE WHEN status IN ('requires_capture', 'succeeded', 'canceled')
                THEN concat_ws(' ', status, amount, amount_capturable, amount_received)
                ELSE 'open' END
           FROM payment_intents",
    ),
    (
        "seti",
        "SELECT object ->> 'id',
                CASE WHEN object ->> 'status' IN ('succeeded', 'canceled')
                THEN object ->> 'status' ELSE 'open' END, type, id, account_id
           FROM events WHERE type LIKE 'setup_intent.%'",
        "SELECT id, CASE WHEN status IN ('succeeded', 'canceled') THEN status ELSE 'open' END
           FROM setup_intents",
    ),
    (
        "cus",
        "SELECT object ->> 'id',
                CASE type WHEN 'customer.deleted' THEN 'deleted' ELSE object ->> 'email' END,
                type, id, account_id
           FROM events WHERE type LIKE 'customer.%'",
        "SELECT id, CASE WHEN deleted_at IS NULL THEN email ELSE 'deleted' END FROM customers",
    ),
    (
        "pm",
        "SELECT object ->> 'id',
                CASE type WHEN 'payment_method.detached' THEN 'detached' ELSE 'attached' END,
                type, id, account_id
           FROM events WHERE type LIKE 'payment_method.%'",
        "SELECT id, CASE WHEN detached_at IS NULL THEN 'attached' ELSE 'detached' END
           FROM payment_methods WHERE customer_id IS NOT NULL OR detached_at IS NOT NULL",
    ),
];

/// Every object is as its newest event shows it: nothing changed without an event, and no event
/// tells of a change that isn't there.
pub(super) async fn newest_events(pool: &PgPool, history: &History) -> Result<(), sqlx::Error> {
    for (prefix, events, rows) in OBJECTS {
        let events = format!(
            "SELECT DISTINCT ON (event.object_id) object_id, coalesce(state, 'nothing')
               FROM ({events}) AS event (object_id, state, type, id, account_id)
              ORDER BY object_id, id DESC"
        );
        let events = sqlx::query(AssertSqlSafe(events)).fetch_all(pool).await?;
        let mut told: HashMap<String, String> =
            events.iter().map(|row| (row.get(0), row.get(1))).collect();
        for row in sqlx::query(rows).fetch_all(pool).await? {
            let id = ids::public(prefix, row.get(0));
            let is: String = row.get(1);
            match told.remove(&id) {
                Some(told) if told == is => {}
                told => {
                    let what = format!("{id} is {is}, and its newest event says {told:?}");
                    history.violate_about("G7", what, &id);
                }
            }
        }
        for (id, told) in told {
            let what = format!("an event says that {id} is {told}, and it is not there");
            history.violate_about("G3", what, &id);
        }
    }
    Ok(())
}

/// A level is what one of the last acknowledged requests has set it to.
pub(super) async fn levels(
    pool: &PgPool,
    history: &History,
    accounts: &[Uuid],
) -> Result<(), sqlx::Error> {
    let mut writes: HashMap<(Uuid, String), Vec<LevelWrite>> = HashMap::new();
    for key in history.keys() {
        let key = lock(&key);
        let account = accounts.get(key.account).copied().unwrap_or_default();
        for (sku, write) in LevelWrite::all(&key) {
            writes.entry((account, sku)).or_default().push(write);
        }
    }
    let query = "SELECT account_id, sku, quantity FROM inventory";
    for row in sqlx::query(query).fetch_all(pool).await? {
        let (account, sku, left): (Uuid, String, i64) = (row.get(0), row.get(1), row.get(2));
        let Some(of_sku) = writes.get(&(account, sku.clone())) else {
            continue;
        };
        let is_last = |write: &&LevelWrite| {
            let overwrites = |other: &LevelWrite| other.is_certain && other.began > write.ended;
            !of_sku.iter().any(overwrites)
        };
        let mut last = of_sku.iter().filter(is_last);
        if !last.any(|write| write.quantity == left) {
            let what = format!("{account} has {left} of {sku}, which no last request has set");
            let of_account = |key: &KeyHistory| accounts.get(key.account) == Some(&account);
            let keys = history.keys().into_iter().filter(|key| {
                let key = lock(key);
                let sets = |request: &Request| request.path.ends_with(&format!("/inventory/{sku}"));
                of_account(&key) && key.variants.iter().any(sets)
            });
            history.violate_at("G2", what, keys.collect());
        }
    }
    Ok(())
}

/// How long after it ended for its client an attempt without an answer may still be executed.
const LATE_MAX: TimeDelta = TimeDelta::seconds(60);

/// One execution that set a level, and the time within which it happened.
struct LevelWrite {
    quantity: i64,
    began: DateTime<Utc>,
    ended: DateTime<Utc>,
    /// Whether it happened: an answer says so.
    is_certain: bool,
}

impl LevelWrite {
    /// What a key's executions have set, by sku. Of several answers from one execution, the first
    /// one says when it was over.
    fn all(key: &KeyHistory) -> Vec<(String, Self)> {
        let Some(first) = key.attempts.first() else {
            return Vec::new();
        };
        let mut executions = HashMap::new();
        for (_, attempt, stored) in key.answers() {
            let text = |name: &str| stored.body.get(name).and_then(Value::as_str);
            let quantity = stored.body.get("quantity").and_then(Value::as_i64);
            if let (Some("inventory"), Some(sku), Some(quantity)) =
                (text("object"), text("sku"), quantity)
            {
                let write = Self {
                    quantity,
                    began: first.began,
                    ended: attempt.ended,
                    is_certain: true,
                };
                let execution = executions.entry(&stored.execution);
                let (_, known) = execution.or_insert((sku.to_owned(), write));
                known.ended = known.ended.min(attempt.ended);
            }
        }
        let answered = executions.into_values();
        answered.chain(Self::unanswered(key)).collect()
    }

    /// What attempts without an answer may have set. While a record of the key was alive, they were
    /// no executions of their own.
    fn unanswered(key: &KeyHistory) -> Vec<(String, Self)> {
        let writes = key.attempts.iter().filter_map(|attempt| {
            let Verdict::Unknown(_) = attempt.verdict else {
                return None;
            };
            let over = attempt.ended + LATE_MAX;
            if key.answers().any(|(_, _, stored)| stored.expires > over) {
                return None;
            }
            let request = key.variants.get(attempt.variant)?;
            if request.expected != Expected::Any {
                return None;
            }
            let (_, sku) = request.path.split_once("/inventory/")?;
            let write = Self {
                quantity: request.quantity()?,
                began: attempt.began,
                ended: over,
                is_certain: false,
            };
            Some((sku.to_owned(), write))
        });
        writes.collect()
    }
}
