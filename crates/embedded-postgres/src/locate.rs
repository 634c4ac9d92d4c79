//! Deciding where the data lives, and refusing folders that hold something else.

use std::fs::Permissions;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;

use super::Settings;
use super::account::{Account, name_of};
use super::data_dir::{
    CLUSTER, DataDir, LOCK, LOG, MOVED, OLD_LOG, SOCKETS, STAGING_PREFIX, version_in,
};
use super::error::Problem;

/// Whether there is a database where [`DataDir::locate`] would look for one. Changes nothing.
pub(super) fn has_database(settings: &Settings) -> bool {
    let requested = &settings.data_dir;
    let moved = || requested.join(MOVED).exists() && version_in(&settings.fallback_dir).is_some();
    version_in(requested).is_some() || moved()
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
    pub(super) fn locate(settings: &Settings) -> Result<Self, Problem> {
        let fallback = &settings.fallback_dir;
        let dir = Self::open(&settings.data_dir, settings)?;
        let Some(account) = &dir.account else {
            return Ok(dir);
        };
        let note = dir.path.join(MOVED);
        let has_data = dir.version().is_some();
        if has_data || !note.exists() {
            match dir.obstacle_for(account)? {
                None => return Ok(dir),
                // Starting afresh elsewhere would look as if the data had vanished.
                Some(obstacle) if has_data => return Err(dir.unreachable(account, obstacle)),
                Some(_) => {}
            }
        }
        std::fs::write(&note, fallback.as_os_str().as_bytes())
            .map_err(|error| dir.failure("writing", &note, error))?;
        tracing::warn!(
            requested = %dir.path.display(),
            used = %fallback.display(),
            user = %account.name,
            "PostgreSQL cannot run as root, and its user could not enter the requested data \
             directory; the data is in another folder"
        );
        let moved = Self::open(fallback, settings)?;
        if let Some(account) = &moved.account
            && let Some(obstacle) = moved.obstacle_for(account)?
        {
            return Err(moved.unreachable(account, obstacle));
        }
        Ok(moved)
    }

    /// Checks one folder and creates it if it is missing.
    fn open(data_dir: &Path, settings: &Settings) -> Result<Self, Problem> {
        let absolute = std::path::absolute(data_dir)
            .map_err(|error| Problem::directory(data_dir, "finding", data_dir, error))?;
        let account = Account::for_postgres(&absolute.join(CLUSTER))?;
        let dir = Self {
            path: absolute,
            account,
            database: settings.database.clone(),
            parameters: settings.parameters.clone(),
            locale: settings.locale.clone(),
        };
        dir.refuse_foreign_files()?;
        dir.refuse_foreign_owner()?;
        dir.create_data_dir()?;
        Ok(dir)
    }

    /// Stops before anything is changed in a folder that is in use for something else.
    fn refuse_foreign_files(&self) -> Result<(), Problem> {
        let foreign = self
            .names_in(&self.path)?
            .into_iter()
            .find(|name| !is_known(name));
        // A folder named like the database but without the mark of one was not made by `initdb`.
        let misplaced = if self.is_foreign_owned() || self.version().is_some() {
            None
        } else {
            self.names_in(&self.cluster())?.into_iter().next()
        };
        match foreign.or(misplaced.map(|name| Path::new(CLUSTER).join(name))) {
            Some(entry) => Err(Problem::ForeignDirectory {
                data_dir: self.path.clone(),
                entry,
            }),
            None => Ok(()),
        }
    }

    /// PostgreSQL refuses files of another user, in words that name neither user nor remedy.
    fn refuse_foreign_owner(&self) -> Result<(), Problem> {
        if !self.is_foreign_owned() {
            return Ok(());
        }
        let cluster = self.cluster();
        let owner = std::fs::metadata(&cluster)
            .map_err(|error| self.failure("inspecting", &cluster, error))?
            .uid();
        Err(Problem::WrongOwner {
            data_dir: self.path.clone(),
            cluster,
            owner: name_of(owner),
            runner: name_of(self.runner()),
        })
    }

    /// Whether there is a database folder of a user other than the one PostgreSQL runs as.
    fn is_foreign_owned(&self) -> bool {
        std::fs::metadata(self.cluster()).is_ok_and(|cluster| cluster.uid() != self.runner())
    }

    /// The sorted names in a folder; none when it does not exist.
    fn names_in(&self, folder: &Path) -> Result<Vec<PathBuf>, Problem> {
        let read = || -> std::io::Result<Vec<PathBuf>> {
            std::fs::read_dir(folder)?
                .map(|entry| entry.map(|entry| PathBuf::from(entry.file_name())))
                .collect()
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

    /// Creates the data directory and its missing parents.
    ///
    /// With a separate user for PostgreSQL the folder stays with root and merely lets that user
    /// through; everything PostgreSQL reads or writes is a private folder of that user inside.
    fn create_data_dir(&self) -> Result<(), Problem> {
        let mode = if self.account.is_some() { 0o711 } else { 0o700 };
        let missing: Vec<&Path> = self
            .path
            .ancestors()
            .take_while(|folder| !folder.exists())
            .collect();
        for folder in missing.into_iter().rev() {
            match std::fs::create_dir(folder) {
                // The mode is set afterwards because the process's umask may have taken bits.
                Ok(()) => std::fs::set_permissions(folder, Permissions::from_mode(mode))
                    .map_err(|error| self.failure("setting the mode of", folder, error))?,
                // Another process that starts at the same moment has made it.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(self.failure("creating", folder, error)),
            }
        }
        Ok(())
    }

    /// The folder that keeps the user from getting into the data directory, which may be any of
    /// its parents; nothing when the way is free.
    ///
    /// The data directory itself is opened to that user where root owns it.
    fn obstacle_for(&self, account: &Account) -> Result<Option<PathBuf>, Problem> {
        let path = &self.path;
        let inspect = |folder: &Path| {
            std::fs::metadata(folder).map_err(|error| self.failure("inspecting", folder, error))
        };
        let own = inspect(path)?;
        if !account.may_enter(&own) && own.uid() == geteuid().as_raw() {
            let opened = Permissions::from_mode(own.mode() & 0o7777 | 0o011);
            std::fs::set_permissions(path, opened)
                .map_err(|error| self.failure("setting the mode of", path, error))?;
        }
        let real = path
            .canonicalize()
            .map_err(|error| self.failure("finding", path, error))?;
        for folder in real.ancestors() {
            if !account.may_enter(&inspect(folder)?) {
                return Ok(Some(folder.to_owned()));
            }
        }
        Ok(None)
    }

    fn unreachable(&self, account: &Account, obstacle: PathBuf) -> Problem {
        Problem::Unreachable {
            data_dir: self.path.clone(),
            user: account.name.clone(),
            obstacle,
        }
    }
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
    use std::os::unix::fs::PermissionsExt;

    use nix::unistd::{User, chown};

    use super::{DataDir, has_database};
    use crate::{EmbeddedError, Problem, Settings};

    fn locate(settings: &Settings) -> Result<DataDir, EmbeddedError> {
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

        let settings = Settings {
            fallback_dir: fallback.clone(),
            ..Settings::new("example", requested)
        };

        assert_eq!(locate(&settings)?.path(), fallback);

        std::fs::set_permissions(&closed, Permissions::from_mode(0o755))?;
        assert_eq!(locate(&settings)?.path(), fallback);

        assert!(!has_database(&settings));
        std::fs::create_dir(fallback.join("pgdata"))?;
        std::fs::write(fallback.join("pgdata/PG_VERSION"), "17\n")?;
        assert!(has_database(&settings), "it follows the note");
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

        let settings = Settings {
            fallback_dir: fallback.clone(),
            ..Settings::new("example", requested)
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
