//! This module runs a private, durable PostgreSQL from the programs that are installed on the
//! machine.
//!
//! ```rust
//! use charge_once_postgres::embedded::{EmbeddedPostgres, EmbeddedSettings};
//! use sqlx::{ConnectOptions, Connection};
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let folder = std::env::temp_dir().join(format!("shop-{}", std::process::id()));
//!     // Creates the cluster on the first start, in about a second.
//!     let postgres = EmbeddedPostgres::start(EmbeddedSettings::new("shop", &folder)).await?;
//!
//!     let mut connection = postgres.connect_options().connect().await?;
//!     sqlx::query("CREATE TABLE IF NOT EXISTS orders (id bigint PRIMARY KEY)")
//!         .execute(&mut connection)
//!         .await?;
//!     connection.close().await?;
//!
//!     // The data stays until the folder is removed.
//!     postgres.stop().await?;
//!     std::fs::remove_dir_all(folder)?;
//!     Ok(())
//! }
//! ```
//!
//! - It listens on a Unix socket and on no port. It has no password: only its user and root can
//!   enter the socket's folder.
//! - `fsync`, `full_page_writes`, `synchronous_commit` and data checksums are always on.
//! - Processes on one data directory share one PostgreSQL. The process that started it stops it;
//!   `keep_running` starts it again if it ends.
//! - For root, it runs as the user `postgres` or `nobody`.
//! - A data directory that another user has prepared, or could still change, is refused.
//!
//! For tests, `Throwaway::start` of the feature `throwaway` starts one that goes with the process,
//! in `/dev/shm` if 12 GiB of memory are free, and otherwise in `/tmp`. `TEST_LOCALE` names the
//! locale, `C` by default.
//!
//! **Limits.** It needs PostgreSQL 15 or later on Linux or macOS. It is for development, tests and
//! single machines: it makes no backups, and does not upgrade a data directory to another major
//! version.
//!
//! # In the data directory
//!
//! ```text
//! pgdata/        the database cluster, made by initdb
//! run/           the socket; only PostgreSQL's user and root can enter
//! postgres.log   what PostgreSQL logs
//! owner.lock     held by the process that is responsible for stopping PostgreSQL
//! pgdata.new-*/  where initdb works until the cluster is whole
//! moved-to       only where the data had to go elsewhere: the name of that folder
//! ```
//!
//! The process that holds `owner.lock` owns the PostgreSQL; any other process on the same folder
//! attaches to it. The lock is the kernel's, so it ends with its holder even after `kill -9`.
//! PostgreSQL then lives on, and the next start finds the lock free and takes it over. If
//! PostgreSQL was killed as well, the next start replaces it, and its log replay brings back
//! everything that was committed. So does the owner itself, if PostgreSQL ends while it lives.

mod account;
mod binaries;
mod connection;
mod data_dir;
mod error;
mod folder;
mod locate;
mod location;
mod postmaster;
mod settings;
#[cfg(feature = "throwaway")]
mod throwaway;

use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use nix::unistd::Pid;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use sqlx::postgres::PgConnectOptions;
use tokio::time::Instant;

use binaries::Binaries;
use connection::{ensure_database, options_for};
use data_dir::{DataDir, PORT};
use error::tells_of_full_disk;
use postmaster::{
    INITDB_LIMIT, Launch, Life, PidFile, create_cluster, is_passing_conflict, is_postmaster,
    shut_down,
};

pub use error::{EmbeddedError, Problem};
pub use location::DatabaseLocation;
pub use settings::{EmbeddedSettings, Locale, Names};
#[cfg(feature = "throwaway")]
pub use throwaway::Throwaway;

/// Everything but the unreserved characters of RFC 3986, section 2.3.
const IN_A_URL: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// How long PostgreSQL may take to accept connections. Replaying the log after a crash is what
/// takes time, and the amount of log is limited to about a gigabyte.
const READY_LIMIT: Duration = Duration::from_secs(30);

/// How long a start is repeated while remains of a killed PostgreSQL are in the way. Its
/// processes notice the death of their parent when they next wait for work, a moment later.
const CONFLICT_LIMIT: Duration = Duration::from_secs(10);

/// Pause between two looks at the same thing: short against the tenth of a second that
/// PostgreSQL needs to start, long against the cost of a look.
const POLL_INTERVAL: Duration = Duration::from_millis(25);

/// Pause between two looks at a PostgreSQL that runs. While it is gone, requests are answered 503,
/// and a start takes about as long.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// Pause after an attempt to start it again has failed: the disk may be full, and the log need not
/// say so every second.
const RESTART_PAUSE: Duration = Duration::from_secs(5);

/// A PostgreSQL that runs in a data directory of its own.
///
/// Call [`stop`](Self::stop) at the end. Dropping the value leaves PostgreSQL running, and the
/// next start on the same folder takes it over, as it does after a crash.
#[derive(Debug)]
pub struct EmbeddedPostgres {
    dir: Arc<DataDir>,
    socket_dir: PathBuf,
    pid: Pid,
    /// Held for as long as this process is the owner; `None` when attached.
    lock: Option<File>,
}

impl EmbeddedPostgres {
    /// Starts the PostgreSQL of [`EmbeddedSettings::data_dir`], or attaches to the one that another
    /// process runs there, and creates the database if it is missing.
    ///
    /// Returns when connections are accepted: in about a second the first time, then faster.
    /// A start that does not get there gives up after 30 seconds, plus up to two minutes for
    /// creating the database cluster, and stops what it has started.
    ///
    /// Fails with any [`Problem`] except [`Problem::NotStopped`]; each message says what to do.
    pub async fn start(settings: EmbeddedSettings) -> Result<Self, EmbeddedError> {
        let (data_dir, names) = (settings.data_dir.clone(), settings.names);
        let located = tokio::task::spawn_blocking(move || DataDir::locate(&settings)).await;
        let interrupted = |_| EmbeddedError::new(Problem::Interrupted, &data_dir, names);
        let dir = Arc::new(located.map_err(interrupted)??);
        let started = Self::start_or_attach(&dir).await;
        started.map_err(|problem| dir.error(problem))
    }

    async fn start_or_attach(dir: &Arc<DataDir>) -> Result<Self, Problem> {
        let started = Instant::now();
        // The owner may be creating the cluster at this moment, which is no reason to give up.
        let limit = if dir.version().is_some() {
            READY_LIMIT
        } else {
            READY_LIMIT + INITDB_LIMIT
        };
        loop {
            let lock = off_thread(dir, DataDir::try_lock).await??;
            let found = match lock {
                Some(_) => Ok(run(dir).await?),
                None => attach(dir).await,
            };
            let reason = match found {
                Ok((pid, socket_dir)) => {
                    let dir = Arc::clone(dir);
                    return Ok(Self {
                        dir,
                        socket_dir,
                        pid,
                        lock,
                    });
                }
                Err(reason) => reason,
            };
            // The owner may have failed or gone, in which case the lock is free by now.
            if started.elapsed() > limit {
                let reason = format!("another process is responsible for it; {reason}");
                return Err(not_ready(limit, reason));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// How to connect: socket, role and database, independent of `PGHOST` and its siblings.
    #[must_use]
    pub fn connect_options(&self) -> PgConnectOptions {
        let name = &self.dir.settings.database;
        options_for(&self.socket_dir, name, name)
    }

    /// The connection as a URL that both sqlx and `psql` understand, such as
    /// `postgres://shop@localhost/shop?host=%2Fdata%2Frun&port=5432&sslmode=disable`.
    ///
    /// Some URL parsers insist on a host, so there is one; the `host` parameter overrides it with
    /// the folder of the socket.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_of(&self.dir.settings.database)
    }

    /// As [`url`](Self::url), for another database of the same PostgreSQL.
    #[must_use]
    pub fn url_of(&self, database: &str) -> String {
        let role = percent_encode(self.dir.settings.database.as_bytes(), IN_A_URL);
        let database = percent_encode(database.as_bytes(), IN_A_URL);
        let folder = percent_encode(self.socket_dir.as_os_str().as_bytes(), IN_A_URL);
        format!("postgres://{role}@localhost/{database}?host={folder}&port={PORT}&sslmode=disable")
    }

    /// Whether this process is responsible for PostgreSQL. False when it attached to one that
    /// belongs to another process.
    #[must_use]
    pub fn is_owner(&self) -> bool {
        self.lock.is_some()
    }

    /// Starts PostgreSQL again whenever it has ended, until `stop` resolves. Does nothing when
    /// attached: that is the owner's task.
    ///
    /// A start that has begun is finished first, so that [`stop`](Self::stop) knows what to stop.
    pub async fn keep_running(&mut self, stop: impl Future<Output = ()>) {
        let mut stop = pin!(stop);
        let mut pause = WATCH_INTERVAL;
        while self.is_owner() {
            tokio::select! {
                () = &mut stop => return,
                () = tokio::time::sleep(pause) => {}
            }
            pause = match self.revive().await {
                Ok(()) => WATCH_INTERVAL,
                Err(problem) => {
                    let error = self.dir.error(problem);
                    tracing::error!(%error, "PostgreSQL can't be started again");
                    RESTART_PAUSE
                }
            };
        }
    }

    /// Stops PostgreSQL if this process is the owner; leaves it alone when attached.
    ///
    /// Open transactions are rolled back and their connections closed, so finish the requests
    /// first. Gives up after 35 seconds, with [`Problem::NotStopped`] when PostgreSQL ignores every
    /// request to shut down.
    pub async fn stop(self) -> Result<(), EmbeddedError> {
        // The lock is released by dropping it last, so that no process starts a second PostgreSQL
        // while this one is still writing.
        let Some(_lock) = self.lock else {
            return Ok(());
        };
        let stopped = shut_down(&self.dir, self.pid).await;
        stopped.map_err(|problem| self.dir.error(problem))?;
        let socket_dir = self.dir.socket_dir();
        if !socket_dir.starts_with(&self.dir.path) {
            // Left behind, an empty folder in /tmp does no harm, and the next start reuses it.
            let _ = std::fs::remove_dir(socket_dir);
        }
        Ok(())
    }

    /// Starts PostgreSQL again if it has ended.
    async fn revive(&mut self) -> Result<(), Problem> {
        let pid = self.pid;
        if off_thread(&self.dir, move |dir| is_postmaster(dir, pid)).await? {
            return Ok(());
        }
        let log = self.dir.log();
        tracing::error!(%pid, log = %log.display(), "PostgreSQL has ended; starting it again");
        (self.pid, self.socket_dir) = run(&self.dir).await?;
        Ok(())
    }
}

/// Connects to a PostgreSQL that another process owns, and says which process it is and where its
/// socket is; or says what is missing yet.
async fn attach(dir: &Arc<DataDir>) -> Result<(Pid, PathBuf), String> {
    let read = |dir: &DataDir| PidFile::read(dir).filter(|file| file.listener(dir).is_some());
    let file = off_thread(dir, read).await.ok().flatten();
    let file = file.filter(|file| file.ready);
    let file = file.ok_or("it has not started yet")?;
    ensure_database(&file.socket_dir, &dir.settings.database).await?;
    Ok((file.pid, file.socket_dir))
}

/// Starts PostgreSQL, or takes over one whose owner has died: its process and the folder of its
/// socket. Only for the owner.
async fn run(dir: &Arc<DataDir>) -> Result<(Pid, PathBuf), Problem> {
    let started = Instant::now();
    loop {
        let outcome = match find_running(dir).await? {
            Some(pid) => {
                tracing::info!(%pid, "taking over the PostgreSQL of a process that has ended");
                wait_until_ready(dir, pid).await?
            }
            None => launch(dir, started).await?,
        };
        if let Outcome::Ready { pid, socket_dir } = outcome {
            return Ok((pid, socket_dir));
        }
        if started.elapsed() > READY_LIMIT {
            let reason = "it ended again and again".to_owned();
            return Err(not_ready(READY_LIMIT, reason));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// How a wait for PostgreSQL ended.
#[derive(Debug)]
enum Outcome {
    /// It accepts connections.
    Ready { pid: Pid, socket_dir: PathBuf },
    /// It ended in a way that makes another attempt worthwhile.
    Gone,
}

/// The PostgreSQL that runs in the data directory, if there is one.
async fn find_running(dir: &Arc<DataDir>) -> Result<Option<Pid>, Problem> {
    match off_thread(dir, postmaster::listener).await? {
        // A second one on the same files would destroy them, and PostgreSQL's own guards don't
        // reach so far.
        Some(pid) if pid.as_raw() <= 0 => Err(Problem::RunsElsewhere),
        listener => Ok(listener),
    }
}

/// Starts PostgreSQL, creating its cluster first if there is none, and waits until it is ready.
async fn launch(dir: &Arc<DataDir>, first_attempt: Instant) -> Result<Outcome, Problem> {
    let choosing = off_thread(dir, |dir| {
        let version = dir.version();
        Binaries::choose(dir.settings.bin_dir.as_deref(), version.as_deref())
            .map(|binaries| (version, binaries))
    });
    let (version, binaries) = choosing.await??;
    if version.is_none() {
        tracing::info!(data_dir = %dir.path.display(), "creating a PostgreSQL database");
        create_cluster(dir, &binaries).await?;
    }
    let launch = off_thread(dir, move |dir| Launch::start(dir, &binaries)).await??;
    match wait_until_ready(dir, launch.pid).await {
        Ok(Outcome::Gone) => {}
        Ok(ready @ Outcome::Ready { .. }) => return Ok(ready),
        Err(error) => {
            // The person gets to see why the start failed; a failure to stop would only hide it.
            let _ = shut_down(dir, launch.pid).await;
            return Err(error);
        }
    }
    let looking = off_thread(dir, move |dir| (launch.log_tail(dir), dir.is_full()));
    let (tail, disk_is_full) = looking.await?;
    if is_passing_conflict(&tail) && first_attempt.elapsed() < CONFLICT_LIMIT {
        return Ok(Outcome::Gone);
    }
    if disk_is_full || tells_of_full_disk(&tail) {
        return Err(Problem::DiskFull);
    }
    Err(Problem::Exited(tail))
}

/// Waits until the process accepts connections to the database, or has ended.
async fn wait_until_ready(dir: &Arc<DataDir>, pid: Pid) -> Result<Outcome, Problem> {
    let deadline = Instant::now() + READY_LIMIT;
    loop {
        let looking = off_thread(dir, move |dir| (Life::of(pid), PidFile::read(dir)));
        let (life, file) = looking.await?;
        if life == Life::Gone {
            return Ok(Outcome::Gone);
        }
        let reason = match file.filter(|file| file.pid == pid && file.ready) {
            None => "it is still starting or replaying its log".to_owned(),
            Some(PidFile { socket_dir, .. }) => {
                match ensure_database(&socket_dir, &dir.settings.database).await {
                    Ok(()) => return Ok(Outcome::Ready { pid, socket_dir }),
                    Err(reason) => reason,
                }
            }
        };
        if Instant::now() > deadline {
            return Err(not_ready(READY_LIMIT, reason));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

fn not_ready(limit: Duration, reason: String) -> Problem {
    Problem::NotReady {
        seconds: limit.as_secs(),
        reason,
    }
}

/// Runs work on files and processes where it does not hold up the server's other tasks.
async fn off_thread<T: Send + 'static>(
    dir: &Arc<DataDir>,
    work: impl FnOnce(&DataDir) -> T + Send + 'static,
) -> Result<T, Problem> {
    let dir = Arc::clone(dir);
    let working = tokio::task::spawn_blocking(move || work(&dir));
    working.await.map_err(|_| Problem::Interrupted)
}
