//! A PostgreSQL for one run of tests.
//!
//! Promise: it has the settings of any other, and keeps what it has acknowledged when it is killed.
//! Its files may be in memory, so it doesn't survive the machine. A shell removes them when the
//! process has ended, however it ended. If the shell was killed too, the next run removes them.

use std::{
    fs::{File, Permissions},
    io,
    os::unix::{
        fs::{MetadataExt, PermissionsExt},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::UNIX_EPOCH,
};

use nix::{
    errno::Errno,
    sys::signal::kill,
    unistd::{Pid, geteuid},
};
use sqlx::{AssertSqlSafe, Connection, PgConnection, error::BoxDynError};
use tokio::{
    runtime::Builder,
    sync::{mpsc, oneshot},
};

use crate::embedded::{
    EmbeddedPostgres, EmbeddedSettings, Locale, data_dir::free_bytes, folder::entries,
};

const PARAMETERS: [(&str, &str); 2] = [
    // Many tests run at a time, and each may have several servers with a pool of their own.
    ("max_connections", "300"),
    // Each test has a database of its own, which lives for seconds. Autovacuum would visit all of
    // them once a minute: with hundreds it starts ten processes a second.
    ("autovacuum", "off"),
];

/// A database has 10 MB, in a thousand files: on a disk, making it takes longer than many tests do.
/// A run that drops none may have hundreds at its end. Half as much again is for their logs, and
/// for what else runs.
const ROOM: u128 = 12 << 30;

/// What the folder of each one is called, before the number of its process.
const FOLDER: &str = "postgres-test-";

/// A file that the process has locked as long as it lives, in that folder.
const LOCK: &str = "lock";

/// The file in that folder that begins with the number of PostgreSQL's process.
const PID_FILE: &str = "data/pgdata/postmaster.pid";

/// A PostgreSQL that ends with this process, and its data with it. Keep one in a static
/// `tokio::sync::OnceCell` for all tests of a process.
#[derive(Debug)]
pub struct Throwaway {
    postgres: EmbeddedPostgres,
    /// One session makes all databases: most tests last for less time than the start of a session
    /// takes.
    creations: mpsc::UnboundedSender<Creation>,
    /// Names of databases that another session drops, which may take longer.
    drops: mpsc::UnboundedSender<String>,
}

/// A statement for the session that makes databases, and where its result goes.
type Creation = (String, oneshot::Sender<Result<(), sqlx::Error>>);

impl Throwaway {
    /// Starts one whose role and first database are called `name`.
    ///
    /// It starts on a runtime of its own, because a test's runtime ends with the test. Fails with
    /// what prevents the start.
    pub async fn start(name: &str) -> Result<Self, BoxDynError> {
        let name = name.to_owned();
        let (started, has_started) = oneshot::channel();
        let (creations, wanted) = mpsc::unbounded_channel();
        let (drops, unwanted) = mpsc::unbounded_channel();
        std::thread::spawn(move || {
            let runtime = match Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => return drop(started.send(Err(error.into()))),
            };
            runtime.block_on(async move {
                match start(&name).await {
                    Ok((postgres, [creating, dropping])) => {
                        let throwaway = Self {
                            postgres,
                            creations,
                            drops,
                        };
                        // Without a receiver, the caller was canceled: the watchdog removes what
                        // was started.
                        drop(started.send(Ok(throwaway)));
                        tokio::join!(
                            create_databases(creating, wanted),
                            drop_databases(dropping, unwanted),
                        );
                    }
                    Err(error) => drop(started.send(Err(error))),
                }
            });
        });
        has_started.await?
    }

    /// Creates the database `name` from a template, `template0` for an empty one. Returns its URL.
    /// Fails with the database's error.
    pub async fn create_database(&self, name: &str, template: &str) -> Result<String, sqlx::Error> {
        let create = format!(r#"CREATE DATABASE "{name}" TEMPLATE "{template}""#);
        let (done, is_done) = oneshot::channel();
        // The thread ends only with its runtime, and then the result says so.
        drop(self.creations.send((create, done)));
        is_done.await.map_err(|_| sqlx::Error::WorkerCrashed)??;
        Ok(self.postgres.url_of(name))
    }

    /// Drops the database `name`, soon, with all sessions that it has. Waits for nothing. A failure
    /// is logged: the database goes with this PostgreSQL all the same.
    pub fn drop_database(&self, name: &str) {
        drop(self.drops.send(name.to_owned()));
    }
}

async fn create_databases(mut admin: PgConnection, mut wanted: mpsc::UnboundedReceiver<Creation>) {
    while let Some((create, done)) = wanted.recv().await {
        let created = sqlx::query(AssertSqlSafe(create)).execute(&mut admin).await;
        // Without a receiver, the test was canceled.
        drop(done.send(created.map(|_| ())));
    }
}

async fn drop_databases(mut admin: PgConnection, mut unwanted: mpsc::UnboundedReceiver<String>) {
    while let Some(name) = unwanted.recv().await {
        let drop = AssertSqlSafe(format!(r#"DROP DATABASE "{name}" WITH (FORCE)"#));
        if let Err(error) = sqlx::query(drop).execute(&mut admin).await {
            tracing::warn!(name, %error, "a database of a test was not dropped");
        }
    }
}

async fn start(name: &str) -> Result<(EmbeddedPostgres, [PgConnection; 2]), BoxDynError> {
    for parent in [SHARED_MEMORY, DISK] {
        remove_leftovers(Path::new(parent));
    }
    let unique = UNIX_EPOCH.elapsed()?.as_nanos();
    let folder = format!("{FOLDER}{}-{unique}", std::process::id());
    let folder = parent().join(folder);
    std::fs::create_dir(&folder)?;
    // PostgreSQL's user has to enter it where this process runs as root.
    std::fs::set_permissions(&folder, Permissions::from_mode(0o755))?;
    lock(&folder)?;
    watch_over(&folder)?;
    let mut settings = EmbeddedSettings::new(name, folder.join("data"));
    let parameters = PARAMETERS.map(|(name, value)| (name.to_owned(), value.to_owned()));
    settings.parameters = parameters.to_vec();
    // From the folder in LOCPATH if that is set.
    if let Ok(name) = std::env::var("TEST_LOCALE") {
        let folder = std::env::var_os("LOCPATH").map(PathBuf::from);
        settings.locale = Locale { name, folder };
    }
    let postgres = EmbeddedPostgres::start(settings).await?;
    let options = postgres.connect_options();
    let creating = PgConnection::connect_with(&options).await?;
    let dropping = PgConnection::connect_with(&options).await?;
    Ok((postgres, [creating, dropping]))
}

const SHARED_MEMORY: &str = "/dev/shm";
const DISK: &str = "/tmp";

/// In memory if there is room, and else on a disk. Never the folder in TMPDIR: it may be private to
/// root, or its path too long for a socket.
fn parent() -> &'static Path {
    let shared_memory = Path::new(SHARED_MEMORY);
    let free = free_bytes(shared_memory).unwrap_or(0);
    match free.min(available_memory()).min(memory_limit()) >= ROOM {
        true => shared_memory,
        false => Path::new(DISK),
    }
}

/// The bytes that processes can still use without swapping; 0 where the kernel doesn't say.
fn available_memory() -> u128 {
    let told = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let mut lines = told.lines();
    let line = lines.find_map(|line| line.strip_prefix("MemAvailable:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok());
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

/// Removes what processes have left that ended together with their watchdog, as in a restart of
/// the machine: several such folders would fill the memory. What can't be removed stays.
fn remove_leftovers(parent: &Path) {
    for folder in entries(parent, FOLDER) {
        if !is_own(&folder) {
            continue;
        }
        let Ok(lock) = File::open(folder.join(LOCK)) else {
            continue;
        };
        // Held until the folder is gone, so that one process removes it.
        if lock.try_lock().is_ok() && !may_run(&folder) {
            drop(std::fs::remove_dir_all(&folder));
        }
    }
}

/// Whether this user made the folder, so that no other one has put anything there.
fn is_own(folder: &Path) -> bool {
    let found = std::fs::symlink_metadata(folder);
    found.is_ok_and(|found| found.is_dir() && found.uid() == geteuid().as_raw())
}

/// Whether a process lives that has the number of the folder's PostgreSQL.
fn may_run(folder: &Path) -> bool {
    let file = std::fs::read_to_string(folder.join(PID_FILE)).unwrap_or_default();
    let number = file.lines().next().and_then(|line| line.parse().ok());
    number.is_some_and(|number| kill(Pid::from_raw(number), None) != Err(Errno::ESRCH))
}

/// Starts a shell that stops PostgreSQL and removes its files when this process has ended: the
/// kernel then closes the shell's standard input.
fn watch_over(folder: &Path) -> io::Result<()> {
    let script = r#"
        read -r _
        pid=$(head -n 1 "$2" 2>/dev/null) && kill -INT "$pid"
        while [ -f "$2" ] && kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
        rm -rf "$1"
    "#;
    let watchdog = Command::new("sh")
        .args(["-c", script, "watchdog"])
        .args([folder, &folder.join(PID_FILE)])
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
        remove_leftovers(parent.path());
        let exist = [dead, alive, other].map(|folder| folder.exists());
        assert_eq!(exist, [false, true, true]);
        Ok(())
    }
}
