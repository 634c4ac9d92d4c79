//! An opened folder. What is in it is used relative to the opened folder and never through a
//! symbolic link, so that no one else decides which file this process reads, writes, gives away or
//! removes.

use std::fs::{DirEntry, File, Metadata, Permissions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat, renameat};
use nix::sys::stat::{Mode, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};

use super::account::UnixAccount;

/// Most bytes that are read of a small file: `postmaster.pid` holds two paths at most.
const SMALL_FILE: u64 = 64 * 1024;

/// The paths in a folder whose names begin so; none where it can't be read.
pub(super) fn entries(folder: &Path, start: &str) -> impl Iterator<Item = PathBuf> {
    let found = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let named = move |entry: &DirEntry| entry.file_name().to_string_lossy().starts_with(start);
    found.filter(named).map(|entry| entry.path())
}

#[derive(Debug)]
pub(super) struct Folder(File);

impl Folder {
    /// Opens a folder on a way that is trusted; links on it are followed.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        Ok(Self(open(path, flags, Mode::empty())?.into()))
    }

    pub(super) fn folder(&self, name: impl AsRef<Path>) -> io::Result<Self> {
        self.at(name.as_ref(), OFlag::O_RDONLY | OFlag::O_DIRECTORY)
            .map(Self)
    }

    /// Creates a folder in this one that only its owner can use, and gives it to PostgreSQL's user.
    pub(super) fn create(
        &self,
        name: impl AsRef<Path>,
        owner: Option<&UnixAccount>,
    ) -> io::Result<Self> {
        mkdirat(&self.0, name.as_ref(), Mode::S_IRWXU)?;
        let created = self.folder(name)?;
        created.hand_over(owner)?;
        Ok(created)
    }

    /// Makes PostgreSQL's user the owner of this folder, and the only one who can use it.
    pub(super) fn hand_over(&self, owner: Option<&UnixAccount>) -> io::Result<()> {
        self.set_mode(0o700)?;
        match owner {
            Some(user) => fchown(&self.0, Some(user.uid.as_raw()), Some(user.gid.as_raw())),
            None => Ok(()),
        }
    }

    /// Opens a file in this folder. A new one can be read and written by its owner only.
    pub(super) fn file(&self, name: &str, flags: OFlag) -> io::Result<File> {
        self.at(Path::new(name), flags)
    }

    pub(super) fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        // A named pipe in its place must not hold up this process.
        let file = self.file(name, OFlag::O_RDONLY | OFlag::O_NONBLOCK)?;
        file.take(SMALL_FILE).read_to_end(&mut content)?;
        Ok(content)
    }

    /// Removes a file in this folder, if there is one.
    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        match unlinkat(&self.0, name, UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn rename(&self, from: impl AsRef<Path>, to: &str) -> io::Result<()> {
        Ok(renameat(&self.0, from.as_ref(), &self.0, to)?)
    }

    /// Whose folder it is, and what others may do with it.
    pub(super) fn metadata(&self) -> io::Result<Metadata> {
        self.0.metadata()
    }

    pub(super) fn set_mode(&self, mode: u32) -> io::Result<()> {
        self.0.set_permissions(Permissions::from_mode(mode))
    }

    /// Waits until the names in this folder are on the disk.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.0.sync_all()
    }

    fn at(&self, name: &Path, flags: OFlag) -> io::Result<File> {
        let flags = flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        match openat(&self.0, name, flags, Mode::S_IRUSR | Mode::S_IWUSR) {
            Ok(opened) => Ok(opened.into()),
            Err(Errno::ELOOP) => Err(io::Error::new(
                ErrorKind::InvalidInput,
                "it is a symbolic link, and links in this folder are not followed",
            )),
            Err(error) => Err(error.into()),
        }
    }
}
