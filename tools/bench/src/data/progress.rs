//! Tells a person how far a long step is.

use std::time::{Duration, Instant};

use crate::stats::{per_second, thousands};

const INTERVAL: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct Progress {
    step: String,
    rows: u64,
    done: u64,
    began: Instant,
    told: Instant,
}

impl Progress {
    pub(crate) fn of(step: &str, rows: u64) -> Self {
        let now = Instant::now();
        Self {
            step: step.to_owned(),
            rows,
            done: 0,
            began: now,
            told: now,
        }
    }

    pub(crate) fn advance(&mut self, rows: u64) {
        self.done += rows;
        if self.told.elapsed() < INTERVAL {
            return;
        }
        self.told = Instant::now();
        let took = self.began.elapsed();
        let rate = per_second(self.done, took);
        let left = (self.rows - self.done.min(self.rows)) / rate.max(1);
        eprintln!(
            "{}: {} of {} rows, {} s, {} rows/s, {left} s left",
            self.step,
            thousands(self.done),
            thousands(self.rows),
            took.as_secs(),
            thousands(rate),
        );
    }

    pub(crate) fn end(self) {
        let took = self.began.elapsed();
        eprintln!(
            "{}: {} rows in {} s, {} rows/s",
            self.step,
            thousands(self.done),
            took.as_secs(),
            thousands(per_second(self.done, took)),
        );
    }
}
