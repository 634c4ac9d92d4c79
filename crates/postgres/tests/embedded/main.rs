//! A private PostgreSQL, started, shared, killed and found again.
#![allow(unreachable_pub, reason = "a test is a program of its own")]

mod distrust;

use std::error::Error;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use charge_once_postgres::embedded::{
    EmbeddedError, EmbeddedPostgres, EmbeddedSettings, Locale, Names, Problem,
};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use sqlx::{ConnectOptions, Connection, PgConnection};
use tempfile::TempDir;

type Outcome = Result<(), Box<dyn Error>>;

/// A name that has to be quoted in SQL and encoded in a URL.
const DATABASE: &str = "Shop 24";

/// How long a process may take to end after a signal.
const END_LIMIT: Duration = Duration::from_secs(20);

/// Pause between two looks at a process that is about to end.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// A data directory below a folder that PostgreSQL's user can enter. Whatever PostgreSQL still
/// runs there at the end of a test, failed or not, is stopped.
struct Scratch {
    parent: TempDir,
    data_dir: PathBuf,
}

impl Scratch {
    fn new() -> Result<Self, Box<dyn Error>> {
        Self::with_data_in("data")
    }

    /// The path of its data directory is too long for a socket in it.
    fn with_long_path() -> Result<Self, Box<dyn Error>> {
        Self::with_data_in(&format!("{}/data", "long-".repeat(20)))
    }

    fn with_data_in(below: &str) -> Result<Self, Box<dyn Error>> {
        // Not the folder in TMPDIR: it may be private to root, or a long path.
        let parent = tempfile::Builder::new()
            .prefix("charge-once-test-")
            .permissions(Permissions::from_mode(0o755))
            .tempdir_in("/tmp")?;
        std::fs::set_permissions(parent.path(), Permissions::from_mode(0o755))?;
        let data_dir = parent.path().join(below);
        Ok(Self { parent, data_dir })
    }

    fn cluster(&self) -> PathBuf {
        self.data_dir.join("pgdata")
    }

    /// The process that `postmaster.pid` names.
    fn pid(&self) -> Result<Pid, &'static str> {
        self.postmaster().ok_or("no postmaster.pid")
    }

    fn postmaster(&self) -> Option<Pid> {
        let content = std::fs::read_to_string(self.cluster().join("postmaster.pid")).ok()?;
        content.lines().next()?.parse().ok().map(Pid::from_raw)
    }

    fn settings(&self) -> EmbeddedSettings {
        EmbeddedSettings {
            names: Names {
                data_dir: "DATA_DIR",
                bin_dir: "PG_BIN_DIR",
                ..Names::default()
            },
            ..EmbeddedSettings::new(DATABASE, &self.data_dir)
        }
    }

    /// One that has run, and is stopped.
    async fn used() -> Result<Self, Box<dyn Error>> {
        let scratch = Self::new()?;
        scratch.start().await?.stop().await?;
        Ok(scratch)
    }

    /// One that runs, has committed `word`, and its process.
    async fn running(word: &str) -> Result<(Self, EmbeddedPostgres, Pid), Box<dyn Error>> {
        let scratch = Self::new()?;
        let postgres = scratch.start().await?;
        remember(&postgres, word).await?;
        let pid = scratch.pid()?;
        Ok((scratch, postgres, pid))
    }

    async fn start(&self) -> Result<EmbeddedPostgres, EmbeddedError> {
        EmbeddedPostgres::start(self.settings()).await
    }

    /// Why there is no start. A person reads all of `told` in it.
    async fn refusal(&self, told: &[&str]) -> Result<EmbeddedError, Box<dyn Error>> {
        let started = self.start().await;
        let error = started.err().ok_or("started nonetheless")?;
        assert_tells(&error, told);
        Ok(error)
    }
}

fn assert_tells(error: &EmbeddedError, told: &[&str]) {
    let message = error.to_string();
    for told in told {
        assert!(message.contains(told), "{message}");
    }
}

fn mode_of(path: &Path) -> std::io::Result<u32> {
    Ok(std::fs::metadata(path)?.permissions().mode() & 0o777)
}

fn socket_dir_of(postgres: &EmbeddedPostgres) -> Option<PathBuf> {
    postgres.connect_options().get_socket().cloned()
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Some(pid) = self.postmaster()
            && is_alive(pid)
        {
            let _ = kill(pid, Signal::SIGQUIT);
            let _ = wait_for_end(pid);
        }
    }
}

fn is_alive(pid: Pid) -> bool {
    match waitpid(pid, Some(WaitPidFlag::WNOHANG)) {
        Ok(WaitStatus::StillAlive) => true,
        Ok(_) => false,
        Err(_) => kill(pid, None) != Err(Errno::ESRCH),
    }
}

fn wait_for_end(pid: Pid) -> Outcome {
    let deadline = Instant::now() + END_LIMIT;
    while is_alive(pid) {
        if Instant::now() > deadline {
            return Err(format!("process {pid} is still running").into());
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
    Ok(())
}

async fn connect(postgres: &EmbeddedPostgres) -> sqlx::Result<PgConnection> {
    postgres.connect_options().connect().await
}

async fn assert_settings(
    connection: &mut PgConnection,
    expected: &[(&str, &str)],
) -> sqlx::Result<()> {
    for (name, value) in expected {
        let found = sqlx::query_scalar("SELECT current_setting($1)").bind(name);
        let found: String = found.fetch_one(&mut *connection).await?;
        assert_eq!(found, *value, "{name}");
    }
    Ok(())
}

/// Commits one row, to be found again later.
async fn remember(postgres: &EmbeddedPostgres, word: &str) -> sqlx::Result<()> {
    let mut connection = connect(postgres).await?;
    let create = sqlx::raw_sql("CREATE TABLE IF NOT EXISTS memory (word text)");
    create.execute(&mut connection).await?;
    let insert = sqlx::query("INSERT INTO memory VALUES ($1)").bind(word);
    insert.execute(&mut connection).await?;
    connection.close().await
}

async fn recall(postgres: &EmbeddedPostgres) -> sqlx::Result<Vec<String>> {
    let mut connection = connect(postgres).await?;
    let words = sqlx::query_scalar("SELECT word FROM memory ORDER BY word");
    let words = words.fetch_all(&mut connection).await?;
    connection.close().await?;
    Ok(words)
}

#[tokio::test]
async fn a_caller_decides_sizes_and_the_locale_and_never_durability() -> Outcome {
    let scratch = Scratch::new()?;
    let wanted = [
        ("shared_buffers", "32MB"),
        ("max_connections", "20"),
        ("work_mem", "1MB"),
        ("fsync", "off"),
        ("listen_addresses", "*"),
    ];
    let parameters = wanted.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let postgres = EmbeddedPostgres::start(EmbeddedSettings {
        parameters: parameters.into(),
        locale: Locale {
            name: "C.UTF-8".to_owned(),
            folder: None,
        },
        ..scratch.settings()
    })
    .await?;

    let mut connection = connect(&postgres).await?;
    let sorted_by = "SELECT datcollate FROM pg_database WHERE datname = current_database()";
    let sorted_by = sqlx::query_scalar(sorted_by);
    let sorted_by: String = sorted_by.fetch_one(&mut connection).await?;
    assert_eq!(sorted_by, "C.UTF-8");
    let [buffers, connections, memory, _, _] = wanted;
    let kept = [("fsync", "on"), ("listen_addresses", "")];
    assert_settings(&mut connection, &[buffers, connections, memory]).await?;
    assert_settings(&mut connection, &kept).await?;
    connection.close().await?;
    Ok(postgres.stop().await?)
}

#[tokio::test]
async fn a_fresh_folder_becomes_a_durable_database_on_a_private_socket() -> Outcome {
    let scratch = Scratch::new()?;
    assert!(!scratch.settings().has_database());
    assert!(!scratch.data_dir.exists(), "a look changes nothing");
    let postgres = scratch.start().await?;
    assert!(postgres.is_owner());
    assert!(scratch.settings().has_database());

    let mut connection = connect(&postgres).await?;
    let expected = [
        ("fsync", "on"),
        ("full_page_writes", "on"),
        ("synchronous_commit", "on"),
        ("data_checksums", "on"),
        ("listen_addresses", ""),
        ("server_encoding", "UTF8"),
        ("unix_socket_permissions", "0700"),
        ("max_connections", "100"),
    ];
    assert_settings(&mut connection, &expected).await?;
    let identity = sqlx::query_as("SELECT current_user::text, current_database()::text");
    let identity: (String, String) = identity.fetch_one(&mut connection).await?;
    assert_eq!(identity, (DATABASE.into(), DATABASE.into()));
    for private in ["pgdata", "run"] {
        let mode = mode_of(&scratch.data_dir.join(private))?;
        assert_eq!(mode, 0o700, "{private}");
    }
    connection.close().await?;
    Ok(postgres.stop().await?)
}

#[tokio::test]
async fn the_url_works_in_sqlx_and_in_psql() -> Outcome {
    for name in ["data", "with space \"quote\" & 50%", "with, comma"] {
        let scratch = Scratch::with_data_in(name)?;
        let postgres = scratch.start().await?;
        let url = postgres.url();
        let mut connection = PgConnection::connect(&url).await?;
        let name = sqlx::query_scalar("SELECT current_database()::text");
        let name: String = name.fetch_one(&mut connection).await?;
        assert_eq!(name, DATABASE);
        connection.close().await?;

        let mut psql = Command::new("psql");
        psql.args(["-XAt", "-c", "SELECT current_user", &url]);
        // PostgreSQL's client is a separate package on some systems, so it may be missing.
        if let Ok(output) = psql.output() {
            let complaint = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.stdout, b"Shop 24\n", "{complaint}");
        }
        postgres.stop().await?;
    }
    Ok(())
}

#[tokio::test]
async fn data_survives_a_stop_and_a_start() -> Outcome {
    let (scratch, first, pid) = Scratch::running("kept").await?;
    first.stop().await?;
    assert!(!is_alive(pid));
    assert_eq!(scratch.postmaster(), None);

    let second = scratch.start().await?;
    assert!(second.is_owner());
    assert_eq!(recall(&second).await?, ["kept"]);
    Ok(second.stop().await?)
}

#[tokio::test]
async fn a_second_start_attaches_and_its_stop_stops_nothing() -> Outcome {
    let scratch = Scratch::new()?;
    let owner = scratch.start().await?;
    let pid = scratch.postmaster();

    let guest = scratch.start().await?;
    assert!(!guest.is_owner());
    assert_eq!(scratch.postmaster(), pid);
    assert_eq!(guest.url(), owner.url());
    remember(&guest, "from the guest").await?;
    guest.stop().await?;

    assert_eq!(recall(&owner).await?, ["from the guest"]);
    Ok(owner.stop().await?)
}

#[tokio::test]
async fn two_first_starts_at_once_make_one_database() -> Outcome {
    let scratch = Scratch::new()?;
    let (left, right) = tokio::try_join!(scratch.start(), scratch.start())?;
    assert_ne!(left.is_owner(), right.is_owner());

    remember(&left, "left").await?;
    assert_eq!(recall(&right).await?, ["left"]);
    let (owner, guest) = match left.is_owner() {
        true => (left, right),
        false => (right, left),
    };
    guest.stop().await?;
    Ok(owner.stop().await?)
}

#[tokio::test]
async fn the_postgres_of_a_dead_owner_is_taken_over() -> Outcome {
    let (scratch, first, pid) = Scratch::running("kept").await?;
    // What the kernel does when the process is killed: the lock goes, PostgreSQL stays.
    drop(first);

    let second = scratch.start().await?;
    assert!(second.is_owner());
    assert_eq!(scratch.postmaster(), Some(pid));
    assert_eq!(recall(&second).await?, ["kept"]);
    second.stop().await?;
    assert!(!is_alive(pid));
    Ok(())
}

#[tokio::test]
async fn a_killed_postgres_is_replaced_and_committed_data_is_still_there() -> Outcome {
    let (scratch, first, pid) = Scratch::running("committed").await?;
    kill(pid, Signal::SIGKILL)?;
    drop(first);
    // The stale file is part of the test.
    assert_eq!(scratch.postmaster(), Some(pid));

    let second = scratch.start().await?;
    assert!(second.is_owner());
    assert_ne!(scratch.postmaster(), Some(pid));
    assert_eq!(recall(&second).await?, ["committed"]);
    Ok(second.stop().await?)
}

#[tokio::test]
async fn stopping_after_postgres_was_killed_is_no_error() -> Outcome {
    let (_scratch, postgres, pid) = Scratch::running("kept").await?;
    kill(pid, Signal::SIGKILL)?;
    Ok(postgres.stop().await?)
}

#[tokio::test]
async fn a_pid_file_that_names_an_unrelated_process_is_no_obstacle() -> Outcome {
    let scratch = Scratch::used().await?;
    // As after the restart of a container, in which the small process numbers repeat.
    let mut bystander = Command::new("tail").args(["-f", "/dev/null"]).spawn()?;
    let (id, cluster) = (bystander.id(), scratch.cluster());
    let (cluster, data_dir) = (cluster.display(), scratch.data_dir.display());
    let stale = format!("{id}\n{cluster}\n1700000000\n5432\n{data_dir}/run\n\n\nready\n");
    std::fs::write(scratch.cluster().join("postmaster.pid"), stale)?;

    let result = scratch.start().await;
    let bystander_survived = bystander.try_wait()?.is_none();
    bystander.kill()?;
    bystander.wait()?;
    let postgres = result?;
    assert!(bystander_survived);
    assert!(postgres.is_owner());
    Ok(postgres.stop().await?)
}

/// A power cut leaves a file whose content never reached the disk.
#[tokio::test]
async fn an_empty_postmaster_pid_ends_no_start() -> Outcome {
    let (scratch, postgres, _) = Scratch::running("before the power cut").await?;
    postgres.stop().await?;
    for remnant in ["", "\0\0\0\0"] {
        std::fs::write(scratch.cluster().join("postmaster.pid"), remnant)?;
        let postgres = scratch.start().await?;
        assert_eq!(recall(&postgres).await?, ["before the power cut"]);
        postgres.stop().await?;
    }
    Ok(())
}

#[tokio::test]
async fn what_an_interrupted_initdb_left_is_removed() -> Outcome {
    let scratch = Scratch::new()?;
    let leftover = scratch.data_dir.join("pgdata.new-1700000000");
    std::fs::create_dir_all(leftover.join("base"))?;
    std::fs::write(leftover.join("PG_VERSION"), "15\n")?;

    let postgres = scratch.start().await?;
    assert!(!leftover.exists());
    remember(&postgres, "works").await?;
    Ok(postgres.stop().await?)
}

#[tokio::test]
async fn a_path_too_long_for_a_socket_still_works_and_can_be_attached_to() -> Outcome {
    let scratch = Scratch::with_long_path()?;
    let owner = scratch.start().await?;
    let guest = scratch.start().await?;
    assert!(!guest.is_owner());
    assert_eq!(guest.url(), owner.url());
    remember(&guest, "works").await?;
    let socket_dir = socket_dir_of(&owner).ok_or("no socket")?;
    assert!(!socket_dir.starts_with(&scratch.data_dir));
    assert_eq!(mode_of(&socket_dir)?, 0o700);

    guest.stop().await?;
    owner.stop().await?;
    assert!(!socket_dir.exists());
    Ok(())
}

#[tokio::test]
async fn a_folder_without_the_programs_is_named_together_with_its_variable() -> Outcome {
    let scratch = Scratch::new()?;
    let empty = scratch.parent.path().join("empty");
    std::fs::create_dir(&empty)?;
    let settings = EmbeddedSettings {
        bin_dir: Some(empty.clone()),
        ..scratch.settings()
    };
    let started = EmbeddedPostgres::start(settings).await;
    let error = started.err().ok_or("started without programs")?;
    assert!(matches!(error.problem(), Problem::BinDir { .. }), "{error}");
    assert_tells(&error, &["PG_BIN_DIR", &empty.display().to_string()]);
    Ok(())
}

#[tokio::test]
async fn data_of_a_missing_version_is_refused_with_the_version_it_needs() -> Outcome {
    let scratch = Scratch::used().await?;
    std::fs::write(scratch.cluster().join("PG_VERSION"), "12\n")?;
    let told = ["DATA_DIR", "Install PostgreSQL 12"];
    let error = scratch.refusal(&told).await?;
    assert!(
        matches!(error.problem(), Problem::VersionMissing { needed, .. } if needed == "12"),
        "{error}"
    );
    Ok(())
}

#[tokio::test]
async fn a_folder_of_other_software_is_refused_and_left_as_it_was() -> Outcome {
    let scratch = Scratch::new()?;
    std::fs::create_dir(&scratch.data_dir)?;
    std::fs::write(scratch.data_dir.join("PG_VERSION"), "15\n")?;
    let error = scratch.refusal(&["DATA_DIR"]).await?;
    let problem = error.problem();
    assert!(matches!(problem, Problem::ForeignDirectory(_)), "{error}");
    let names: Vec<_> = std::fs::read_dir(&scratch.data_dir)?
        .map(|entry| entry.map(|entry| entry.file_name()))
        .collect::<Result<_, _>>()?;
    assert_eq!(names, ["PG_VERSION"]);
    Ok(())
}

#[tokio::test]
async fn a_start_that_fails_quotes_the_log_and_frees_the_folder() -> Outcome {
    let scratch = Scratch::used().await?;
    let configuration = scratch.cluster().join("postgresql.conf");
    let original = std::fs::read(&configuration)?;
    std::fs::write(&configuration, "no_such_setting_anywhere = on\n")?;
    let error = scratch.refusal(&["no_such_setting_anywhere"]).await?;
    assert!(matches!(error.problem(), Problem::Exited { .. }), "{error}");

    std::fs::write(&configuration, original)?;
    Ok(scratch.start().await?.stop().await?)
}
