//! `bench expiry`: charges while millions of keys expire at once and are swept, and what that
//! leaves of the table.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use sqlx::PgConnection;

use super::{Swept, open, restore, start_service, sweep, timed::CONNECTIONS};
use crate::{
    data::Shape,
    load::Until,
    measure::Target,
    postgres::execute,
    stats::{ratio, thousands},
    table::{self, Table},
};

/// Charges are made for so long without a sweep, before the first one and after each: as long as a
/// few checkpoints take, after which PostgreSQL logs each page whole when it is first changed.
const QUIET: Duration = Duration::from_secs(180);

/// Lets keys expire.
#[derive(Debug, Args)]
pub(crate) struct Expiry {
    /// A database made by `bench big-data`.
    #[arg(long)]
    folder: PathBuf,
    /// The program under test.
    #[arg(long, env = "CHARGE_ONCE")]
    program: PathBuf,
    /// PostgreSQL's memory for pages.
    #[arg(long, default_value = "1GB")]
    shared_buffers: String,
    /// Records that expire at once.
    #[arg(long, default_value_t = 5_000_000)]
    expired: u64,
    /// How often that happens. The table may grow in the first round only.
    #[arg(long, default_value_t = 2)]
    rounds: u64,
    /// Where the table is written.
    #[arg(long, default_value = "target/bench/expiry.md")]
    output: PathBuf,
}

#[derive(Debug, Clone, Copy, sqlx::FromRow)]
struct Size {
    records: i64,
    /// With its indexes.
    bytes: i64,
}

impl Expiry {
    pub(crate) async fn run(&self) -> anyhow::Result<()> {
        let opened = open(&self.folder, &self.program, &self.shared_buffers).await?;
        let (shape, postgres, mut connection) = opened;
        let first = size(&mut connection).await?;

        let mut rounds = Vec::new();
        let start = || start_service(&self.program, &self.folder, &postgres, &sweep::OFTEN);
        let (mut service, mut target) = start().await?;
        let mut before = quiet(shape, &target, 1, &mut connection).await?;
        for round in 1..=self.rounds {
            let about = format!("round {round} of {}", self.rounds);
            eprintln!("{about}: {} records", thousands(self.expired));
            // Its sweep begins with its start, when the records have been written to the disk.
            service.stop().await?;
            sweep::add_expired(self.expired, &mut connection).await?;
            settle(&mut connection).await?;
            let full = size(&mut connection).await?;

            eprintln!("{about}: the sweep");
            (service, target) = start().await?;
            let (expired, window) = (self.expired, 2 * round);
            let during = sweep::sweep(shape, &target, expired, window, &mut connection).await?;
            let after = quiet(shape, &target, window + 1, &mut connection).await?;
            let swept = Swept {
                during,
                creates_without: before.midpoint(after),
            };
            eprintln!(
                "{about}: {} charges per second, and {} without the sweep",
                thousands(swept.during.creates),
                thousands(swept.creates_without)
            );
            rounds.push((swept, full));
            before = after;
        }
        service.stop().await?;
        let about = format!(
            "{} rows, shared_buffers {}, {CONNECTIONS} connections",
            thousands(shape.rows),
            self.shared_buffers,
        );
        let report = format!("{about}\n\n{}", markdown(first, &rounds, self.expired));
        table::write_report(&self.output, &report)?;
        eprintln!("removing what was added");
        restore(&shape, &mut connection).await?;
        drop(connection);
        postgres.stop().await
    }
}

/// Each round with the size of the table before its sweep.
fn markdown(first: Size, rounds: &[(Swept, Size)], expired: u64) -> String {
    let head = [
        &*format!("{} records expire", thousands(expired)),
        "removed per second",
        "charges per second without",
        "during the sweep",
        "left for charges",
        "records at most",
        "MB with indexes",
        "bytes per record",
    ];
    let mut table = Table::new(&head);
    let cells = |size: Size| {
        let (records, bytes) = (size.records.unsigned_abs(), size.bytes.unsigned_abs());
        [records, bytes >> 20, bytes / records.max(1)].map(thousands)
    };
    let mut before = vec!["before".to_owned()];
    before.resize(5, String::new());
    before.extend(cells(first));
    table.row(before);
    for (number, (swept, full)) in (1..).zip(rounds) {
        let (during, without) = (&swept.during, swept.creates_without);
        let mut row = vec![
            format!("round {number}"),
            thousands(during.rows_per_second),
            thousands(without),
            thousands(during.creates),
            ratio(during.creates, without),
        ];
        row.extend(cells(*full));
        table.row(row);
    }
    table.to_markdown()
}

/// Charges in a second while nothing expires.
async fn quiet(
    shape: Shape,
    target: &Target,
    window: u64,
    connection: &mut PgConnection,
) -> anyhow::Result<u64> {
    eprintln!("charges without a sweep");
    settle(connection).await?;
    sweep::creates_per_second(shape, target, &Until::For(QUIET), window).await
}

async fn size(connection: &mut PgConnection) -> anyhow::Result<Size> {
    let size = sqlx::query_as(
        "SELECT count(*) AS records, pg_total_relation_size('idempotency_keys') AS bytes
           FROM idempotency_keys",
    );
    Ok(size.fetch_one(connection).await?)
}

/// What autovacuum and checkpoints do while a table grows, and in the minutes after a sweep.
async fn settle(connection: &mut PgConnection) -> anyhow::Result<()> {
    execute("VACUUM (ANALYZE) idempotency_keys", connection).await?;
    Ok(execute("CHECKPOINT", connection).await?)
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            statements::{Statement, Watched},
            sweep::Sweep,
        },
        *,
    };

    #[test]
    fn a_round_is_a_row() {
        let size = |records, bytes| Size { records, bytes };
        let swept = Swept {
            during: Sweep {
                statement: Watched::new(Statement::Sweep),
                rows_per_second: 9_000,
                creates: 1_900,
            },
            creates_without: 2_000,
        };
        let rounds = [(swept, size(2_000_000, 3 << 30))];
        let expected = "\
| 5,000,000 records expire | removed per second | charges per second without | during the sweep | left for charges | records at most | MB with indexes | bytes per record |
|--------------------------|-------------------:|---------------------------:|-----------------:|-----------------:|----------------:|----------------:|-----------------:|
| before                   |                    |                            |                  |                  |       1,000,000 |           1,024 |            1,073 |
| round 1                  |              9,000 |                      2,000 |            1,900 |            0.95× |       2,000,000 |           3,072 |            1,610 |
";
        let first = size(1_000_000, 1 << 30);
        assert_eq!(markdown(first, &rounds, 5_000_000), expected);
    }
}
