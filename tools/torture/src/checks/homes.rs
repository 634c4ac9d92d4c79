//! In which home each key was executed, by a note that the home itself makes of it.
//!
//! Promise: a note commits or rolls back with the outcome of its key. No move takes it along, and
//! replication makes none.

use std::collections::{HashMap, HashSet};

use chrono::{DateTime, TimeDelta, Utc};
use sqlx::Row;
use uuid::Uuid;

use crate::{
    cluster::{Cluster, DATABASE},
    history::{History, lock},
    ids,
    moves::End,
    shards::Home,
    world::World,
};

/// How long a claim of a webhook lives, less the time of an attempt.
const CLAIMED_FOR: TimeDelta = TimeDelta::seconds(4);

/// The events that were sent again because an attempt failed.
const SENT_AGAIN: &str = "
    SELECT DISTINCT event_id FROM webhook_deliveries, jsonb_array_elements(attempts) AS attempt
     WHERE attempt ->> 'response_status' IS DISTINCT FROM '200'";

/// Has a database note what is executed there.
const NOTES: &str = "
    CREATE SCHEMA torture;
    CREATE TABLE torture.executions (
        account_id uuid NOT NULL, key text NOT NULL, request_id text NOT NULL, at timestamptz NOT NULL
    );
    CREATE FUNCTION torture.note_execution() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO torture.executions
        VALUES (NEW.account_id, NEW.key, NEW.request_id, clock_timestamp());
        RETURN NULL;
    END $$;
    CREATE TRIGGER torture_notes_an_execution AFTER INSERT OR UPDATE OF status ON idempotency_keys
        FOR EACH ROW WHEN (NEW.status IS NOT NULL) EXECUTE FUNCTION torture.note_execution();";

pub(crate) async fn note_executions(cluster: &Cluster) -> Result<(), sqlx::Error> {
    let mut session = cluster.connect(DATABASE).await?;
    sqlx::raw_sql(NOTES).execute(&mut session).await?;
    Ok(())
}

/// A key is executed in one home only, and an account acts in one home at a time. At the end, each
/// answer that a client got is of an execution that a home has noted.
pub(crate) async fn are_one_at_a_time(
    world: &World,
    homes: &[Home],
    history: &History,
    accounts: &[Uuid],
    is_end: bool,
) -> Result<(), sqlx::Error> {
    if world.shards.is_empty() {
        return Ok(());
    }
    let mut homes_of: HashMap<(Uuid, String), HashSet<&str>> = HashMap::new();
    let mut acts: HashMap<Uuid, Vec<(DateTime<Utc>, &str)>> = HashMap::new();
    let mut noted = HashSet::new();
    for home in homes {
        let name = home.name.unwrap_or_default();
        let notes = "SELECT account_id, key, request_id, at FROM torture.executions";
        for note in sqlx::query(notes).fetch_all(&home.pool).await? {
            let (account, key): (Uuid, String) = (note.get(0), note.get(1));
            noted.insert((account, key.clone(), note.get::<String, _>(2)));
            acts.entry(account).or_default().push((note.get(3), name));
            homes_of.entry((account, key)).or_default().insert(name);
        }
    }
    for ((account, key), homes) in homes_of.iter().filter(|(_, homes)| homes.len() > 1) {
        let what = format!("the key {key} of {account} was executed in the homes {homes:?}");
        history.violate_about("G1", what, key);
    }
    let runs = world.moves.runs();
    for (number, account) in accounts.iter().enumerate() {
        let mut acts = acts.remove(account).unwrap_or_default();
        acts.sort_unstable();
        let changes = acts.windows(2).filter(|pair| {
            let homes = pair.iter().map(|(_, home)| home);
            homes.collect::<HashSet<_>>().len() > 1
        });
        let changes = changes.count();
        let moved = |run: &&crate::moves::Run| run.account == number && run.end == End::Moved;
        let moves = runs.iter().filter(moved).count();
        if changes > moves {
            let what = format!(
                "{account} acted in two homes at a time: {changes} changes, and {moves} moves"
            );
            history.violate("G6", what);
        }
    }
    if !is_end {
        return Ok(());
    }
    for key in history.keys() {
        let unnoted: Vec<String> = {
            let key = lock(&key);
            let account = accounts.get(key.account).copied().unwrap_or_default();
            let executions = key.answers().map(|(.., stored)| stored.execution.clone());
            let name = &key.key;
            executions
                .filter(|one| !noted.contains(&(account, name.clone(), one.clone())))
                .collect()
        };
        for execution in unnoted {
            let what = format!("{execution} was answered, and no home has executed it");
            history.violate_at("G2", what, vec![std::sync::Arc::clone(&key)]);
        }
    }
    Ok(())
}

/// While an account moves and no fault is made, no webhook is received twice although each attempt
/// was answered: two homes sent it. After [`CLAIMED_FOR`], it may be one that its sender took too
/// long to mark as sent.
pub(crate) async fn no_webhook_repeats(
    world: &World,
    homes: &[Home],
    history: &History,
) -> Result<(), sqlx::Error> {
    let mut repeated = world.received.repeated();
    repeated.retain(|again| {
        again.at - again.first < CLAIMED_FOR && world.moves.was_calm(again.first, again.at)
    });
    if repeated.is_empty() {
        return Ok(());
    }
    let mut sent_again = HashSet::new();
    for home in homes {
        let ids = sqlx::query_scalar(SENT_AGAIN).fetch_all(&home.pool).await?;
        sent_again.extend(ids.into_iter().map(|id| ids::public("evt", id)));
    }
    repeated.retain(|again| !sent_again.contains(&again.event));
    for again in repeated {
        let (account, event, first, at) = (again.account, again.event, again.first, again.at);
        let what = format!("account {account} received {event} from two homes: {first}, {at}");
        history.violate("G7", what);
    }
    Ok(())
}
