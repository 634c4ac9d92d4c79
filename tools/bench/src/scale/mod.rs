//! `bench scale`: the same work on a large and on a small database. `bench expiry`: what requests
//! notice while a large part of all keys expires.
//!
//! Promise: both databases are measured in the same minutes, in turns, so that what else the
//! machine does hits both. Afterwards the data is what it was, so that it can be measured again.

mod expiry;
mod report;
mod statements;
mod sweep;
mod timed;
mod webhooks;

use std::{
    path::{Path, PathBuf},
    time::UNIX_EPOCH,
};

use anyhow::{Context, ensure};
use clap::Args;
use sqlx::PgConnection;

pub(crate) use self::expiry::Expiry;
use self::{
    statements::{Pages, Statement, Watched},
    sweep::Swept,
    timed::{CONNECTIONS, TIMED},
};
use crate::{
    data::Shape,
    load::Until,
    measure::{Series, Target},
    postgres::{Postgres, execute, for_measuring},
    service::{self, Service},
    stats::thousands,
    table,
};

/// Stored keys live for 400 days, and the oldest was made 30 days before the data.
const MEASURABLE_DAYS: u64 = 365;

/// Looks of the reconciler that are measured: it looks every second.
const LOOKS: i64 = 20;

/// PostgreSQL's memory for the pages of the small one: all of them fit several times.
const BASELINE_BUFFERS: &str = "1GB";

/// Compares two databases.
#[derive(Debug, Args)]
pub(crate) struct Scale {
    /// The large database, made by `bench big-data`.
    #[arg(long)]
    folder: PathBuf,
    /// The small one, with 100,000 rows.
    #[arg(long)]
    baseline: PathBuf,
    /// The program under test.
    #[arg(long, env = "CHARGE_ONCE")]
    program: PathBuf,
    /// PostgreSQL's memory for the pages of the large one.
    #[arg(long, default_value = "1GB")]
    shared_buffers: String,
    /// Measured rounds of each request. One round before them is not counted.
    #[arg(long, default_value_t = 9)]
    rounds: u64,
    /// Expired records for the sweep.
    #[arg(long, default_value_t = 200_000)]
    expired: u64,
    /// Where the table is written.
    #[arg(long, default_value = "target/bench/scale.md")]
    output: PathBuf,
}

#[derive(Debug)]
struct Measured {
    rows: u64,
    /// In the order of [`TIMED`].
    requests: Vec<(Series, Pages)>,
    look: Watched,
    claim: Watched,
    swept: Swept,
}

struct Side {
    folder: PathBuf,
    shape: Shape,
    postgres: Postgres,
    service: Service,
    target: Target,
    connection: PgConnection,
    requests: Vec<(Series, Pages)>,
    claim: Watched,
}

impl Scale {
    pub(crate) async fn run(&self) -> anyhow::Result<()> {
        let mut big = self.start(&self.folder, &self.shared_buffers).await?;
        let mut baseline = self.start(&self.baseline, BASELINE_BUFFERS).await?;
        for round in 0..=self.rounds {
            // In turns: the second of two may find the machine warmer.
            let mut order = match round % 2 {
                0 => [&mut big, &mut baseline],
                _ => [&mut baseline, &mut big],
            };
            for place in 0..TIMED.len() {
                for side in &mut order {
                    side.round(round, place).await?;
                }
            }
            for side in order {
                side.claims(round).await?;
            }
            eprintln!("round {round} of {}", self.rounds);
        }
        let about = self.about(&mut big).await?;
        let big = self.finish(big).await?;
        let baseline = self.finish(baseline).await?;
        let report = report::markdown(&about, &big, &baseline);
        table::write_report(&self.output, &report)
    }

    async fn start(&self, folder: &Path, shared_buffers: &str) -> anyhow::Result<Side> {
        let (shape, postgres, connection) = open(folder, &self.program, shared_buffers).await?;
        // From memory, a third of the small database's keys would be replayed.
        let from_tables = [("REPLAY_CACHE", "0")];
        let started = start_service(&self.program, folder, &postgres, &from_tables).await?;
        let (service, target) = started;
        Ok(Side {
            folder: folder.to_owned(),
            shape,
            postgres,
            service,
            target,
            connection,
            requests: TIMED.iter().map(|_| Default::default()).collect(),
            claim: Watched::new(Statement::Claim),
        })
    }

    /// Measures the workers, and leaves the data as it was.
    async fn finish(&self, side: Side) -> anyhow::Result<Measured> {
        let (shape, postgres, mut connection) = (side.shape, side.postgres, side.connection);
        let rows = thousands(shape.rows);
        eprintln!("{rows} rows: the reconciler");
        let look = statements::watch(Statement::Look, LOOKS, &mut connection).await?;
        side.service.stop().await?;

        eprintln!("{rows} rows: the sweep");
        let started = start_service(&self.program, &side.folder, &postgres, &sweep::OFTEN).await?;
        let (service, target) = started;
        let swept = sweep::measure(shape, &target, self.expired, &mut connection).await?;
        service.stop().await?;
        restore(&shape, &mut connection).await?;
        drop(connection);
        postgres.stop().await?;
        Ok(Measured {
            rows: shape.rows,
            requests: side.requests,
            look,
            claim: side.claim,
            swept,
        })
    }

    async fn about(&self, side: &mut Side) -> anyhow::Result<String> {
        let version: String = sqlx::query_scalar("SHOW server_version")
            .fetch_one(&mut side.connection)
            .await?;
        Ok(format!(
            "{} cores; PostgreSQL {version} with shared_buffers {} and {BASELINE_BUFFERS}, fsync on and \
             pg_stat_statements; {CONNECTIONS} connections; {} rounds in turns, medians; {} expired records",
            std::thread::available_parallelism()?,
            self.shared_buffers,
            self.rounds,
            thousands(self.expired),
        ))
    }
}

impl Side {
    /// Measures the claims of webhook deliveries. Round 0 is for warming up.
    async fn claims(&mut self, round: u64) -> anyhow::Result<()> {
        let mut warming_up = Watched::new(Statement::Claim);
        let watched = match round {
            0 => &mut warming_up,
            _ => &mut self.claim,
        };
        webhooks::measure(&self.shape, watched, &mut self.connection).await
    }

    /// Measures one timed call, by its place in the list. Round 0 is for warming up.
    async fn round(&mut self, round: u64, place: usize) -> anyhow::Result<()> {
        let timed = TIMED.get(place).context("a timed call")?;
        let shape = self.shape;
        let until = Until::Count(timed.requests);
        let before = Pages::used(&mut self.connection).await?;
        let sample = self.target.measure(CONNECTIONS, &until, move |number| {
            timed.request(&shape, round, number)
        });
        let sample = sample.await.context(timed.name)?;
        let after = Pages::used(&mut self.connection).await?;
        if round > 0
            && let Some((series, pages)) = self.requests.get_mut(place)
        {
            series.push(sample);
            pages.add(before, after);
        }
        Ok(())
    }
}

/// Starts the PostgreSQL of a folder that `bench big-data` filled, with its pages in memory.
async fn open(
    folder: &Path,
    program: &Path,
    shared_buffers: &str,
) -> anyhow::Result<(Shape, Postgres, PgConnection)> {
    let shape = Shape::read(folder)?;
    let age = UNIX_EPOCH.elapsed()?.as_secs() - shape.until_micros / 1_000_000;
    ensure!(
        age < MEASURABLE_DAYS * 24 * 3_600,
        "the keys in {} have expired: make it again",
        folder.display()
    );
    // Counts what each statement takes.
    let counts = ("shared_preload_libraries", "pg_stat_statements");
    let parameters = for_measuring(shared_buffers, &[counts]);
    let postgres = Postgres::start(folder, parameters).await?;
    service::migrate(program, postgres.url()).await?;
    let mut connection = postgres.connect().await?;
    statements::begin(&mut connection).await?;
    // What an interrupted measurement left.
    restore(&shape, &mut connection).await?;
    warm(&mut connection).await?;
    statements::reset(&mut connection).await?;
    Ok((shape, postgres, connection))
}

async fn start_service(
    program: &Path,
    folder: &Path,
    postgres: &Postgres,
    variables: &[(&str, &str)],
) -> anyhow::Result<(Service, Target)> {
    let log = folder.join("service.log");
    let service = Service::start(program, postgres.url(), log, variables).await?;
    let target = Target {
        addresses: vec![service.address],
        services: vec![service.processes()?],
        postgres: postgres.processes()?,
    };
    Ok((service, target))
}

/// Reads tables and indexes into shared_buffers, as far as they fit: a server that has been up for
/// a day has in memory what requests use. Indexes come last, so that they are what stays.
async fn warm(connection: &mut PgConnection) -> anyhow::Result<()> {
    let create = "CREATE EXTENSION IF NOT EXISTS pg_prewarm";
    let created = execute(create, connection).await;
    created.context("pg_prewarm can't be used; it is in the package postgresql-contrib")?;
    let warm = "SELECT pg_prewarm(oid) FROM pg_class
          WHERE relkind IN ('r', 'i') AND relnamespace = current_schema()::regnamespace
          ORDER BY relkind DESC, relpages DESC";
    Ok(execute(warm, connection).await?)
}

/// Removes what a measurement added. Only while no service runs.
async fn restore(shape: &Shape, connection: &mut PgConnection) -> anyhow::Result<()> {
    webhooks::restore(shape, connection).await?;
    let until = i64::try_from(shape.until_micros)?;
    for statement in [
        // Stored keys live much longer than those of requests, and the index on the time of expiry
        // finds the others.
        "DELETE FROM idempotency_keys
          WHERE status IS NOT NULL AND expires_at < to_timestamp($1::bigint / 1000000) + interval '369 days'",
        "DELETE FROM charges WHERE created_at > to_timestamp($1::bigint / 1000000) + interval '1 second'",
        "DELETE FROM events WHERE created_at > to_timestamp($1::bigint / 1000000) + interval '1 second'",
    ] {
        sqlx::query(statement)
            .bind(until)
            .execute(&mut *connection)
            .await?;
    }
    let vacuum = "VACUUM (ANALYZE) idempotency_keys, charges, events, webhook_deliveries";
    Ok(execute(vacuum, connection).await?)
}
