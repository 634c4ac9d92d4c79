//! Deciding where the data lives, and refusing folders that hold something else.

use std::ffi::OsString;
use std::fs::{Metadata, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use nix::unistd::{getegid, geteuid};

use super::EmbeddedSettings;
use super::account::{UnixAccount, name_of};
use super::data_dir::{
    CLUSTER, DataDir, LOCK, LOG, MOVED, OLD_LOG, SOCKETS, STAGING_PREFIX, name_for, version_in,
};
use super::error::Problem;
use super::folder::Folder;

/// Whether there is a database where [`DataDir::locate`] would look for one. Changes nothing.
pub(super) fn has_database(settings: &EmbeddedSettings) -> bool {
    let has_version = |path: &Path| Folder::open(path).is_ok_and(|dir| version_in(&dir).is_some());
    let moved = || moved_to(&Folder::open(&settings.data_dir).ok()?);
    has_version(&settings.data_dir) || moved().is_some_and(|moved| has_version(&moved))
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
    /// # Errors
    ///
    /// When the folder holds other files, cannot be made, or has the wrong owner.
    pub(super) fn locate(settings: &EmbeddedSettings) -> Result<Self, Problem> {
        let dir = Self::open(&settings.data_dir, settings)?;
        let Some(account) = &dir.account else {
            return Ok(dir);
        };
        let has_data = dir.version().is_some();
        let noted = moved_to(&dir.folder).filter(|_| !has_data);
        let fallback = match noted {
            Some(noted) => noted,
            None => match (dir.obstacle_for(account)?, &settings.fallback_dir) {
                (None, _) => return Ok(dir),
                // Starting afresh elsewhere would look as if the data had vanished.
                (Some(_), Some(fallback)) if !has_data => dir.write_note(fallback)?,
                (Some(obstacle), _) => return Err(dir.unreachable(account, obstacle)),
            },
        };
        tracing::warn!(
            requested = %dir.path.display(),
            used = %fallback.display(),
            user = %account.name,
            "PostgreSQL cannot run as root, and its user could not enter the requested data \
             directory; the data is in another folder"
        );
        let moved = Self::open(&fallback, settings)?;
        if let Some(account) = &moved.account
            && let Some(obstacle) = moved.obstacle_for(account)?
        {
            return Err(moved.unreachable(account, obstacle));
        }
        Ok(moved)
    }

    /// Checks one folder and creates it if it is missing.
    fn open(data_dir: &Path, settings: &EmbeddedSettings) -> Result<Self, Problem> {
        let absolute = std::path::absolute(data_dir)
            .map_err(|error| Problem::directory(data_dir, "finding", data_dir, error))?;
        create_data_dir(&absolute)?;
        refuse_untrusted(&absolute, &absolute, true)?;
        let folder = Folder::open(&absolute)
            .map_err(|error| Problem::directory(&absolute, "opening", &absolute, error))?;
        let cluster = std::fs::symlink_metadata(absolute.join(CLUSTER)).ok();
        let account = UnixAccount::for_postgres(cluster.as_ref())?;
        let dir = Self {
            path: absolute,
            folder,
            account,
            database: settings.database.clone(),
            parameters: settings.parameters.clone(),
            locale: settings.locale.clone(),
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
            .map_err(|error| self.failure("writing", &self.path.join(MOVED), error))?;
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
        } else if self.is_foreign_owned() || self.version().is_some() {
            None
        } else {
            self.names_in(&self.cluster())?.into_iter().next()
        };
        let Some(entry) = foreign.or(misplaced.map(|name| Path::new(CLUSTER).join(name))) else {
            return Ok(());
        };
        let data_dir = self.path.clone();
        Err(Problem::ForeignDirectory { data_dir, entry })
    }

    /// PostgreSQL refuses files of another user, in words that name neither user nor remedy.
    fn refuse_foreign_owner(&self) -> Result<(), Problem> {
        let Some(found) = self.cluster_metadata().filter(|_| self.is_foreign_owned()) else {
            return Ok(());
        };
        Err(Problem::WrongOwner {
            data_dir: self.path.clone(),
            cluster: self.cluster(),
            owner: name_of(found.uid()),
            runner: name_of(self.runner()),
        })
    }

    /// Whether there is a database folder of a user other than the one PostgreSQL runs as.
    fn is_foreign_owned(&self) -> bool {
        let found = self.cluster_metadata();
        found.is_some_and(|cluster| cluster.uid() != self.runner())
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
            Err(error) => Err(self.failure("reading", folder, error)),
        }
    }

    /// The folder that keeps the user from getting into the data directory, which may be any of
    /// its parents; nothing when the way is free.
    ///
    /// The data directory itself is opened to that user where root owns it.
    fn obstacle_for(&self, account: &UnixAccount) -> Result<Option<PathBuf>, Problem> {
        let path = &self.path;
        let inspect = |folder: &Path| {
            std::fs::metadata(folder).map_err(|error| self.failure("inspecting", folder, error))
        };
        let own = self.folder.metadata();
        let own = own.map_err(|error| self.failure("inspecting", path, error))?;
        if !account.may_enter(&own) && own.uid() == geteuid().as_raw() {
            self.folder
                .set_mode(own.mode() & 0o7777 | 0o011)
                .map_err(|error| self.failure("setting the mode of", path, error))?;
        }
        let real = path.canonicalize();
        let real = real.map_err(|error| self.failure("finding", path, error))?;
        for folder in real.ancestors() {
            if !account.may_enter(&inspect(folder)?) {
                return Ok(Some(folder.to_owned()));
            }
        }
        Ok(None)
    }

    fn unreachable(&self, account: &UnixAccount, obstacle: PathBuf) -> Problem {
        Problem::Unreachable {
            data_dir: self.path.clone(),
            user: account.name.clone(),
            obstacle,
        }
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
        refuse_untrusted(path, found, missing.is_empty())?;
    }
    let failure = |action, folder, error| Problem::directory(path, action, folder, error);
    for folder in missing.into_iter().rev() {
        match std::fs::create_dir(folder) {
            // The mode is set afterwards because the process's umask may have taken bits.
            Ok(()) => std::fs::set_permissions(folder, Permissions::from_mode(mode))
                .map_err(|error| failure("setting the mode of", folder, error))?,
            // Another process that starts at the same moment has made it.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(failure("creating", folder, error)),
        }
    }
    Ok(())
}

/// Refuses a way on which another user could have put, or could still put, a folder of its own.
///
/// Each folder and each link on it belongs to this process's user or to root. Others may write at
/// most to folders with the sticky bit, such as `/tmp`, where they can't replace what isn't theirs,
/// and never to the data directory.
fn refuse_untrusted(data_dir: &Path, way: &Path, is_data_dir: bool) -> Result<(), Problem> {
    let failure = |folder, error| Problem::directory(data_dir, "inspecting", folder, error);
    // Links that lead in a circle end here.
    way.canonicalize().map_err(|error| failure(way, error))?;
    for folder in way.ancestors() {
        let is_last = is_data_dir && folder == way;
        let found = std::fs::symlink_metadata(folder).map_err(|error| failure(folder, error))?;
        let is_foreign = ![0, geteuid().as_raw()].contains(&found.uid());
        if is_foreign || is_writable_for_others(&found, is_last) {
            return Err(Problem::Untrusted {
                data_dir: data_dir.to_owned(),
                folder: folder.to_owned(),
                owner: is_foreign.then(|| name_of(found.uid())),
            });
        }
        if found.is_symlink() {
            let target = std::fs::read_link(folder).map_err(|error| failure(folder, error))?;
            let parent = folder.parent().unwrap_or(folder);
            refuse_untrusted(data_dir, &parent.join(target), is_last)?;
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

    use super::{DataDir, has_database};
    use crate::embedded::{EmbeddedError, EmbeddedSettings, Problem};

    fn locate(settings: &EmbeddedSettings) -> Result<DataDir, EmbeddedError> {
        DataDir::locate(settings).map_err(|problem| EmbeddedError::new(problem, settings.names))
    }

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

        let elsewhere = locate(&settings)?.path;
        assert!(elsewhere.starts_with(scratch.path()) && !elsewhere.starts_with(&closed));
        // Each has a place of its own.
        assert_ne!(locate(&other)?.path, elsewhere);

        std::fs::set_permissions(&closed, Permissions::from_mode(0o755))?;
        assert_eq!(locate(&settings)?.path, elsewhere);

        assert!(!has_database(&settings));
        // What an earlier version noted.
        let note = fallback.as_os_str().as_bytes();
        std::fs::write(closed.join("data/moved-to"), note)?;
        assert_eq!(locate(&settings)?.path, fallback);
        std::fs::create_dir(fallback.join("pgdata"))?;
        std::fs::write(fallback.join("pgdata/PG_VERSION"), "17\n")?;
        assert!(has_database(&settings), "it follows the note");
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
            matches!(&result, Err(Problem::Directory { path, .. }) if path.ends_with("moved-to")),
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
            matches!(&result, Err(Problem::Unreachable { obstacle, .. })
                if *obstacle == scratch.path().canonicalize()?),
            "{result:?}"
        );
        assert!(!fallback.exists());
        Ok(())
    }
}
