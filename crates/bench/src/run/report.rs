//! The table of `make bench`.

use super::cases::{CASES, Work};
use crate::{
    measure::Series,
    stats::{milliseconds, ratio, thousands},
    table::Table,
};

/// What was measured, as Markdown. `about` says on what; the series are in the order of [`CASES`].
pub(crate) fn markdown(about: &str, measured: &[Series]) -> String {
    let mut table = Table::new(&[
        "case",
        "connections",
        "per second",
        "median ms",
        "p99 ms",
        "service µs",
        "PostgreSQL µs",
        "CPU µs, least to most",
        "CPU, of classic",
        "rate, of classic",
    ]);
    for (case, series) in CASES.iter().zip(measured) {
        let classic = CASES.iter().zip(measured).find(|(other, _)| {
            other.work == Work::Classic && other.connections == case.connections
        });
        let is_compared = matches!(case.work, Work::Create | Work::Bare);
        let classic = classic.filter(|_| is_compared).map(|(_, series)| series);
        let of_classic = |value: u64, of: fn(&Series) -> u64| {
            classic.map_or_else(String::new, |classic| ratio(value, of(classic)))
        };
        let (least, most) = series.cpu_us_spread();
        table.row(vec![
            case.work.name().to_owned(),
            case.connections.to_string(),
            thousands(series.per_second()),
            milliseconds(series.latency_us(500)),
            milliseconds(series.latency_us(990)),
            thousands(series.service_us()),
            thousands(series.postgres_us()),
            format!("{} to {}", thousands(least), thousands(most)),
            of_classic(series.cpu_us(), Series::cpu_us),
            of_classic(series.per_second(), Series::per_second),
        ]);
    }
    format!("{about}\n\n{}", table.to_markdown())
}
