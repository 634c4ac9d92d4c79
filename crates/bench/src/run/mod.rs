//! `bench run`: what a request costs, beside what PostgreSQL alone takes for the same rows.
//!
//! Promise: every case is measured in every round, so that what else the machine does hits all of
//! them. The service and pgbench write to the same PostgreSQL with the same settings.

mod cases;
mod pgbench;
mod report;

use std::{
    fs::Permissions,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::{Duration, UNIX_EPOCH},
};

use anyhow::{Context, ensure};
use clap::Args;

use self::{
    cases::{CASES, Case, REPLAYED, Work},
    pgbench::Script,
};
use crate::{
    data::{self, Shape},
    load::{self, Until},
    measure::{Sample, Series, Target},
    postgres::{Parameters, Postgres},
    service::{self, Service},
    table,
};

/// Sessions of PostgreSQL: pgbench has one for each of 256 clients.
const SESSIONS: usize = 300;

/// The scripts, as they are committed.
const CLASSIC: &str = include_str!("../../pgbench/classic.sql");
const BARE: &str = include_str!("../../pgbench/bare.sql");
const BARE_TABLES: &str = include_str!("../../pgbench/bare-tables.sql");

/// Measures requests.
#[derive(Debug, Args)]
pub(crate) struct Run {
    /// Where the data is while it runs. It must not exist, and is removed afterwards.
    #[arg(long)]
    folder: PathBuf,
    /// The program under test.
    #[arg(long, env = "CHARGE_ONCE")]
    program: PathBuf,
    /// PostgreSQL's memory for pages.
    #[arg(long, default_value = "1GB")]
    shared_buffers: String,
    /// Measured rounds of each case. One round before them is not counted.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds of each case in a round.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Where the table is written.
    #[arg(long, default_value = "target/bench/bench.md")]
    output: PathBuf,
}

/// What is measured, running.
struct Subjects {
    shape: Shape,
    postgres: Postgres,
    service: Service,
    target: Target,
    classic: Script,
    bare: Script,
}

impl Run {
    pub(crate) async fn run(&self) -> anyhow::Result<()> {
        let folder = self.folder.display();
        ensure!(
            !self.folder.exists(),
            "{folder} exists: remove it, or choose another folder"
        );
        std::fs::create_dir_all(&self.folder).with_context(|| format!("{folder} can't be made"))?;
        // PostgreSQL's user has to enter it where this process runs as root.
        std::fs::set_permissions(&self.folder, Permissions::from_mode(0o755))?;
        let _removed = Scratch(&self.folder);
        let subjects = self.start().await?;
        let mut measured: Vec<Series> = CASES.iter().map(|_| Series::default()).collect();
        for round in 0..=self.rounds {
            for (case, series) in CASES.iter().zip(&mut measured) {
                let sample = subjects.measure(*case, Duration::from_secs(self.seconds));
                let sample = sample.await.with_context(|| case.work.name())?;
                if round > 0 {
                    series.push(sample);
                }
            }
            eprintln!("round {round} of {}", self.rounds);
        }
        let about = self.about(&subjects).await?;
        subjects.service.stop().await?;
        subjects.postgres.stop().await?;
        table::write_report(&self.output, &report::markdown(&about, &measured))
    }

    async fn start(&self) -> anyhow::Result<Subjects> {
        let parameters = Parameters::for_measuring(&self.shared_buffers);
        let parameters = parameters.with_connections(SESSIONS);
        let postgres = Postgres::start(&self.folder, parameters).await?;
        service::migrate(&self.program, postgres.url()).await?;
        let shape = Shape {
            rows: REPLAYED,
            until_micros: u64::try_from(UNIX_EPOCH.elapsed()?.as_micros())?,
        };
        let mut connection = postgres.connect().await?;
        data::accounts(&shape, &mut connection).await?;
        sqlx::raw_sql(BARE_TABLES).execute(&mut connection).await?;
        let log = self.folder.join("service.log");
        let service = Service::start(&self.program, postgres.url(), log, &[]).await?;
        let first = move |n| cases::first_use(&shape, n);
        load::run(&[service.address], 16, &Until::Count(REPLAYED), first).await?;
        sqlx::raw_sql("VACUUM (ANALYZE)")
            .execute(&mut connection)
            .await?;
        // The reply that the service stored, so that pgbench stores the same bytes.
        let reply: String = sqlx::query_scalar(
            "SELECT convert_from(body, 'UTF8') FROM idempotency_keys WHERE status = 201 LIMIT 1",
        )
        .fetch_one(&mut connection)
        .await?;
        let account = shape.account_id(0).to_string();
        let script =
            |name, text| Script::write(&self.folder, name, text, account.clone(), reply.clone());
        Ok(Subjects {
            shape,
            target: Target {
                addresses: vec![service.address],
                services: vec![service.processes()?],
                postgres: postgres.processes()?,
            },
            classic: script("classic.sql", CLASSIC)?,
            bare: script("bare.sql", BARE)?,
            postgres,
            service,
        })
    }

    /// What the table is about.
    async fn about(&self, subjects: &Subjects) -> anyhow::Result<String> {
        let mut connection = subjects.postgres.connect().await?;
        let version: String = sqlx::query_scalar("SHOW server_version")
            .fetch_one(&mut connection)
            .await?;
        Ok(format!(
            "{} cores for everything, the load included; PostgreSQL {version} with shared_buffers {} \
             and fsync on; {} rounds in turns of {} s, medians",
            std::thread::available_parallelism()?,
            self.shared_buffers,
            self.rounds,
            self.seconds,
        ))
    }
}

impl Subjects {
    async fn measure(&self, case: Case, length: Duration) -> anyhow::Result<Sample> {
        let Case { work, connections } = case;
        if let Some(request) = cases::requests(work) {
            let shape = self.shape;
            let call = move |number| request(&shape, number);
            let until = Until::For(length);
            return self.target.measure(connections, &until, call).await;
        }
        let script = match work == Work::Bare {
            true => &self.bare,
            false => &self.classic,
        };
        let (postgres, target) = (&self.postgres, &self.target);
        script.measure(postgres, target, connections, length).await
    }
}

/// A folder that is removed at the end, however that comes.
struct Scratch<'a>(&'a Path);

impl Drop for Scratch<'_> {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.0);
    }
}
