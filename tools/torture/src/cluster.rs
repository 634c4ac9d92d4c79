//! PostgreSQL and its disk: a private server whose data is on a small filesystem that can be
//! filled.
//!
//! Promise: PostgreSQL is started again whenever it ends, so that every fault of it passes. Only
//! one that was taken down stays so until it is brought up. With a standby, all that leads to
//! PostgreSQL leads to the present primary.

use std::{
    fs::{self, File},
    io::{Seek, SeekFrom, Write},
    net::SocketAddr,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, ensure};
use charge_once_postgres::embedded::{EmbeddedPostgres, EmbeddedSettings};
use nix::{
    fcntl::{FallocateFlags, fallocate},
    mount::{MntFlags, MsFlags, mount, umount2},
    sys::{
        signal::{Signal, kill},
        statvfs::statvfs,
    },
    unistd::{Pid, Uid},
};
use sqlx::{
    AssertSqlSafe, ConnectOptions, Connection, PgConnection,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};

use crate::pair::{PRIMARY, Pair, Standby};

/// The filesystem's size: an hour of load fits, with PostgreSQL's log of a gigabyte.
const DISK_SIZE: &str = "size=3g,mode=755";

/// The name of the API's database, and of its role.
pub(crate) const DATABASE: &str = "charge_once";

/// The database of the card processor's simulator, on the same server.
pub(crate) const PROCESSOR_DATABASE: &str = "processor";

/// How many bytes of a full disk are written and not only reserved.
const WRITTEN: u64 = 64 << 20;

/// How long PostgreSQL may take to end where it is not asked to end in good order.
const END_LIMIT: Duration = Duration::from_secs(5);

/// A PostgreSQL that is watched and started again.
pub(crate) struct Cluster {
    options: PgConnectOptions,
    /// For proxies.
    pub(crate) socket: PathBuf,
    wanted: watch::Sender<Wanted>,
    /// Whether the watch starts nothing now.
    rests: watch::Receiver<bool>,
    watch: Option<JoinHandle<EmbeddedPostgres>>,
    /// With its data.
    home: PathBuf,
    pub(crate) pair: Option<Pair>,
    /// Dropped after PostgreSQL has ended.
    disk: Disk,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// PostgreSQL is started again when it has ended.
    Running,
    /// It stays ended.
    Down,
    /// The watch ends.
    Ended,
}

/// The folder with PostgreSQL's data, removed when it is dropped.
struct Disk {
    folder: PathBuf,
    /// Whether the folder is a filesystem of its own.
    is_own: bool,
    is_kept: bool,
}

impl Disk {
    fn mount(folder: &Path) -> anyhow::Result<Self> {
        fs::create_dir_all(folder).with_context(|| format!("{} is no folder", folder.display()))?;
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
        let kind = Some("tmpfs");
        let is_own = Uid::effective().is_root()
            && mount(kind, folder, kind, MsFlags::empty(), Some(DISK_SIZE)).is_ok();
        Ok(Self {
            folder: folder.to_owned(),
            is_own,
            is_kept: false,
        })
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if self.is_kept {
            return;
        }
        if self.is_own {
            // A file that is still open does not keep it mounted here.
            let _ = umount2(&self.folder, MntFlags::MNT_DETACH);
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Cluster {
    /// Starts PostgreSQL below `folder`, which must not exist, with these parameters.
    pub(crate) async fn start(folder: &Path, parameters: &[(&str, &str)]) -> anyhow::Result<Self> {
        let disk = Disk::mount(folder)?;
        let mut settings = EmbeddedSettings::new(DATABASE, folder.join("data"));
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        settings.parameters = parameters.iter().map(owned).collect();
        let postgres = EmbeddedPostgres::start(settings).await?;
        let options = postgres.connect_options();
        let socket = options
            .get_socket()
            .context("PostgreSQL listens on no socket")?
            .join(format!(".s.PGSQL.{}", options.get_port()));
        let (wanted, told) = watch::channel(Wanted::Running);
        let (resting, rests) = watch::channel(false);
        let watch = tokio::spawn(watch_over(postgres, told, resting));
        let cluster = Self {
            options: options.disable_statement_logging(),
            socket,
            wanted,
            rests,
            watch: Some(watch),
            home: folder.join("data"),
            pair: None,
            disk,
        };
        let create = format!("CREATE DATABASE {PROCESSOR_DATABASE}");
        let mut admin = cluster.connect(DATABASE).await?;
        sqlx::query(AssertSqlSafe(create))
            .execute(&mut admin)
            .await?;
        admin.close().await?;
        Ok(cluster)
    }

    /// Gives it a standby. Nothing must use it meanwhile.
    pub(crate) async fn pair_up(&mut self, standby: Standby) -> anyhow::Result<()> {
        let postmaster = self.postmaster().context("PostgreSQL doesn't run")?;
        let program = fs::read_link(format!("/proc/{postmaster}/exe"))?;
        let programs = program.parent().context("a folder of programs")?;
        self.end_watched().await?;
        let pair = Pair::start(&self.disk.folder, programs.to_owned(), standby).await?;
        self.pair = Some(pair);
        self.home = self.disk.folder.join(PRIMARY);
        let sockets = self.home.join("run");
        self.socket = sockets.join(format!(".s.PGSQL.{}", self.options.get_port()));
        self.options = self.options.clone().socket(sockets);
        Ok(())
    }

    /// The folder of the socket of the server that has this database.
    fn sockets(&self, database: &str) -> PathBuf {
        match &self.pair {
            Some(_) if database == PROCESSOR_DATABASE => self.disk.folder.join("processor/run"),
            _ => self.socket.parent().unwrap_or(&self.home).to_owned(),
        }
    }

    fn options_of(&self, database: &str) -> PgConnectOptions {
        let options = self.options.clone().socket(self.sockets(database));
        options.database(database).application_name("torture")
    }

    /// A database, where no proxy is in the way.
    pub(crate) fn url(&self, database: &str) -> String {
        let folder = self.sockets(database).display().to_string();
        format!("postgres://{DATABASE}@localhost/{database}?host={folder}&sslmode=disable")
    }

    pub(crate) fn has_own_disk(&self) -> bool {
        self.disk.is_own
    }

    /// A session that no proxy is in the way of.
    pub(crate) async fn connect(&self, database: &str) -> Result<PgConnection, sqlx::Error> {
        self.options_of(database).connect().await
    }

    /// Sessions for the checks, which no proxy is in the way of.
    pub(crate) fn pool(&self, database: &str) -> sqlx::PgPool {
        PgPoolOptions::new()
            .max_connections(2)
            .acquire_timeout(Duration::from_secs(5))
            .connect_lazy_with(self.options_of(database))
    }

    /// The process that all others of PostgreSQL are children of.
    fn postmaster(&self) -> Option<Pid> {
        let file = self.home.join("pgdata/postmaster.pid");
        let content = fs::read_to_string(file).ok()?;
        let pid = content.lines().next()?.trim().parse().ok()?;
        Some(Pid::from_raw(pid))
    }

    /// `pg_ctl stop -m immediate`: PostgreSQL ends without a checkpoint, and is started again.
    /// `false`: it doesn't run.
    pub(crate) fn stop_immediately(&self) -> bool {
        let postmaster = self.postmaster();
        postmaster.is_some_and(|postmaster| kill(postmaster, Signal::SIGQUIT).is_ok())
    }

    /// Stops PostgreSQL immediately and leaves it so. `false`: it doesn't run, or doesn't end.
    pub(crate) async fn take_down(&self) -> bool {
        self.wanted.send_replace(Wanted::Down);
        // A start that has begun would bring it back.
        let mut rests = self.rests.clone();
        let rested = timeout(END_LIMIT, rests.wait_for(|rests| *rests)).await;
        let is_stopped = self.stop_immediately();
        let until = Instant::now() + END_LIMIT;
        while self.postmaster().is_some_and(is_alive) {
            if Instant::now() > until {
                return false;
            }
            sleep(Duration::from_millis(20)).await;
        }
        is_stopped && rested.is_ok_and(|rested| rested.is_ok())
    }

    pub(crate) fn bring_up(&self) {
        self.wanted.send_replace(Wanted::Running);
    }

    /// Sends a signal to the main process and all of its children. `false`: it doesn't run.
    pub(crate) fn signal_all(&self, signal: Signal) -> bool {
        let Some(postmaster) = self.postmaster() else {
            return false;
        };
        let is_sent = kill(postmaster, signal).is_ok();
        for child in children_of(postmaster) {
            let _ = kill(child, signal);
        }
        is_sent
    }

    /// Fills the disk. Returns what to remove.
    pub(crate) async fn fill_disk(&self) -> anyhow::Result<Ballast> {
        ensure!(self.disk.is_own, "the data is on the machine's own disk");
        let folder = self.disk.folder.clone();
        // It takes a second, which the clients' tasks must not wait for.
        tokio::task::spawn_blocking(move || fill(&folder)).await?
    }

    /// Stops PostgreSQL. Removes the data unless it is to be kept.
    pub(crate) async fn stop(mut self, keep: bool) -> anyhow::Result<()> {
        self.disk.is_kept = keep;
        if let Some(pair) = &self.pair {
            pair.stop().await;
        }
        self.end_watched().await
    }

    async fn end_watched(&mut self) -> anyhow::Result<()> {
        self.wanted.send_replace(Wanted::Ended);
        if let Some(watch) = self.watch.take() {
            watch.await?.stop().await?;
        }
        Ok(())
    }
}

/// Starts PostgreSQL again when it has ended, as long as that is wanted.
async fn watch_over(
    mut postgres: EmbeddedPostgres,
    mut wanted: watch::Receiver<Wanted>,
    resting: watch::Sender<bool>,
) -> EmbeddedPostgres {
    loop {
        let mut told = wanted.clone();
        let other = async {
            let _ = told.wait_for(|wanted| *wanted != Wanted::Running).await;
        };
        postgres.keep_running(other).await;
        resting.send_replace(true);
        let next = wanted.wait_for(|wanted| *wanted != Wanted::Down).await;
        if !next.is_ok_and(|next| *next == Wanted::Running) {
            return postgres;
        }
        resting.send_replace(false);
    }
}

/// However the run ends, PostgreSQL ends with it.
impl Drop for Cluster {
    fn drop(&mut self) {
        if let Some(watch) = self.watch.take() {
            // It would start PostgreSQL again.
            watch.abort();
            self.stop_immediately();
            let until = std::time::Instant::now() + END_LIMIT;
            while self.postmaster().is_some_and(is_alive) && std::time::Instant::now() < until {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

fn fill(folder: &Path) -> anyhow::Result<Ballast> {
    let ballast = Ballast {
        path: folder.join("ballast"),
    };
    let mut file = File::create(&ballast.path)?;
    let disk = statvfs(folder)?;
    let free = disk.blocks_available().saturating_mul(disk.fragment_size());
    // PostgreSQL writes at the same time, so all of it may be too much by now.
    let most = i64::try_from(free.saturating_sub(WRITTEN))?;
    fallocate(&file, FallocateFlags::empty(), 0, most)?;
    file.seek(SeekFrom::End(0))?;
    // The last one fails: the disk is full.
    let block = vec![0; 1 << 20];
    while file.write_all(&block).is_ok() {}
    Ok(ballast)
}

fn is_alive(process: Pid) -> bool {
    kill(process, None).is_ok()
}

/// A file that takes all room, removed when it is dropped.
pub(crate) struct Ballast {
    path: PathBuf,
}

impl Drop for Ballast {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// The API's database, behind the proxy at this address.
pub(crate) fn url_at(proxy: SocketAddr) -> String {
    format!("postgres://{DATABASE}@{proxy}/{DATABASE}?sslmode=disable")
}

pub(crate) fn children_of(parent: Pid) -> Vec<Pid> {
    let Ok(processes) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let is_child = |pid: &i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // The name, in parentheses, may hold anything; the state and the parent follow it.
        let after_name = stat.rsplit(')').next().unwrap_or_default();
        let of = after_name.split_whitespace().nth(1);
        of.and_then(|of| of.parse().ok()) == Some(parent.as_raw())
    };
    processes
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(is_child)
        .map(Pid::from_raw)
        .collect()
}
