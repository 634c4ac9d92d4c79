//! The data directory and the files in it.

use std::fs::{DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use nix::sys::statvfs::statvfs;
use nix::unistd::geteuid;
use sha2::{Digest, Sha256};

use super::account::Account;
use super::error::Problem;
use super::settings::Locale;

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
    /// `None` when PostgreSQL runs as the same user as this process.
    pub(super) account: Option<Account>,
    /// The database, and the role that owns it.
    pub(super) database: String,
    /// Server parameters that the caller decides.
    pub(super) parameters: Vec<(String, String)>,
    /// What sorts text in a new database.
    pub(super) locale: Locale,
}

impl DataDir {
    /// The data directory, as an absolute path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The name of the database, and of the role that owns it.
    pub(super) fn database(&self) -> &str {
        &self.database
    }

    /// The user to run PostgreSQL's programs as, unless it is the current one.
    pub(super) fn account(&self) -> Option<&Account> {
        self.account.as_ref()
    }

    /// The folder with the database files, PostgreSQL's own `PGDATA`.
    pub(super) fn cluster(&self) -> PathBuf {
        self.path.join(CLUSTER)
    }

    /// The file that PostgreSQL writes its log to.
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
        let digest = Sha256::digest(self.path.as_os_str().as_bytes());
        let name: String = hex::encode(digest).chars().take(16).collect();
        Path::new("/tmp").join(format!("embedded-postgres-{name}"))
    }

    /// The major version that made the database, or nothing when there is no database yet.
    pub(super) fn version(&self) -> Option<String> {
        version_in(&self.path)
    }

    /// Takes the lock that makes this process the owner, or nothing when another one has it.
    ///
    /// The lock is the kernel's, so it ends with the process however that dies.
    pub(super) fn try_lock(&self) -> Result<Option<File>, Problem> {
        let path = self.path.join(LOCK);
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&path)
            .map_err(|error| self.failure("opening", &path, error))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(self.failure("locking", &path, error)),
        }
    }

    /// Removes what an interrupted `initdb` left. Only for the owner.
    ///
    /// An `initdb` whose parent was killed may still be writing there, and then removal fails.
    /// That is no reason to give up: its folder is never used, and the next start tries again.
    pub(super) fn remove_leftovers(&self) {
        let entries = std::fs::read_dir(&self.path).into_iter().flatten();
        for entry in entries.flatten() {
            let name = entry.file_name();
            if !name.as_bytes().starts_with(STAGING_PREFIX.as_bytes()) {
                continue;
            }
            if let Err(error) = std::fs::remove_dir_all(entry.path()) {
                tracing::warn!(folder = %entry.path().display(), %error, "leftover not removed");
            }
        }
    }

    /// Creates an empty folder for `initdb` beside the one that the database will have.
    pub(super) fn create_staging(&self) -> Result<PathBuf, Problem> {
        let moment = std::time::UNIX_EPOCH
            .elapsed()
            .unwrap_or_default()
            .as_nanos();
        let path = self.path.join(format!("{STAGING_PREFIX}{moment}"));
        self.create_private_dir(&path)
            .map_err(|error| self.failure("creating", &path, error))?;
        Ok(path)
    }

    /// Gives a finished database its real name, in a way that survives a power cut.
    pub(super) fn publish(&self, staging: &Path) -> Result<(), Problem> {
        std::fs::rename(staging, self.cluster())
            .map_err(|error| self.failure("renaming", staging, error))?;
        File::open(&self.path)
            .and_then(|folder| folder.sync_all())
            .map_err(|error| self.failure("syncing", &self.path, error))
    }

    /// Makes the socket folder and clears sockets that a killed PostgreSQL left in it. Only for
    /// the owner, and only while no PostgreSQL listens there.
    pub(super) fn prepare_socket_dir(&self) -> Result<PathBuf, Problem> {
        let path = self.socket_dir();
        match self.create_private_dir(&path) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                self.trust_socket_dir(&path)?;
            }
            Err(error) => return Err(self.failure("creating", &path, error)),
        }
        let socket = socket_in(&path);
        let mut socket_lock = socket.clone().into_os_string();
        socket_lock.push(".lock");
        for stale in [socket, PathBuf::from(socket_lock)] {
            match std::fs::remove_file(&stale) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(self.failure("removing", &stale, error));
                }
                Ok(()) | Err(_) => {}
            }
        }
        Ok(path)
    }

    /// Opens the log for appending, after putting a large one aside.
    pub(super) fn open_log(&self) -> Result<File, Problem> {
        let path = self.log();
        if std::fs::metadata(&path).is_ok_and(|log| log.len() > LOG_LIMIT) {
            std::fs::rename(&path, self.path.join(OLD_LOG))
                .map_err(|error| self.failure("renaming", &path, error))?;
        }
        OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(&path)
            .map_err(|error| self.failure("opening", &path, error))
    }

    /// Whether the file system has no room left. Blocks.
    ///
    /// PostgreSQL says so itself, but its log is on the same disk and then stays empty.
    pub(super) fn is_full(&self) -> bool {
        statvfs(&self.path).is_ok_and(|disk| {
            u128::from(disk.blocks_available()) * u128::from(disk.fragment_size()) < FULL_BELOW
        })
    }

    /// Words a failed file operation in this data directory.
    pub(super) fn failure(
        &self,
        action: &'static str,
        path: &Path,
        source: std::io::Error,
    ) -> Problem {
        Problem::directory(&self.path, action, path, source)
    }

    /// The number of the user that PostgreSQL runs as.
    pub(super) fn runner(&self) -> u32 {
        self.account
            .as_ref()
            .map_or_else(|| geteuid().as_raw(), |account| account.uid.as_raw())
    }

    /// Creates a folder that only PostgreSQL's user can use.
    fn create_private_dir(&self, path: &Path) -> std::io::Result<()> {
        DirBuilder::new().mode(0o700).create(path)?;
        self.hand_over(path)
    }

    /// Makes PostgreSQL's user the owner of a folder.
    fn hand_over(&self, path: &Path) -> std::io::Result<()> {
        match &self.account {
            Some(account) => chown(path, Some(account.uid.as_raw()), Some(account.gid.as_raw())),
            None => Ok(()),
        }
    }

    /// Accepts an existing socket folder only from ourselves: its owner decides which program
    /// answers on the socket, and anyone can make a folder in `/tmp`.
    fn trust_socket_dir(&self, path: &Path) -> Result<(), Problem> {
        let found = std::fs::symlink_metadata(path)
            .map_err(|error| self.failure("inspecting", path, error))?;
        let ours = [geteuid().as_raw(), self.runner()].contains(&found.uid());
        if !found.is_dir() || !ours {
            return Err(Problem::SocketDirectory {
                data_dir: self.path.clone(),
                socket_dir: path.to_owned(),
            });
        }
        std::fs::set_permissions(path, Permissions::from_mode(0o700))
            .and_then(|()| self.hand_over(path))
            .map_err(|error| self.failure("securing", path, error))
    }
}

/// The major version that made the database of a data directory, or nothing when there is none.
pub(super) fn version_in(data_dir: &Path) -> Option<String> {
    let text = std::fs::read_to_string(data_dir.join(CLUSTER).join("PG_VERSION")).ok()?;
    Some(text.trim().to_owned())
}

/// The path of PostgreSQL's socket in a folder.
pub(super) fn socket_in(folder: &Path) -> PathBuf {
    folder.join(format!(".s.PGSQL.{PORT}"))
}
