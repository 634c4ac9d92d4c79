//! A real PgBouncer in front of a test's database.

use std::{
    fs,
    os::unix::{
        fs::{MetadataExt, chown},
        process::CommandExt,
    },
    path::Path,
    process::{Child, Command, Stdio},
};

use sqlx::postgres::PgConnectOptions;
use tempfile::TempDir;

use crate::support::{
    harness::{TestDatabase, eventually, report},
    program::scratch,
};

/// Where Debian puts it.
const PROGRAM: &str = "/usr/sbin/pgbouncer";

/// What it must be told for sqlx, and for what charge-once asks of each connection.
pub const IGNORES_OPTIONS: &str = "ignore_startup_parameters = extra_float_digits, options";

/// A process that ends with the test.
pub struct PgBouncer {
    /// The database, by way of it.
    pub url: String,
    child: Child,
    _folder: TempDir,
}

impl PgBouncer {
    /// In front of a database, with one setting more. `None`, with a line that says so, where PgBouncer is
    /// not installed; CI installs it.
    pub async fn start(database: &TestDatabase, mode: &str, setting: &str) -> Option<Self> {
        if !Path::new(PROGRAM).exists() {
            assert!(std::env::var_os("CI").is_none(), "{PROGRAM} is missing");
            report("skipped: PgBouncer is not installed");
            return None;
        }
        let options: PgConnectOptions = database.url.parse().unwrap();
        let socket = options.get_socket().unwrap();
        let (name, port) = (options.get_database().unwrap(), options.get_port());
        let folder = scratch();
        let own = folder.path().join("pgbouncer");
        fs::create_dir(&own).unwrap();
        let ini = own.join("pgbouncer.ini");
        let (host, here) = (socket.display(), own.display());
        let configuration = format!(
            "[databases]\n\
             {name} = host={host} port={port} user=charge_once\n\
             [pgbouncer]\n\
             listen_addr =\n\
             unix_socket_dir = {here}\n\
             auth_type = any\n\
             pool_mode = {mode}\n\
             default_pool_size = 40\n\
             max_client_conn = 100\n\
             {setting}\n"
        );
        fs::write(&ini, configuration).unwrap();
        // It refuses to run as root, and only PostgreSQL's own user may enter the folder of its socket.
        let owner = fs::metadata(socket).unwrap();
        chown(&own, Some(owner.uid()), Some(owner.gid())).unwrap();
        let child = Command::new(PROGRAM)
            .uid(owner.uid())
            .gid(owner.gid())
            .arg("-q")
            .arg(&ini)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let listens_at = own.join(".s.PGSQL.6432");
        eventually("PgBouncer listens", || async { listens_at.exists() }).await;
        Some(Self {
            url: format!("postgres://charge_once@localhost:6432/{name}?host={here}"),
            child,
            _folder: folder,
        })
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
