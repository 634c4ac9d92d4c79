//! Keys that clients gave up, beside what became of them.
//!
//! Promise: `abandoned` means that the key has no effect in its window, and `completed` names the
//! one outcome that it has.

use std::collections::HashMap;

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::Value;
use sqlx::{PgConnection, Row};
use uuid::Uuid;

use super::{ROUNDING, records::records};
use crate::{
    history::{History, KeyHistory, SharedKey, Stored, lock},
    profile::Profile,
    requests::Verb,
};

/// By account and key.
type Effects = HashMap<(Uuid, String), Vec<(String, DateTime<Utc>)>>;

/// What a client was told of the key that it gave up.
struct GivenUp {
    account: usize,
    key: String,
    is_abandoned: bool,
    /// The execution whose outcome each request with the key gets, and its status.
    execution: String,
    status: i64,
    created: DateTime<Utc>,
    expires: DateTime<Utc>,
}

impl GivenUp {
    /// `None`: the request was refused.
    fn of(account: usize, stored: &Stored) -> Option<Self> {
        let text = |name: &str| stored.body.get(name).and_then(Value::as_str);
        let number = |name: &str| stored.body.get(name).and_then(Value::as_i64);
        let time = |name: &str| DateTime::from_timestamp(number(name)?, 0);
        Some(Self {
            account,
            key: text("key")?.to_owned(),
            is_abandoned: text("status")? == "abandoned",
            execution: text("request")?.to_owned(),
            status: number("response_status")?,
            created: time("created")?,
            expires: time("expires")?,
        })
    }

    /// What an answer to the key contradicts.
    fn contradicts(&self, answer: &Stored, retention: TimeDelta) -> Option<String> {
        let is_of_window = (answer.expires - self.expires).abs() < retention - ROUNDING;
        let is_as_told = answer.execution == self.execution
            && i64::from(answer.status) == self.status
            && answer.is_of_a_given_up_key() == self.is_abandoned;
        let (execution, status) = (&answer.execution, answer.status);
        (is_of_window && !is_as_told)
            .then(|| format!("{}, and {execution} answered it with {status}", self.what()))
    }

    fn what(&self) -> String {
        let Self {
            key,
            execution,
            status,
            ..
        } = self;
        match self.is_abandoned {
            true => format!("{key} was said to be abandoned by {execution}"),
            false => format!("{key} was said to be completed by {execution} with {status}"),
        }
    }
}

/// Every key that was given up is what its client was told.
pub(super) async fn keys_are_as_told(
    session: &mut PgConnection,
    history: &History,
    accounts: &[Uuid],
    profile: &Profile,
) -> Result<(), sqlx::Error> {
    let lasts = |long| TimeDelta::from_std(long).unwrap_or(TimeDelta::MAX);
    let (retention, window) = (lasts(profile.retention), lasts(profile.window()));
    let all = all_told(history);
    let names: Vec<&str> = all.iter().map(|told| &*told.key).collect();
    let effects = effects(session, &names).await?;
    let records = records(session, &names).await?;
    for told in &all {
        let Some(account) = accounts.get(told.account) else {
            continue;
        };
        let id = (*account, told.key.clone());
        let keys = history.keys_about([&*told.key]);
        let mut broken: Vec<String> = Vec::new();
        for key in &keys {
            let key = lock(key);
            if (key.account, &key.key) == (told.account, &told.key) {
                let answers = key.answers().map(|(_, _, stored)| stored);
                broken.extend(answers.filter_map(|answer| told.contradicts(answer, retention)));
            }
        }
        for (execution, at) in effects.get(&id).into_iter().flatten() {
            let is_of_window = (*at - told.created).abs() < window - ROUNDING;
            if told.is_abandoned && is_of_window {
                broken.push(format!("{}, and {execution} had an effect", told.what()));
            }
        }
        let recorded = records.get(&id);
        let recorded = recorded.map(|one| (&*one.execution, one.status.map(i64::from)));
        // One that has expired may be gone, or another one.
        if !profile.expires() && recorded != Some((&told.execution, Some(told.status))) {
            broken.push(format!("{}, and its record is {recorded:?}", told.what()));
        }
        for what in broken {
            history.violate_at("G10", what, keys.clone());
        }
    }
    Ok(())
}

fn all_told(history: &History) -> Vec<GivenUp> {
    let told = |key: &KeyHistory| -> Vec<GivenUp> {
        let answers = key.answers();
        let answers = answers.filter(|(request, ..)| request.verb == Verb::AbandonKey);
        let told = answers.filter_map(|(_, _, stored)| GivenUp::of(key.account, stored));
        told.collect()
    };
    let keys = history.keys();
    let told = |key: &SharedKey| told(&lock(key));
    keys.iter().flat_map(told).collect()
}

/// The executions with an effect under each key, and when they began.
async fn effects(session: &mut PgConnection, keys: &[&str]) -> Result<Effects, sqlx::Error> {
    let query = "SELECT DISTINCT account_id, idempotency_key, request_id, created_at FROM events
                  WHERE idempotency_key = ANY ($1)";
    let mut effects = Effects::new();
    for row in sqlx::query(query).bind(keys).fetch_all(session).await? {
        let of_key = effects.entry((row.get(0), row.get(1))).or_default();
        of_key.push((row.get(2), row.get(3)));
    }
    Ok(effects)
}
