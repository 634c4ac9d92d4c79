//! The data directory and the files in it.

use std::fs::{File, Metadata, TryLockError};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use nix::sys::statvfs::statvfs;
use nix::unistd::geteuid;
use sha2::{Digest, Sha256};

use super::account::UnixAccount;
use super::error::Problem;
use super::folder::{Folder, entries};
use super::{EmbeddedError, EmbeddedSettings};

/// Start of the name of a folder in which `initdb` is or was at work.
pub(super) const STAGING_PREFIX: &str = "pgdata.new-";

/// Names in the data directory, apart from those that start with [`STAGING_PREFIX`].
pub(super) const CLUSTER: &str = "pgdata";
pub(super) const SOCKETS: &str = "run";
pub(super) const LOG: &str = "postgres.log";
pub(super) const OLD_LOG: &str = "postgres.log.1";
pub(super) const LOCK: &str = "owner.lock";
pub(super) const MOVED: &str = "moved-to";

/// Port number in the name of the socket. Nothing listens on TCP, so it cannot collide.
pub(super) const PORT: u16 = 5432;

/// Longest socket path in bytes. The systems allow 104 (macOS) to 108 (Linux) including a final
/// zero, and some client libraries allow less.
const SOCKET_PATH_LIMIT: usize = 90;

/// Size in bytes from which the log is put aside at a start: more than quiet operation ever
/// writes, and still small enough to open in an editor.
const LOG_LIMIT: u64 = 16 * 1024 * 1024;

/// Free space in bytes below which a disk counts as full. It is not zero because a file system
/// also refuses a write that is larger than what is left.
const FULL_BELOW: u128 = 1024 * 1024;

/// A data directory, and the user that PostgreSQL runs as in it.
#[derive(Debug)]
pub(super) struct DataDir {
    /// Absolute.
    pub(super) path: PathBuf,
    /// The same folder, opened. No other user can write to it.
    pub(super) folder: Folder,
    /// `None` when PostgreSQL runs as the same user as this process.
    pub(super) account: Option<UnixAccount>,
    /// As they were given: their data directory is another one where the data went to the fallback.
    pub(super) settings: EmbeddedSettings,
}

impl DataDir {
    /// The folder with the database files, PostgreSQL's own `PGDATA`.
    pub(super) fn cluster(&self) -> PathBuf {
        self.path.join(CLUSTER)
    }

    pub(super) fn log(&self) -> PathBuf {
        self.path.join(LOG)
    }

    /// The folder for the socket: in the data directory, or, where that path cannot be one, a
    /// folder in `/tmp` that is derived from it. A socket's path can be too long, and to `psql` a
    /// comma separates two hosts.
    pub(super) fn socket_dir(&self) -> PathBuf {
        let inside = self.path.join(SOCKETS);
        let bytes = inside.as_os_str().as_bytes();
        if socket_in(&inside).as_os_str().len() <= SOCKET_PATH_LIMIT && !bytes.contains(&b',') {
            return inside;
        }
        Path::new("/tmp").join(format!("embedded-postgres-{}", name_for(&self.path)))
    }

    /// The major version that made the database, or nothing when there is no database yet.
    pub(super) fn version(&self) -> Option<String> {
        version_in(&self.folder)
    }

    /// Takes the lock that makes this process the owner, or nothing when another one has it.
    ///
    /// The lock is the kernel's, so it ends with the process however that dies.
    pub(super) fn try_lock(&self) -> Result<Option<File>, Problem> {
        let path = self.path.join(LOCK);
        let file = self.folder.file(LOCK, OFlag::O_CREAT | OFlag::O_WRONLY);
        let file = file.map_err(|error| Problem::directory("opening", &path, error))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(Problem::directory("locking", &path, error)),
        }
    }

    /// Removes what an interrupted `initdb` left. Only for the owner.
    ///
    /// An `initdb` whose parent was killed may still be writing there, and then removal fails.
    /// That is no reason to give up: its folder is never used, and the next start tries again.
    pub(super) fn remove_leftovers(&self) {
        for leftover in entries(&self.path, STAGING_PREFIX) {
            if let Err(error) = std::fs::remove_dir_all(&leftover) {
                tracing::warn!(folder = %leftover.display(), %error, "leftover not removed");
            }
        }
    }

    /// Creates an empty folder for `initdb` beside the one that the database will have.
    pub(super) fn create_staging(&self) -> Result<PathBuf, Problem> {
        let moment = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
        let name = format!("{STAGING_PREFIX}{}", moment.as_nanos());
        let path = self.path.join(&name);
        let created = self.folder.create(name, self.account.as_ref());
        created.map_err(|error| Problem::directory("creating", &path, error))?;
        Ok(path)
    }

    /// Gives a finished database its real name, in a way that survives a power cut.
    pub(super) fn publish(&self, staging: &Path) -> Result<(), Problem> {
        let name = staging.file_name().unwrap_or_default();
        let renamed = self.folder.rename(name, CLUSTER);
        renamed.map_err(|error| Problem::directory("renaming", staging, error))?;
        let synced = self.folder.sync();
        synced.map_err(|error| Problem::directory("syncing", &self.path, error))
    }

    /// Makes the socket folder and clears sockets that a killed PostgreSQL left in it. Only for
    /// the owner, and only while no PostgreSQL listens there.
    pub(super) fn prepare_socket_dir(&self) -> Result<PathBuf, Problem> {
        let path = self.socket_dir();
        let name = path.file_name().unwrap_or_default();
        let parent = Folder::open(path.parent().unwrap_or(&self.path))
            .map_err(|error| Problem::directory("opening the parent of", &path, error))?;
        let folder = match parent.create(name, self.account.as_ref()) {
            Ok(folder) => folder,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                self.trusted_socket_dir(&parent, &path)?
            }
            Err(error) => return Err(Problem::directory("creating", &path, error)),
        };
        for stale in [socket_name(), format!("{}.lock", socket_name())] {
            let removed = folder.remove(&stale);
            removed.map_err(|error| Problem::directory("removing", &path.join(&stale), error))?;
        }
        Ok(path)
    }

    /// Opens the log for appending, after putting a large one aside.
    pub(super) fn open_log(&self) -> Result<File, Problem> {
        let path = self.log();
        let flags = OFlag::O_CREAT | OFlag::O_APPEND | OFlag::O_WRONLY;
        let open = || {
            let log = self.folder.file(LOG, flags);
            log.map_err(|error| Problem::directory("opening", &path, error))
        };
        let log = open()?;
        if log.metadata().is_ok_and(|log| log.len() <= LOG_LIMIT) {
            return Ok(log);
        }
        let renamed = self.folder.rename(LOG, OLD_LOG);
        renamed.map_err(|error| Problem::directory("renaming", &path, error))?;
        open()
    }

    /// Whether the file system has no room left. Blocks.
    ///
    /// PostgreSQL says so itself, but its log is on the same disk and then stays empty.
    pub(super) fn is_full(&self) -> bool {
        free_bytes(&self.path).is_some_and(|free| free < FULL_BELOW)
    }

    /// Why PostgreSQL can't be started or stopped here.
    pub(super) fn error(&self, problem: Problem) -> EmbeddedError {
        EmbeddedError::new(problem, &self.path, self.settings.names)
    }

    /// The number of the user that PostgreSQL runs as.
    pub(super) fn runner(&self) -> u32 {
        let account = self.account.as_ref();
        account.map_or_else(geteuid, |account| account.uid).as_raw()
    }

    /// Accepts an existing socket folder only from ourselves: its owner decides which program
    /// answers on the socket, and anyone can make a folder or a link in `/tmp`.
    fn trusted_socket_dir(&self, parent: &Folder, path: &Path) -> Result<Folder, Problem> {
        let ours = [geteuid().as_raw(), self.runner()];
        let is_ours = |found: Metadata| ours.contains(&found.uid());
        let folder = parent.folder(path.file_name().unwrap_or_default()).ok();
        let folder = folder.filter(|folder| folder.metadata().is_ok_and(is_ours));
        let folder = folder.ok_or_else(|| Problem::SocketDirectory(path.to_owned()))?;
        let secured = folder.hand_over(self.account.as_ref());
        secured.map_err(|error| Problem::directory("securing", path, error))?;
        Ok(folder)
    }
}

/// The major version that made the database of a data directory, or nothing when there is none.
pub(super) fn version_in(data_dir: &Folder) -> Option<String> {
    let text = data_dir.folder(CLUSTER).ok()?.read("PG_VERSION").ok()?;
    Some(String::from_utf8(text).ok()?.trim().to_owned())
}

/// What is left on a disk.
pub(super) fn free_bytes(path: &Path) -> Option<u128> {
    let disk = statvfs(path).ok()?;
    Some(u128::from(disk.blocks_available()) * u128::from(disk.fragment_size()))
}

/// A name for what belongs to a data directory and can't be in it.
pub(super) fn name_for(data_dir: &Path) -> String {
    let digest = Sha256::digest(data_dir.as_os_str().as_bytes());
    hex::encode(digest).chars().take(16).collect()
}

pub(super) fn socket_in(folder: &Path) -> PathBuf {
    folder.join(socket_name())
}

fn socket_name() -> String {
    format!(".s.PGSQL.{PORT}")
}
