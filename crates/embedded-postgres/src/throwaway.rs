//! A PostgreSQL for one run of tests.
//!
//! Promise: it has the settings of any other, and keeps what it has acknowledged when it is killed.
//! Its files may be in memory, so it doesn't survive the machine. Nothing of it is left when the
//! process has ended, however it ended.

use std::{
    fs::Permissions,
    io,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::UNIX_EPOCH,
};

use nix::sys::statvfs::statvfs;
use sqlx::{AssertSqlSafe, Connection, PgConnection, error::BoxDynError};
use tokio::{
    runtime::Builder,
    sync::{mpsc, oneshot},
};

use crate::{EmbeddedPostgres, Locale, Settings};

/// What the server is started with.
const PARAMETERS: [(&str, &str); 2] = [
    // Many tests run at a time, and each may have several servers with a pool of their own.
    ("max_connections", "300"),
    // Each test has a database of its own, which lives for seconds. Autovacuum would visit all of
    // them once a minute: with hundreds it starts ten processes a second.
    ("autovacuum", "off"),
];

/// Hundreds of tests leave as many databases of 10 MB each, with a thousand files: on a disk,
/// making them takes longer than many tests do. Half as much again is for their logs, and for what
/// else runs.
const ROOM: u128 = 12 << 30;

/// A PostgreSQL that ends with this process, and its data with it. Keep one in a static
/// `tokio::sync::OnceCell` for all tests of a process.
#[derive(Debug)]
pub struct Throwaway {
    postgres: EmbeddedPostgres,
    /// One session makes all databases: most tests last for less time than the start of a session
    /// takes.
    creations: mpsc::UnboundedSender<Creation>,
}

/// A statement for the session that makes databases, and where its result goes.
type Creation = (String, oneshot::Sender<Result<(), sqlx::Error>>);

impl Throwaway {
    /// Starts one whose role and first database are called `name`.
    ///
    /// It starts on a runtime of its own, because a test's runtime ends with the test.
    ///
    /// # Errors
    ///
    /// What prevents the start.
    pub async fn start(name: &str) -> Result<Self, BoxDynError> {
        let name = name.to_owned();
        let (started, has_started) = oneshot::channel();
        let (creations, wanted) = mpsc::unbounded_channel();
        std::thread::spawn(move || {
            let runtime = match Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => return drop(started.send(Err(error.into()))),
            };
            runtime.block_on(async move {
                match start(&name).await {
                    Ok((postgres, admin)) => {
                        let throwaway = Self {
                            postgres,
                            creations,
                        };
                        // Without a receiver, the caller was canceled: the watchdog removes what
                        // was started.
                        drop(started.send(Ok(throwaway)));
                        create_databases(admin, wanted).await;
                    }
                    Err(error) => drop(started.send(Err(error))),
                }
            });
        });
        has_started.await?
    }

    /// Creates the database `name` from a template, `template0` for an empty one. Returns its URL.
    ///
    /// # Errors
    ///
    /// The database's.
    pub async fn create_database(&self, name: &str, template: &str) -> Result<String, sqlx::Error> {
        let create = format!(r#"CREATE DATABASE "{name}" TEMPLATE "{template}""#);
        let (done, is_done) = oneshot::channel();
        // The thread ends only with its runtime, and then the result says so.
        drop(self.creations.send((create, done)));
        is_done.await.map_err(|_| sqlx::Error::WorkerCrashed)??;
        Ok(self.postgres.url_of(name))
    }
}

async fn create_databases(mut admin: PgConnection, mut wanted: mpsc::UnboundedReceiver<Creation>) {
    while let Some((create, done)) = wanted.recv().await {
        let created = sqlx::query(AssertSqlSafe(create)).execute(&mut admin).await;
        // Without a receiver, the test was canceled.
        drop(done.send(created.map(|_| ())));
    }
}

async fn start(name: &str) -> Result<(EmbeddedPostgres, PgConnection), BoxDynError> {
    let unique = UNIX_EPOCH.elapsed()?.as_nanos();
    let folder = format!("postgres-test-{}-{unique}", std::process::id());
    let folder = parent().join(folder);
    std::fs::create_dir(&folder)?;
    // PostgreSQL's user has to enter it where this process runs as root.
    std::fs::set_permissions(&folder, Permissions::from_mode(0o755))?;
    watch_over(&folder)?;
    let mut settings = Settings::new(name, folder.join("data"));
    let parameters = PARAMETERS.map(|(name, value)| (name.to_owned(), value.to_owned()));
    settings.parameters = parameters.to_vec();
    settings.locale = locale();
    let postgres = EmbeddedPostgres::start(settings).await?;
    let admin = PgConnection::connect_with(&postgres.connect_options()).await?;
    Ok((postgres, admin))
}

/// The locale that `TEST_LOCALE` names, from the folder in `LOCPATH` if that is set.
fn locale() -> Locale {
    std::env::var("TEST_LOCALE").map_or_else(
        |_| Locale::default(),
        |name| Locale {
            name,
            folder: std::env::var_os("LOCPATH").map(PathBuf::from),
        },
    )
}

/// In memory if there is room, and else on a disk. Never the folder in TMPDIR: it may be private to
/// root, or its path too long for a socket.
fn parent() -> &'static Path {
    let shared_memory = Path::new("/dev/shm");
    let free = statvfs(shared_memory).map_or(0, |found| {
        u128::from(found.blocks_available()) * u128::from(found.fragment_size())
    });
    if free.min(available_memory()).min(memory_limit()) >= ROOM {
        shared_memory
    } else {
        Path::new("/tmp")
    }
}

/// The bytes that processes can still use without swapping; 0 where the kernel doesn't say.
fn available_memory() -> u128 {
    let told = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = told
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB"));
    let kilobytes = kilobytes.and_then(|number| number.parse().ok());
    kilobytes.unwrap_or(0) * 1024
}

/// What a container may use: files in memory count.
fn memory_limit() -> u128 {
    let told = std::fs::read_to_string("/sys/fs/cgroup/memory.max").unwrap_or_default();
    told.trim().parse().unwrap_or(u128::MAX)
}

/// Starts a shell that stops PostgreSQL and removes its files when this process has ended: the
/// kernel then closes the shell's standard input.
fn watch_over(folder: &Path) -> io::Result<()> {
    let script = r#"
        read -r _
        file=$1/data/pgdata/postmaster.pid
        pid=$(head -n 1 "$file" 2>/dev/null) && kill -INT "$pid"
        while [ -f "$file" ] && kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
        rm -rf "$1"
    "#;
    let watchdog = Command::new("sh")
        .args(["-c", script, "watchdog"])
        .arg(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // Ctrl-C is for the tests: the shell ends after them.
        .process_group(0)
        .spawn()?;
    // Dropping it would close the pipe.
    std::mem::forget(watchdog);
    Ok(())
}
