//! Charges, refunds, orders, checkouts, intents and those who pay, beside the requests that asked
//! for them.
//!
//! Promise: a row is judged by the request whose tag it carries, and by those that may have changed
//! it.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use serde_json::{Value, json};
use sqlx::{PgConnection, Row};
use uuid::Uuid;

use crate::{
    history::{History, KeyHistory, Request, SharedKey, lock, objects_in},
    ids,
    requests::{Card, Expected, Verb, card_of},
};

/// The rows with a tag that were written since then, or all of them: whose, the tag, the id, and
/// the columns that a request decides. A charge has none before the processor has answered.
const ROWS: [(&str, &str); 8] = [
    (
        "ch",
        "SELECT account_id, metadata ->> 'torture', id, jsonb_build_object(
                'amount', amount, 'currency', currency, 'customer', customer,
                'description', description, 'last4', card_last4, 'status', status,
                'amount_captured', amount_captured)
           FROM charges
          WHERE metadata ? 'torture' AND status <> 'pending' AND payment_intent_id IS NULL
            AND ($1::timestamptz IS NULL OR created_at >= $1)",
    ),
    (
        "re",
        "SELECT account_id, metadata ->> 'torture', id, jsonb_build_object(
                'amount', amount, 'charge', charge_id, 'payment_intent',
                (SELECT payment_intent_id FROM charges
                  WHERE charges.account_id = refunds.account_id AND charges.id = charge_id),
                'reason', reason, 'note', metadata ->> 'note')
           FROM refunds
          WHERE metadata ? 'torture' AND ($1::timestamptz IS NULL OR created_at >= $1)",
    ),
    (
        "or",
        "SELECT account_id, metadata ->> 'torture', id, jsonb_build_object(
                'amount', amount, 'currency', currency, 'customer', customer, 'items', items,
                'client_order_id', client_order_id, 'note', metadata ->> 'note')
           FROM orders
          WHERE metadata ? 'torture' AND ($1::timestamptz IS NULL OR created_at >= $1)",
    ),
    (
        "co",
        "SELECT account_id, metadata ->> 'torture', id, jsonb_build_object(
                'amount', amount, 'currency', currency, 'customer', customer, 'items', items,
                'source', card_token)
           FROM checkouts
          WHERE metadata ? 'torture' AND ($1::timestamptz IS NULL OR created_at >= $1)",
    ),
    (
        "pi",
        "SELECT account_id, metadata ->> 'torture', id, jsonb_build_object(
                'amount', amount, 'currency', currency, 'customer', customer_id,
                'description', description,
                'capture_method', nullif(capture_method, 'automatic_async'))
           FROM payment_intents
          WHERE metadata ? 'torture' AND ($1::timestamptz IS NULL OR created_at >= $1)",
    ),
    (
        "seti",
        "SELECT account_id, metadata ->> 'torture', id,
                jsonb_build_object('customer', customer_id)
           FROM setup_intents
          WHERE metadata ? 'torture' AND ($1::timestamptz IS NULL OR created_at >= $1)",
    ),
    (
        "cus",
        "SELECT account_id, metadata ->> 'torture', id, jsonb_build_object('email', email)
           FROM customers
          WHERE metadata ? 'torture' AND ($1::timestamptz IS NULL OR created_at >= $1)",
    ),
    (
        "pm",
        "SELECT account_id, metadata ->> 'torture', id, '{}'::jsonb
           FROM payment_methods
          WHERE metadata ? 'torture' AND ($1::timestamptz IS NULL OR created_at >= $1)",
    ),
];

/// Charges that pay an order. They carry no tag.
const PAYMENTS: &str = "
    SELECT account_id, id, card_last4, status FROM charges
     WHERE NOT metadata ? 'torture' AND order_id IS NOT NULL AND status <> 'pending'";

struct Tagged {
    account: Uuid,
    tag: String,
    columns: Value,
}

/// Every row is what its request asked for, and belongs to the account that asked.
pub(super) async fn are_what_was_asked_for(
    snapshot: &mut PgConnection,
    history: &History,
    accounts: &[Uuid],
    since: Option<DateTime<Utc>>,
) -> Result<(), sqlx::Error> {
    for (prefix, query) in ROWS {
        for (id, row) in tagged(snapshot, prefix, query, since).await? {
            judge(history, accounts, prefix, &id, &row);
        }
    }
    Ok(())
}

/// Every object that an answer shows is there, and is that of the request that was answered.
pub(super) async fn are_there(
    snapshot: &mut PgConnection,
    history: &History,
    accounts: &[Uuid],
) -> Result<(), sqlx::Error> {
    let mut rows = HashMap::new();
    for (prefix, query) in ROWS {
        rows.extend(tagged(snapshot, prefix, query, None).await?);
    }
    for key in history.keys() {
        for what in missing(&lock(&key), accounts, &rows) {
            history.violate_at("G2", what, vec![SharedKey::clone(&key)]);
        }
    }
    Ok(())
}

/// Every charge that pays an order is of a card that a request named, and came out as that card
/// does. One whose answer was lost before its key expired is known by no answer, and is not judged.
pub(super) async fn payments_are_of_the_cards(
    snapshot: &mut PgConnection,
    history: &History,
    accounts: &[Uuid],
) -> Result<(), sqlx::Error> {
    for row in sqlx::query(PAYMENTS).fetch_all(snapshot).await? {
        let (account, id): (Uuid, Uuid) = (row.get(0), row.get(1));
        let (last4, status): (Option<&str>, &str) = (row.get(2), row.get(3));
        let id = ids::public("ch", id);
        let mut keys = history.keys_about([&*id]);
        keys.retain(|key| accounts.get(lock(key).account) == Some(&account));
        let asked = keys.iter().flat_map(|key| payments_of(&lock(key), &id));
        let asked: Vec<_> = asked.collect();
        let is = (last4.unwrap_or_default(), status);
        if !asked.is_empty() && !asked.contains(&is) {
            let what = format!("{id} is {is:?}, and was asked to be one of {asked:?}");
            history.violate_at("G3", what, keys);
        }
    }
    Ok(())
}

/// Last four digits and status of the charges that requests asked for whose answers name this one.
fn payments_of(key: &KeyHistory, id: &str) -> Vec<(&'static str, &'static str)> {
    let named = key.answers().filter_map(|(request, _, stored)| {
        let pays = matches!(request.verb, Verb::PayOrder | Verb::CreateCheckout);
        let names = || objects_in(&stored.body).contains(&id.to_owned());
        let card = card_of(&request.parameters).filter(|_| pays && names())?;
        Some((card.last4, status_of(card)))
    });
    named.collect()
}

async fn tagged(
    snapshot: &mut PgConnection,
    prefix: &'static str,
    query: &'static str,
    since: Option<DateTime<Utc>>,
) -> Result<Vec<(String, Tagged)>, sqlx::Error> {
    let rows = sqlx::query(query).bind(since).fetch_all(snapshot).await?;
    let tagged = rows.iter().map(|row| {
        let tagged = Tagged {
            account: row.get(0),
            tag: row.get(1),
            columns: row.get(3),
        };
        (ids::public(prefix, row.get(2)), tagged)
    });
    Ok(tagged.collect())
}

/// What acknowledged requests made and is not there.
fn missing(key: &KeyHistory, accounts: &[Uuid], rows: &HashMap<String, Tagged>) -> Vec<String> {
    let mut missing = Vec::new();
    for (request, _, stored) in key.answers().filter(|(one, ..)| one.is_tagged) {
        // A decline names its charge, unless that is one of an order, or its intent.
        let shown = match stored.status {
            402 if request.verb == Verb::CreateCharge => stored.body.pointer("/error/charge"),
            402 if request.verb == Verb::CreateIntent => {
                stored.body.pointer("/error/payment_intent/id")
            }
            402 if request.verb == Verb::CreateSetup => {
                stored.body.pointer("/error/setup_intent/id")
            }
            200..300 => stored.body.get("id"),
            _ => continue,
        };
        let id = shown.and_then(Value::as_str).unwrap_or_default();
        let account = accounts.get(key.account).copied().unwrap_or_default();
        let is_there = rows
            .get(id)
            .is_some_and(|row| row.account == account && row.tag == request.tag);
        if !is_there {
            let (execution, tag) = (&stored.execution, &request.tag);
            missing.push(format!(
                "{execution} acknowledged {id} of the request {tag}, and it is not there"
            ));
        }
    }
    missing
}

fn judge(history: &History, accounts: &[Uuid], prefix: &str, id: &str, row: &Tagged) {
    let Tagged { account, tag, .. } = row;
    let request = history.request_of(tag).filter(|(key, _)| {
        let number = lock(key).account;
        accounts.get(number) == Some(account)
    });
    let Some((key, request)) = request else {
        let what = format!("{id} of {account} is of the request {tag}, which is not its own");
        history.violate_about("G6", what, tag);
        return;
    };
    let keys = history.keys_about([&*request.tag, id]);
    let Some(wanted) = wanted(prefix, &request, id, &keys) else {
        let what = format!("{id} exists, which the request {tag} did not ask for");
        history.violate_at("G3", what, vec![key]);
        return;
    };
    for (column, allowed) in wanted {
        let is = row.columns.get(column).unwrap_or(&Value::Null);
        let is = match column {
            "charge" => &public_id("ch", is),
            "payment_intent" => &public_id("pi", is),
            "customer" if matches!(prefix, "pi" | "seti") => &public_id("cus", is),
            _ => is,
        };
        if !allowed.contains(is) {
            let allowed = Value::from(allowed);
            let what =
                format!("{id} has the {column} {is}, and was asked to have one of {allowed}");
            history.violate_at("G3", what, keys.clone());
        }
    }
}

/// An id as clients see it.
fn public_id(prefix: &str, id: &Value) -> Value {
    let id = id.as_str().and_then(|id| Uuid::parse_str(id).ok());
    id.map_or(Value::Null, |id| ids::public(prefix, id).into())
}

/// What each column of the row may be. `None`: the request asks for no such row.
fn wanted(
    prefix: &str,
    request: &Request,
    id: &str,
    keys: &[SharedKey],
) -> Option<Vec<(&'static str, Vec<Value>)>> {
    if request.expected != Expected::Any {
        return None;
    }
    let same = |name: &'static str| (name, vec![request.asked(name)]);
    let amount = || {
        let items = request.parameters.get("items").and_then(Value::as_array);
        let sum: i64 = items.into_iter().flatten().map(total).sum();
        ("amount", vec![json!(sum)])
    };
    let items = || ("items", vec![lines(&request.asked("items"))]);
    let updates = [Verb::UpdateOrder, Verb::UpdateRefund];
    let notes = || ("note", changed(id, keys, &updates, "/metadata/note"));
    let (currency, customer) = (same("currency"), same("customer"));
    match (prefix, request.verb) {
        ("ch", Verb::CreateCharge) => {
            let mut all = vec![same("amount"), currency, customer];
            all.extend(money_and_texts(request, id, keys));
            Some(all)
        }
        ("re", Verb::CreateRefund) => {
            let (amount, charge) = (same("amount"), same("charge"));
            Some(vec![amount, charge, same("reason"), notes()])
        }
        ("re", Verb::RefundIntent) => {
            let (amount, intent) = (same("amount"), same("payment_intent"));
            Some(vec![amount, intent, notes()])
        }
        ("pi", Verb::CreateIntent) => Some(vec![
            same("amount"),
            currency,
            customer,
            same("capture_method"),
            (
                "description",
                changed(id, keys, &[Verb::UpdateIntent], "/description"),
            ),
        ]),
        ("seti", Verb::CreateSetup) => Some(vec![customer]),
        ("cus", Verb::CreateCustomer) => Some(vec![same("email")]),
        ("pm", Verb::CreateMethod) => Some(Vec::new()),
        ("or", Verb::CreateOrder | Verb::CreateCheckout) => Some(vec![
            amount(),
            currency,
            customer,
            items(),
            same("client_order_id"),
            notes(),
        ]),
        ("co", Verb::CreateCheckout) => {
            Some(vec![amount(), currency, customer, items(), same("source")])
        }
        (_, _) => None,
    }
}

fn status_of(card: &Card) -> &'static str {
    if card.is_declined {
        "failed"
    } else {
        "succeeded"
    }
}

/// Verbs and parameters of the requests that may have changed an object.
fn changes(id: &str, keys: &[SharedKey]) -> Vec<(Verb, Value)> {
    let mut changes = Vec::new();
    for key in keys {
        let key = lock(key);
        let of_it = key.variants.iter().filter(|one| {
            let is_any = one.expected == Expected::Any;
            is_any && one.about.as_deref() == Some(id)
        });
        changes.extend(of_it.map(|one| (one.verb, one.parameters.clone())));
    }
    changes
}

/// What requests of these verbs may have made of a value that was null: what they say at a pointer.
/// Whether an acknowledged update is among them is for `objects`, which compares the row with the
/// newest event.
fn changed(id: &str, keys: &[SharedKey], by: &[Verb], pointer: &str) -> Vec<Value> {
    let changes = changes(id, keys).into_iter();
    let changes = changes.filter(|(verb, _)| by.contains(verb));
    let values = changes.filter_map(|(_, parameters)| parameters.pointer(pointer).cloned());
    std::iter::once(Value::Null).chain(values).collect()
}

/// What the card decides of a charge, and what captures and updates may have made of it since.
fn money_and_texts(
    request: &Request,
    id: &str,
    keys: &[SharedKey],
) -> Vec<(&'static str, Vec<Value>)> {
    let Some(card) = card_of(&request.parameters) else {
        return Vec::new();
    };
    let is_authorized_only = request.asked("capture") == false;
    let mut captured = match card.is_declined || is_authorized_only {
        true => vec![json!(0)],
        false => vec![request.asked("amount")],
    };
    let mut described = vec![request.asked("description")];
    for (verb, parameters) in changes(id, keys) {
        let parameter = |name: &str| parameters.get(name).cloned();
        if verb == Verb::CaptureCharge && is_authorized_only {
            captured.push(parameter("amount").unwrap_or_else(|| request.asked("amount")));
        }
        if verb == Verb::UpdateCharge {
            described.extend(parameter("description"));
        }
    }
    vec![
        ("status", vec![status_of(card).into()]),
        ("last4", vec![card.last4.into()]),
        ("amount_captured", captured),
        ("description", described),
    ]
}

fn total(item: &Value) -> i64 {
    let number = |name: &str| item.get(name).and_then(Value::as_i64).unwrap_or_default();
    number("quantity") * number("unit_amount")
}

/// The lines of an order as the column holds them.
fn lines(items: &Value) -> Value {
    let items = items.as_array().into_iter().flatten().map(|item| {
        json!({
            "amount": total(item), "description": null, "quantity": item.get("quantity"),
            "sku": item.get("sku"), "unit_amount": item.get("unit_amount"),
        })
    });
    items.collect()
}
