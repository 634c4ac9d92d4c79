//! Finding the PostgreSQL programs that are installed on this machine.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::error::Problem;
use super::folder::entries;

/// The oldest supported major version: the schema and its tests are not tried on anything older.
pub(super) const OLDEST_MAJOR: u32 = 15;

/// Where distributions put each major version, as parent folder, start of a name in it, and path
/// below that. None of these folders is on PATH on the systems that use them.
const USUAL_PLACES: [(&str, &str, &str); 11] = [
    // Debian and Ubuntu, then openSUSE, Alpine, and Gentoo.
    ("/usr/lib/postgresql", "", "bin"),
    ("/usr/lib", "postgresql", "bin"),
    ("/usr/libexec", "postgresql", ""),
    ("/usr/lib64", "postgresql-", "bin"),
    // Fedora and Red Hat: the PostgreSQL project's packages, then the system's own.
    ("/usr", "pgsql-", "bin"),
    ("/usr", "bin", ""),
    // Homebrew on Apple silicon, on Intel, and on Linux.
    ("/opt/homebrew/opt", "postgresql@", "bin"),
    ("/usr/local/opt", "postgresql@", "bin"),
    ("/home/linuxbrew/.linuxbrew/opt", "postgresql@", "bin"),
    // Postgres.app, and a build from source.
    ("/Applications/Postgres.app/Contents/Versions", "", "bin"),
    ("/usr/local", "pgsql", "bin"),
];

/// The programs of one PostgreSQL installation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Binaries {
    /// The folder that really holds the programs, with links resolved.
    dir: PathBuf,
    /// The major version, such as 17.
    major: u32,
}

impl Binaries {
    /// Chooses the installation to use: the one in `bin_dir` when that is set, else the newest
    /// on this machine. Where a database exists already, only the version that made it will do:
    /// `made_by` is the content of its `PG_VERSION` file. Fails with [`Problem::BinDir`],
    /// [`Problem::NotInstalled`] or [`Problem::VersionMissing`].
    pub(super) fn choose(bin_dir: Option<&Path>, made_by: Option<&str>) -> Result<Self, Problem> {
        let found = match bin_dir {
            Some(dir) => vec![Self::given(dir)?],
            None => Self::installed(),
        };
        let Some(newest) = found.first() else {
            return Err(Problem::NotInstalled(install_instruction()));
        };
        let Some(made_by) = made_by else {
            return Ok(newest.clone());
        };
        let fits = |candidate: &&Self| candidate.major.to_string() == made_by;
        let fitting = found.iter().find(fits).cloned();
        fitting.ok_or_else(|| Problem::VersionMissing {
            needed: made_by.to_owned(),
            found: join_majors(&found),
        })
    }

    pub(super) fn initdb(&self) -> PathBuf {
        self.dir.join("initdb")
    }

    pub(super) fn postgres(&self) -> PathBuf {
        self.dir.join("postgres")
    }

    /// The installation in the folder that
    /// [`EmbeddedSettings::bin_dir`](super::EmbeddedSettings::bin_dir) names.
    fn given(dir: &Path) -> Result<Self, Problem> {
        let problem = |problem: String| Problem::BinDir {
            bin_dir: dir.to_owned(),
            problem,
        };
        let Some(real) = resolve(dir) else {
            return Err(problem(
                "`initdb` and `postgres` are not both in it".to_owned(),
            ));
        };
        match major_of(&real) {
            Some(major) if major >= OLDEST_MAJOR => Ok(Self { dir: real, major }),
            Some(major) => Err(problem(format!("that is PostgreSQL {major}"))),
            None => Err(problem(
                "`postgres --version` does not run there".to_owned(),
            )),
        }
    }

    /// Every supported installation on this machine, newest first.
    fn installed() -> Vec<Self> {
        let searched = folders_to_search();
        let folders: BTreeSet<_> = searched.iter().filter_map(|dir| resolve(dir)).collect();
        let found = folders.into_iter().filter_map(|dir| {
            let major = major_of(&dir).filter(|major| *major >= OLDEST_MAJOR)?;
            Some(Self { dir, major })
        });
        let mut found: Vec<Self> = found.collect();
        found.sort_by_key(|candidate| std::cmp::Reverse(candidate.major));
        found
    }
}

/// Every folder that could hold PostgreSQL's programs, whether it exists or not.
fn folders_to_search() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = std::env::var_os("PATH")
        .map(|path| std::env::split_paths(&path).collect())
        .unwrap_or_default();
    folders.extend(folder_of_pg_config());
    for (parent, start, below) in USUAL_PLACES {
        folders.extend(entries(Path::new(parent), start).map(|found| found.join(below)));
    }
    folders
}

/// The folder that `pg_config` reports, where that program is installed.
fn folder_of_pg_config() -> Option<PathBuf> {
    let output = Command::new("pg_config").arg("--bindir").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let line = text.lines().next()?;
    (output.status.success() && !line.is_empty()).then(|| PathBuf::from(line))
}

/// The folder that really holds both programs, or nothing when they are not side by side.
///
/// A folder on PATH often holds links to only some of the programs, so it is the target of the
/// `postgres` link that counts: `initdb` looks for its siblings there.
fn resolve(dir: &Path) -> Option<PathBuf> {
    let postgres = dir.join("postgres").canonicalize().ok()?;
    let real = postgres.parent()?;
    real.join("initdb").is_file().then(|| real.to_owned())
}

/// The major version that `postgres --version` reports.
fn major_of(dir: &Path) -> Option<u32> {
    let output = Command::new(dir.join("postgres")).arg("--version").output();
    parse_major(&String::from_utf8_lossy(&output.ok()?.stdout))
}

/// Reads 17 from `postgres (PostgreSQL) 17.5 (Debian 17.5-1)` and 19 from `… 19devel`.
fn parse_major(text: &str) -> Option<u32> {
    text.split_whitespace()
        .find(|word| word.starts_with(|first: char| first.is_ascii_digit()))?
        .split(|letter: char| !letter.is_ascii_digit())
        .next()?
        .parse()
        .ok()
}

/// The distinct major versions, newest first, for a message.
fn join_majors(found: &[Binaries]) -> String {
    let majors = found.iter().map(|candidate| candidate.major.to_string());
    let mut majors: Vec<_> = majors.collect();
    majors.dedup();
    majors.join(", ")
}

/// How this very system installs PostgreSQL, as an instruction.
fn install_instruction() -> String {
    if cfg!(target_os = "macos") {
        return "install it with `brew install postgresql@17`".to_owned();
    }
    let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    instruction_for(&release)
}

/// Picks the instruction from the text of `/etc/os-release`.
///
/// `ID_LIKE` matters as much as `ID`: derivatives such as Linux Mint or Rocky Linux name there
/// the system whose packages they use.
fn instruction_for(os_release: &str) -> String {
    let names: Vec<&str> = ["ID=", "ID_LIKE="]
        .iter()
        .filter_map(|key| os_release.lines().find_map(|line| line.strip_prefix(key)))
        .flat_map(|value| value.trim_matches(['"', '\'']).split_whitespace())
        .collect();
    let command = names.iter().find_map(|name| match *name {
        "debian" | "ubuntu" => Some("sudo apt-get install postgresql"),
        "fedora" | "rhel" | "centos" => Some("sudo dnf install postgresql-server"),
        "alpine" => Some("sudo apk add postgresql"),
        "arch" => Some("sudo pacman -S postgresql"),
        "suse" | "opensuse" | "opensuse-tumbleweed" => {
            Some("sudo zypper install postgresql-server")
        }
        _ => None,
    });
    match command {
        None => "install it with this system's package manager".to_owned(),
        Some(command) => format!("install it with `{command}`"),
    }
}

/// The variables that the programs get to see.
///
/// Everything else stays with this process: its environment holds secrets, and variables such as
/// `PGDATA`, `PGOPTIONS` or `NOTIFY_SOCKET` would change what PostgreSQL does.
pub(super) fn environment() -> Vec<(&'static str, OsString)> {
    let kept = ["PATH", "LD_LIBRARY_PATH"].into_iter();
    let kept = kept.filter_map(|name| Some((name, std::env::var_os(name)?)));
    // Untranslated messages, because the start recognizes some of them.
    kept.chain([("LC_ALL", "C".into())]).collect()
}

#[cfg(test)]
mod tests {
    use super::{instruction_for, parse_major};

    #[test]
    fn the_major_version_is_read_from_releases_and_previews() {
        let cases = [
            ("postgres (PostgreSQL) 15.13 (Debian 15.13-0)\n", Some(15)),
            ("postgres (PostgreSQL) 17.5\n", Some(17)),
            ("postgres (PostgreSQL) 19devel\n", Some(19)),
            ("postgres (PostgreSQL) 18beta1\n", Some(18)),
            ("not a version", None),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_major(text), expected, "{text}");
        }
    }

    #[test]
    fn the_instruction_fits_the_system_and_its_derivatives() {
        let cases = [
            ("ID=debian\n", "apt-get install postgresql"),
            (
                "NAME=Mint\nID=linuxmint\nID_LIKE=\"ubuntu debian\"\n",
                "apt-get",
            ),
            (
                "ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n",
                "dnf install",
            ),
            ("ID=alpine\n", "apk add"),
            ("ID=arch\n", "pacman"),
            ("ID=plan9\n", "package manager"),
            ("", "package manager"),
        ];
        for (release, expected) in cases {
            let instruction = instruction_for(release);
            assert!(instruction.contains(expected), "{release}: {instruction}");
        }
    }
}
