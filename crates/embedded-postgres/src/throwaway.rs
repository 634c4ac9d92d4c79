//! A PostgreSQL for one run of tests.
//!
//! Promise: it has the settings of any other, and keeps what it has acknowledged when it is killed.
//! Its files may be in memory, so it doesn't survive the machine. Nothing of it is left when the
//! process has ended, however it ended.

use std::{
    fs::{File, Permissions},
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

/// What the folder of each one is called, before the number of its process.
const FOLDER: &str = "postgres-test-";

/// A file that the process has locked as long as it lives, in that folder.
const LOCK: &str = "lock";

/// A PostgreSQL that ends with this process, and its data with it. Keep one in a static
/// `tokio::sync::OnceCell` for all tests of a process.
#[derive(Debug)]
pub struct Throwaway {
    postgres: EmbeddedPostgres,
    /// One session makes and drops all databases: most tests last for less time than the start of
    /// a session takes.
    statements: mpsc::UnboundedSender<Statement>,
}

/// A statement for the session that makes and drops databases, and where its result goes.
type Statement = (String, oneshot::Sender<Result<(), sqlx::Error>>);

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
        let (statements, wanted) = mpsc::unbounded_channel();
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
                            statements,
                        };
                        // Without a receiver, the caller was canceled: the watchdog removes what
                        // was started.
                        drop(started.send(Ok(throwaway)));
                        execute_all(admin, wanted).await;
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
        drop(self.statements.send((create, done)));
        is_done.await.map_err(|_| sqlx::Error::WorkerCrashed)??;
        Ok(self.postgres.url_of(name))
    }

    /// Drops the database `name`, soon, with all sessions that it has. Waits for nothing, and says
    /// nothing of a failure: the database goes with this PostgreSQL.
    pub fn drop_database(&self, name: &str) {
        let drop_it = format!(r#"DROP DATABASE "{name}" WITH (FORCE)"#);
        drop(self.statements.send((drop_it, oneshot::channel().0)));
    }
}

async fn execute_all(mut admin: PgConnection, mut wanted: mpsc::UnboundedReceiver<Statement>) {
    while let Some((sql, done)) = wanted.recv().await {
        let executed = sqlx::query(AssertSqlSafe(sql)).execute(&mut admin).await;
        // Without a receiver, the test was canceled, or doesn't wait.
        drop(done.send(executed.map(|_| ())));
    }
}

async fn start(name: &str) -> Result<(EmbeddedPostgres, PgConnection), BoxDynError> {
    for parent in [SHARED_MEMORY, DISK] {
        remove_leftovers(Path::new(parent))?;
    }
    let unique = UNIX_EPOCH.elapsed()?.as_nanos();
    let folder = format!("{FOLDER}{}-{unique}", std::process::id());
    let folder = parent().join(folder);
    std::fs::create_dir(&folder)?;
    // PostgreSQL's user has to enter it where this process runs as root.
    std::fs::set_permissions(&folder, Permissions::from_mode(0o755))?;
    lock(&folder)?;
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

const SHARED_MEMORY: &str = "/dev/shm";
const DISK: &str = "/tmp";

/// In memory if there is room, and else on a disk. Never the folder in TMPDIR: it may be private to
/// root, or its path too long for a socket.
fn parent() -> &'static Path {
    let shared_memory = Path::new(SHARED_MEMORY);
    let free = statvfs(shared_memory).map_or(0, |found| {
        u128::from(found.blocks_available()) * u128::from(found.fragment_size())
    });
    if free.min(available_memory()).min(memory_limit()) >= ROOM {
        shared_memory
    } else {
        Path::new(DISK)
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

/// Marks a folder as one whose process lives.
fn lock(folder: &Path) -> io::Result<()> {
    // Another process may look at any moment, so it never sees the file without its lock.
    let new = folder.join("lock.new");
    let file = File::create(&new)?;
    file.lock()?;
    std::fs::rename(new, folder.join(LOCK))?;
    // The lock ends with the process.
    std::mem::forget(file);
    Ok(())
}

/// Removes what processes have left whose watchdog was killed as well. Several such folders would
/// fill the memory.
fn remove_leftovers(parent: &Path) -> io::Result<()> {
    for found in std::fs::read_dir(parent)? {
        let found = found?;
        let is_one = found.file_name().to_string_lossy().starts_with(FOLDER);
        let lock = File::open(found.path().join(LOCK));
        if is_one && lock.is_ok_and(|lock| lock.try_lock().is_ok()) {
            watchdog(&found.path()).stdin(Stdio::null()).status()?;
        }
    }
    Ok(())
}

/// Starts a shell that stops PostgreSQL and removes its files when this process has ended: the
/// kernel then closes the shell's standard input.
fn watch_over(folder: &Path) -> io::Result<()> {
    let watchdog = watchdog(folder)
        .stdin(Stdio::piped())
        // Ctrl-C is for the tests: the shell ends after them.
        .process_group(0)
        .spawn()?;
    // Dropping it would close the pipe.
    std::mem::forget(watchdog);
    Ok(())
}

/// A shell that waits for the end of its standard input. The number of a process that has ended may
/// be another one's by now: PostgreSQL's own works in its data folder.
fn watchdog(folder: &Path) -> Command {
    let script = r#"
        read -r _
        data=$1/data/pgdata
        pid=$(head -n 1 "$data/postmaster.pid" 2>/dev/null)
        lives() { [ -n "$pid" ] && [ "/proc/$pid/cwd" -ef "$data" ]; }
        lives && kill -INT "$pid"
        while lives; do sleep 0.1; done
        rm -rf "$1"
    "#;
    let mut shell = Command::new("sh");
    shell.args(["-c", script, "watchdog"]).arg(folder);
    shell.stdout(Stdio::null()).stderr(Stdio::null());
    shell
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_dead_process_has_left_is_removed_and_what_a_living_one_has_is_not()
    -> Result<(), BoxDynError> {
        let parent = tempfile::tempdir()?;
        let [dead, alive, other] = ["postgres-test-1-1", "postgres-test-1-2", "other"]
            .map(|name| parent.path().join(name));
        for folder in [&dead, &alive, &other] {
            std::fs::create_dir(folder)?;
            std::fs::write(folder.join("data"), "")?;
        }
        lock(&alive)?;
        for unlocked in [&dead, &other] {
            File::create(unlocked.join(LOCK))?;
        }
        remove_leftovers(parent.path())?;
        assert_eq!(
            (dead.exists(), alive.exists(), other.exists()),
            (false, true, true)
        );
        Ok(())
    }
}
