//! What can keep the embedded PostgreSQL from starting, worded for the person at the terminal.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::binaries::OLDEST_MAJOR;

/// Why the embedded PostgreSQL could not be started or stopped.
///
/// The messages are shown as they are at start-up, so each one names the setting that is
/// involved and what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmbeddedError {
    /// No usable PostgreSQL was found anywhere on this machine.
    #[error(
        "PostgreSQL {OLDEST_MAJOR} or newer was not found on this machine. Do one of these: \
         {install}; or run everything in containers with `docker compose up`; or set \
         DATABASE_URL to a PostgreSQL that is already running. If PostgreSQL is installed in an \
         unusual place, set PG_BIN_DIR to the folder that holds `initdb` and `postgres`."
    )]
    NotInstalled {
        /// How this system installs PostgreSQL, as an instruction.
        install: String,
    },

    /// `PG_BIN_DIR` does not hold the programs of a supported PostgreSQL.
    #[error(
        "PG_BIN_DIR is {}, but {problem}. Set it to the folder that holds `initdb` and `postgres` \
         of PostgreSQL {OLDEST_MAJOR} or newer (such as /usr/lib/postgresql/17/bin), or unset it \
         to let charge-once look in the usual places.",
        bin_dir.display()
    )]
    BinDir {
        /// The folder that was given.
        bin_dir: PathBuf,
        /// What is wrong with it, as the second half of a sentence.
        problem: String,
    },

    /// The data was made by a PostgreSQL version that is not among the ones found.
    #[error(
        "The data in DATA_DIR ({}) was made by PostgreSQL {needed}, and only version {found} was \
         found here; one version cannot open the data of another. Install PostgreSQL {needed}, or \
         set PG_BIN_DIR to its programs, or set DATA_DIR to an empty folder to start afresh.",
        data_dir.display()
    )]
    VersionMissing {
        /// The data directory.
        data_dir: PathBuf,
        /// The content of its `PG_VERSION` file.
        needed: String,
        /// The major versions that were found, newest first, comma-separated.
        found: String,
    },

    /// The data directory holds files that charge-once did not make.
    #[error(
        "DATA_DIR ({}) holds files that charge-once did not make, such as `{}`. Nothing was \
         changed. Set DATA_DIR to an empty folder or to one that does not exist yet.",
        data_dir.display(),
        entry.display()
    )]
    ForeignDirectory {
        /// The data directory.
        data_dir: PathBuf,
        /// One of the files in it that charge-once does not know, relative to the data directory.
        entry: PathBuf,
    },

    /// The database files belong to a user other than the one PostgreSQL would run as.
    #[error(
        "The database in DATA_DIR ({}) belongs to user {owner}, but PostgreSQL would run as user \
         {runner} and refuses files of somebody else. Run `sudo chown -R {runner} {}`, or start \
         charge-once as the user who made the data, or set DATA_DIR to an empty folder.",
        data_dir.display(),
        cluster.display()
    )]
    WrongOwner {
        /// The data directory.
        data_dir: PathBuf,
        /// The folder with the database files.
        cluster: PathBuf,
        /// The user that owns them, as a name or a number.
        owner: String,
        /// The user that PostgreSQL would run as, as a name or a number.
        runner: String,
    },

    /// PostgreSQL's user cannot get to data that exists, or not even to the replacement folder.
    #[error(
        "PostgreSQL cannot run as root and runs as user {user} instead, who may not enter {}, on \
         the way to DATA_DIR ({}). Run `chmod o+x {}`, or move the data to a folder that every \
         user can reach and set DATA_DIR to it.",
        obstacle.display(),
        data_dir.display(),
        obstacle.display()
    )]
    Unreachable {
        /// The data directory.
        data_dir: PathBuf,
        /// The user that PostgreSQL would run as.
        user: String,
        /// The innermost folder that the user may not enter.
        obstacle: PathBuf,
    },

    /// The process runs as root and the system has no ordinary user for PostgreSQL.
    #[error(
        "charge-once runs as root, PostgreSQL refuses to, and this system has neither a user \
         `postgres` nor a user `nobody` to run it as. Start charge-once as an ordinary user that \
         can write to DATA_DIR, or set DATABASE_URL to a PostgreSQL that is already running."
    )]
    NoAccount,

    /// The file system that holds the data directory is full.
    #[error(
        "The disk that holds DATA_DIR ({}) is full. Free some space on it (a new database needs \
         about 100 MB), or set DATA_DIR to a folder on another disk.",
        data_dir.display()
    )]
    DiskFull {
        /// The data directory.
        data_dir: PathBuf,
    },

    /// A file or folder in the data directory could not be used.
    #[error(
        "DATA_DIR ({}) cannot be used: {action} {} failed: {source}. Make the folder writable for \
         the user that runs charge-once, or set DATA_DIR to one that is.",
        data_dir.display(),
        path.display()
    )]
    Directory {
        /// The data directory.
        data_dir: PathBuf,
        /// What was attempted, such as "creating".
        action: &'static str,
        /// The file or folder it was attempted on.
        path: PathBuf,
        /// The answer of the operating system.
        source: std::io::Error,
    },

    /// The folder for the socket exists already and belongs to somebody else.
    #[error(
        "The folder for PostgreSQL's socket, {}, was made by another user, who could put another \
         database in its place. Remove that folder, or change DATA_DIR (now {}).",
        socket_dir.display(),
        data_dir.display()
    )]
    SocketDirectory {
        /// The data directory.
        data_dir: PathBuf,
        /// The folder that cannot be trusted.
        socket_dir: PathBuf,
    },

    /// One of PostgreSQL's programs could not be run at all.
    #[error(
        "{} could not be run: {source}. Reinstall PostgreSQL, or set PG_BIN_DIR to the folder of a \
         working one.",
        program.display()
    )]
    Program {
        /// The program.
        program: PathBuf,
        /// The answer of the operating system.
        source: std::io::Error,
    },

    /// `initdb` did not create a database.
    #[error(
        "PostgreSQL could not create a database in DATA_DIR ({}). `initdb` said:\n{output}\nMend \
         the cause, or set DATA_DIR to another folder.",
        data_dir.display()
    )]
    InitFailed {
        /// The data directory.
        data_dir: PathBuf,
        /// The last lines that `initdb` wrote, or that it took too long.
        output: String,
    },

    /// PostgreSQL ended before it accepted connections.
    #[error(
        "PostgreSQL in DATA_DIR ({}) ended while starting. The end of {}:\n{tail}\nMend the \
         cause, or set DATA_DIR to an empty folder to start afresh.",
        data_dir.display(),
        log.display()
    )]
    Exited {
        /// The data directory.
        data_dir: PathBuf,
        /// PostgreSQL's log.
        log: PathBuf,
        /// The last lines of this start in the log.
        tail: String,
    },

    /// PostgreSQL runs but did not accept connections in time.
    #[error(
        "PostgreSQL in DATA_DIR ({}) was not ready within {seconds} seconds ({reason}). Look at \
         {}, then start charge-once again.",
        data_dir.display(),
        log.display()
    )]
    NotReady {
        /// The data directory.
        data_dir: PathBuf,
        /// PostgreSQL's log.
        log: PathBuf,
        /// How long it was waited for, in seconds.
        seconds: u64,
        /// The last thing that was missing.
        reason: String,
    },

    /// PostgreSQL ignored every request to shut down.
    #[error(
        "PostgreSQL (process {pid}) in DATA_DIR ({}) did not stop within {seconds} seconds. \
         Committed data is safe; the next start of charge-once continues with that process.",
        data_dir.display()
    )]
    NotStopped {
        /// The data directory.
        data_dir: PathBuf,
        /// The process that is still running.
        pid: i32,
        /// How long it was waited for, in seconds.
        seconds: u64,
    },

    /// The process is shutting down, and took the start with it.
    #[error("The start of the embedded PostgreSQL was interrupted. Start charge-once again.")]
    Interrupted,
}

impl EmbeddedError {
    /// Words a failed file operation, with the full disk kept apart because its remedy differs.
    pub(super) fn directory(
        data_dir: &Path,
        action: &'static str,
        path: &Path,
        source: std::io::Error,
    ) -> Self {
        if matches!(
            source.kind(),
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded
        ) {
            return Self::DiskFull {
                data_dir: data_dir.to_owned(),
            };
        }
        Self::Directory {
            data_dir: data_dir.to_owned(),
            action,
            path: path.to_owned(),
            source,
        }
    }
}

/// Whether PostgreSQL's own output says that the disk is full.
pub(super) fn tells_of_full_disk(output: &str) -> bool {
    ["No space left on device", "Disk quota exceeded"]
        .iter()
        .any(|told| output.contains(told))
}
