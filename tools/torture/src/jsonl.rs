//! The history of a run and its final tables, as files that another program can check.
//!
//! Promise: the files hold what the checks of this program judge for G1 to G6, G10 and G11, and
//! no verdict of theirs. `HISTORY.md` describes each line.

use std::{
    collections::HashSet,
    fs::{self, File},
    io::{BufWriter, Write},
    path::Path,
};

use anyhow::Context;
use chrono::{DateTime, SecondsFormat, Utc};
use serde_json::{Map, Value, json};
use sqlx::{AssertSqlSafe, PgPool};

use crate::{
    cluster::PROCESSOR_DATABASE,
    history::{Attempt, History, KeyHistory, Request, TAG, Verdict, lock},
    nemesis::Faults,
    requests::{INITIAL_STOCK, SCARCE, STOCKED},
    shards::Home,
    world::World,
};

const VERSION: u32 = 1;

/// For a table of which each column is dumped.
const WHOLE: &str = "";

/// The tables of a dump. Bodies of replies are digests, and events name their objects.
const TABLES: [(&str, &str); 15] = [
    (
        "accounts",
        "SELECT jsonb_build_object('id', id, 'name', name) FROM accounts",
    ),
    (
        "idempotency_keys",
        "SELECT to_jsonb(one) - '{headers,body,fingerprint,fingerprint_version}'::text[]
                || jsonb_build_object('body_digest', encode(sha256(body), 'hex'))
           FROM idempotency_keys AS one",
    ),
    ("idempotency_leases", WHOLE),
    ("idempotency_tombstones", WHOLE),
    (
        "events",
        "SELECT jsonb_build_object('id', id, 'account_id', account_id, 'type', type,
                                   'object', object ->> 'id', 'request_id', request_id,
                                   'idempotency_key', idempotency_key, 'created_at', created_at)
           FROM events ORDER BY id",
    ),
    ("charges", WHOLE),
    ("refunds", WHOLE),
    ("orders", WHOLE),
    ("checkouts", WHOLE),
    ("payment_intents", WHOLE),
    ("setup_intents", WHOLE),
    ("customers", WHOLE),
    ("payment_methods", WHOLE),
    ("inventory", WHOLE),
    ("operations", WHOLE),
];

/// Where keys were executed, in each of several databases.
const EXECUTIONS: [(&str, &str); 1] = [(
    "executions",
    "SELECT to_jsonb(one) FROM torture.executions AS one ORDER BY at",
)];

/// Those of the processor.
const PROCESSORS: [(&str, &str); 2] = [
    ("processor.charges", WHOLE),
    (
        "processor.operations",
        "SELECT to_jsonb(one) FROM processor.operations AS one ORDER BY id",
    ),
];

/// Writes both files of a run into a folder, in place of those of an earlier run of its profile.
pub(crate) async fn write(
    folder: &Path,
    world: &World,
    history: &History,
    faults: &Faults,
    seed: u64,
) -> anyhow::Result<()> {
    let name = world.profile.name;
    fs::create_dir_all(folder).with_context(|| format!("{} can't be made", folder.display()))?;
    let create = |kind: &str| -> std::io::Result<BufWriter<File>> {
        let file = File::create(folder.join(format!("{name}.{kind}.jsonl")))?;
        Ok(BufWriter::new(file))
    };
    let mut file = create("history")?;
    for line in lines(world, history, faults, seed) {
        writeln!(file, "{line}")?;
    }
    file.flush()?;

    let mut file = create("dump")?;
    for Home { name, pool, .. } in world.homes(history) {
        dump(&mut file, &pool, &TABLES, name).await?;
        if name.is_some() {
            dump(&mut file, &pool, &EXECUTIONS, name).await?;
        }
        pool.close().await;
    }
    if world.profile.has_processor {
        let theirs = world.cluster.pool(PROCESSOR_DATABASE);
        dump(&mut file, &theirs, &PROCESSORS, None).await?;
        theirs.close().await;
    }
    file.flush()?;
    Ok(())
}

async fn dump(
    file: &mut impl Write,
    pool: &PgPool,
    tables: &[(&str, &'static str)],
    shard: Option<&str>,
) -> anyhow::Result<()> {
    for (table, query) in tables {
        let query = match *query {
            WHOLE => format!("SELECT to_jsonb(one) FROM {table} AS one"),
            query => query.to_owned(),
        };
        let rows = sqlx::query_scalar(AssertSqlSafe(query));
        let rows: Vec<Value> = rows.fetch_all(pool).await?;
        for row in rows {
            let mut line = json!({ "table": table, "row": row });
            if let (Some(line), Some(shard)) = (line.as_object_mut(), shard) {
                line.insert("shard".to_owned(), shard.into());
            }
            writeln!(file, "{line}")?;
        }
    }
    Ok(())
}

/// The lines of a history, in the order of their times.
fn lines(world: &World, history: &History, faults: &Faults, seed: u64) -> Vec<Value> {
    let accounts = &world.accounts;
    let name_of = |account: usize| accounts.get(account).map(|account| account.name.as_str());
    let mut lines: Vec<(DateTime<Utc>, Value)> = Vec::new();
    let (mut requests, mut attempts) = (0_u64, 0_u64);
    for key in history.keys() {
        let key = lock(&key);
        let account = name_of(key.account);
        let first = requests;
        requests += key.variants.len() as u64;
        for (number, request) in (first..).zip(&key.variants) {
            let mut sent = key.attempts.iter().map(|attempt| attempt.began);
            let at = sent.next().unwrap_or_default();
            lines.push((at, request_line(number, account, &key, request)));
        }
        let mut shown = HashSet::new();
        for attempt in &key.attempts {
            attempts += 1;
            let request = first + attempt.variant as u64;
            let invoke = json!({
                "event": "invoke", "at": time(attempt.began), "attempt": attempts,
                "request": request, "replica": attempt.replica,
            });
            lines.push((attempt.began, invoke));
            let reply = reply_line(attempts, attempt, &mut shown);
            lines.push((attempt.ended, reply));
        }
    }
    for read in history.reads() {
        let line = json!({
            "event": "read", "at": time(read.at), "account": name_of(read.reader),
            "object": read.object, "owner": name_of(read.owner), "status": read.status,
        });
        lines.push((read.at, line));
    }
    for told in history.told() {
        let (object, state) = (&told.id, &told.state);
        let at = time(told.at);
        let line = json!({ "event": "told", "at": at, "object": object, "state": state });
        lines.push((told.at, line));
    }
    for fault in faults {
        let line = json!({
            "event": "fault", "at": time(fault.began), "until": time(fault.ended),
            "fault": fault.name,
        });
        lines.push((fault.began, line));
    }
    for run in world.moves.runs() {
        let (at, until) = (time(run.began), time(run.ended));
        let end = format!("{:?}", run.end).to_lowercase();
        let line = json!({
            "event": "move", "at": at, "until": until, "account": name_of(run.account),
            "to": run.to, "end": end,
        });
        lines.push((run.began, line));
    }
    lines.sort_by_key(|(at, _)| *at);
    let began = lines.first().map(|(at, _)| time(*at));
    let stock = STOCKED.map(|sku| (sku, INITIAL_STOCK));
    let stock = stock.into_iter().chain([SCARCE]);
    let stock: Map<_, _> = stock
        .map(|(sku, level)| (sku.to_owned(), level.into()))
        .collect();
    let run = json!({
        "event": "run", "version": VERSION, "at": began, "profile": world.profile.name,
        "seed": seed, "retention": world.profile.retention.as_secs(),
        "memory": world.profile.memory.unwrap_or_default().as_secs(), "tag": TAG, "stock": stock,
    });
    std::iter::once(run)
        .chain(lines.into_iter().map(|(_, line)| line))
        .collect()
}

fn time(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Micros, true)
}

fn request_line(number: u64, account: Option<&str>, key: &KeyHistory, request: &Request) -> Value {
    json!({
        "event": "request", "request": number, "account": account, "key": key.key,
        "method": request.method.as_str(), "path": request.path,
        "media_type": request.media_type, "body": request.body, "tag": request.tag,
        "shows_tag": request.is_tagged, "repeatable": request.is_repeatable,
        "leaves_event": request.verb.leaves_an_event(), "expected": request.expected,
    })
}

/// `shown`: the replies whose bodies another line has.
fn reply_line(number: u64, attempt: &Attempt, shown: &mut HashSet<(String, [u8; 32])>) -> Value {
    let mut line = json!({ "event": "reply", "at": time(attempt.ended), "attempt": number });
    let more = match &attempt.verdict {
        Verdict::Stored(stored) => {
            let mut more = json!({
                "outcome": "stored", "status": stored.status, "execution": stored.execution,
                "expires": time(stored.expires), "digest": hex(&stored.digest),
                "body_digest": hex(&stored.body_digest),
            });
            if shown.insert((stored.execution.clone(), stored.digest))
                && let Some(more) = more.as_object_mut()
            {
                more.insert("body".to_owned(), stored.body.clone());
            }
            more
        }
        Verdict::Reused => json!({ "outcome": "reused" }),
        Verdict::Unknown(why) => json!({ "outcome": "unknown", "why": why }),
        Verdict::Malformed(why) => json!({ "outcome": "malformed", "why": why }),
    };
    if let (Some(line), Value::Object(more)) = (line.as_object_mut(), more) {
        line.extend(more);
    }
    line
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
