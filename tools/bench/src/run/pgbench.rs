//! pgbench beside the service: what PostgreSQL alone takes.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, UNIX_EPOCH},
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

/// How long one session takes to be ready, and how much more each other one. Measured.
const SETTLE: Duration = Duration::from_millis(500);
const SETTLE_EACH: Duration = Duration::from_millis(12);

const MISSING: &str = "pgbench can't be started: install the package postgresql-contrib, or run scripts/install-postgres";

#[derive(Debug)]
pub(super) struct Script {
    file: PathBuf,
    account: String,
    body: String,
}

impl Script {
    /// Writes a script of this package into `folder`, where pgbench finds it.
    pub(super) fn write(
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

    /// Runs it on so many connections, and measures `length` of that. The CPU time of pgbench
    /// itself is not counted; that of `target` is what an idle service takes meanwhile.
    pub(super) async fn measure(
        &self,
        postgres: &Postgres,
        target: &Target,
        connections: usize,
        length: Duration,
    ) -> anyhow::Result<Sample> {
        let folder = folder_beside(&self.file)?;
        let settle = settle(connections);
        let mut command = self.command(postgres, &folder, connections, settle + length)?;
        let pgbench = command.spawn().context(MISSING)?;
        tokio::time::sleep(settle).await;
        let (before, from) = (target.cpu()?, UNIX_EPOCH.elapsed()?);
        tokio::time::sleep(length).await;
        let (after, to) = (target.cpu()?, UNIX_EPOCH.elapsed()?);
        let output = pgbench.wait_with_output().await?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "pgbench failed: {said}");
        let mut latencies_us = Vec::new();
        for entry in std::fs::read_dir(&folder)? {
            let log = std::fs::read_to_string(entry?.path())?;
            let transactions = log.lines().filter_map(transaction);
            let measured = transactions.filter(|(_, ended)| (from..to).contains(ended));
            latencies_us.extend(measured.map(|(latency_us, _)| latency_us));
        }
        std::fs::remove_dir_all(&folder)?;
        latencies_us.sort_unstable();
        let took = to.saturating_sub(from);
        Ok(Sample::of(Answered { latencies_us, took }, before, after))
    }

    fn command(
        &self,
        postgres: &Postgres,
        folder: &Path,
        connections: usize,
        length: Duration,
    ) -> anyhow::Result<Command> {
        let mut command = Command::new("pgbench");
        command
            .args(["--no-vacuum", "--protocol=prepared", "--log"])
            .arg(format!("--log-prefix={}", folder.join("log").display()))
            .arg(format!("--file={}", self.file.display()))
            .arg(format!("--client={connections}"))
            .arg(format!("--jobs={}", THREADS.min(connections)))
            .arg(format!("--time={}", whole_seconds(length)))
            .arg(format!("--define=account={}", self.account))
            .arg(format!("--define=body={}", self.body))
            .arg(format!("--host={}", postgres.socket_folder()?.display()))
            .args(["--port=5432", "--username=charge_once", "charge_once"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        Ok(command)
    }
}

/// How long its sessions take to connect and to prepare their statements, which is not measured:
/// the sessions of a service have done so long ago.
fn settle(connections: usize) -> Duration {
    let connections = u32::try_from(connections).unwrap_or(u32::MAX);
    SETTLE + SETTLE_EACH * connections
}

/// How long it takes to measure `length`.
pub(super) fn takes(connections: usize, length: Duration) -> Duration {
    Duration::from_secs(whole_seconds(settle(connections) + length))
}

/// pgbench takes no fractions.
fn whole_seconds(length: Duration) -> u64 {
    u64::try_from(length.as_millis().div_ceil(1_000)).unwrap_or(u64::MAX)
}

/// Fails where pgbench is missing: better now than after minutes.
pub(super) async fn ensure_installed() -> anyhow::Result<()> {
    let version = Command::new("pgbench").arg("--version").output().await;
    let version = version.context(MISSING)?;
    ensure!(version.status.success(), MISSING);
    Ok(())
}

/// An empty folder for the logs of one run.
fn folder_beside(script: &Path) -> anyhow::Result<PathBuf> {
    let folder = script.with_extension("log");
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    std::fs::create_dir(&folder)?;
    Ok(folder)
}

/// A line of pgbench's log is: client, number, latency in microseconds, script, seconds and
/// microseconds of its end. Returns the latency, and the time from 1970 to the end.
fn transaction(line: &str) -> Option<(u32, Duration)> {
    let fields: Vec<&str> = line.split(' ').collect();
    let seconds: u64 = fields.get(4)?.parse().ok()?;
    let micros: u64 = fields.get(5)?.parse().ok()?;
    let ended = Duration::from_secs(seconds) + Duration::from_micros(micros);
    Some((fields.get(2)?.parse().ok()?, ended))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_log_is_read() {
        let read = transaction("0 199 2241 0 1175850568 995598");
        let ended = Duration::from_micros(1_175_850_568_995_598);
        assert_eq!(read, Some((2_241, ended)));
        assert_eq!(transaction("0 199 2241 0"), None);
        assert_eq!(transaction(""), None);
    }

    #[test]
    fn pgbench_runs_until_the_measurement_has_ended() {
        let length = Duration::from_secs(3);
        for connections in [1, 16, 64, 256] {
            assert!(takes(connections, length) >= settle(connections) + length);
        }
        assert_eq!(whole_seconds(Duration::from_secs(3)), 3);
    }
}
