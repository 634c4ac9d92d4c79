//! What a process takes from its machine, beside CPU time.

use crate::table::Table;

/// Of one process with the defaults: resident memory before the first request and after the last
/// one, and the time from a start to the first 200 at `/readyz`.
pub(super) fn table(idle_kib: u64, worked_kib: u64, start_us: u64) -> Table {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_time_are_rounded_and_have_their_units() {
        let markdown = table(20_480, 51_712, 61_500).to_markdown();
        for value in ["20 MiB", "51 MiB", "62 ms"] {
            assert!(markdown.contains(value), "{markdown}");
        }
    }
}
