//! The PostgreSQL of one folder, with stated parameters.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use charge_once_postgres::embedded::{EmbeddedPostgres, EmbeddedSettings, Names};
use nix::{
    sys::{
        signal::{Signal, kill},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::Pid,
};
use sqlx::{AssertSqlSafe, ConnectOptions, PgConnection, SqlSafeStr, postgres::PgConnectOptions};

use crate::cpu::ProcessTree;

/// The name of the database, and of its role.
const DATABASE: &str = "charge_once";

/// How long it may take to end when a measurement is given up.
const END_LIMIT: Duration = Duration::from_secs(30);

pub(crate) async fn execute(
    statements: impl SqlSafeStr,
    connection: &mut PgConnection,
) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(statements).execute(connection).await?;
    Ok(())
}

/// A PostgreSQL that this process owns.
pub(crate) struct Postgres {
    /// `None` once it is being stopped.
    embedded: Option<EmbeddedPostgres>,
    cluster: PathBuf,
    options: PgConnectOptions,
    url: String,
}

type Parameters = Vec<(String, String)>;

/// For measuring, and more of them. `fsync`, `full_page_writes` and `synchronous_commit` are on.
pub(crate) fn for_measuring(shared_buffers: &str, more: &[(&str, &str)]) -> Parameters {
    let usual = [
        ("shared_buffers", shared_buffers),
        // A checkpoint in the middle of a round would count as the cost of its requests.
        ("max_wal_size", "4GB"),
        ("checkpoint_timeout", "30min"),
    ];
    parameters(&[&usual, more].concat())
}

/// For filling tables. Data that is loaded into a table of the same transaction is not logged.
pub(crate) fn for_loading(shared_buffers: &str) -> Parameters {
    parameters(&[
        ("shared_buffers", shared_buffers),
        ("wal_level", "minimal"),
        ("max_wal_senders", "0"),
        ("max_wal_size", "4GB"),
        ("checkpoint_timeout", "1h"),
        ("maintenance_work_mem", "512MB"),
        // The tables are vacuumed and analyzed at the end, once.
        ("autovacuum", "off"),
    ])
}

fn parameters(pairs: &[(&str, &str)]) -> Parameters {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    pairs.iter().map(owned).collect()
}

/// Makes a folder that PostgreSQL's user can enter, also where this process runs as root.
pub(crate) fn make_folder(folder: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("{} can't be made", folder.display()))?;
    Ok(fs::set_permissions(folder, Permissions::from_mode(0o755))?)
}

impl Postgres {
    /// Starts the server of `folder`, creating its data if there is none.
    pub(crate) async fn start(folder: &Path, parameters: Parameters) -> anyhow::Result<Self> {
        let data = std::path::absolute(folder)?.join("data");
        let embedded = EmbeddedPostgres::start(EmbeddedSettings {
            // No other folder: the data would stay behind when this one is removed.
            fallback_dir: None,
            parameters,
            names: Names {
                program: "bench",
                data_dir: "--folder",
                alternative: "install PostgreSQL 15 or later",
                ..Names::default()
            },
            ..EmbeddedSettings::new(DATABASE, &data)
        })
        .await?;
        ensure!(
            embedded.is_owner(),
            "another process works in {}",
            folder.display()
        );
        let options = embedded.connect_options().disable_statement_logging();
        Ok(Self {
            cluster: data.join("pgdata"),
            options: options.application_name("bench"),
            url: embedded.url(),
            embedded: Some(embedded),
        })
    }

    /// As the program under test is told about it.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The folder of its socket, as libpq takes it for a host.
    pub(crate) fn socket_folder(&self) -> anyhow::Result<PathBuf> {
        let folder = self.options.get_socket();
        Ok(folder.context("PostgreSQL has no socket")?.clone())
    }

    pub(crate) async fn connect(&self) -> Result<PgConnection, sqlx::Error> {
        self.options.connect().await
    }

    /// Makes a database beside the one there is, and returns its address for programs.
    pub(crate) async fn create_database(&self, name: &str) -> anyhow::Result<String> {
        let create = AssertSqlSafe(format!("CREATE DATABASE {name}"));
        let mut connection = self.connect().await?;
        execute(create, &mut connection).await?;
        let embedded = self.embedded.as_ref().context("PostgreSQL has ended")?;
        Ok(embedded.url_of(name))
    }

    /// All of its processes. Sessions that have ended count: the main process waited for them.
    pub(crate) fn processes(&self) -> anyhow::Result<ProcessTree> {
        ProcessTree::of(self.postmaster()?)
    }

    fn postmaster(&self) -> anyhow::Result<Pid> {
        let file = self.cluster.join("postmaster.pid");
        let content = fs::read_to_string(&file)
            .with_context(|| format!("{} can't be read", file.display()))?;
        let pid = content.lines().next().unwrap_or_default().trim().parse()?;
        Ok(Pid::from_raw(pid))
    }

    /// Stops it after a checkpoint, so that the next start has no log to replay. The server's own
    /// checkpoint at the stop would have to end within the limit for stopping.
    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        execute("CHECKPOINT", &mut self.connect().await?).await?;
        if let Some(embedded) = self.embedded.take() {
            embedded.stop().await?;
        }
        Ok(())
    }
}

/// However a measurement ends, PostgreSQL ends with it.
impl Drop for Postgres {
    fn drop(&mut self) {
        let Some(_owned) = self.embedded.take() else {
            return;
        };
        let Ok(postmaster) = self.postmaster() else {
            return;
        };
        let until = Instant::now() + END_LIMIT;
        while kill(postmaster, Signal::SIGINT).is_ok() && Instant::now() < until {
            // Its end shows only when it is waited for.
            if waitpid(postmaster, Some(WaitPidFlag::WNOHANG)) != Ok(WaitStatus::StillAlive) {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}
