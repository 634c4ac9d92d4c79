//! The tables of `make bench`.

use anyhow::ensure;

use super::cases::{ALIVE, CASES, Case, PEAK, Work, case};
use crate::{
    load::{Answered, Schedule},
    measure::Series,
    stats::{at_permille, milliseconds, per_second, ratio, thousands},
    table::Table,
};

#[derive(Debug)]
pub(super) struct Report {
    /// On what, and how.
    pub(super) about: String,
    /// In the order of [`CASES`].
    pub(super) measured: Vec<Series>,
    pub(super) paced: Paced,
    pub(super) footprint: Table,
}

impl Report {
    pub(super) fn markdown(&self) -> String {
        let tables = [
            &requests(&self.measured),
            &self.paced.table(),
            &self.footprint,
        ];
        let tables = tables.map(Table::to_markdown).join("\n");
        format!("{}\n\n{tables}", self.about)
    }
}

/// Of the scheduled requests, so many in a hundred have to be sent in time.
const KEPT_PERCENT: u64 = 95;

/// The latency at half of the peak.
#[derive(Debug)]
pub(super) struct Paced {
    pub(super) schedule: Schedule,
    pub(super) answered: Answered,
}

impl Paced {
    pub(super) fn table(&self) -> Table {
        let mut table = Table::new(&[
            "at half of the peak, by the clock",
            "connections",
            "scheduled per second",
            "sent per second",
            "median ms",
            "p99 ms",
            "p99.9 ms",
        ]);
        let latency = |permille| {
            let latency = at_permille(&self.answered.latencies_us, permille);
            milliseconds(u64::from(latency))
        };
        table.row(vec![
            PEAK.name(),
            PEAK.connections.to_string(),
            thousands(self.schedule.per_second),
            thousands(self.sent_per_second()),
            latency(500),
            latency(990),
            latency(999),
        ]);
        table
    }

    /// Fails if requests were sent too late to say anything about this rate.
    pub(super) fn ensure_kept(&self) -> anyhow::Result<()> {
        let (sent, scheduled) = (self.sent_per_second(), self.schedule.per_second);
        ensure!(
            scheduled > 0 && sent * 100 >= scheduled * KEPT_PERCENT,
            "only {sent} of {scheduled} scheduled requests per second were sent: the latencies at half \
             of the peak do not count. End other work of this machine, and run it again"
        );
        Ok(())
    }

    fn sent_per_second(&self) -> u64 {
        let requests = self.answered.latencies_us.len() as u64;
        per_second(requests, self.answered.took)
    }
}

fn requests(measured: &[Series]) -> Table {
    let mut table = Table::new(&[
        "case",
        "connections",
        "per second",
        "median ms",
        "p99 ms",
        "service µs",
        "PostgreSQL µs",
        "CPU µs, least to most",
        "rate, of classic",
        "rate, of bare",
        "CPU, of classic",
        "rate, of /livez",
    ]);
    for (one, series) in CASES.iter().zip(measured) {
        let of = |wanted: Option<Case>, value: fn(&Series) -> u64| {
            let other = wanted.and_then(|wanted| find(measured, wanted));
            other.map_or_else(String::new, |other| ratio(value(series), value(other)))
        };
        let written = one.work.writes_a_charge();
        let classic = written.then_some(case(Work::Classic, one.connections));
        let bare = (one.work == Work::Create).then_some(case(Work::Bare, one.connections));
        let alive = one.work.is_replay().then_some(ALIVE);
        let (least, most) = series.cpu_us_spread();
        table.row(vec![
            one.name(),
            one.connections.to_string(),
            thousands(series.per_second()),
            milliseconds(series.latency_us(500)),
            milliseconds(series.latency_us(990)),
            thousands(series.service_us()),
            thousands(series.postgres_us()),
            format!("{} to {}", thousands(least), thousands(most)),
            of(classic, Series::per_second),
            of(bare, Series::per_second),
            of(classic, Series::cpu_us),
            of(alive, Series::per_second),
        ]);
    }
    table
}

/// What one process with the defaults takes beside CPU time: resident memory before the first
/// request and after the last one, and the time from a start to the first 200 at `/readyz`.
pub(super) fn footprint(idle_kib: u64, worked_kib: u64, start_us: u64) -> Table {
    let mut table = Table::new(&["one process with the defaults", "value"]);
    let mib = |kib: u64| format!("{} MiB", (kib + 512) / 1024);
    let start = format!("{} ms", (start_us + 500) / 1_000);
    for (name, value) in [
        ("resident memory after the start", mib(idle_kib)),
        ("resident memory after the run", mib(worked_kib)),
        ("start, until it is ready", start),
    ] {
        table.row(vec![name.to_owned(), value]);
    }
    table
}

pub(crate) fn find(measured: &[Series], wanted: Case) -> Option<&Series> {
    let place = CASES.iter().position(|one| *one == wanted)?;
    measured.get(place)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn series(requests: u32, service_us: u64) -> Series {
        Series::of((1..=requests).collect(), service_us, 0)
    }

    fn cells(markdown: &str, name: &str, connections: &str) -> Vec<String> {
        let cells = |line: &str| line.split('|').map(|cell| cell.trim().to_owned()).collect();
        let mut rows = markdown.lines().map(cells);
        let is_wanted =
            |row: &Vec<String>| row.get(1..3).is_some_and(|is| is == [name, connections]);
        rows.find(is_wanted).unwrap_or_default()
    }

    #[test]
    fn memory_and_time_are_rounded_and_have_their_units() {
        let markdown = footprint(20_480, 51_712, 61_500).to_markdown();
        for value in ["20 MiB", "51 MiB", "62 ms"] {
            assert!(markdown.contains(value), "{markdown}");
        }
    }

    #[test]
    fn charges_stand_beside_pgbench_and_replays_beside_livez() {
        let measured = CASES.map(|one| match one.work == Work::Alive {
            true => series(1_000, 10),
            false if one.work == Work::Create => series(300, 600),
            false if one.work == Work::Bare => series(600, 600),
            false => series(200, 200),
        });
        let markdown = requests(&measured).to_markdown();
        let compared = |name: &str, connections: &str| {
            let cells = cells(&markdown, name, connections);
            let end = cells.iter().skip(9).take(4);
            end.cloned().collect::<Vec<_>>().join(" ")
        };
        let create = "POST /charges, new keys";
        assert_eq!(compared(create, "64"), "1.50× 0.50× 2.00× ");
        assert_eq!(compared(create, "256"), "1.50×  2.00× ");
        assert_eq!(compared("pgbench: two bare tables", "16"), "3.00×  1.00× ");
        assert_eq!(compared("replay of one key", "64"), "   0.20×");
        assert_eq!(compared("POST /refunds, new keys", "16"), "   ");
    }

    fn paced(requests: u32, per_second: u64) -> Paced {
        Paced {
            schedule: Schedule {
                per_second,
                length: Duration::from_secs(1),
            },
            answered: Answered {
                latencies_us: (1..=requests).map(|n| n * 1_000).collect(),
                took: Duration::from_secs(1),
            },
        }
    }

    #[test]
    fn a_schedule_that_was_not_kept_fails_and_says_what_to_do() {
        assert!(paced(1_000, 1_000).ensure_kept().is_ok());
        assert!(paced(950, 1_000).ensure_kept().is_ok());
        let refused = paced(949, 1_000).ensure_kept();
        let said = refused.map_err(|error| error.to_string());
        assert!(said.is_err_and(|said| said.starts_with("only 949 of 1000 scheduled")));
        assert!(paced(0, 0).ensure_kept().is_err());
    }

    #[test]
    fn rates_and_latencies_are_shown() {
        let markdown = paced(1_000, 2_000).table().to_markdown();
        let row = markdown.lines().last().unwrap_or_default();
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let shown = cells.get(3..8).unwrap_or_default().join(" ");
        assert_eq!(shown, "2,000 1,000 500.00 990.00 999.00");
    }
}
