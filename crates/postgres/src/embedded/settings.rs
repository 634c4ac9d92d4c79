//! What the caller decides.

use std::path::PathBuf;

/// Where a private PostgreSQL keeps its data, and what it is called.
#[derive(Debug, Clone)]
pub struct EmbeddedSettings {
    /// The name of the database, and of its one role, which owns everything in it. The role has no
    /// password: only users who can enter the socket's folder can connect.
    pub database: String,
    /// The folder for the data; created if it does not exist.
    pub data_dir: PathBuf,
    /// Where the data goes when this process runs as root and PostgreSQL's user can't reach a new
    /// `data_dir`: the start of the path of a folder that every user can reach and that survives a
    /// restart of the machine. Its end is made from `data_dir`, so that no two share one. A warning
    /// is logged then. `None` refuses such a `data_dir`.
    pub fallback_dir: Option<PathBuf>,
    /// The folder with PostgreSQL's programs. `None` searches PATH, `pg_config` and the usual
    /// folders of Linux distributions and macOS for the newest version.
    pub bin_dir: Option<PathBuf>,
    /// Server parameters and their values, such as `("shared_buffers", "1GB")`. They replace the
    /// crate's sizes. What makes the data durable and private can't be changed here. A PostgreSQL
    /// that runs already keeps the parameters that it was started with.
    pub parameters: Vec<(String, String)>,
    /// The locale that sorts text in a new database.
    pub locale: Locale,
    /// What error messages call these settings.
    pub names: Names,
}

impl EmbeddedSettings {
    /// A database in `data_dir`, with `/var/lib/<database>-…` to fall back to.
    #[must_use]
    pub fn new(database: &str, data_dir: impl Into<PathBuf>) -> Self {
        Self {
            database: database.to_owned(),
            data_dir: data_dir.into(),
            fallback_dir: Some(PathBuf::from("/var/lib").join(database)),
            bin_dir: None,
            parameters: Vec::new(),
            locale: Locale::default(),
            names: Names::default(),
        }
    }
}

/// A locale of the operating system, for the order and the kinds of characters.
#[derive(Debug, Clone)]
pub struct Locale {
    /// Such as `en_US.UTF-8`. By default `C`, which exists everywhere and sorts alike after every
    /// upgrade.
    pub name: String,
    /// The folder of its files, if it isn't the system's: `LOCPATH` of glibc.
    pub folder: Option<PathBuf>,
}

impl Default for Locale {
    fn default() -> Self {
        Self {
            name: "C".to_owned(),
            folder: None,
        }
    }
}

/// What error messages call the settings: usually the names of environment variables.
#[derive(Debug, Clone, Copy)]
pub struct Names {
    /// The program that uses this crate.
    pub program: &'static str,
    /// [`EmbeddedSettings::data_dir`]
    pub data_dir: &'static str,
    /// [`EmbeddedSettings::bin_dir`]
    pub bin_dir: &'static str,
    /// What a person without an installed PostgreSQL can do instead, as an instruction.
    pub alternative: &'static str,
}

impl Default for Names {
    fn default() -> Self {
        Self {
            program: "the program",
            data_dir: "data_dir",
            bin_dir: "bin_dir",
            alternative: "use a PostgreSQL that is already running",
        }
    }
}
