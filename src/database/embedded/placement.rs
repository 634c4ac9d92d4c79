//! Deciding where the data lives, and refusing folders that are somebody else's.

use std::fs::Permissions;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;

use super::account::{Account, name_of};
use super::error::EmbeddedError;
use super::site::{CLUSTER, LOCK, LOG, MOVED, OLD_LOG, SOCKETS, STAGING_PREFIX, Site};

/// Where the data goes when PostgreSQL's user cannot get to the folder that was asked for: a
/// place that every user can reach and that survives a restart of the machine.
pub const REFUGE: &str = "/var/lib/charge-once";

impl Site {
    /// Decides where the data lives and makes sure that the folder exists. Blocks.
    ///
    /// The answer for one folder stays the same from start to start: when the data once went to
    /// the refuge, a note in the folder says so, and later starts follow it even if the folder
    /// has become reachable since.
    ///
    /// # Errors
    ///
    /// When the folder holds somebody else's files, cannot be made, or has the wrong owner.
    pub(super) fn settle_or_move(requested: &Path, refuge: &Path) -> Result<Self, EmbeddedError> {
        let site = Self::open(requested)?;
        let Some(account) = &site.account else {
            return Ok(site);
        };
        let note = site.data_dir.join(MOVED);
        let has_data = site.version().is_some();
        if has_data || !note.exists() {
            match site.obstacle_for(account)? {
                None => return Ok(site),
                // Starting afresh elsewhere would look as if the data had vanished.
                Some(obstacle) if has_data => return Err(site.unreachable(account, obstacle)),
                Some(_) => {}
            }
        }
        std::fs::write(&note, refuge.as_os_str().as_bytes())
            .map_err(|error| site.failure("writing", &note, error))?;
        tracing::warn!(
            requested = %site.data_dir.display(),
            used = %refuge.display(),
            user = %account.name,
            "PostgreSQL cannot run as root, and its user could not enter the requested DATA_DIR; \
             the data is in another folder"
        );
        let moved = Self::open(refuge)?;
        if let Some(account) = &moved.account
            && let Some(obstacle) = moved.obstacle_for(account)?
        {
            return Err(moved.unreachable(account, obstacle));
        }
        Ok(moved)
    }

    /// Checks one folder and creates it if it is missing.
    fn open(data_dir: &Path) -> Result<Self, EmbeddedError> {
        let absolute = std::path::absolute(data_dir)
            .map_err(|error| EmbeddedError::directory(data_dir, "finding", data_dir, error))?;
        let account = Account::for_postgres(&absolute.join(CLUSTER))?;
        let site = Self {
            data_dir: absolute,
            account,
        };
        site.refuse_foreign_files()?;
        site.refuse_foreign_owner()?;
        site.create_data_dir()?;
        Ok(site)
    }

    /// Stops before anything is changed in a folder that is in use for something else.
    fn refuse_foreign_files(&self) -> Result<(), EmbeddedError> {
        let foreign = self
            .names_in(&self.data_dir)?
            .into_iter()
            .find(|name| !is_known(name));
        // A folder named like the database but without the mark of one was not made by `initdb`.
        let misplaced = if self.is_foreign_owned() || self.version().is_some() {
            None
        } else {
            self.names_in(&self.cluster())?.into_iter().next()
        };
        match foreign.or(misplaced.map(|name| Path::new(CLUSTER).join(name))) {
            Some(entry) => Err(EmbeddedError::ForeignDirectory {
                data_dir: self.data_dir.clone(),
                entry,
            }),
            None => Ok(()),
        }
    }

    /// PostgreSQL refuses files of another user, in words that name neither user nor remedy.
    fn refuse_foreign_owner(&self) -> Result<(), EmbeddedError> {
        if !self.is_foreign_owned() {
            return Ok(());
        }
        let cluster = self.cluster();
        let owner = std::fs::metadata(&cluster)
            .map_err(|error| self.failure("inspecting", &cluster, error))?
            .uid();
        Err(EmbeddedError::WrongOwner {
            data_dir: self.data_dir.clone(),
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
    fn names_in(&self, folder: &Path) -> Result<Vec<PathBuf>, EmbeddedError> {
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
    fn create_data_dir(&self) -> Result<(), EmbeddedError> {
        let mode = if self.account.is_some() { 0o711 } else { 0o700 };
        let missing: Vec<&Path> = self
            .data_dir
            .ancestors()
            .take_while(|folder| !folder.exists())
            .collect();
        for folder in missing.into_iter().rev() {
            match std::fs::create_dir(folder) {
                // The mode is set afterwards because the process's umask may have taken bits.
                Ok(()) => std::fs::set_permissions(folder, Permissions::from_mode(mode))
                    .map_err(|error| self.failure("setting the mode of", folder, error))?,
                // Another charge-once that starts at the same moment has made it.
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
    fn obstacle_for(&self, account: &Account) -> Result<Option<PathBuf>, EmbeddedError> {
        let path = &self.data_dir;
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

    fn unreachable(&self, account: &Account, obstacle: PathBuf) -> EmbeddedError {
        EmbeddedError::Unreachable {
            data_dir: self.data_dir.clone(),
            user: account.name.clone(),
            obstacle,
        }
    }
}

/// Whether charge-once, or the file system itself, puts a file of that name in a data directory.
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

    use super::Site;
    use crate::database::embedded::EmbeddedError;

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
        let refuge = scratch.path().join("refuge");

        let site = Site::settle_or_move(&requested, &refuge)?;
        assert_eq!(site.data_dir(), refuge);

        std::fs::set_permissions(&closed, Permissions::from_mode(0o755))?;
        let site = Site::settle_or_move(&requested, &refuge)?;
        assert_eq!(site.data_dir(), refuge);
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
        let refuge = scratch.path().join("refuge");

        let result = Site::settle_or_move(&requested, &refuge);
        assert!(
            matches!(&result, Err(EmbeddedError::Unreachable { obstacle, .. })
                if *obstacle == scratch.path().canonicalize()?),
            "{result:?}"
        );
        assert!(!refuge.exists());
        Ok(())
    }
}
