//! What a process takes from its machine, beside CPU time.

use crate::table::Table;

/// Of one process with the defaults.
#[derive(Debug)]
pub(super) struct Footprint {
    /// Resident memory before the first request, in KiB.
    pub(super) idle_kib: u64,
    /// Resident memory after the last one, in KiB.
    pub(super) worked_kib: u64,
    /// From a start to the first 200 at `/readyz`, in microseconds.
    pub(super) start_us: u64,
}

impl Footprint {
    /// A row for each value.
    pub(super) fn table(&self) -> Table {
        let mut table = Table::new(&["one process with the defaults", "value"]);
        let mib = |kib: u64| format!("{} MiB", (kib + 512) / 1024);
        for (name, value) in [
            ("resident memory after the start", mib(self.idle_kib)),
            ("resident memory after the run", mib(self.worked_kib)),
            (
                "start, until it is ready",
                format!("{} ms", (self.start_us + 500) / 1_000),
            ),
        ] {
            table.row(vec![name.to_owned(), value]);
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_time_are_rounded_and_have_their_units() {
        let footprint = Footprint {
            idle_kib: 20_480,
            worked_kib: 51_712,
            start_us: 61_500,
        };
        let markdown = footprint.table().to_markdown();
        for value in ["20 MiB", "51 MiB", "62 ms"] {
            assert!(markdown.contains(value), "{markdown}");
        }
    }
}
