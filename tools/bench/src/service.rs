//! The program under test.

use std::{
    fs::OpenOptions,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context, bail, ensure};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::{
    process::{Child, Command},
    time::{Instant, timeout},
};

use crate::{
    cpu::ProcessTree,
    load::{self, Call},
};

/// How long it may take from its start to its first 200 at `/readyz`.
const READY_LIMIT: Duration = Duration::from_secs(60);

/// How long it may take to end after SIGTERM: its drain, and some.
const STOP_LIMIT: Duration = Duration::from_secs(25);

/// Pause between two looks at whether it is ready: short against a start.
const READY_POLL: Duration = Duration::from_millis(5);

const SHOWN_LINES: usize = 5;

/// A server that listens on a local port, ended when it is dropped.
pub(crate) struct Service {
    pub(crate) address: SocketAddr,
    /// From its start to its first 200 at `/readyz`.
    pub(crate) ready_after: Duration,
    child: Child,
    log: PathBuf,
}

impl Service {
    /// Starts `program` on the database at `url` and waits until it is ready. `variables` replace
    /// the settings that a measurement needs: no rate limit, and no migration at the start.
    pub(crate) async fn start(
        program: &Path,
        url: &str,
        log: PathBuf,
        variables: &[(&str, &str)],
    ) -> anyhow::Result<Self> {
        let address = free_address()?;
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("BIND_ADDRESS", address.to_string())
            .env("DATABASE_URL", url)
            .env("MIGRATE_ON_START", "false")
            .env("RATE_LIMIT", "0")
            // The data grows older than events are kept.
            .env("EVENT_RETENTION", "0s")
            .env("OPERATION_RETENTION", "0s")
            .env("WEBHOOK_ALLOW_PRIVATE", "true")
            .envs(variables.iter().copied());
        Self::spawn(command, address, log).await
    }

    /// Starts the simulated card processor of `program` on an empty database at `url`.
    pub(crate) async fn start_processor(
        program: &Path,
        url: &str,
        log: PathBuf,
    ) -> anyhow::Result<Self> {
        let address = free_address()?;
        let mut command = Command::new(program);
        command
            .arg("processor")
            .env_clear()
            .env("PROCESSOR_BIND_ADDRESS", address.to_string())
            .env("PROCESSOR_DATABASE_URL", url);
        Self::spawn(command, address, log).await
    }

    async fn spawn(
        mut command: Command,
        address: SocketAddr,
        log: PathBuf,
    ) -> anyhow::Result<Self> {
        let output = OpenOptions::new().create(true).append(true).open(&log);
        let output = output.with_context(|| format!("{} can't be written", log.display()))?;
        let began = Instant::now();
        let child = command
            .env("LOG_FORMAT", "json")
            .env("RUST_LOG", "warn")
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| {
                let program = command.as_std().get_program().display();
                format!("{program} can't be started: CHARGE_ONCE must name the release program")
            })?;
        let mut service = Self {
            address,
            ready_after: Duration::ZERO,
            child,
            log,
        };
        service.wait_until_ready(began).await?;
        Ok(service)
    }

    async fn wait_until_ready(&mut self, began: Instant) -> anyhow::Result<()> {
        let ready = Call::get("/readyz".to_owned(), String::new());
        loop {
            if load::send_one(self.address, &ready).await.is_ok() {
                self.ready_after = began.elapsed();
                return Ok(());
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("the service ended with {status}; {}", self.said());
            }
            ensure!(
                began.elapsed() <= READY_LIMIT,
                "the service is not ready after {READY_LIMIT:?}; {}",
                self.said()
            );
            tokio::time::sleep(READY_POLL).await;
        }
    }

    pub(crate) fn processes(&self) -> anyhow::Result<ProcessTree> {
        ProcessTree::of(self.pid()?)
    }

    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        kill(self.pid()?, Signal::SIGTERM)?;
        let ended = timeout(STOP_LIMIT, self.child.wait()).await;
        let status = ended.context("the service does not end")??;
        ensure!(
            status.success(),
            "the service ended with {status}; {}",
            self.said()
        );
        Ok(())
    }

    /// The end of its log, which may be removed with the data.
    fn said(&self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let last = lines.len().saturating_sub(SHOWN_LINES);
        let last = lines.get(last..).unwrap_or_default().join("\n");
        format!("{} ends with:\n{last}", self.log.display())
    }

    pub(crate) fn resident_kib(&self) -> anyhow::Result<u64> {
        let file = format!("/proc/{}/status", self.pid()?);
        let status = std::fs::read_to_string(&file)
            .with_context(|| format!("{file} can't be read: is this Linux?"))?;
        resident_kib(&status).with_context(|| format!("{file} names no VmRSS"))
    }

    fn pid(&self) -> anyhow::Result<Pid> {
        let id = self.child.id().context("the service has ended")?;
        Ok(Pid::from_raw(id.cast_signed()))
    }
}

fn free_address() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

/// Reads what the kernel says about a process, as proc(5) describes it.
fn resident_kib(status: &str) -> Option<u64> {
    let mut lines = status.lines();
    let value = lines.find_map(|line| line.strip_prefix("VmRSS:"))?;
    value.trim().strip_suffix(" kB")?.parse().ok()
}

/// Applies the migrations of `program` to the database at `url`.
pub(crate) async fn migrate(program: &Path, url: &str) -> anyhow::Result<()> {
    let output = Command::new(program)
        .arg("migrate")
        .env_clear()
        .env("DATABASE_URL", url)
        .stdin(Stdio::null())
        .output()
        .await
        .with_context(|| format!("{} can't be started", program.display()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "the migration failed: {said}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::resident_kib;

    #[test]
    fn resident_memory_is_read_from_what_the_kernel_says() {
        let status = "Name:\tcharge-once\nVmHWM:\t   51200 kB\nVmRSS:\t   40960 kB\nThreads:\t9\n";
        assert_eq!(resident_kib(status), Some(40_960));
        assert_eq!(resident_kib("Name:\tzombie\n"), None);
    }
}
