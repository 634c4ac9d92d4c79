//! The expiry sweep: how fast it removes, and what it takes from requests meanwhile.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::ensure;
use sqlx::{Connection, PgConnection};

use super::{
    statements::{self, LOOK_INTERVAL, Statement, Watched},
    timed::{CONNECTIONS, create},
};
use crate::{
    data::{Shape, random},
    load::Until,
    measure::Target,
    postgres::execute,
    stats::{per_second, thousands},
};

/// Charges in one window without a sweep.
const REQUESTS: u64 = 4_000;

pub(crate) const OFTEN: [(&str, &str); 1] = [("EXPIRY_SWEEP_INTERVAL", "1s")];

const BEGIN_LIMIT: Duration = Duration::from_secs(30);

/// How long the sweep of a few records may take.
const SHORT_LIMIT: Duration = Duration::from_secs(60);

/// A sweep that removes fewer records in a second is given up: two cores reach more than twice as
/// many.
const LEAST_PER_SECOND: u64 = 1_000;

const TELL_INTERVAL: Duration = Duration::from_secs(30);

/// Stored records that are copied, again and again. They are held in memory meanwhile.
const COPIED: i64 = 100_000;

/// One sweep, beside the service without it.
#[derive(Debug)]
pub(crate) struct Swept {
    pub(crate) during: Sweep,
    /// Charges in a second, before the sweep and after it.
    pub(crate) creates_without: u64,
}

#[derive(Debug)]
pub(crate) struct Sweep {
    pub(crate) statement: Watched,
    pub(crate) rows_per_second: u64,
    /// Charges in a second.
    pub(crate) creates: u64,
}

/// Adds so many records that are expired already, and measures the service that sweeps them.
pub(crate) async fn measure(
    shape: Shape,
    target: &Target,
    expired: u64,
    connection: &mut PgConnection,
) -> anyhow::Result<Swept> {
    let fixed = Until::Count(REQUESTS);
    let before = creates_per_second(shape, target, &fixed, 1).await?;
    add_expired(expired, connection).await?;
    let during = sweep(shape, target, expired, 2, connection).await?;
    let after = creates_per_second(shape, target, &fixed, 3).await?;
    Ok(Swept {
        during,
        creates_without: before.midpoint(after),
    })
}

/// Charges that the service makes in a second. `window` is another one for each load of a run.
pub(crate) async fn creates_per_second(
    shape: Shape,
    target: &Target,
    until: &Until,
    window: u64,
) -> anyhow::Result<u64> {
    let charge = move |number| create(&shape, random(number, 2_000 + window) % shape.rows);
    let sample = target.measure(CONNECTIONS, until, charge);
    Ok(sample.await?.per_second())
}

/// Makes charges for as long as the service sweeps so many expired records.
pub(crate) async fn sweep(
    shape: Shape,
    target: &Target,
    expired: u64,
    window: u64,
    connection: &mut PgConnection,
) -> anyhow::Result<Sweep> {
    let mut watched = Watched::new(Statement::Sweep);
    let removed = |watched: &Watched| watched.counted.rows.unsigned_abs();
    let until = Instant::now() + BEGIN_LIMIT;
    while removed(&watched) == 0 {
        ensure!(
            Instant::now() < until,
            "no sweep began within {BEGIN_LIMIT:?}"
        );
        tokio::time::sleep(LOOK_INTERVAL).await;
        watched.look(connection).await?;
    }

    let limit = SHORT_LIMIT + Duration::from_secs(expired / LEAST_PER_SECOND);
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Until::Stopped(Arc::clone(&stop));
    let (began, first) = (Instant::now(), removed(&watched));
    let watching = async {
        let mut told = began;
        let mut looked = Ok(());
        while looked.is_ok() && removed(&watched) < expired && began.elapsed() < limit {
            if told.elapsed() > TELL_INTERVAL {
                let (removed, expired) = (thousands(removed(&watched)), thousands(expired));
                eprintln!("swept {removed} of {expired}");
                told = Instant::now();
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
            looked = watched.look(connection).await;
        }
        stop.store(true, Ordering::Relaxed);
        looked.map(|()| began.elapsed())
    };
    let loading = creates_per_second(shape, target, &stopped, window);
    let (creates, took) = tokio::try_join!(loading, watching)?;
    ensure!(
        removed(&watched) >= expired,
        "the sweep removed {} of {expired} records in {took:?}",
        removed(&watched)
    );
    Ok(Sweep {
        rows_per_second: per_second(removed(&watched) - first, took),
        statement: watched,
        creates,
    })
}

/// Copies of stored records, of all accounts and with keys of their own. They lie together at the
/// end of the table, as records that expire together do. PostgreSQL counts statements from here.
pub(crate) async fn add_expired(rows: u64, connection: &mut PgConnection) -> anyhow::Result<()> {
    let mut tx = connection.begin().await?;
    let added = sqlx::query(
        "WITH stored AS MATERIALIZED (
             SELECT * FROM idempotency_keys
              WHERE status IS NOT NULL AND created_at < now() - interval '1 day'
              LIMIT least($1, $2)
         )
         INSERT INTO idempotency_keys
                (account_id, key, fingerprint_version, fingerprint, method, path, request_id, label,
                 created_at, expires_at, status, headers, body, resource_id)
         SELECT account_id, gen_random_uuid()::text, fingerprint_version, fingerprint, method, path,
                request_id, label, created_at, now() - interval '1 second', status, headers, body,
                resource_id
           FROM stored CROSS JOIN generate_series(1, 1 + $1 / (SELECT count(*) FROM stored))
          LIMIT $1",
    )
    .bind(i64::try_from(rows)?)
    .bind(COPIED)
    .execute(&mut *tx)
    .await?;
    ensure!(
        added.rows_affected() == rows,
        "only {} expired records could be added",
        added.rows_affected()
    );
    // The statistics that autovacuum would have made of a table that grew over a month. A service
    // that runs begins its sweep after the COMMIT.
    execute("ANALYZE idempotency_keys", &mut tx).await?;
    // A service that ran meanwhile found nothing to sweep, again and again.
    statements::reset(&mut tx).await?;
    Ok(tx.commit().await?)
}
