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

use crate::{cpu::ProcessTree, load};

/// How long it may take from its start to its first 200 at `/readyz`.
const READY_LIMIT: Duration = Duration::from_secs(60);

/// How long it may take to end after SIGTERM: its drain, and some.
const STOP_LIMIT: Duration = Duration::from_secs(25);

/// A server that listens on a local port, ended when it is dropped.
pub(crate) struct Service {
    pub(crate) address: SocketAddr,
    child: Child,
    log: PathBuf,
}

impl Service {
    /// Starts `program` on the database at `url` and waits until it is ready. `variables` replace the
    /// settings that a measurement needs: no rate limit, and no migration at the start.
    pub(crate) async fn start(
        program: &Path,
        url: &str,
        log: PathBuf,
        variables: &[(&str, &str)],
    ) -> anyhow::Result<Self> {
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let output = OpenOptions::new().create(true).append(true).open(&log);
        let output = output.with_context(|| format!("{} can't be written", log.display()))?;
        let child = Command::new(program)
            .env_clear()
            .env("BIND_ADDRESS", address.to_string())
            .env("DATABASE_URL", url)
            .env("MIGRATE_ON_START", "false")
            .env("RATE_LIMIT", "0")
            // The data grows older than events are kept.
            .env("EVENT_RETENTION", "0s")
            .env("OPERATION_RETENTION", "0s")
            .env("WEBHOOK_ALLOW_PRIVATE", "true")
            .env("LOG_FORMAT", "json")
            .env("RUST_LOG", "warn")
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("{} can't be started", program.display()))?;
        let mut service = Self {
            address,
            child,
            log,
        };
        service.wait_until_ready().await?;
        Ok(service)
    }

    async fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        let until = Instant::now() + READY_LIMIT;
        loop {
            if matches!(load::get(self.address, "/readyz").await, Ok(200)) {
                return Ok(());
            }
            let log = self.log.display();
            if let Some(status) = self.child.try_wait()? {
                bail!("the service ended with {status}; see {log}");
            }
            if Instant::now() > until {
                bail!("the service is not ready after {READY_LIMIT:?}; see {log}");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Its process.
    pub(crate) fn processes(&self) -> anyhow::Result<ProcessTree> {
        ProcessTree::of(self.pid()?)
    }

    /// SIGTERM, and its end.
    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        kill(self.pid()?, Signal::SIGTERM)?;
        let ended = timeout(STOP_LIMIT, self.child.wait()).await;
        let status = ended.context("the service does not end")??;
        let log = self.log.display();
        ensure!(
            status.success(),
            "the service ended with {status}; see {log}"
        );
        Ok(())
    }

    fn pid(&self) -> anyhow::Result<Pid> {
        let id = self.child.id().context("the service has ended")?;
        Ok(Pid::from_raw(id.cast_signed()))
    }
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
