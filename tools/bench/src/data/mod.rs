//! `bench big-data`: a database as large as that of a busy month.

mod copy;
mod fill;
mod indexes;
mod originals;
mod rows;
mod shape;
mod tables;

use std::{
    path::{Path, PathBuf},
    time::{Instant, UNIX_EPOCH},
};

use anyhow::{Context, bail, ensure};
use clap::Args;
use nix::sys::statvfs::statvfs;
use sqlx::{PgConnection, Row};

pub(crate) use self::{
    fill::accounts,
    originals::id_text,
    rows::FAR_FUTURE,
    shape::{Id, Shape, api_key, random},
};
use self::{indexes::Dropped, originals::Originals, tables::TABLES};
use crate::{
    postgres::{Postgres, execute, for_loading, make_folder},
    service::{self, Service},
    stats::thousands,
};

/// Fewer rows leave the smaller tables empty.
const ROWS_MIN: u64 = 10_000;

/// Disk that one row needs, of all tables and indexes together, with what an index needs while it
/// is made. Measured.
const BYTES_PER_ROW: u64 = 2_050;

/// Disk that PostgreSQL needs for itself: its log above all.
const BYTES_BESIDE: u64 = 1 << 29;

/// Fills a database.
#[derive(Debug, Args)]
pub(crate) struct BigData {
    /// Completed keys, and as many charges.
    #[arg(long, default_value_t = 1_000_000)]
    rows: u64,
    /// Where the data is kept.
    #[arg(long)]
    folder: PathBuf,
    /// The program under test.
    #[arg(long, env = "CHARGE_ONCE")]
    program: PathBuf,
    /// PostgreSQL's memory for pages.
    #[arg(long, default_value = "1GB")]
    shared_buffers: String,
}

impl BigData {
    /// Does nothing if the folder has such a database.
    pub(crate) async fn run(&self) -> anyhow::Result<()> {
        let Self { rows, folder, .. } = self;
        ensure!(*rows >= ROWS_MIN, "--rows must be at least {ROWS_MIN}");
        let shown = folder.display();
        if let Ok(found) = Shape::read(folder) {
            ensure!(
                found.rows == *rows,
                "{shown} holds {} rows: remove it, or choose another folder",
                thousands(found.rows)
            );
            eprintln!("{shown} holds {} rows already", thousands(*rows));
            return Ok(());
        }
        if folder.exists() {
            bail!("{shown} exists, and holds no finished database: remove it first");
        }
        make_folder(folder)?;
        let filled = match ensure_room(folder, *rows) {
            Ok(()) => self.fill().await,
            Err(full) => Err(full),
        };
        if filled.is_err() {
            // What is half done is of no use, and may have filled the disk.
            std::fs::remove_dir_all(folder)
                .with_context(|| format!("{shown} is half done and can't be removed"))?;
        }
        filled
    }

    async fn fill(&self) -> anyhow::Result<()> {
        let began = Instant::now();
        let parameters = for_loading(&self.shared_buffers);
        let postgres = Postgres::start(&self.folder, parameters).await?;
        let filled = self.fill_database(&postgres).await;
        let stopped = postgres.stop().await;
        let shape = filled?;
        stopped?;
        shape.write(&self.folder)?;
        eprintln!(
            "{} rows in {} after {} s",
            thousands(shape.rows),
            self.folder.display(),
            began.elapsed().as_secs()
        );
        Ok(())
    }

    async fn fill_database(&self, postgres: &Postgres) -> anyhow::Result<Shape> {
        let (program, url) = (&self.program, postgres.url());
        service::migrate(program, url).await?;
        let shape = Shape {
            rows: self.rows,
            until_micros: u64::try_from(UNIX_EPOCH.elapsed()?.as_micros())?,
        };
        let mut connection = postgres.connect().await?;
        fill::accounts(&shape, &mut connection).await?;
        let log = self.folder.join("service.log");
        let service = Service::start(program, url, log, &[]).await?;
        let originals = Originals::make(&shape, service.address, &mut connection).await;
        service.stop().await?;

        let tables = TABLES.each_ref().map(|table| table.name);
        let dropped = Dropped::from(&mut connection, &tables).await?;
        fill::tables(shape, originals?, &mut connection).await?;
        dropped.restore(&mut connection).await?;
        eprintln!("VACUUM (ANALYZE)");
        execute("VACUUM (ANALYZE)", &mut connection).await?;
        tell_sizes(&mut connection).await?;
        Ok(shape)
    }
}

/// Refuses to begin what the disk can't hold: PostgreSQL would stop in the middle.
fn ensure_room(folder: &Path, rows: u64) -> anyhow::Result<()> {
    let disk = statvfs(folder)?;
    let free = disk.blocks_available().saturating_mul(disk.fragment_size());
    let needed = needed_bytes(rows);
    ensure!(
        free >= needed,
        "{} rows need {} MB, and {} has {} MB left",
        thousands(rows),
        thousands(needed >> 20),
        folder.display(),
        thousands(free >> 20)
    );
    Ok(())
}

fn needed_bytes(rows: u64) -> u64 {
    rows.saturating_mul(BYTES_PER_ROW)
        .saturating_add(BYTES_BESIDE)
}

async fn tell_sizes(connection: &mut PgConnection) -> anyhow::Result<()> {
    let sizes = sqlx::query(
        "SELECT relname::text, reltuples::bigint, pg_table_size(oid) >> 20, pg_indexes_size(oid) >> 20
           FROM pg_class
          WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace AND reltuples > 0
          ORDER BY pg_total_relation_size(oid) DESC",
    )
    .fetch_all(connection)
    .await?;
    for size in sizes {
        let number = |column| anyhow::Ok(u64::try_from(size.try_get::<i64, _>(column)?)?);
        eprintln!(
            "{:>20}: {:>12} rows, {:>7} MB, indexes {:>6} MB",
            size.try_get::<String, _>(0)?,
            thousands(number(1)?),
            thousands(number(2)?),
            thousands(number(3)?)
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_million_rows_fit_in_twenty_gigabytes() {
        assert!(needed_bytes(10_000_000) < 20 << 30);
        assert_eq!(needed_bytes(u64::MAX), u64::MAX);
    }
}
