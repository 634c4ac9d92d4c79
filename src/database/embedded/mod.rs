//! A private, durable PostgreSQL for running charge-once without installing a database first.
//!
//! With `DATABASE_URL` unset, charge-once runs PostgreSQL itself, from the programs installed on
//! the machine, with the data in `DATA_DIR` and reachable only through a unix socket there:
//!
//! ```text
//! DATA_DIR/
//!   pgdata/        the database cluster, made by initdb
//!   run/           the socket; only PostgreSQL's user and root can enter
//!   postgres.log   what PostgreSQL logs
//!   owner.lock     held by the process that is responsible for stopping PostgreSQL
//!   pgdata.new-*/  where initdb works until the cluster is whole
//!   moved-to       only where the data had to go elsewhere: the name of that folder
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
mod error;
mod placement;
mod postmaster;
mod site;

use std::fmt::Write;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use nix::unistd::Pid;
use sqlx::postgres::PgConnectOptions;
use tokio::time::Instant;

use binaries::Binaries;
use connection::{DATABASE, ensure_database, options_for};
pub use error::EmbeddedError;
use error::tells_of_full_disk;
pub use placement::REFUGE;
use postmaster::{
    INITDB_LIMIT, Launch, Life, PidFile, create_cluster, is_passing_conflict, is_postmaster,
    shut_down,
};
use site::{PORT, Site};

/// The only database role. It owns everything and has no password, since only those who can
/// enter the socket's folder can connect.
const SUPERUSER: &str = "charge_once";

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

/// A PostgreSQL that runs in a data directory of charge-once.
///
/// Call [`stop`](Self::stop) at the end. Dropping the value leaves PostgreSQL running, and the
/// next start on the same folder takes it over, as it does after a crash.
#[derive(Debug)]
pub struct EmbeddedPostgres {
    site: Arc<Site>,
    socket_dir: PathBuf,
    pid: Pid,
    bin_dir: Option<PathBuf>,
    /// Held for as long as this process is the owner; `None` when attached.
    lock: Option<File>,
}

impl EmbeddedPostgres {
    /// Starts the PostgreSQL of `data_dir`, or attaches to the one that another process runs
    /// there, and creates the database `charge_once` if it is missing.
    ///
    /// `data_dir` is created if it does not exist. When charge-once runs as root, PostgreSQL
    /// runs as the user `postgres` or `nobody`; if that user cannot reach a new
    /// `data_dir`, the data goes to `/var/lib/charge-once` instead and a warning is logged.
    ///
    /// `pg_bin_dir` is the folder with PostgreSQL's programs; without it, PATH, `pg_config` and
    /// the usual folders of Linux distributions and macOS are searched for the newest version.
    ///
    /// Returns when connections are accepted: in about a second the first time, then faster.
    /// A start that does not get there gives up after 30 seconds, plus up to two minutes for
    /// creating the database cluster, and stops what it has started.
    ///
    /// # Errors
    ///
    /// Any [`EmbeddedError`] except [`EmbeddedError::NotStopped`]; each message says what to do.
    pub async fn start(data_dir: &Path, pg_bin_dir: Option<&Path>) -> Result<Self, EmbeddedError> {
        Self::start_or_move(data_dir, Path::new(REFUGE), pg_bin_dir).await
    }

    /// The same for another program's data, which goes to `refuge` where [`start`](Self::start)
    /// would use `/var/lib/charge-once`: two programs must not end up in one database.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub async fn start_or_move(
        data_dir: &Path,
        refuge: &Path,
        pg_bin_dir: Option<&Path>,
    ) -> Result<Self, EmbeddedError> {
        let (requested, refuge) = (data_dir.to_owned(), refuge.to_owned());
        let site = Arc::new(off_thread(move || Site::settle_or_move(&requested, &refuge)).await??);
        let started = Instant::now();
        // The owner may be creating the cluster at this moment, which is no reason to give up.
        let limit = if site.version().is_some() {
            READY_LIMIT
        } else {
            READY_LIMIT + INITDB_LIMIT
        };
        loop {
            let place = Arc::clone(&site);
            if let Some(lock) = off_thread(move || place.try_lock()).await?? {
                let (pid, socket_dir) = run(&site, pg_bin_dir).await?;
                return Ok(Self {
                    site,
                    socket_dir,
                    pid,
                    bin_dir: pg_bin_dir.map(Path::to_owned),
                    lock: Some(lock),
                });
            }
            let reason = match Self::attach(&site).await {
                Ok(attached) => return Ok(attached),
                Err(reason) => reason,
            };
            // The owner may have failed or gone, in which case the lock is free by now.
            if started.elapsed() > limit {
                let reason = format!("another charge-once is responsible for it; {reason}");
                return Err(not_ready(&site, limit, reason));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// How to connect: socket, role and database, independent of `PGHOST` and its siblings.
    #[must_use]
    pub fn connect_options(&self) -> PgConnectOptions {
        options_for(&self.socket_dir, DATABASE)
    }

    /// The connection as a URL that both sqlx and `psql` understand, such as
    /// `postgres://charge_once@localhost/charge_once?host=%2Fdata%2Frun&port=5432&sslmode=disable`.
    ///
    /// Some URL parsers insist on a host, so there is one; the `host` parameter overrides it with
    /// the folder of the socket.
    #[must_use]
    pub fn url(&self) -> String {
        let mut url = format!("postgres://{SUPERUSER}@localhost/{DATABASE}?host=");
        for byte in self.socket_dir.as_os_str().as_bytes() {
            if byte.is_ascii_alphanumeric() || b"-._~".contains(byte) {
                url.push(char::from(*byte));
            } else {
                // Writing to a string cannot fail.
                let _ = write!(url, "%{byte:02X}");
            }
        }
        let _ = write!(url, "&port={PORT}&sslmode=disable");
        url
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
                Err(error) => {
                    tracing::error!(%error, "PostgreSQL can't be started again");
                    RESTART_PAUSE
                }
            };
        }
    }

    /// Stops PostgreSQL if this process is the owner; leaves it alone when attached.
    ///
    /// Open transactions are rolled back and their connections closed, so finish the requests
    /// first. Gives up after 35 seconds.
    ///
    /// # Errors
    ///
    /// [`EmbeddedError::NotStopped`] when PostgreSQL ignores every request to shut down.
    pub async fn stop(self) -> Result<(), EmbeddedError> {
        // The lock is released by dropping it last, so that nobody starts a second PostgreSQL
        // while this one is still writing.
        let Some(_lock) = self.lock else {
            return Ok(());
        };
        shut_down(&self.site, self.pid).await?;
        if !self.socket_dir.starts_with(self.site.data_dir()) {
            // Left behind, an empty folder in /tmp does no harm, and the next start reuses it.
            let _ = std::fs::remove_dir(&self.socket_dir);
        }
        Ok(())
    }

    /// Connects to a PostgreSQL that another process owns, or says what is missing yet.
    async fn attach(site: &Arc<Site>) -> Result<Self, String> {
        let cluster = site.cluster();
        let file = off_thread(move || PidFile::read(&cluster))
            .await
            .map_err(|error| error.to_string())?
            .filter(|file| file.ready)
            .ok_or("it has not started yet")?;
        ensure_database(&file.socket_dir).await?;
        Ok(Self {
            site: Arc::clone(site),
            socket_dir: file.socket_dir,
            pid: file.pid,
            bin_dir: None,
            lock: None,
        })
    }

    /// Starts PostgreSQL again if it has ended.
    async fn revive(&mut self) -> Result<(), EmbeddedError> {
        let (site, pid) = (Arc::clone(&self.site), self.pid);
        if off_thread(move || is_postmaster(&site, pid)).await? {
            return Ok(());
        }
        let log = self.site.log();
        tracing::error!(%pid, log = %log.display(), "PostgreSQL has ended; starting it again");
        (self.pid, self.socket_dir) = run(&self.site, self.bin_dir.as_deref()).await?;
        Ok(())
    }
}

/// Starts PostgreSQL, or takes over one whose owner has died: its process and the folder of its
/// socket. Only for the owner.
async fn run(site: &Arc<Site>, pg_bin_dir: Option<&Path>) -> Result<(Pid, PathBuf), EmbeddedError> {
    let started = Instant::now();
    loop {
        let outcome = match find_running(site).await? {
            Some(pid) => {
                tracing::info!(%pid, "taking over the PostgreSQL of a process that has ended");
                wait_until_ready(site, pid).await?
            }
            None => launch(site, pg_bin_dir, started).await?,
        };
        if let Outcome::Ready { pid, socket_dir } = outcome {
            return Ok((pid, socket_dir));
        }
        if started.elapsed() > READY_LIMIT {
            let reason = "it ended again and again".to_owned();
            return Err(not_ready(site, READY_LIMIT, reason));
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
async fn find_running(site: &Arc<Site>) -> Result<Option<Pid>, EmbeddedError> {
    let cluster = site.cluster();
    off_thread(move || {
        PidFile::read(&cluster)
            .filter(PidFile::is_listening)
            .map(|file| file.pid)
    })
    .await
}

/// Starts PostgreSQL, creating its cluster first if there is none, and waits until it is ready.
async fn launch(
    site: &Arc<Site>,
    pg_bin_dir: Option<&Path>,
    first_attempt: Instant,
) -> Result<Outcome, EmbeddedError> {
    let (place, bin_dir) = (Arc::clone(site), pg_bin_dir.map(Path::to_owned));
    let (version, binaries) = off_thread(move || {
        let version = place.version();
        Binaries::choose(bin_dir.as_deref(), version.as_deref(), place.data_dir())
            .map(|binaries| (version, binaries))
    })
    .await??;
    if version.is_none() {
        tracing::info!(data_dir = %site.data_dir().display(), "creating a PostgreSQL database");
        create_cluster(site, &binaries).await?;
    }
    let place = Arc::clone(site);
    let launch = off_thread(move || Launch::start(&place, &binaries)).await??;
    match wait_until_ready(site, launch.pid).await {
        Ok(Outcome::Gone) => {}
        Ok(ready @ Outcome::Ready { .. }) => return Ok(ready),
        Err(error) => {
            // The person gets to see why the start failed; a failure to stop would only hide it.
            let _ = shut_down(site, launch.pid).await;
            return Err(error);
        }
    }
    let place = Arc::clone(site);
    let (tail, disk_is_full) =
        off_thread(move || (launch.log_tail(&place), place.is_full())).await?;
    if is_passing_conflict(&tail) && first_attempt.elapsed() < CONFLICT_LIMIT {
        return Ok(Outcome::Gone);
    }
    if disk_is_full || tells_of_full_disk(&tail) {
        return Err(EmbeddedError::DiskFull {
            data_dir: site.data_dir().to_owned(),
        });
    }
    Err(EmbeddedError::Exited {
        data_dir: site.data_dir().to_owned(),
        log: site.log(),
        tail,
    })
}

/// Waits until the process accepts connections to the database, or has ended.
async fn wait_until_ready(site: &Arc<Site>, pid: Pid) -> Result<Outcome, EmbeddedError> {
    let deadline = Instant::now() + READY_LIMIT;
    loop {
        let cluster = site.cluster();
        let (life, file) = off_thread(move || (Life::of(pid), PidFile::read(&cluster))).await?;
        if life == Life::Gone {
            return Ok(Outcome::Gone);
        }
        let reason = match file.filter(|file| file.pid == pid && file.ready) {
            None => "it is still starting or replaying its log".to_owned(),
            Some(PidFile { socket_dir, .. }) => match ensure_database(&socket_dir).await {
                Ok(()) => return Ok(Outcome::Ready { pid, socket_dir }),
                Err(reason) => reason,
            },
        };
        if Instant::now() > deadline {
            return Err(not_ready(site, READY_LIMIT, reason));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

fn not_ready(site: &Site, limit: Duration, reason: String) -> EmbeddedError {
    EmbeddedError::NotReady {
        data_dir: site.data_dir().to_owned(),
        log: site.log(),
        seconds: limit.as_secs(),
        reason,
    }
}

/// Runs work on files and processes where it does not hold up the server's other tasks.
async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, EmbeddedError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|_| EmbeddedError::Interrupted)
}
