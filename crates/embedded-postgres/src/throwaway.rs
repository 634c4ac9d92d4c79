//! A PostgreSQL for one run of tests.
//!
//! Promise: it is durable like any other, each test gets a database of its own, and nothing of it is
//! left when the process has ended, however it ended.

use std::{
    fs::Permissions,
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::UNIX_EPOCH,
};

use sqlx::{AssertSqlSafe, Connection, PgConnection, error::BoxDynError};
use tokio::sync::OnceCell;

use crate::{EmbeddedPostgres, Settings};

/// The PostgreSQL of this process. Started by the first test that asks for it.
static SHARED: OnceCell<Throwaway> = OnceCell::const_new();

/// A PostgreSQL that all tests of one process share.
#[derive(Debug)]
pub struct Throwaway {
    postgres: EmbeddedPostgres,
    databases: AtomicU32,
}

impl Throwaway {
    /// The one of this process.
    ///
    /// # Errors
    ///
    /// What prevents the start. The next call tries again.
    pub async fn shared() -> Result<&'static Self, BoxDynError> {
        SHARED.get_or_try_init(start_apart).await
    }

    /// Creates a database from a template, `template0` for an empty one; returns its URL.
    ///
    /// # Errors
    ///
    /// The database's.
    pub async fn create_database(&self, template: &str) -> Result<String, sqlx::Error> {
        let number = self.databases.fetch_add(1, Ordering::Relaxed);
        let name = format!("test_{number}");
        let create = format!(r#"CREATE DATABASE {name} TEMPLATE "{template}""#);
        let mut admin = PgConnection::connect_with(&self.postgres.connect_options()).await?;
        sqlx::query(AssertSqlSafe(create))
            .execute(&mut admin)
            .await?;
        admin.close().await?;
        Ok(self.postgres.url_of(&name))
    }
}

/// Starts it on a runtime of its own: a test's runtime ends with the test.
async fn start_apart() -> Result<Throwaway, BoxDynError> {
    let (started, has_started) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let throwaway = match runtime {
            Ok(runtime) => runtime.block_on(start()),
            Err(error) => Err(error.into()),
        };
        // A test that was canceled meanwhile doesn't take it: then the watchdog does.
        drop(started.send(throwaway));
    });
    has_started.await?
}

async fn start() -> Result<Throwaway, BoxDynError> {
    // Not the folder in TMPDIR: it may be private to root, or its path too long for a socket.
    let unique = UNIX_EPOCH.elapsed()?.as_nanos();
    let folder = PathBuf::from(format!(
        "/tmp/postgres-test-{}-{unique}",
        std::process::id()
    ));
    std::fs::create_dir(&folder)?;
    // PostgreSQL's user has to enter it where this process runs as root.
    std::fs::set_permissions(&folder, Permissions::from_mode(0o755))?;
    watch_over(&folder)?;
    let postgres = EmbeddedPostgres::start(Settings::new("tests", folder.join("data"))).await?;
    Ok(Throwaway {
        postgres,
        databases: AtomicU32::new(0),
    })
}

/// Starts a shell that stops PostgreSQL and removes its files when this process has ended: the
/// kernel then closes the shell's standard input.
fn watch_over(folder: &Path) -> io::Result<()> {
    let script = r#"
        read -r _
        file=$1/data/pgdata/postmaster.pid
        pid=$(head -n 1 "$file" 2>/dev/null) && kill -INT "$pid"
        while [ -f "$file" ] && kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
        rm -rf "$1"
    "#;
    let watchdog = Command::new("sh")
        .args(["-c", script, "watchdog"])
        .arg(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    // Dropping it would close the pipe.
    std::mem::forget(watchdog);
    Ok(())
}
