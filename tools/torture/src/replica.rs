//! The processes under test: replicas of charge-once, and the card processor's simulator.
//!
//! Promise: a process that ended is known to have ended, so no fault hits a process twice, and
//! nothing outlives the checker.

use std::{
    fs::{self, File, OpenOptions},
    io::{BufRead, BufReader},
    net::{SocketAddr, TcpListener},
    path::PathBuf,
    process::{ExitStatus, Stdio},
    sync::atomic::{AtomicU16, Ordering},
    time::Duration,
};

use anyhow::{Context, bail};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::{
    process::{Child, Command},
    sync::Mutex,
    time::{Instant, timeout},
};

use crate::{client::http, history::lock};

/// How long a process may take from its start to its first 200 at `/readyz`.
const READY_LIMIT: Duration = Duration::from_secs(30);

const READY_ATTEMPT: Duration = Duration::from_secs(2);

/// How long a process may take to end after SIGTERM: its drain, and some.
const STOP_LIMIT: Duration = Duration::from_secs(25);

#[derive(Debug, Clone)]
pub(crate) struct Launch {
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<String>,
    pub(crate) variables: Vec<(String, String)>,
    pub(crate) log: PathBuf,
}

/// A process that is started, killed, stopped and started again.
pub(crate) struct Process {
    pub(crate) name: String,
    pub(crate) address: SocketAddr,
    pub(crate) launch: Launch,
    running: Mutex<Option<Running>>,
    /// How it ended when it should not have.
    ends: std::sync::Mutex<Vec<String>>,
}

struct Running {
    child: Child,
    /// It was told to end. When the time for faults is over, the task that waits for its end is
    /// dropped. The next start then waits, because the port is free only after that.
    is_ending: bool,
}

/// What a process uses, from `/proc`.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Usage {
    pub(crate) resident_mib: u64,
    pub(crate) descriptors: usize,
}

impl Process {
    /// Starts a process that listens on `address` and waits until it is ready.
    pub(crate) async fn start(
        name: &str,
        address: SocketAddr,
        launch: Launch,
    ) -> anyhow::Result<Self> {
        let process = Self {
            name: name.to_owned(),
            address,
            launch,
            running: Mutex::new(None),
            ends: std::sync::Mutex::default(),
        };
        process.restart().await?;
        let until = Instant::now() + READY_LIMIT;
        while !process.is_ready().await {
            if Instant::now() > until {
                let log = process.launch.log.display();
                bail!("{name} is not ready after {READY_LIMIT:?}; see {log}");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(process)
    }

    /// Whether it answers 200 at `/readyz` now, or where it tells of its metrics if it has no API.
    pub(crate) async fn is_ready(&self) -> bool {
        let path = match self.launch.arguments.first().map(String::as_str) {
            Some("work") => "metrics",
            _ => "readyz",
        };
        let url = format!("http://{}/{path}", self.address);
        let Ok(client) = http(READY_ATTEMPT) else {
            return false;
        };
        let asked = client.get(url).send().await;
        asked.is_ok_and(|reply| reply.status().is_success())
    }

    /// Starts it if it isn't running. Returns without waiting until it is ready.
    pub(crate) async fn restart(&self) -> anyhow::Result<()> {
        let mut running = self.running.lock().await;
        if let Some(Running { child, is_ending }) = running.as_mut() {
            if *is_ending {
                child.kill().await?;
            } else {
                match child.try_wait()? {
                    None => return Ok(()),
                    Some(status) => self.ended(status),
                }
            }
        }
        let Launch {
            program,
            arguments,
            variables,
            log,
        } = &self.launch;
        let output = OpenOptions::new().create(true).append(true).open(log);
        let output = output.with_context(|| format!("{} can't be written", log.display()))?;
        let child = Command::new(program)
            .args(arguments)
            .env_clear()
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("{} can't be started", program.display()))?;
        *running = Some(Running {
            child,
            is_ending: false,
        });
        Ok(())
    }

    /// Sends a signal to it. `false`: it doesn't run.
    pub(crate) async fn signal(&self, signal: Signal) -> bool {
        match self.pid().await {
            Some(pid) => kill(pid, signal).is_ok(),
            None => false,
        }
    }

    /// `kill -9`, and waits for its end. `false`: it had ended before, which is remembered.
    pub(crate) async fn kill(&self) -> bool {
        let mut running = self.running.lock().await;
        let Some(Running { child, is_ending }) = running.as_mut() else {
            return false;
        };
        let is_killed = if let Ok(Some(status)) = child.try_wait() {
            self.ended(status);
            false
        } else {
            *is_ending = true;
            child.kill().await.is_ok()
        };
        *running = None;
        is_killed
    }

    /// SIGTERM, and waits for its end. `false`: it didn't end in time or not with exit code 0.
    pub(crate) async fn stop(&self) -> bool {
        let mut running = self.running.lock().await;
        let Some(Running { child, is_ending }) = running.as_mut() else {
            return true;
        };
        *is_ending = true;
        if let Some(pid) = child.id() {
            let _ = kill(pid_of(pid), Signal::SIGTERM);
        }
        let is_well = match timeout(STOP_LIMIT, child.wait()).await {
            Ok(status) => status.is_ok_and(|status| status.success()),
            Err(_) => {
                let _ = child.kill().await;
                false
            }
        };
        *running = None;
        is_well
    }

    /// SIGTERM, its end, and a new start. An end that takes too long is not forgiven, even under
    /// faults; its exit code is.
    pub(crate) async fn replace(&self) -> anyhow::Result<()> {
        let began = Instant::now();
        self.stop().await;
        if began.elapsed() > STOP_LIMIT {
            lock(&self.ends).push(format!("not within {STOP_LIMIT:?} of SIGTERM"));
        }
        self.restart().await
    }

    /// Notes an end, with the last line of its log.
    fn ended(&self, status: ExitStatus) {
        let log = fs::read(&self.launch.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let last = log.lines().next_back().unwrap_or_default();
        lock(&self.ends).push(format!("{status}: {last}"));
    }

    /// How it ended, each time that no fault and no [`Process::stop`] ended it.
    pub(crate) fn unexpected_ends(&self) -> Vec<String> {
        lock(&self.ends).clone()
    }

    pub(crate) fn panics(&self) -> usize {
        let Ok(log) = File::open(&self.launch.log) else {
            return 0;
        };
        let lines = BufReader::new(log).split(b'\n').map_while(Result::ok);
        let is_panic = |line: &Vec<u8>| line.windows(8).any(|word| word == b"panicked");
        lines.filter(is_panic).count()
    }

    pub(crate) async fn usage(&self) -> Option<Usage> {
        let pid = self.pid().await?;
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let mut lines = status.lines();
        let resident = lines.find_map(|line| line.strip_prefix("VmRSS:"))?;
        let kib: u64 = resident.split_whitespace().next()?.parse().ok()?;
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count();
        Some(Usage {
            resident_mib: kib / 1024,
            descriptors,
        })
    }

    async fn pid(&self) -> Option<Pid> {
        let running = self.running.lock().await;
        running.as_ref()?.child.id().map(pid_of)
    }
}

fn pid_of(id: u32) -> Pid {
    Pid::from_raw(id.cast_signed())
}

/// Below the ports that the kernel gives to connections: 32768 and more on Linux.
const LASTING_PORT_END: u16 = 32_000;

/// A free local address for a process that dies and comes back to it: another one each time.
///
/// While it is dead, nothing else takes its port. The kernel gives the ports above to connections,
/// even to one that is to reach the dead process: it would then connect to itself.
pub(crate) fn lasting_address() -> anyhow::Result<SocketAddr> {
    static NEXT_OFFSET: AtomicU16 = AtomicU16::new(0);
    // Two checkers at the same time begin at different ports.
    let first = 20_000 + u16::try_from(std::process::id() % 10_000)?;
    loop {
        let port = first + NEXT_OFFSET.fetch_add(1, Ordering::Relaxed);
        anyhow::ensure!(
            port < LASTING_PORT_END,
            "no local port below {LASTING_PORT_END} is free"
        );
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        if TcpListener::bind(address).is_ok() {
            return Ok(address);
        }
    }
}
