//! The user that PostgreSQL runs as when this process runs as root.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

use nix::unistd::{Gid, Uid, User, geteuid};

use super::error::Problem;

/// Users to run PostgreSQL as, in order of preference: the one its packages create, then the one
/// that every system has.
const CANDIDATES: [&str; 2] = ["postgres", "nobody"];

/// An ordinary user of this system.
#[derive(Debug, Clone)]
pub(super) struct UnixAccount {
    /// The name, or the number where the user has no name here.
    pub(super) name: String,
    pub(super) uid: Uid,
    pub(super) gid: Gid,
}

impl UnixAccount {
    /// Chooses the user for PostgreSQL, or `None` when this process runs as an ordinary user
    /// itself.
    ///
    /// A database that exists already keeps its owner: the number of the user `postgres` differs
    /// between systems, and the data may have come from another one, as in a container volume.
    /// `cluster` is that owner's folder, in a data directory in which no other user can put one.
    ///
    /// Fails with [`Problem::NoAccount`] when the system has no user for the purpose.
    pub(super) fn for_postgres(cluster: Option<&Metadata>) -> Result<Option<Self>, Problem> {
        if !geteuid().is_root() {
            return Ok(None);
        }
        let owner = cluster.filter(|found| found.uid() != 0).map(|found| Self {
            name: name_of(found.uid()),
            uid: Uid::from_raw(found.uid()),
            gid: Gid::from_raw(found.gid()),
        });
        let chosen = owner.or_else(|| CANDIDATES.into_iter().find_map(Self::named));
        chosen.map(Some).ok_or(Problem::NoAccount)
    }

    /// Whether the user may pass through a folder, judged as the kernel judges a user without
    /// supplementary groups, which is how PostgreSQL is started.
    pub(super) fn may_enter(&self, folder: &Metadata) -> bool {
        let bit = if folder.uid() == self.uid.as_raw() {
            0o100
        } else if folder.gid() == self.gid.as_raw() {
            0o010
        } else {
            0o001
        };
        folder.mode() & bit != 0
    }

    fn named(name: &str) -> Option<Self> {
        let user = User::from_name(name).ok().flatten()?;
        Some(Self {
            name: user.name,
            uid: user.uid,
            gid: user.gid,
        })
    }
}

/// The name of a user, or its number where it has none.
pub(super) fn name_of(uid: u32) -> String {
    let user = User::from_uid(Uid::from_raw(uid)).ok().flatten();
    user.map_or_else(|| uid.to_string(), |user| user.name)
}
