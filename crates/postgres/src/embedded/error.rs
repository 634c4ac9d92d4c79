//! What can keep the private PostgreSQL from starting, worded for the person at the terminal.

use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::Names;
use super::binaries::OLDEST_MAJOR;
use super::data_dir::{CLUSTER, LOG};

/// Why the private PostgreSQL could not be started or stopped.
///
/// Its message names the setting that is involved, by the caller's own [`Names`], and says what to
/// do about it.
#[derive(Debug)]
pub struct EmbeddedError {
    // Boxed, so that a result without an error stays small.
    problem: Box<Problem>,
    data_dir: PathBuf,
    names: Names,
}

impl EmbeddedError {
    pub(super) fn new(problem: Problem, data_dir: &Path, names: Names) -> Self {
        Self {
            problem: Box::new(problem),
            data_dir: data_dir.to_owned(),
            names,
        }
    }

    /// What went wrong, for programs.
    #[must_use]
    pub fn problem(&self) -> &Problem {
        &self.problem
    }
}

impl fmt::Display for EmbeddedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.problem.describe(&self.data_dir, &self.names, f)
    }
}

impl std::error::Error for EmbeddedError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        if let Problem::Directory { source, .. } | Problem::Program { source, .. } = &*self.problem
        {
            return Some(source);
        }
        None
    }
}

/// What went wrong in a data directory.
#[derive(Debug)]
#[non_exhaustive]
pub enum Problem {
    /// No usable PostgreSQL was found anywhere on this machine. How this system installs it, as an
    /// instruction.
    NotInstalled(String),
    /// The folder for PostgreSQL's programs does not hold those of a supported version.
    BinDir {
        /// The folder that was given.
        bin_dir: PathBuf,
        /// What is wrong with it, as the second half of a sentence.
        problem: String,
    },
    /// The data was made by a PostgreSQL version that is not among the ones found.
    VersionMissing {
        /// The content of its `PG_VERSION` file.
        needed: String,
        /// The major versions that were found, newest first, comma-separated.
        found: String,
    },
    /// The data directory holds files that this crate did not make, such as this one, relative to
    /// it.
    ForeignDirectory(PathBuf),
    /// Another user could have prepared the data directory, or could put another in its place.
    Untrusted {
        /// The folder or link that another user controls: the data directory, or one on the way to
        /// it.
        folder: PathBuf,
        /// The user that owns it, as a name or a number; `None` when others may write to it.
        owner: Option<String>,
    },
    /// The database files belong to a user other than the one PostgreSQL would run as.
    WrongOwner {
        /// The user that owns them, as a name or a number.
        owner: String,
        /// The user that PostgreSQL would run as, as a name or a number.
        runner: String,
    },
    /// PostgreSQL's user cannot get to data that exists, or not even to the fallback folder.
    Unreachable {
        /// The user that PostgreSQL would run as.
        user: String,
        /// The innermost folder that the user may not enter.
        obstacle: PathBuf,
    },
    /// The process runs as root and the system has no ordinary user for PostgreSQL.
    NoAccount,
    /// The file system that holds the data directory is full.
    DiskFull,
    /// A file or folder in the data directory could not be used.
    Directory {
        /// What was attempted, such as "creating".
        action: &'static str,
        /// The file or folder it was attempted on.
        path: PathBuf,
        /// The answer of the operating system.
        source: std::io::Error,
    },
    /// The folder for the socket exists already and belongs to another user.
    SocketDirectory(PathBuf),
    /// One of PostgreSQL's programs could not be run at all.
    Program {
        /// The program.
        program: PathBuf,
        /// The answer of the operating system.
        source: std::io::Error,
    },
    /// `initdb` did not create a database. The last lines that it wrote, or that it took too long.
    InitFailed(String),
    /// PostgreSQL ended before it accepted connections. The last lines of this start in its log.
    Exited(String),
    /// PostgreSQL runs but did not accept connections in time.
    NotReady {
        /// How long it was waited for, in seconds.
        seconds: u64,
        /// The last thing that was missing.
        reason: String,
    },
    /// It runs already, in another container that uses the same files.
    RunsElsewhere,
    /// PostgreSQL ignored every request to shut down.
    NotStopped {
        /// The process that is still running.
        pid: i32,
        /// How long it was waited for, in seconds.
        seconds: u64,
    },
    /// The process is shutting down, and took the start with it.
    Interrupted,
}

impl Problem {
    /// A failed file operation, with the full disk kept apart because its remedy differs.
    pub(super) fn directory(action: &'static str, path: &Path, source: std::io::Error) -> Self {
        if let ErrorKind::StorageFull | ErrorKind::QuotaExceeded = source.kind() {
            return Self::DiskFull;
        }
        let path = path.to_owned();
        Self::Directory {
            action,
            path,
            source,
        }
    }

    #[allow(clippy::too_many_lines, reason = "one message after the other")]
    fn describe(&self, here: &Path, names: &Names, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Names {
            program: caller,
            data_dir: folder,
            bin_dir: programs,
            alternative,
        } = names;
        let (cluster, log, here) = (here.join(CLUSTER), here.join(LOG), here.display());
        match self {
            Self::NotInstalled(install) => write!(
                f,
                "PostgreSQL {OLDEST_MAJOR} or newer was not found on this machine. Do one of \
                 these: {install}; or {alternative}. If PostgreSQL is installed in an unusual \
                 place, set {programs} to the folder that holds `initdb` and `postgres`."
            ),
            Self::BinDir { bin_dir, problem } => write!(
                f,
                "{programs} is {}, but {problem}. Set it to the folder that holds `initdb` and \
                 `postgres` of PostgreSQL {OLDEST_MAJOR} or newer (such as \
                 /usr/lib/postgresql/17/bin), or unset it to search the usual places.",
                bin_dir.display()
            ),
            Self::VersionMissing { needed, found } => write!(
                f,
                "The data in {folder} ({here}) was made by PostgreSQL {needed}, and only version \
                 {found} was found here; one version cannot open the data of another. Install \
                 PostgreSQL {needed}, or set {programs} to its programs, or set {folder} to an \
                 empty folder to start without the data."
            ),
            Self::ForeignDirectory(entry) => write!(
                f,
                "{folder} ({here}) holds files that {caller} did not make, such as `{}`. Nothing was \
                 changed. Set {folder} to an empty folder or to one that does not exist yet.",
                entry.display()
            ),
            Self::Untrusted {
                folder: way,
                owner: Some(owner),
            } => write!(
                f,
                "{folder} ({here}) can't be trusted: {} belongs to user {owner}, who decides what is in it. \
                 Start {caller} as that user, or set {folder} to a folder that belongs to you, as do the \
                 folders on the way to it, or to root.",
                way.display()
            ),
            Self::Untrusted {
                folder: way,
                owner: None,
            } => write!(
                f,
                "{folder} ({here}) can't be trusted: other users may write to {way}. Look at what is in it, then \
                 run `chmod go-w {way}`, or set {folder} to a folder that only you may write to.",
                way = way.display()
            ),
            Self::WrongOwner { owner, runner } => write!(
                f,
                "The database in {folder} ({here}) belongs to user {owner}, but PostgreSQL would run \
                 as user {runner} and refuses another user's files. Run `sudo chown -R {runner} \
                 {}`, or start {caller} as the user who made the data, or set {folder} to an \
                 empty folder.",
                cluster.display()
            ),
            Self::Unreachable { user, obstacle } => write!(
                f,
                "PostgreSQL cannot run as root and runs as user {user} instead, who may not enter \
                 {obstacle}, on the way to {folder} ({here}). Run `chmod o+x {obstacle}`, or move the \
                 data to a folder that every user can reach and set {folder} to it.",
                obstacle = obstacle.display()
            ),
            Self::NoAccount => write!(
                f,
                "{caller} runs as root, PostgreSQL refuses to, and this system has neither a user \
                 `postgres` nor a user `nobody` to run it as. Start {caller} as an ordinary user \
                 that can write to {folder}, or {alternative}."
            ),
            Self::DiskFull => write!(
                f,
                "The disk that holds {folder} ({here}) is full. Free some space on it (a new database \
                 needs about 100 MB), or set {folder} to a folder on another disk."
            ),
            Self::Directory {
                action,
                path,
                source,
            } => write!(
                f,
                "{folder} ({here}) cannot be used: {action} {} failed: {source}. Make the folder \
                 writable for the user that runs {caller}, or set {folder} to one that is.",
                path.display()
            ),
            Self::SocketDirectory(socket_dir) => write!(
                f,
                "The folder for PostgreSQL's socket, {}, was made by another user, who could put \
                 another database in its place. Remove that folder, or change {folder} (now {here}).",
                socket_dir.display()
            ),
            Self::Program { program, source } => write!(
                f,
                "{} could not be run: {source}. Reinstall PostgreSQL, or set {programs} to the \
                 folder of a working one.",
                program.display()
            ),
            Self::InitFailed(output) => write!(
                f,
                "PostgreSQL could not create a database in {folder} ({here}). `initdb` said:\n\
                 {output}\nFix the cause, or set {folder} to another folder."
            ),
            Self::Exited(tail) => write!(
                f,
                "PostgreSQL in {folder} ({here}) ended while starting. The end of {}:\n{tail}\nFix \
                 the cause, and keep the folder: it has all data. In an empty {folder}, \
                 {caller} starts without the data.",
                log.display()
            ),
            Self::NotReady { seconds, reason } => write!(
                f,
                "PostgreSQL in {folder} ({here}) was not ready within {seconds} seconds ({reason}). \
                 Look at {}, then start {caller} again.",
                log.display()
            ),
            Self::RunsElsewhere => write!(
                f,
                "PostgreSQL in {folder} ({here}) runs in another container. Stop it there, then start \
                 {caller} again."
            ),
            Self::NotStopped { pid, seconds } => write!(
                f,
                "PostgreSQL (process {pid}) in {folder} ({here}) did not stop within {seconds} \
                 seconds. Committed data is safe; the next start of {caller} continues with that \
                 process."
            ),
            Self::Interrupted => write!(
                f,
                "The start of the private PostgreSQL was interrupted. Start {caller} again."
            ),
        }
    }
}

/// Whether PostgreSQL's own output says that the disk is full.
pub(super) fn tells_of_full_disk(output: &str) -> bool {
    ["No space left on device", "Disk quota exceeded"]
        .iter()
        .any(|told| output.contains(told))
}
