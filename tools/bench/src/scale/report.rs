//! The table of `tools/bench/measure scale`.

use super::{Measured, timed::TIMED};
use crate::{
    measure::Series,
    stats::{hundredths, milliseconds, ratio, thousands},
    table::Table,
};

/// How much more a worker's statement may take on the large database, in hundredths.
const STATEMENT_BAR: u64 = 120;

type Figure = fn(&Measured) -> u64;

/// What was measured, as Markdown. `about` says on what.
pub(crate) fn markdown(about: &str, big: &Measured, baseline: &Measured) -> String {
    format!(
        "{about}\n\n{}\n{}\n{}",
        requests(big, baseline).to_markdown(),
        pages(big, baseline).to_markdown(),
        workers(big, baseline).to_markdown()
    )
}

fn of_both(what: &str, big: &Measured, baseline: &Measured) -> [String; 2] {
    [baseline, big].map(|one| format!("{what}, {}", thousands(one.rows)))
}

/// One row of two for each operation: the two databases have their columns.
fn requests(big: &Measured, baseline: &Measured) -> Table {
    let mut head = vec!["request".to_owned()];
    for what in ["median ms", "p99 ms", "service µs", "PostgreSQL µs"] {
        head.extend(of_both(what, big, baseline));
    }
    head.extend(["median ratio", "CPU ratio", "bar"].map(str::to_owned));
    let mut table = Table::new(&head);
    let sides = baseline.requests.iter().zip(&big.requests);
    for (timed, ((baseline, _), (big, _))) in TIMED.iter().zip(sides) {
        let medians = (big.latency_us(500), baseline.latency_us(500));
        table.row(vec![
            timed.name.to_owned(),
            milliseconds(medians.1),
            milliseconds(medians.0),
            milliseconds(baseline.latency_us(990)),
            milliseconds(big.latency_us(990)),
            thousands(baseline.service_us()),
            thousands(big.service_us()),
            thousands(baseline.postgres_us()),
            thousands(big.postgres_us()),
            ratio(medians.0, medians.1),
            ratio(big.cpu_us(), baseline.cpu_us()),
            verdict(big.cpu_us(), baseline.cpu_us(), timed.bar),
        ]);
    }
    table
}

/// Tells more work from the same work with slower memory.
fn pages(big: &Measured, baseline: &Measured) -> Table {
    let mut head = vec!["request".to_owned()];
    head.extend(of_both("pages", big, baseline));
    head.push("ratio".to_owned());
    head.extend(of_both("not in shared_buffers", big, baseline));
    let mut table = Table::new(&head);
    let sides = baseline.requests.iter().zip(&big.requests);
    for (timed, ((few, baseline), (many, big))) in TIMED.iter().zip(sides) {
        // In hundredths of a page for each request.
        let each = |pages: i64, of: &Series| pages.unsigned_abs() * 100 / of.requests().max(1);
        let (small, large) = (each(baseline.touched, few), each(big.touched, many));
        table.row(vec![
            timed.name.to_owned(),
            tenths(small),
            tenths(large),
            ratio(large, small),
            tenths(each(baseline.read, few)),
            tenths(each(big.read, many)),
        ]);
    }
    table
}

/// Hundredths with one decimal.
fn tenths(hundredths: u64) -> String {
    one_decimal((hundredths + 5) / 10)
}

fn workers(big: &Measured, baseline: &Measured) -> Table {
    let [few, many] = [baseline, big].map(|one| thousands(one.rows));
    let mut table = Table::new(&["beside requests", &few, &many, "ratio", "bar"]);
    let statements: [(&str, Figure); 3] = [
        ("sweep: statement µs per record", |one| {
            one.swept.during.statement.ns_per_row()
        }),
        ("reconciler's look: statement µs", |one| {
            one.look.ns_per_call()
        }),
        ("webhook claim: statement µs per delivery", |one| {
            one.claim.ns_per_row()
        }),
    ];
    for (name, ns) in statements {
        let (big, baseline) = (ns(big), ns(baseline));
        table.row(vec![
            name.to_owned(),
            microseconds(baseline),
            microseconds(big),
            ratio(big, baseline),
            verdict(big, baseline, STATEMENT_BAR),
        ]);
    }
    let rates: [(&str, Figure); 3] = [
        ("sweep: records removed per second", |one| {
            one.swept.during.rows_per_second
        }),
        ("charges per second without a sweep", |one| {
            one.swept.creates_without
        }),
        ("charges per second during the sweep", |one| {
            one.swept.during.creates
        }),
    ];
    for (name, rate) in rates {
        let (big, baseline) = (rate(big), rate(baseline));
        table.row(vec![
            name.to_owned(),
            thousands(baseline),
            thousands(big),
            ratio(big, baseline),
        ]);
    }
    let kept = |one: &Measured| ratio(one.swept.during.creates, one.swept.creates_without);
    table.row(vec![
        "throughput that the sweep leaves".to_owned(),
        kept(baseline),
        kept(big),
    ]);
    table
}

/// `≤ 1.20×, held` or `≤ 1.20×, NOT held`.
fn verdict(value: u64, of: u64, bar: u64) -> String {
    let held = match hundredths(value, of) {
        Some(hundredths) if hundredths <= bar => "held",
        Some(_) | None => "NOT held",
    };
    format!("≤ {}, {held}", ratio(bar, 100))
}

/// Nanoseconds as microseconds with one decimal.
fn microseconds(nanos: u64) -> String {
    one_decimal((nanos + 50) / 100)
}

fn one_decimal(tenths: u64) -> String {
    format!("{}.{}", thousands(tenths / 10), tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_held_up_to_its_value() {
        assert_eq!(verdict(120, 100, 120), "≤ 1.20×, held");
        assert_eq!(verdict(121, 100, 120), "≤ 1.20×, NOT held");
        assert_eq!(verdict(50, 100, 150), "≤ 1.50×, held");
        assert_eq!(verdict(50, 0, 150), "≤ 1.50×, NOT held");
    }

    #[test]
    fn times_are_rounded() {
        assert_eq!(microseconds(1_234_560), "1,234.6");
        assert_eq!(microseconds(49), "0.0");
        assert_eq!(tenths(1_234), "12.3");
    }
}
