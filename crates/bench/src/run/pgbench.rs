//! pgbench beside the service: what PostgreSQL alone takes.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context, ensure};
use tokio::process::Command;

use crate::{
    load::Answered,
    measure::{Sample, Target},
    postgres::Postgres,
};

/// Threads of pgbench: it needs little of one core.
const THREADS: usize = 2;

/// A script, and what it is called with.
#[derive(Debug)]
pub(crate) struct Script {
    file: PathBuf,
    account: String,
    body: String,
}

impl Script {
    /// Writes a script of this package into `folder`, where pgbench finds it.
    pub(crate) fn write(
        folder: &Path,
        name: &str,
        text: &str,
        account: String,
        body: String,
    ) -> anyhow::Result<Self> {
        let file = folder.join(name);
        std::fs::write(&file, text)
            .with_context(|| format!("{} can't be written", file.display()))?;
        Ok(Self {
            file,
            account,
            body,
        })
    }

    /// Runs it on so many connections. The CPU time of pgbench itself is not counted.
    pub(crate) async fn measure(
        &self,
        postgres: &Postgres,
        target: &Target,
        connections: usize,
        length: Duration,
    ) -> anyhow::Result<Sample> {
        let before = target.postgres.used_us()?;
        let service = target.service.used_us()?;
        let answered = self.run(postgres, connections, length).await?;
        let postgres_us = target.postgres.used_us()?.saturating_sub(before);
        // The workers of an idle service.
        let service_us = target.service.used_us()?.saturating_sub(service);
        Ok(Sample::of(answered, service_us, postgres_us))
    }

    async fn run(
        &self,
        postgres: &Postgres,
        connections: usize,
        length: Duration,
    ) -> anyhow::Result<Answered> {
        let folder = tempfile_beside(&self.file)?;
        let seconds = length.as_secs().max(1);
        let output = Command::new("pgbench")
            .args(["--no-vacuum", "--protocol=prepared", "--log"])
            .arg(format!("--log-prefix={}", folder.join("log").display()))
            .arg(format!("--file={}", self.file.display()))
            .arg(format!("--client={connections}"))
            .arg(format!("--jobs={}", THREADS.min(connections)))
            .arg(format!("--time={seconds}"))
            .arg(format!("--define=account={}", self.account))
            .arg(format!("--define=body={}", self.body))
            .arg(format!("--host={}", postgres.socket_folder()?.display()))
            .args(["--port=5432", "--username=charge_once", "charge_once"])
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .context("pgbench can't be started; it is in the package postgresql-contrib")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "pgbench failed: {said}");
        let summary = String::from_utf8_lossy(&output.stdout);
        let took = took(&summary).with_context(|| format!("pgbench says: {summary}"))?;
        let mut latencies_us = Vec::new();
        for entry in std::fs::read_dir(&folder)? {
            let log = std::fs::read_to_string(entry?.path())?;
            latencies_us.extend(log.lines().filter_map(latency_us));
        }
        std::fs::remove_dir_all(&folder)?;
        latencies_us.sort_unstable();
        Ok(Answered { latencies_us, took })
    }
}

/// An empty folder for the logs of one run.
fn tempfile_beside(script: &Path) -> anyhow::Result<PathBuf> {
    let folder = script.with_extension("log");
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    std::fs::create_dir(&folder)?;
    Ok(folder)
}

/// A line of the log is: client, transaction, microseconds, script, time.
fn latency_us(line: &str) -> Option<u32> {
    line.split(' ').nth(2)?.parse().ok()
}

/// How long the transactions took, without making the connections: their number through their rate.
fn took(summary: &str) -> Option<Duration> {
    let after = |start: &str| summary.lines().find_map(|line| line.strip_prefix(start));
    let count = after("number of transactions actually processed: ")?;
    let count: u64 = count.split(['/', ' ']).next()?.parse().ok()?;
    let rate = after("tps = ")?.split('.').next()?.parse::<u64>().ok()?;
    Some(Duration::from_micros(
        (count * 1_000_000).checked_div(rate)?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_pgbench_prints_is_read() {
        let summary = "\
transaction type: classic.sql
number of transactions actually processed: 4521
number of failed transactions: 0 (0.000%)
latency average = 17.7 ms
initial connection time = 21.4 ms
tps = 904.200000 (without initial connection time)
";
        assert_eq!(took(summary), Some(Duration::from_micros(5_001_106)));
        assert_eq!(took("tps = 0.0"), None);
        assert_eq!(latency_us("0 199 2241 0 1175850568 995598"), Some(2_241));
        assert_eq!(latency_us(""), None);
    }
}
