//! `bench run`: what a request costs, beside what PostgreSQL alone takes for the same rows.
//!
//! Promise: every case is measured in every round, so that what else the machine does hits all of
//! them. The services and pgbench write to the same PostgreSQL with the same settings.

mod cases;
mod in_flight;
mod machine;
mod pgbench;
mod plots;
mod report;
mod requests;
mod servers;
mod subjects;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, ensure};
use clap::Args;

use self::{
    cases::{CASES, Case, PEAK},
    report::{Paced, Report},
    subjects::Subjects,
};
use crate::{load::Schedule, measure::Series, postgres::make_folder, stats::thousands, table};

/// Length of a case in the round that is not counted: enough to fill caches.
const WARM_UP: Duration = Duration::from_secs(1);

/// What set-up and the end take. Measured.
const BESIDE: Duration = Duration::from_secs(45);

/// Measures requests.
#[derive(Debug, Args)]
pub(crate) struct Run {
    /// Where the data is while it runs. It must not exist, and is removed afterwards.
    #[arg(long)]
    folder: PathBuf,
    /// The program under test.
    #[arg(long, env = "CHARGE_ONCE")]
    program: PathBuf,
    /// PostgreSQL's memory for pages.
    #[arg(long, default_value = "1GB")]
    shared_buffers: String,
    /// Measured rounds of each case. One short round before them is not counted.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Seconds of each case in a round.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Where the table is written. The plots are written beside it.
    #[arg(long, default_value = "target/bench/bench.md")]
    output: PathBuf,
}

impl Run {
    pub(crate) async fn run(&self) -> anyhow::Result<()> {
        let folder = self.folder.display();
        ensure!(
            !self.folder.exists(),
            "{folder} exists: remove it, or choose another folder"
        );
        pgbench::ensure_installed().await?;
        make_folder(&self.folder)?;
        let _removed = Scratch(&self.folder);
        eprintln!("this takes about {} s", self.estimate().as_secs());
        let subjects = Subjects::start(&self.program, &self.folder, &self.shared_buffers).await?;
        let report = self.measure(&subjects).await?;
        subjects.stop().await?;
        plots::write(&self.output, &report.measured)?;
        table::write_report(&self.output, &report.markdown())?;
        // The rest of the report is worth keeping.
        report.paced.ensure_kept()
    }

    async fn measure(&self, subjects: &Subjects) -> anyhow::Result<Report> {
        let measured = self.rounds(subjects).await?;
        let peak = report::find(&measured, PEAK).map_or(0, Series::per_second);
        let schedule = Schedule {
            per_second: peak / 2,
            length: self.paced_length(),
        };
        eprintln!("latency at {} requests per second", schedule.per_second);
        let answered = subjects.measure_by(schedule).await?;
        eprintln!("memory and starts");
        Ok(Report {
            about: format!(
                "{}. Medians of {} rounds in turns, {} s for each case.",
                subjects.machine().await?,
                self.rounds,
                self.seconds,
            ),
            measured,
            paced: Paced { schedule, answered },
            footprint: subjects.footprint(&self.program, &self.folder).await?,
        })
    }

    /// Measures each case in each round. The series are in the order of [`CASES`].
    async fn rounds(&self, subjects: &Subjects) -> anyhow::Result<Vec<Series>> {
        let mut measured: Vec<Series> = CASES.iter().map(|_| Series::default()).collect();
        for round in 0..=self.rounds {
            for (number, (case, series)) in (1..).zip(CASES.iter().zip(&mut measured)) {
                let Some(length) = self.length(*case, round) else {
                    continue;
                };
                let shown = format!("{}, {} connections", case.name(), case.connections);
                let sample = subjects.measure(*case, length).await;
                let sample = sample.with_context(|| shown.clone())?;
                eprintln!(
                    "round {round} of {}, case {number} of {}: {shown}: {} per second",
                    self.rounds,
                    CASES.len(),
                    thousands(sample.per_second()),
                );
                if round > 0 {
                    series.push(sample);
                }
            }
        }
        Ok(measured)
    }

    /// How long a case is measured in a round. Round 0 is not counted; pgbench is not in it,
    /// because its sessions are new in each round.
    fn length(&self, case: Case, round: u32) -> Option<Duration> {
        let length = Duration::from_secs(self.seconds);
        match round {
            0 if case.work.is_pgbench() => None,
            0 => Some(length.min(WARM_UP)),
            _ => Some(length),
        }
    }

    fn paced_length(&self) -> Duration {
        Duration::from_secs(self.seconds) * self.rounds
    }

    fn estimate(&self) -> Duration {
        let of_round = |round| {
            let of_case = |case: &Case| {
                let length = self.length(*case, round)?;
                Some(match case.work.is_pgbench() {
                    true => pgbench::takes(case.connections, length),
                    false => length,
                })
            };
            CASES.iter().filter_map(of_case).sum::<Duration>()
        };
        (0..=self.rounds).map(of_round).sum::<Duration>() + self.paced_length() + BESIDE
    }
}

/// A folder that is removed at the end, however that comes.
struct Scratch<'a>(&'a Path);

impl Drop for Scratch<'_> {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.0);
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        run: Run,
    }

    fn parse(arguments: &[&str]) -> Result<Run, clap::Error> {
        let given = ["bench", "--folder=data", "--program=charge-once"];
        let line = Line::try_parse_from(given.iter().chain(arguments));
        line.map(|line| line.run)
    }

    #[test]
    fn the_defaults_take_less_than_ten_minutes() -> anyhow::Result<()> {
        let estimate = parse(&[])?.estimate();
        assert!(estimate < Duration::from_secs(600), "{estimate:?}");
        Ok(())
    }

    #[test]
    fn nothing_is_measured_in_no_time() {
        assert!(parse(&["--rounds=0"]).is_err());
        assert!(parse(&["--seconds=0"]).is_err());
    }
}
