//! The records of keys, beside the answers that the clients got.
//!
//! Promise: called only where no key expires, so that a record that is missing is lost.

use std::{collections::HashMap, sync::Arc};

use chrono::{DateTime, Utc};
use sqlx::{PgConnection, Row};
use uuid::Uuid;

use super::Broken;
use crate::history::{History, KeyHistory, SharedKey, Stored, lock};

pub(super) struct Record {
    pub(super) execution: String,
    pub(super) status: Option<i16>,
    body_digest: Option<Vec<u8>>,
}

/// Answers, each with its key and the account's id in the database.
type Answered = Vec<(SharedKey, (Uuid, String), Vec<Stored>)>;

/// Every answer that a client got is in the database: the same execution, status and bytes.
///
/// `from` leaves out answers from before. Answers after `until`, which is when the snapshot was
/// taken, may be of later transactions.
pub(super) async fn are_what_was_answered(
    snapshot: &mut PgConnection,
    history: &History,
    accounts: &[Uuid],
    from: Option<DateTime<Utc>>,
    until: DateTime<Utc>,
) -> Result<(), sqlx::Error> {
    let answered = answered(history, accounts, from, until);
    let names: Vec<&str> = answered.iter().map(|(_, (_, key), _)| &**key).collect();
    let records = records(snapshot, &names).await?;
    for (key, id, answers) in &answered {
        for answer in answers {
            if let Some((rule, what)) = difference(records.get(id), answer) {
                history.violate_at(rule, what, vec![Arc::clone(key)]);
            }
        }
    }
    Ok(())
}

fn answered(
    history: &History,
    accounts: &[Uuid],
    from: Option<DateTime<Utc>>,
    until: DateTime<Utc>,
) -> Answered {
    let answers = |key: &KeyHistory| {
        let mut distinct: Vec<Stored> = Vec::new();
        for (_, attempt, stored) in key.answers() {
            let is_wanted = attempt.ended < until && from.is_none_or(|from| attempt.ended >= from);
            if is_wanted && !distinct.iter().any(|known| known.digest == stored.digest) {
                distinct.push(stored.clone());
            }
        }
        distinct
    };
    let keys = history.keys().into_iter().filter_map(|key| {
        let (id, answers) = {
            let key = lock(&key);
            let account = *accounts.get(key.account)?;
            ((account, key.key.clone()), answers(&key))
        };
        (!answers.is_empty()).then_some((key, id, answers))
    });
    keys.collect()
}

pub(super) async fn records(
    snapshot: &mut PgConnection,
    keys: &[&str],
) -> Result<HashMap<(Uuid, String), Record>, sqlx::Error> {
    let query = "SELECT account_id, key, request_id, status, sha256(body) FROM idempotency_keys
                  WHERE key = ANY ($1)";
    let rows = sqlx::query(query).bind(keys).fetch_all(snapshot).await?;
    let records = rows.iter().map(|row| {
        let record = Record {
            execution: row.get(2),
            status: row.get(3),
            body_digest: row.get(4),
        };
        ((row.get(0), row.get(1)), record)
    });
    Ok(records.collect())
}

/// What the database has instead of an answer.
fn difference(record: Option<&Record>, answer: &Stored) -> Option<Broken> {
    let Stored {
        execution, status, ..
    } = answer;
    let Some(record) = record else {
        let what = format!("{execution} was answered with {status}, and its key has no record");
        return Some(("G2", what));
    };
    if record.execution != *execution {
        let other = &record.execution;
        let what = format!("{execution} was answered with {status}, and {other} is recorded");
        return Some(("G2", what));
    }
    let Some(recorded) = record.status else {
        let what = format!("{execution} was answered with {status}, and no outcome is recorded");
        return Some(("G2", what));
    };
    if i32::from(recorded) != i32::from(*status) {
        let what = format!("{execution} was answered with {status}, and {recorded} is recorded");
        return Some(("G4", what));
    }
    (record.body_digest.as_deref() != Some(&answer.body_digest)).then(|| {
        let what = format!("{execution} was answered with another body than is recorded");
        ("G4", what)
    })
}
