//! A real PgBouncer in front of databases.

use std::{fs, os::unix::fs::chown};

use crate::support::prelude::*;

/// Where Debian puts it.
const PROGRAM: &str = "/usr/sbin/pgbouncer";

/// What it must be told for sqlx, and for what charge-once asks of each connection.
pub const IGNORES_OPTIONS: &str = "ignore_startup_parameters = extra_float_digits, options";

/// What sessions must have by themselves where PgBouncer drops what connections ask for, with the
/// default limits.
pub const PINNED: [&str; 6] = [
    "synchronous_commit = on",
    "default_transaction_isolation = 'read committed'",
    "default_transaction_read_only = off",
    "statement_timeout = 3000",
    "lock_timeout = 1000",
    "idle_in_transaction_session_timeout = 6000",
];

/// The variables that make other limits.
const LIMITS: [&str; 2] = ["STATEMENT_TIMEOUT", "IDLE_IN_TRANSACTION_TIMEOUT"];

/// PostgreSQL's role for servers whose connections go through PgBouncer because the whole run's do.
/// Only it has the pinned settings: tests hold locks for longer.
pub const POOLED_ROLE: &str = "through_pgbouncer";

/// The one that all servers of this run connect to.
static OF_THE_RUN: OnceLock<OfTheRun> = OnceLock::new();

/// Folders of sockets.
struct OfTheRun {
    pgbouncer: PathBuf,
    /// Some tests start another PostgreSQL, which it knows nothing of.
    postgres: PathBuf,
}

/// Whether all servers of this run shall connect through PgBouncer: `TEST_THROUGH=pgbouncer`.
pub fn is_wanted() -> bool {
    match std::env::var("TEST_THROUGH").as_deref() {
        Err(_) => false,
        Ok("pgbouncer") => {
            assert!(Path::new(PROGRAM).exists(), "{PROGRAM} is missing");
            true
        }
        Ok(other) => panic!("TEST_THROUGH knows pgbouncer, and not {other}"),
    }
}

/// Puts one in front of all databases of a PostgreSQL, until this process ends.
pub async fn start_for_the_run(url: &str, pool: &PgPool) {
    let role = format!("CREATE ROLE {POOLED_ROLE} SUPERUSER LOGIN;");
    let settings = PINNED.map(|setting| format!("ALTER ROLE {POOLED_ROLE} SET {setting};"));
    sqlx::raw_sql(AssertSqlSafe(role + &settings.concat()))
        .execute(pool)
        .await
        .unwrap();
    let databases =
        |host: &str, port: u16| format!("* = host={host} port={port} user={POOLED_ROLE}");
    // Hundreds of databases, each for a moment: their connections must not stay.
    let settings = format!("{IGNORES_OPTIONS}\nserver_idle_timeout = 1\nserver_login_retry = 1");
    let (child, folder) = spawn(url, databases, "session", &settings).await;
    let folder = folder.keep();
    let options: PgConnectOptions = url.parse().unwrap();
    let of_the_run = OfTheRun {
        pgbouncer: folder.join("pgbouncer"),
        postgres: options.get_socket().unwrap().clone(),
    };
    assert!(OF_THE_RUN.set(of_the_run).is_ok());
    // A static is never dropped. The kernel closes the shell's standard input when this process
    // ends.
    let script = r#"read -r _; kill "$1"; rm -rf "$2""#;
    let watchdog = Command::new("sh")
        .args(["-c", script, "watchdog", &child.id().to_string()])
        .arg(folder)
        .stdin(Stdio::piped())
        // Ctrl-C is for the tests: the shell ends after them.
        .process_group(0)
        .spawn()
        .unwrap();
    std::mem::forget(watchdog);
}

/// The URL by which a server with these variables reaches a database: through the run's PgBouncer
/// if there is one, and if the server has the limits of its role.
pub fn url_for(url: &str, variables: &[(&str, &str)]) -> String {
    let Some(of_the_run) = OF_THE_RUN.get() else {
        return url.to_owned();
    };
    let options: PgConnectOptions = url.parse().unwrap();
    let is_known = options.get_socket() == Some(&of_the_run.postgres);
    let has_limits = |(name, _): &(&str, &str)| LIMITS.contains(name);
    if !is_known || variables.iter().any(has_limits) {
        return url.to_owned();
    }
    url_in(&of_the_run.pgbouncer, options.get_database().unwrap())
}

fn url_in(folder: &Path, database: &str) -> String {
    format!(
        "postgres://charge_once@localhost:6432/{database}?host={}",
        folder.display()
    )
}

pub struct PgBouncer {
    /// The database, by way of it.
    pub url: String,
    child: Child,
    _folder: TempDir,
}

impl PgBouncer {
    /// In front of a database, with one setting more. `None`, with a line that says so, where
    /// PgBouncer is not installed; CI installs it.
    pub async fn start(database: &TestDatabase, mode: &str, setting: &str) -> Option<Self> {
        if !Path::new(PROGRAM).exists() {
            assert!(std::env::var_os("CI").is_none(), "{PROGRAM} is missing");
            report("skipped: PgBouncer is not installed");
            return None;
        }
        let options: PgConnectOptions = database.url.parse().unwrap();
        let name = options.get_database().unwrap();
        let databases =
            |host: &str, port: u16| format!("{name} = host={host} port={port} user=charge_once");
        let (child, folder) = spawn(&database.url, databases, mode, setting).await;
        Some(Self {
            url: url_in(&folder.path().join("pgbouncer"), name),
            child,
            _folder: folder,
        })
    }
}

/// Starts it in front of what `databases` makes of the socket's folder and port.
async fn spawn(
    url: &str,
    databases: impl Fn(&str, u16) -> String,
    mode: &str,
    settings: &str,
) -> (Child, TempDir) {
    let options: PgConnectOptions = url.parse().unwrap();
    let socket = options.get_socket().unwrap();
    let folder = scratch();
    let own = folder.path().join("pgbouncer");
    fs::create_dir(&own).unwrap();
    let ini = own.join("pgbouncer.ini");
    let databases = databases(socket.to_str().unwrap(), options.get_port());
    let here = own.display();
    let configuration = format!(
        "[databases]\n\
         {databases}\n\
         [pgbouncer]\n\
         listen_addr =\n\
         unix_socket_dir = {here}\n\
         auth_type = any\n\
         pool_mode = {mode}\n\
         default_pool_size = 40\n\
         max_client_conn = 500\n\
         {settings}\n"
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
    (child, folder)
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
