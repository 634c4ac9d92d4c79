//! Deciding where the data lives, and refusing folders that hold something else.

use std::ffi::OsString;
use std::fs::{Metadata, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use nix::unistd::{getegid, geteuid};

use super::account::{UnixAccount, name_of};
use super::data_dir::{
    CLUSTER, DataDir, LOCK, LOG, MOVED, OLD_LOG, SOCKETS, STAGING_PREFIX, name_for, version_in,
};
use super::error::Problem;
use super::folder::Folder;
use super::{EmbeddedError, EmbeddedSettings};

impl EmbeddedSettings {
    /// Whether a database was made there before, in the fallback folder included. Changes nothing.
    #[must_use]
    pub fn has_database(&self) -> bool {
        let has_version =
            |path: &Path| Folder::open(path).is_ok_and(|dir| version_in(&dir).is_some());
        let moved = || moved_to(&Folder::open(&self.data_dir).ok()?);
        has_version(&self.data_dir) || moved().is_some_and(|moved| has_version(&moved))
    }
}

/// Where the note in a data directory says that the data is.
fn moved_to(data_dir: &Folder) -> Option<PathBuf> {
    let note = data_dir.read(MOVED).ok()?;
    // An empty one could not be written: the disk was full.
    (!note.is_empty()).then(|| PathBuf::from(OsString::from_vec(note)))
}

impl DataDir {
    /// Decides where the data lives and makes sure that the folder exists. Blocks.
    ///
    /// The answer for one folder stays the same from start to start: when the data once went to
    /// the fallback, a note in the folder says so, and later starts follow it even if the folder
    /// has become reachable since.
    ///
    /// Fails when the folder holds other files, cannot be made, or has the wrong owner.
    pub(super) fn locate(settings: &EmbeddedSettings) -> Result<Self, EmbeddedError> {
        let dir = Self::open(&settings.data_dir, settings)?;
        let fallback = dir.fallback().map_err(|problem| dir.error(problem))?;
        let Some(fallback) = fallback else {
            return Ok(dir);
        };
        let moved = Self::open(&fallback, settings)?;
        let reached = moved.refuse_unreachable();
        reached.map_err(|problem| moved.error(problem))?;
        Ok(moved)
    }

    /// Where the data is, or goes, in place of this folder, if PostgreSQL's user can't reach it.
    fn fallback(&self) -> Result<Option<PathBuf>, Problem> {
        let Some(account) = &self.account else {
            return Ok(None);
        };
        let has_data = self.version().is_some();
        let noted = moved_to(&self.folder).filter(|_| !has_data);
        let fallback = match noted {
            Some(noted) => noted,
            None => match (self.obstacle_for(account)?, &self.settings.fallback_dir) {
                (None, _) => return Ok(None),
                // Starting afresh elsewhere would look as if the data had vanished.
                (Some(_), Some(fallback)) if !has_data => self.write_note(fallback)?,
                (Some(obstacle), _) => return Err(unreachable(account, obstacle)),
            },
        };
        tracing::warn!(
            requested = %self.path.display(),
            used = %fallback.display(),
            user = %account.name,
            "PostgreSQL cannot run as root, and its user could not enter the requested data \
             directory; the data is in another folder"
        );
        Ok(Some(fallback))
    }

    /// There is no other folder in place of the fallback.
    fn refuse_unreachable(&self) -> Result<(), Problem> {
        if let Some(account) = &self.account
            && let Some(obstacle) = self.obstacle_for(account)?
        {
            return Err(unreachable(account, obstacle));
        }
        Ok(())
    }

    /// Checks one folder and creates it if it is missing.
    fn open(data_dir: &Path, settings: &EmbeddedSettings) -> Result<Self, EmbeddedError> {
        let error = |path: &Path, problem| EmbeddedError::new(problem, path, settings.names);
        let path = std::path::absolute(data_dir)
            .map_err(|failure| error(data_dir, Problem::directory("finding", data_dir, failure)))?;
        Self::open_absolute(&path, settings).map_err(|problem| error(&path, problem))
    }

    fn open_absolute(path: &Path, settings: &EmbeddedSettings) -> Result<Self, Problem> {
        create_data_dir(path)?;
        refuse_untrusted(path, true)?;
        let folder =
            Folder::open(path).map_err(|error| Problem::directory("opening", path, error))?;
        let cluster = std::fs::symlink_metadata(path.join(CLUSTER)).ok();
        let dir = Self {
            path: path.to_owned(),
            folder,
            account: UnixAccount::for_postgres(cluster.as_ref())?,
            settings: settings.clone(),
        };
        dir.refuse_foreign_files()?;
        dir.refuse_foreign_owner()?;
        Ok(dir)
    }

    /// Notes where the data of this folder goes, and returns it.
    fn write_note(&self, fallback: &Path) -> Result<PathBuf, Problem> {
        let mut place = fallback.as_os_str().to_owned();
        place.push(format!("-{}", name_for(&self.path)));
        self.folder
            .file(MOVED, OFlag::O_CREAT | OFlag::O_TRUNC | OFlag::O_WRONLY)
            .and_then(|mut note| note.write_all(place.as_bytes()))
            .map_err(|error| Problem::directory("writing", &self.path.join(MOVED), error))?;
        Ok(place.into())
    }

    /// Stops before anything is changed in a folder that is in use for something else.
    fn refuse_foreign_files(&self) -> Result<(), Problem> {
        let mut names = self.names_in(&self.path)?.into_iter();
        let foreign = names.find(|name| !is_known(name));
        // A folder named like the database but without the mark of one was not made by `initdb`,
        // and neither was a link.
        let misplaced = if self.cluster_metadata().is_some_and(|found| !found.is_dir()) {
            Some(PathBuf::new())
        } else if self.foreign_owner().is_some() || self.version().is_some() {
            None
        } else {
            self.names_in(&self.cluster())?.into_iter().next()
        };
        let Some(entry) = foreign.or(misplaced.map(|name| Path::new(CLUSTER).join(name))) else {
            return Ok(());
        };
        Err(Problem::ForeignDirectory(entry))
    }

    /// PostgreSQL refuses files of another user, in words that name neither user nor remedy.
    fn refuse_foreign_owner(&self) -> Result<(), Problem> {
        match self.foreign_owner() {
            None => Ok(()),
            Some(owner) => Err(Problem::WrongOwner {
                owner: name_of(owner),
                runner: name_of(self.runner()),
            }),
        }
    }

    /// The owner of the database folder, if it is another user than the one PostgreSQL runs as.
    fn foreign_owner(&self) -> Option<u32> {
        let owner = self.cluster_metadata()?.uid();
        (owner != self.runner()).then_some(owner)
    }

    fn cluster_metadata(&self) -> Option<Metadata> {
        std::fs::symlink_metadata(self.cluster()).ok()
    }

    /// The sorted names in a folder; none when it does not exist.
    fn names_in(&self, folder: &Path) -> Result<Vec<PathBuf>, Problem> {
        let read = || -> std::io::Result<Vec<PathBuf>> {
            let entries = std::fs::read_dir(folder)?;
            entries.map(|entry| Ok(entry?.file_name().into())).collect()
        };
        match read() {
            Ok(mut names) => {
                names.sort();
                Ok(names)
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(Problem::directory("reading", folder, error)),
        }
    }

    /// The folder that keeps the user from getting into the data directory, which may be any of
    /// its parents; nothing when the way is free.
    ///
    /// The data directory itself is opened to that user where root owns it.
    fn obstacle_for(&self, account: &UnixAccount) -> Result<Option<PathBuf>, Problem> {
        let path = self.path.as_path();
        let inspect = |folder: &Path| {
            let found = std::fs::metadata(folder);
            found.map_err(|error| Problem::directory("inspecting", folder, error))
        };
        let own = self.folder.metadata();
        let own = own.map_err(|error| Problem::directory("inspecting", path, error))?;
        if !account.may_enter(&own) && own.uid() == geteuid().as_raw() {
            self.folder
                .set_mode(own.mode() & 0o7777 | 0o011)
                .map_err(|error| Problem::directory("setting the mode of", path, error))?;
        }
        let real = path.canonicalize();
        let real = real.map_err(|error| Problem::directory("finding", path, error))?;
        for folder in real.ancestors() {
            if !account.may_enter(&inspect(folder)?) {
                return Ok(Some(folder.to_owned()));
            }
        }
        Ok(None)
    }
}

fn unreachable(account: &UnixAccount, obstacle: PathBuf) -> Problem {
    Problem::Unreachable {
        user: account.name.clone(),
        obstacle,
    }
}

/// Creates the data directory and its missing parents, where no other user can interfere.
///
/// With a separate user for PostgreSQL the folder stays with root and merely lets that user
/// through; everything PostgreSQL reads or writes is a private folder of that user inside.
fn create_data_dir(path: &Path) -> Result<(), Problem> {
    let mode = if geteuid().is_root() { 0o711 } else { 0o700 };
    let is_missing = |folder: &Path| {
        let found = std::fs::symlink_metadata(folder);
        found.is_err_and(|error| error.kind() == ErrorKind::NotFound)
    };
    let missing = path.ancestors().take_while(|folder| is_missing(folder));
    let missing: Vec<&Path> = missing.collect();
    if let Some(found) = path.ancestors().nth(missing.len()) {
        refuse_untrusted(found, missing.is_empty())?;
    }
    for folder in missing.into_iter().rev() {
        match std::fs::create_dir(folder) {
            // The mode is set afterwards because the process's umask may have taken bits.
            Ok(()) => std::fs::set_permissions(folder, Permissions::from_mode(mode))
                .map_err(|error| Problem::directory("setting the mode of", folder, error))?,
            // Another process that starts at the same moment has made it.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(Problem::directory("creating", folder, error)),
        }
    }
    Ok(())
}

/// Refuses a way on which another user could have put, or could still put, a folder of its own.
///
/// Each folder and each link on it belongs to this process's user or to root. Others may write at
/// most to folders with the sticky bit, such as `/tmp`, where they can't replace what isn't theirs,
/// and never to the data directory.
fn refuse_untrusted(way: &Path, is_data_dir: bool) -> Result<(), Problem> {
    let failure = |folder, error| Problem::directory("inspecting", folder, error);
    // Links that lead in a circle end here.
    way.canonicalize().map_err(|error| failure(way, error))?;
    for folder in way.ancestors() {
        let is_last = is_data_dir && folder == way;
        let found = std::fs::symlink_metadata(folder).map_err(|error| failure(folder, error))?;
        let is_foreign = ![0, geteuid().as_raw()].contains(&found.uid());
        if is_foreign || is_writable_for_others(&found, is_last) {
            return Err(Problem::Untrusted {
                folder: folder.to_owned(),
                owner: is_foreign.then(|| name_of(found.uid())),
            });
        }
        if found.is_symlink() {
            let target = std::fs::read_link(folder).map_err(|error| failure(folder, error))?;
            let parent = folder.parent().unwrap_or(folder);
            refuse_untrusted(&parent.join(target), is_last)?;
        }
    }
    Ok(())
}

/// Whether users other than the owner could put something else in the place of what is in a folder.
fn is_writable_for_others(folder: &Metadata, is_data_dir: bool) -> bool {
    const STICKY: u32 = 0o1000;
    // Where each user has a group with the user's own number, new folders may be open to it: that
    // is no one else.
    let own = getegid().as_raw();
    let is_own_group = folder.gid() == own && own == geteuid().as_raw();
    let others = if is_own_group { 0o002 } else { 0o022 };
    let is_sticky = folder.mode() & STICKY != 0 && !is_data_dir;
    !folder.is_symlink() && folder.mode() & others != 0 && !is_sticky
}

/// Whether this crate, or the file system itself, puts a file of that name in a data directory.
fn is_known(name: &Path) -> bool {
    let name = name.to_string_lossy();
    [CLUSTER, SOCKETS, LOG, OLD_LOG, LOCK, MOVED, "lost+found"].contains(&name.as_ref())
        || name.starts_with(STAGING_PREFIX)
        || name.starts_with('.')
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use nix::unistd::{User, chown};

    use super::DataDir;
    use crate::embedded::{EmbeddedError, EmbeddedSettings, Problem};

    #[test]
    fn as_root_an_unreachable_folder_is_replaced_now_and_ever_after()
    -> Result<(), Box<dyn std::error::Error>> {
        if !nix::unistd::geteuid().is_root() {
            return Ok(());
        }
        let scratch = tempfile::tempdir()?;
        std::fs::set_permissions(scratch.path(), Permissions::from_mode(0o755))?;
        let closed = scratch.path().join("closed");
        std::fs::create_dir(&closed)?;
        std::fs::set_permissions(&closed, Permissions::from_mode(0o700))?;
        let requested = closed.join("data");
        let fallback = scratch.path().join("fallback");

        let settings = EmbeddedSettings {
            fallback_dir: Some(fallback.clone()),
            ..EmbeddedSettings::new("example", requested)
        };
        let other = EmbeddedSettings {
            data_dir: closed.join("other"),
            ..settings.clone()
        };

        let elsewhere = DataDir::locate(&settings)?.path;
        assert!(elsewhere.starts_with(scratch.path()) && !elsewhere.starts_with(&closed));
        // Each has a place of its own.
        assert_ne!(DataDir::locate(&other)?.path, elsewhere);

        std::fs::set_permissions(&closed, Permissions::from_mode(0o755))?;
        assert_eq!(DataDir::locate(&settings)?.path, elsewhere);

        assert!(!settings.has_database());
        // What an earlier version noted.
        let note = fallback.as_os_str().as_bytes();
        std::fs::write(closed.join("data/moved-to"), note)?;
        assert_eq!(DataDir::locate(&settings)?.path, fallback);
        std::fs::create_dir(fallback.join("pgdata"))?;
        std::fs::write(fallback.join("pgdata/PG_VERSION"), "17\n")?;
        assert!(settings.has_database(), "it follows the note");
        Ok(())
    }

    #[test]
    fn as_root_the_note_is_not_written_through_a_link() -> Result<(), Box<dyn std::error::Error>> {
        if !nix::unistd::geteuid().is_root() {
            return Ok(());
        }
        let scratch = tempfile::tempdir()?;
        std::fs::set_permissions(scratch.path(), Permissions::from_mode(0o700))?;
        let requested = scratch.path().join("data");
        std::fs::create_dir(&requested)?;
        let victim = scratch.path().join("victim");
        symlink(&victim, requested.join("moved-to"))?;

        let result = DataDir::locate(&EmbeddedSettings::new("example", requested));
        assert!(
            matches!(result.as_ref().map_err(EmbeddedError::problem),
                Err(Problem::Directory { path, .. }) if path.ends_with("moved-to")),
            "{result:?}"
        );
        assert!(!victim.exists());
        Ok(())
    }

    #[test]
    fn as_root_data_in_an_unreachable_folder_is_not_replaced_by_an_empty_database()
    -> Result<(), Box<dyn std::error::Error>> {
        if !nix::unistd::geteuid().is_root() {
            return Ok(());
        }
        let scratch = tempfile::tempdir()?;
        std::fs::set_permissions(scratch.path(), Permissions::from_mode(0o700))?;
        let requested = scratch.path().join("data");
        let cluster = requested.join("pgdata");
        std::fs::create_dir_all(&cluster)?;
        std::fs::write(cluster.join("PG_VERSION"), "17\n")?;
        let nobody = User::from_name("nobody")?.ok_or("no user `nobody`")?;
        chown(&cluster, Some(nobody.uid), Some(nobody.gid))?;
        let fallback = scratch.path().join("fallback");

        let settings = EmbeddedSettings {
            fallback_dir: Some(fallback.clone()),
            ..EmbeddedSettings::new("example", requested)
        };
        let result = DataDir::locate(&settings);
        assert!(
            matches!(result.as_ref().map_err(EmbeddedError::problem),
                Err(Problem::Unreachable { obstacle, .. })
                if *obstacle == scratch.path().canonicalize()?),
            "{result:?}"
        );
        assert!(!fallback.exists());
        Ok(())
    }
}
