//! Keys that are remembered when their records have expired, beside what became of them.
//!
//! Promise: with a memory, one request is executed under a key, and no other one for as long as the
//! key is remembered. Each later one is refused as expired, and told what that one made.

use std::collections::HashMap;

use chrono::{DateTime, TimeDelta, Utc};
use sqlx::{PgConnection, Row};
use uuid::Uuid;

use super::ROUNDING;
use crate::{
    history::{History, KeyHistory, Request, Stored, lock},
    profile::Profile,
    requests::Verb,
};

/// What the database has of a key.
struct Found {
    has_record: bool,
    /// The object that it names, if there is one.
    tombstone: Option<Option<String>>,
    /// The executions that left events, and the objects that these tell of.
    effects: Vec<(String, String)>,
}

/// Every key that has expired is remembered, and what its clients were told.
pub(super) async fn keys_are_as_told(
    session: &mut PgConnection,
    history: &History,
    accounts: &[Uuid],
    profile: &Profile,
) -> Result<(), sqlx::Error> {
    let retention = TimeDelta::from_std(profile.retention).unwrap_or(TimeDelta::MAX);
    let keys = history.keys().into_iter().filter_map(|key| {
        let id = {
            let key = lock(&key);
            (*accounts.get(key.account)?, key.key.clone())
        };
        Some((id, key))
    });
    let keys: Vec<_> = keys.collect();
    let found = found(session, keys.iter().map(|(id, _)| id)).await?;
    for (id, key) in keys {
        // A key may be given up before a request with it is sent, and late.
        let (mut began, mut told) = (DateTime::<Utc>::MAX_UTC, Vec::new());
        for about in history.keys_about([&*id.1]) {
            let about = lock(&about);
            if accounts.get(about.account) == Some(&id.0) {
                began = began.min(began_at(&about));
                let early = about.answers().filter(|(request, _, stored)| {
                    let is_given_up = request.about.as_ref() == Some(&id.1);
                    is_given_up && is_of_the_other_key(request, stored, &about, retention)
                });
                told.extend(early.map(|(.., stored)| stored.clone()));
            }
        }
        let broken = {
            let key = lock(&key);
            match (found.get(&id), profile.memory) {
                (Some(found), Some(_)) => contradictions(&key, began, &told, found, retention),
                (_, _) => not_remembered(&key),
            }
        };
        for what in broken {
            history.violate_at("G11", format!("{}: {what}", id.1), vec![key.clone()]);
        }
    }
    Ok(())
}

/// No key is said to be remembered where none is.
fn not_remembered(key: &KeyHistory) -> Vec<String> {
    let refusals = key.answers().filter(|(.., one)| one.is_of_an_expired_key());
    let what = |one: &Stored| format!("{} is refused, and nothing is remembered", one.execution);
    refusals.map(|(.., refusal)| what(refusal)).collect()
}

fn began_at(key: &KeyHistory) -> DateTime<Utc> {
    let began = key.attempts.iter().map(|attempt| attempt.began).min();
    began.unwrap_or(DateTime::<Utc>::MAX_UTC)
}

/// Whether a key that has lived since then can have expired when the refusal was made, whose own
/// record lives as long.
fn can_have_expired(refusal: &Stored, began: DateTime<Utc>, retention: TimeDelta) -> bool {
    refusal.expires - began >= retention * 2 - ROUNDING
}

/// Whether a refusal is about the key that its request gives up, and not about its own one.
fn is_of_the_other_key(
    request: &Request,
    stored: &Stored,
    key: &KeyHistory,
    retention: TimeDelta,
) -> bool {
    let is_refusal = request.verb == Verb::AbandonKey && stored.is_of_an_expired_key();
    is_refusal && !can_have_expired(stored, began_at(key), retention)
}

/// `told`: the refusals of requests to give the key up.
fn contradictions(
    key: &KeyHistory,
    began: DateTime<Utc>,
    told: &[Stored],
    found: &Found,
    retention: TimeDelta,
) -> Vec<String> {
    let (mut refusals, mut executed): (Vec<&Stored>, Vec<&Stored>) = Default::default();
    for (request, _, stored) in key.answers() {
        let is_own =
            stored.is_of_an_expired_key() && !is_of_the_other_key(request, stored, key, retention);
        if is_own { &mut refusals } else { &mut executed }.push(stored);
    }
    let first = executed.first();
    let mut broken = Vec::new();
    let answered = executed.iter().map(|stored| &stored.execution);
    for execution in answered.chain(found.effects.iter().map(|(execution, _)| execution)) {
        if first.is_some_and(|first| first.execution != *execution) {
            broken.push(format!("executed a second time, by {execution}"));
        }
        if refusals
            .iter()
            .any(|refusal| refusal.execution == *execution)
        {
            broken.push(format!("{execution} was refused as expired, and executed"));
        }
    }
    let mut early = Vec::new();
    let may_name = may_name(first.copied(), found);
    let mut is_named = |by: &str, named: Option<&str>| {
        let is_right = match &*may_name {
            // Neither an answer nor an event tells what there is to name.
            [] => first.is_none() || named.is_none(),
            names => named.is_some_and(|named| names.contains(&named)),
        };
        if !is_right {
            broken.push(format!("{by} names {named:?}, and not one of {may_name:?}"));
        }
    };
    for refusal in refusals.into_iter().chain(told) {
        let named = refusal.body.pointer("/error/resource");
        let execution = &refusal.execution;
        is_named(execution, named.and_then(|named| named.as_str()));
        if !can_have_expired(refusal, began, retention) {
            early.push(format!(
                "{execution} was refused before the key can have expired"
            ));
        }
    }
    if let Some(named) = &found.tombstone {
        is_named("the memory", named.as_deref());
    }
    broken.extend(early);
    let is_known = found.has_record || found.tombstone.is_some();
    let is_answered = key.answers().next().is_some();
    if !is_known && (is_answered || !found.effects.is_empty()) {
        broken.push("neither recorded nor remembered".to_owned());
    }
    broken
}

/// What a refusal may name of what a key's request made: what it was told to have made, or else
/// what it is known to have changed.
fn may_name<'a>(first: Option<&'a Stored>, found: &'a Found) -> Vec<&'a str> {
    let shown = |path: &str| first?.body.pointer(path)?.as_str();
    let status = first.map_or(0, |first| first.status);
    // A level has no id, and that of a key is not an object's.
    let made = shown("/id").or_else(|| shown("/sku"));
    match (status, made) {
        (200..300, Some(made)) => vec![made],
        (status, _) => {
            let changed = found.effects.iter().map(|(_, object)| &**object);
            let declined = ["/error/charge", "/error/payment_intent/id"];
            let declined = declined.iter().filter(|_| status == 402);
            let declined = declined.filter_map(|path| shown(path));
            changed.chain(declined).collect()
        }
    }
}

async fn found<'a>(
    session: &mut PgConnection,
    keys: impl Iterator<Item = &'a (Uuid, String)>,
) -> Result<HashMap<(Uuid, String), Found>, sqlx::Error> {
    let (accounts, names): (Vec<Uuid>, Vec<&str>) = keys.map(|(id, key)| (*id, &**key)).unzip();
    let query = "SELECT asked.account_id, asked.key, record.key IS NOT NULL,
                        tombstone.id IS NOT NULL, tombstone.resource_id
                   FROM UNNEST($1::uuid[], $2::text[]) AS asked (account_id, key)
                   LEFT JOIN idempotency_keys AS record
                     ON record.account_id = asked.account_id AND record.key = asked.key
                   LEFT JOIN idempotency_tombstones AS tombstone
                     ON tombstone.id = idempotency_tombstone_id(asked.account_id, asked.key)";
    let rows = sqlx::query(query).bind(accounts).bind(names);
    let mut found = HashMap::new();
    for row in rows.fetch_all(&mut *session).await? {
        let of_key = Found {
            has_record: row.get(2),
            tombstone: row.get::<bool, _>(3).then(|| row.get(4)),
            effects: Vec::new(),
        };
        found.insert((row.get(0), row.get(1)), of_key);
    }
    let query = "SELECT account_id, idempotency_key, request_id, object ->> 'id' FROM events";
    for row in sqlx::query(query).fetch_all(session).await? {
        if let Some(of_key) = found.get_mut(&(row.get(0), row.get(1))) {
            of_key.effects.push((row.get(2), row.get(3)));
        }
    }
    Ok(found)
}
