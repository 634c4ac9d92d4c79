//! The tables of `make bench`.

use super::{
    cases::{ALIVE, CASES, Case, Work, case},
    footprint::Footprint,
    paced::Paced,
};
use crate::{
    measure::Series,
    stats::{milliseconds, ratio, thousands},
    table::Table,
};

/// Everything that was measured.
#[derive(Debug)]
pub(super) struct Report {
    /// On what, and how.
    pub(super) about: String,
    /// In the order of [`CASES`].
    pub(super) measured: Vec<Series>,
    pub(super) paced: Paced,
    pub(super) footprint: Footprint,
}

impl Report {
    /// All tables.
    pub(super) fn markdown(&self) -> String {
        let tables = [
            requests(&self.measured),
            self.paced.table(),
            self.footprint.table(),
        ];
        let tables = tables.map(|table| table.to_markdown()).join("\n");
        format!("{}\n\n{tables}", self.about)
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

/// The series of a case, if that is measured.
pub(crate) fn find(measured: &[Series], wanted: Case) -> Option<&Series> {
    let mut pairs = CASES.iter().zip(measured);
    pairs
        .find(|(one, _)| **one == wanted)
        .map(|(_, series)| series)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::load::Answered;

    fn series(requests: u32, service_us: u64) -> Series {
        let answered = Answered {
            latencies_us: (1..=requests).collect(),
            took: Duration::from_secs(1),
        };
        Series::of(answered, service_us, 0)
    }

    fn cells(markdown: &str, name: &str, connections: &str) -> Vec<String> {
        let rows = markdown
            .lines()
            .map(|line| line.split('|').map(str::trim).map(str::to_owned).collect());
        let mut rows = rows.filter(|row: &Vec<String>| {
            row.get(1).is_some_and(|cell| cell == name)
                && row.get(2).is_some_and(|cell| cell == connections)
        });
        rows.next().unwrap_or_default()
    }

    #[test]
    fn charges_stand_beside_pgbench_and_replays_beside_livez() {
        let measured: Vec<Series> = CASES
            .iter()
            .map(|one| one.work)
            .map(|work| match work == Work::Alive {
                true => series(1_000, 10),
                false if work == Work::Create => series(300, 600),
                false if work == Work::Bare => series(600, 600),
                false => series(200, 200),
            })
            .collect();
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
}
