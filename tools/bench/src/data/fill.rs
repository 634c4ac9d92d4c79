//! Fills one table after the other, in one transaction.
//!
//! Promise: a load that breaks off leaves nothing. Rows that were loaded into a table that the same
//! transaction emptied are frozen and not logged, which makes ten million of them a matter of
//! minutes.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context;
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tokio::sync::mpsc;

use super::{
    copy::CopyRows,
    originals::Originals,
    rows::Rows,
    shape::{OTHER_ACCOUNTS, Shape, api_key},
    tables::{FilledTable, TABLES},
};
use crate::{
    postgres::execute,
    stats::{per_second, thousands},
};

/// Row numbers that are encoded at a time: some megabytes.
const CHUNK: u64 = 2_000;

/// Chunks that are encoded ahead.
const CHUNKS_AHEAD: usize = 4;

const TELL_INTERVAL: Duration = Duration::from_secs(5);

pub(crate) async fn accounts(shape: &Shape, connection: &mut PgConnection) -> anyhow::Result<()> {
    let accounts = 0..=OTHER_ACCOUNTS;
    let ids: Vec<_> = accounts.clone().map(|one| shape.account_id(one)).collect();
    let keys: Vec<String> = accounts.map(api_key).collect();
    sqlx::query(
        "WITH given AS (
             SELECT * FROM unnest($1::uuid[], $2::text[]) WITH ORDINALITY AS given (id, key, number)
         ), made AS (
             INSERT INTO accounts (id, name) SELECT id, 'bench-' || number FROM given
         )
         INSERT INTO api_keys (hash, account_id, last4)
         SELECT sha256(convert_to(key, 'UTF8')), id, right(key, 4) FROM given",
    )
    .bind(ids)
    .bind(keys)
    .execute(connection)
    .await?;
    Ok(())
}

pub(crate) async fn tables(
    shape: Shape,
    originals: Originals,
    connection: &mut PgConnection,
) -> anyhow::Result<()> {
    let rows = Arc::new(Rows { shape, originals });
    let mut tx = connection.begin().await?;
    // Rows that refer to each other are made by numbers that fit: they need no look-up. What
    // PostgreSQL checks row by row is checked.
    execute("SET LOCAL session_replication_role = replica", &mut tx).await?;
    let names: Vec<&str> = TABLES.iter().map(|table| table.name).collect();
    let empty = AssertSqlSafe(format!("TRUNCATE {}", names.join(", ")));
    execute(empty, &mut tx).await?;
    for table in &TABLES {
        fill(table, &rows, &mut tx)
            .await
            .with_context(|| format!("filling {}", table.name))?;
    }
    tx.commit().await?;
    Ok(())
}

async fn fill(table: &FilledTable, rows: &Arc<Rows>, tx: &mut PgConnection) -> anyhow::Result<()> {
    let FilledTable { name, columns, .. } = table;
    let count = (table.numbers)(&rows.shape);
    let (began, mut told, mut done) = (Instant::now(), Instant::now(), 0);
    let statement = format!("COPY {name} ({columns}) FROM STDIN (FORMAT binary, FREEZE)");
    let mut copy = tx.copy_in_raw(&statement).await?;
    let (encoded, mut chunks) = mpsc::channel(CHUNKS_AHEAD);
    let (rows, write) = (Arc::clone(rows), table.write);
    // Encoding has a thread of its own, so that PostgreSQL never waits for it.
    let encoding = tokio::task::spawn_blocking(move || {
        let mut out = CopyRows::new();
        let mut n = 0;
        while n < count {
            let end = count.min(n + CHUNK);
            (n..end).for_each(|n| write(&rows, n, &mut out));
            if encoded.blocking_send((out.take(), end - n)).is_err() {
                // PostgreSQL has refused: the other side has the reason.
                return;
            }
            n = end;
        }
        out.end();
        drop(encoded.blocking_send((out.take(), 0)));
    });
    while let Some((bytes, numbers)) = chunks.recv().await {
        copy.send(bytes).await?;
        done += numbers;
        if told.elapsed() >= TELL_INTERVAL {
            told = Instant::now();
            let (seconds, rate) = (began.elapsed().as_secs(), per_second(done, began.elapsed()));
            let left = count.saturating_sub(done) / rate.max(1);
            let (done, all, rate) = (thousands(done), thousands(count), thousands(rate));
            eprintln!("{name}: {done} of {all} rows, {seconds} s, {rate} rows/s, {left} s left");
        }
    }
    copy.finish().await?;
    encoding.await?;
    let took = began.elapsed();
    let (seconds, rate) = (took.as_secs(), thousands(per_second(done, took)));
    eprintln!(
        "{name}: {} rows in {seconds} s, {rate} rows/s",
        thousands(done)
    );
    Ok(())
}
