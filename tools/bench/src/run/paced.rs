//! The latency at half of the peak.

use anyhow::ensure;

use super::cases::PEAK;
use crate::{
    load::{Answered, Schedule},
    stats::{at_permille, milliseconds, per_second, thousands},
    table::Table,
};

/// Of the scheduled requests, so many in a hundred have to be sent in time.
const KEPT_PERCENT: u64 = 95;

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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

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
