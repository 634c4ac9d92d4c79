//! PostgreSQL's main process: creating its database, starting it, watching it, stopping it.

use std::ffi::OsString;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use tokio::time::Instant;

use super::binaries::{Binaries, environment};
use super::data_dir::{CLUSTER, DataDir, LOG, PORT, socket_in};
use super::error::{Problem, tells_of_full_disk};
use super::{POLL_INTERVAL, off_thread};

/// How long `initdb` may take: it needs about a second on a good disk, and syncs some forty
/// megabytes in a thousand files on a bad one.
pub(super) const INITDB_LIMIT: Duration = Duration::from_secs(120);

/// The requests to stop, and how long each gets. The first rolls open transactions back and
/// writes a checkpoint, which takes a slow disk some seconds. The second skips the checkpoint:
/// nothing committed is lost, but the next start has to replay the log.
const STOP_REQUESTS: [(Signal, Duration); 2] = [
    (Signal::SIGINT, Duration::from_secs(30)),
    (Signal::SIGQUIT, Duration::from_secs(5)),
];

/// How long PostgreSQL may take from making `postmaster.pid` to writing it.
const WRITTEN_WITHIN: Duration = Duration::from_secs(1);

/// Most bytes of the log, counted from its end, that an error message quotes.
const TAIL_BYTES: usize = 4 * 1024;

/// Most lines of a program's output that an error message quotes.
const TAIL_LINES: usize = 15;

/// Sizes that hold unless the caller decides otherwise, whatever the configuration files in the
/// data directory say.
const SIZES: [&str; 2] = [
    "max_connections=100",
    // A laptop's worth: the data of a try-out fits, and containers often limit shared memory.
    "shared_buffers=64MB",
];

/// Settings that always hold. They come last, and the last one counts.
const SETTINGS: [&str; 7] = [
    // Only the socket: there is no password that could protect a TCP port.
    "listen_addresses=",
    "unix_socket_permissions=0700",
    // A payment that was answered must be on the disk.
    "fsync=on",
    "full_page_writes=on",
    "synchronous_commit=on",
    // The log is the program's standard error, which goes to a file of ours.
    "logging_collector=off",
    "timezone=UTC",
];

/// Where PostgreSQL tells about itself, in its cluster.
const PID_FILE: &str = "postmaster.pid";

/// What PostgreSQL tells about itself in `postmaster.pid`.
#[derive(Debug)]
pub(super) struct PidFile {
    pub(super) pid: Pid,
    pub(super) socket_dir: PathBuf,
    /// Whether it has finished recovery and accepts connections.
    pub(super) ready: bool,
}

impl PidFile {
    /// Reads the file, or nothing when it is missing or still being written. Blocks.
    pub(super) fn read(dir: &DataDir) -> Option<Self> {
        // PostgreSQL's user may have replaced both.
        let cluster = dir.folder.folder(CLUSTER).ok()?;
        let content = cluster.read(PID_FILE).ok()?;
        // The lines are: process, data directory, start time, port, socket folder, TCP address,
        // shared memory key, and status.
        let lines: Vec<&[u8]> = content.split(|byte| *byte == b'\n').collect();
        let pid = std::str::from_utf8(lines.first()?).ok()?.trim();
        let socket_dir = lines.get(4)?.to_vec();
        let status = lines.get(7);
        Some(Self {
            pid: Pid::from_raw(pid.parse().ok().filter(|pid| *pid > 0)?),
            socket_dir: PathBuf::from(OsString::from_vec(socket_dir)),
            ready: status.is_some_and(|status| status.starts_with(b"ready")),
        })
    }

    /// The process that listens on the socket, which a PostgreSQL does for as long as it lives;
    /// nothing when it doesn't run as PostgreSQL's user. Its number is 0 where it runs in another
    /// container.
    ///
    /// The kernel tells both. The file is no proof: after a crash or in a new container its number
    /// may belong to an unrelated process, and PostgreSQL's user can write any number into it.
    ///
    /// Blocks, and needs tokio's runtime.
    pub(super) fn listener(&self, dir: &DataDir) -> Option<Pid> {
        let stream = UnixStream::connect(socket_in(&self.socket_dir)).ok()?;
        stream.set_nonblocking(true).ok()?;
        let stream = tokio::net::UnixStream::from_std(stream).ok()?;
        let peer = stream.peer_cred().ok()?;
        let pid = peer.pid().unwrap_or(0);
        (peer.uid() == dir.runner()).then(|| Pid::from_raw(pid))
    }
}

/// A PostgreSQL that was just started.
#[derive(Debug)]
pub(super) struct Launch {
    pub(super) pid: Pid,
    /// Length of the log in bytes before the start.
    log_start: u64,
}

impl Launch {
    /// Starts PostgreSQL in the background. Only for the owner. Blocks. Fails when a file in the
    /// data directory cannot be prepared or the program does not run.
    pub(super) fn start(dir: &DataDir, binaries: &Binaries) -> Result<Self, Problem> {
        remove_misleading_pid_file(dir)?;
        let socket_dir = dir.prepare_socket_dir()?;
        let log = dir.open_log()?;
        let failed = |error| Problem::directory("opening", &dir.log(), error);
        let log_start = log.metadata().map_err(failed)?.len();
        let output = log.try_clone().map_err(failed)?;
        let wanted = dir.settings.parameters.iter();
        let wanted = wanted.map(|(name, value)| format!("{name}={value}"));
        let mut command = program(&binaries.postgres(), dir);
        command
            .arg("-D")
            .arg(dir.cluster())
            .args(SIZES.iter().flat_map(|setting| ["-c", setting]))
            .args(wanted.flat_map(|setting| ["-c".to_owned(), setting]))
            .args(SETTINGS.iter().flat_map(|setting| ["-c", setting]))
            .args(["-c", &format!("port={PORT}"), "-c"])
            .arg(socket_setting(&socket_dir))
            .stdout(output)
            .stderr(log)
            // Ctrl-C reaches every process in the terminal's foreground group. PostgreSQL must
            // outlive the requests that are being finished, so it gets a group of its own.
            .process_group(0);
        let child = command.spawn().map_err(|source| Problem::Program {
            program: binaries.postgres(),
            source,
        })?;
        Ok(Self {
            pid: Pid::from_raw(child.id().cast_signed()),
            log_start,
        })
    }

    /// What PostgreSQL has logged since this start, shortened to its end. Blocks.
    pub(super) fn log_tail(&self, dir: &DataDir) -> String {
        let read = || -> std::io::Result<String> {
            let mut log = dir.folder.file(LOG, OFlag::O_RDONLY)?;
            log.seek(SeekFrom::Start(self.log_start))?;
            let mut content = Vec::new();
            log.read_to_end(&mut content)?;
            Ok(tail_of(&content))
        };
        read().unwrap_or_else(|error| format!("(the log cannot be read: {error})"))
    }
}

/// How a process relates to this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Life {
    /// It runs, and this process started it, so its number cannot have been given away.
    Child,
    /// Some process with that number runs.
    Other,
    /// No process with that number runs.
    Gone,
}

impl Life {
    /// Asks the kernel. A child that has ended is cleared away on the occasion, because its
    /// number would otherwise look alive, not least to the next PostgreSQL.
    pub(super) fn of(pid: Pid) -> Self {
        match waitpid(pid, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) => Self::Child,
            Ok(_) => Self::Gone,
            Err(_) => match kill(pid, None) {
                Err(Errno::ESRCH) => Self::Gone,
                Ok(()) | Err(_) => Self::Other,
            },
        }
    }
}

/// Creates the database cluster. Only for the owner.
///
/// `initdb` works in a folder with a temporary name, which becomes the real one only when
/// everything in it is on the disk. A crash half way leaves nothing that looks like a database.
/// Fails with [`Problem::InitFailed`], [`Problem::DiskFull`], or a failure in the data directory.
pub(super) async fn create_cluster(dir: &Arc<DataDir>, binaries: &Binaries) -> Result<(), Problem> {
    let staging = off_thread(dir, |dir| {
        dir.remove_leftovers();
        dir.create_staging()
    });
    let staging = staging.await??;
    let result = run_initdb(dir, binaries, &staging).await;
    let ending = off_thread(dir, move |dir| match result {
        Ok(()) => dir.publish(&staging),
        Err(error) => {
            dir.remove_leftovers();
            Err(error)
        }
    });
    ending.await?
}

async fn run_initdb(dir: &DataDir, binaries: &Binaries, staging: &Path) -> Result<(), Problem> {
    let mut command = program(&binaries.initdb(), dir);
    command
        .arg("-D")
        .arg(staging)
        .args(["--username", &dir.settings.database])
        // Anyone who can open the socket may log in, and the socket's folder lets only
        // PostgreSQL's own user and root in. Asking for the system user's name (`peer`) would
        // shut root out when PostgreSQL runs as another user.
        .args(["--auth", "trust"])
        .args(["--encoding", "UTF8"])
        // Messages and formats are those of `C` in any case.
        .args(["--locale", "C"])
        .args(["--lc-collate", &dir.settings.locale.name])
        .args(["--lc-ctype", &dir.settings.locale.name])
        .args(["--data-checksums", "--no-instructions"]);
    let mut command = tokio::process::Command::from(command);
    command.kill_on_drop(true);
    let Ok(result) = tokio::time::timeout(INITDB_LIMIT, command.output()).await else {
        let output = format!("(not finished after {} seconds)", INITDB_LIMIT.as_secs());
        return Err(Problem::InitFailed(output));
    };
    let output = result.map_err(|source| Problem::Program {
        program: binaries.initdb(),
        source,
    })?;
    if output.status.success() {
        return Ok(());
    }
    let output = tail_of(&output.stderr);
    Err(match tells_of_full_disk(&output) {
        true => Problem::DiskFull,
        false => Problem::InitFailed(output),
    })
}

/// Asks PostgreSQL to stop and waits until it has, more firmly the second time.
///
/// It is never killed outright: that could leave other processes of it writing to the data. Fails
/// with [`Problem::NotStopped`] when it runs on regardless.
pub(super) async fn shut_down(dir: &DataDir, pid: Pid) -> Result<(), Problem> {
    for (signal, limit) in STOP_REQUESTS {
        if !is_postmaster(dir, pid) {
            return Ok(());
        }
        // The only way to fail is that it has just ended by itself, which the wait notices.
        let _ = kill(pid, signal);
        let deadline = Instant::now() + limit;
        while Instant::now() < deadline {
            if Life::of(pid) == Life::Gone {
                return Ok(());
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        tracing::warn!(%pid, %signal, "PostgreSQL has not stopped yet");
    }
    let limits: Duration = STOP_REQUESTS.iter().map(|(_, limit)| *limit).sum();
    Err(Problem::NotStopped {
        pid: pid.as_raw(),
        seconds: limits.as_secs(),
    })
}

/// Whether the process is this data directory's PostgreSQL, so that a signal reaches no other
/// process. Blocks.
pub(super) fn is_postmaster(dir: &DataDir, pid: Pid) -> bool {
    match Life::of(pid) {
        Life::Child => true,
        Life::Gone => false,
        Life::Other => listener(dir) == Some(pid),
    }
}

/// The process that listens where `postmaster.pid` says: see [`PidFile::listener`].
pub(super) fn listener(dir: &DataDir) -> Option<Pid> {
    PidFile::read(dir)?.listener(dir)
}

/// Whether a start failed only because remains of a killed PostgreSQL are still in the way.
///
/// Its last processes notice the death within moments, after which the same start succeeds.
pub(super) fn is_passing_conflict(log_tail: &str) -> bool {
    ["lock file", "pre-existing shared memory block"]
        .iter()
        .any(|told| log_tail.contains(told))
}

/// Removes a `postmaster.pid` whose process number now belongs to something else.
///
/// PostgreSQL itself replaces the file when no process has that number, and refuses to start
/// when one has. In a restarted container the small numbers repeat, and it would refuse forever.
/// The file goes only on proof, which is a working directory other than the database's. Or it names
/// no process: a power cut can empty it, and PostgreSQL refuses such a file, too.
fn remove_misleading_pid_file(dir: &DataDir) -> Result<(), Problem> {
    let cluster = dir.cluster();
    let is_misleading = match PidFile::read(dir) {
        Some(file) => is_of_another_folder(&file, &cluster),
        None => is_remnant(dir),
    };
    if !is_misleading {
        return Ok(());
    }
    let folder = dir.folder.folder(CLUSTER);
    let removed = folder.and_then(|cluster| cluster.remove(PID_FILE));
    removed.map_err(|error| Problem::directory("removing", &cluster.join(PID_FILE), error))
}

/// Whether the process of the file lives, and works in another folder.
fn is_of_another_folder(file: &PidFile, cluster: &Path) -> bool {
    if Life::of(file.pid) == Life::Gone {
        return false;
    }
    let directory_of_process = std::fs::metadata(format!("/proc/{}/cwd", file.pid));
    let (Ok(other), Ok(own)) = (directory_of_process, std::fs::metadata(cluster)) else {
        return false;
    };
    (other.dev(), other.ino()) != (own.dev(), own.ino())
}

/// Whether the file names no process, and none is about to write its own into it: PostgreSQL does
/// so at once when it has made the file. Where one listens all the same, it is left alone.
fn is_remnant(dir: &DataDir) -> bool {
    let opened = dir.folder.folder(CLUSTER);
    let opened = opened.and_then(|it| it.file(PID_FILE, OFlag::O_RDONLY | OFlag::O_NONBLOCK));
    let written = opened.and_then(|file| file.metadata()?.modified());
    // A file of the future is no younger: the clock may have been set back by the power cut.
    let is_settled = written.is_ok_and(|at| at.elapsed().map_or(true, |age| age > WRITTEN_WITHIN));
    is_settled && UnixStream::connect(socket_in(&dir.socket_dir())).is_err()
}

/// One of PostgreSQL's programs, to be run as the data's owner and with a bare environment.
fn program(path: &Path, dir: &DataDir) -> Command {
    let locale = dir.settings.locale.folder.iter();
    let mut command = Command::new(path);
    command
        .env_clear()
        .envs(environment())
        .envs(locale.map(|folder| ("LOCPATH", folder)))
        // The folder that this process was started in may be closed to PostgreSQL's user.
        .current_dir("/")
        .stdin(Stdio::null());
    if let Some(account) = &dir.account {
        command.uid(account.uid.as_raw()).gid(account.gid.as_raw());
    }
    command
}

/// The setting is a comma-separated list, so the folder is quoted as one item of it.
fn socket_setting(folder: &Path) -> OsString {
    let mut setting = b"unix_socket_directories=\"".to_vec();
    for byte in folder.as_os_str().as_bytes() {
        if *byte == b'"' {
            setting.push(b'"');
        }
        setting.push(*byte);
    }
    setting.push(b'"');
    OsString::from_vec(setting)
}

fn tail_of(output: &[u8]) -> String {
    let start = output.len().saturating_sub(TAIL_BYTES);
    let text = String::from_utf8_lossy(output.get(start..).unwrap_or_default());
    let lines: Vec<&str> = text.trim_end().lines().collect();
    let skipped = lines.len().saturating_sub(TAIL_LINES);
    lines.get(skipped..).unwrap_or_default().join("\n")
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use nix::unistd::{Pid, getpid, getppid};

    use super::{PidFile, is_postmaster};
    use crate::embedded::EmbeddedSettings;
    use crate::embedded::account::UnixAccount;
    use crate::embedded::data_dir::{DataDir, socket_in};
    use crate::embedded::folder::Folder;

    #[tokio::test]
    async fn a_signal_goes_only_to_the_process_that_listens_whatever_the_file_says()
    -> Result<(), Box<dyn std::error::Error>> {
        let scratch = tempfile::tempdir_in("/tmp")?;
        let dir = DataDir {
            path: scratch.path().to_owned(),
            folder: Folder::open(scratch.path())?,
            account: None,
            settings: EmbeddedSettings::new("", scratch.path()),
        };
        let _listener = UnixListener::bind(socket_in(scratch.path()))?;
        let bystander = getppid();
        let socket_dir = scratch.path().display();
        let told = format!("{bystander}\n\n1700000000\n5432\n{socket_dir}\n\n\nready\n");
        std::fs::create_dir(dir.cluster())?;
        std::fs::write(dir.cluster().join("postmaster.pid"), told)?;

        let file = PidFile::read(&dir).ok_or("not read")?;
        assert_eq!(file.pid, bystander);
        assert_eq!(file.listener(&dir), Some(getpid()));
        assert!(!is_postmaster(&dir, bystander));
        assert!(is_postmaster(&dir, getpid()));

        // A process of another user is no PostgreSQL of ours.
        let account = Some(UnixAccount {
            name: String::new(),
            uid: 54_321.into(),
            gid: 54_321.into(),
        });
        let dir = DataDir { account, ..dir };
        assert_eq!(file.listener(&dir), None::<Pid>);
        Ok(())
    }
}
