//! What is measured, set up and running.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use anyhow::Context;
use sqlx::PgConnection;

use super::{
    cases::{Case, PEAK, REPLAYED, STORED, Work},
    in_flight, machine,
    pgbench::Script,
    report,
    requests::{Material, account_id, first_use, prepare, replay, requests},
    servers::{Server, Servers},
};
use crate::{
    data::{self, Shape},
    load::{self, Answered, Call, Schedule, Until},
    measure::Sample,
    postgres::{Postgres, execute, for_measuring},
    service::{self, Service},
    stats::{median, thousands},
    table::Table,
};

/// Sessions of PostgreSQL: pgbench has one for each of 256 clients, and each of six services has up
/// to 18, the processor's simulator 10.
const SESSIONS: &str = "450";

/// Connections that make the stored data.
const FILLING: usize = 256;

/// Starts of one more service that are timed.
const STARTS: usize = 5;

const CLASSIC: &str = include_str!("../../pgbench/classic.sql");
const BARE: &str = include_str!("../../pgbench/bare.sql");
const BARE_TABLES: &str = include_str!("../../pgbench/bare-tables.sql");

pub(super) struct Subjects {
    material: Arc<Material>,
    postgres: Postgres,
    servers: Servers,
    classic: Script,
    bare: Script,
}

impl Subjects {
    /// Starts `program` in each of its variants, on a new PostgreSQL in `folder`.
    pub(super) async fn start(
        program: &Path,
        folder: &Path,
        shared_buffers: &str,
    ) -> anyhow::Result<Self> {
        let parameters = for_measuring(shared_buffers, &[("max_connections", SESSIONS)]);
        let postgres = Postgres::start(folder, parameters).await?;
        service::migrate(program, postgres.url()).await?;
        let shape = Shape {
            rows: STORED,
            until_micros: u64::try_from(UNIX_EPOCH.elapsed()?.as_micros())?,
        };
        let mut connection = postgres.connect().await?;
        data::accounts(&shape, &mut connection).await?;
        execute(BARE_TABLES, &mut connection).await?;
        let servers = Servers::start(program, &postgres, folder).await?;
        fill(shape, &servers).await?;
        prepare(&shape, &mut connection).await?;
        execute("VACUUM (ANALYZE)", &mut connection).await?;
        let reply = stored_reply(&mut connection).await?;
        let account = account_id(&shape).to_string();
        let script = |name, text| Script::write(folder, name, text, account.clone(), reply.clone());
        Ok(Self {
            material: Arc::new(Material::read(shape, &mut connection).await?),
            classic: script("classic.sql", CLASSIC)?,
            bare: script("bare.sql", BARE)?,
            postgres,
            servers,
        })
    }

    pub(super) async fn measure(&self, case: Case, length: Duration) -> anyhow::Result<Sample> {
        let (work, connections) = (case.work, case.connections);
        let target = self.servers.target(case.server)?;
        if work == Work::ReplayMany {
            // The new charges of the cases before have taken the place of these in memory.
            let shape = self.material.shape;
            let each = move |n| replay(&shape, n);
            load::run(&target.addresses, FILLING, &Until::Count(REPLAYED), each).await?;
        }
        if let Some(call) = self.calls(work) {
            let until = Until::For(length);
            return target.measure(connections, &until, call).await;
        }
        if work == Work::InFlight {
            return in_flight::measure(&target, connections, length).await;
        }
        let script = match work == Work::Bare {
            true => &self.bare,
            false => &self.classic,
        };
        let postgres = &self.postgres;
        script.measure(postgres, &target, connections, length).await
    }

    /// Sends what [`PEAK`] sends, by the clock.
    pub(super) async fn measure_by(&self, schedule: Schedule) -> anyhow::Result<Answered> {
        let target = self.servers.target(PEAK.server)?;
        let calls = self.calls(PEAK.work).context("no requests")?;
        let until = Until::Due(schedule);
        load::run(&target.addresses, PEAK.connections, &until, calls).await
    }

    /// Starts one more service some times, and looks at the memory of the one that worked.
    pub(super) async fn footprint(&self, program: &Path, folder: &Path) -> anyhow::Result<Table> {
        let mut starts_us = Vec::new();
        for _ in 0..STARTS {
            let log = folder.join("one-more.log");
            let one = Service::start(program, self.postgres.url(), log, &[]).await?;
            starts_us.push(u64::try_from(one.ready_after.as_micros())?);
            one.stop().await?;
        }
        let servers = &self.servers;
        let (idle, worked) = (servers.idle_kib, servers.resident_kib()?);
        Ok(report::footprint(idle, worked, median(starts_us)))
    }

    pub(super) async fn machine(&self) -> anyhow::Result<String> {
        machine::about(&mut self.postgres.connect().await?).await
    }

    pub(super) async fn stop(self) -> anyhow::Result<()> {
        self.servers.stop().await?;
        self.postgres.stop().await
    }

    fn calls(&self, work: Work) -> Option<impl Fn(u64) -> Call + Send + Sync + use<>> {
        let material = Arc::clone(&self.material);
        requests(work).map(|request| move |number| request(&material, number))
    }
}

/// Stores what replays repeat, and replays each once where it is served from memory.
async fn fill(shape: Shape, servers: &Servers) -> anyhow::Result<()> {
    eprintln!("set-up: {} charges", thousands(STORED));
    let large = servers.target(Server::LargeCache)?.addresses;
    let all = Until::Count(STORED);
    load::run(&large, FILLING, &all, move |n| first_use(&shape, n)).await?;
    eprintln!("set-up: their replays");
    load::run(&large, FILLING, &all, move |n| replay(&shape, n)).await?;
    Ok(())
}

/// The reply that the service stored, so that pgbench stores the same bytes.
async fn stored_reply(connection: &mut PgConnection) -> Result<String, sqlx::Error> {
    sqlx::query_scalar(
        "SELECT convert_from(body, 'UTF8') FROM idempotency_keys WHERE status = 201 LIMIT 1",
    )
    .fetch_one(connection)
    .await
}
