//! A primary, its standby, and a server for the card processor, which belongs to another company
//! and fails over with neither.
//!
//! Promise: a link in the filesystem leads to the present primary, and leads to another server only
//! when the one before has ended. A server that ends is started again as what it was.

use std::{
    fs, io,
    os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink},
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, bail, ensure};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use sqlx::{Connection, PgConnection, postgres::PgConnectOptions};
use tokio::{
    process::{Child, Command},
    sync::Mutex,
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};

use crate::{
    cluster::{DATABASE, children_of},
    proxy::{NetworkFault, Proxy, Target},
};

/// The link to the folder of the present primary.
pub(crate) const PRIMARY: &str = "primary";

/// The folders of the three servers: the one that was made first, its copy that follows it, and the
/// processor's. The first two take turns.
const FOLDERS: [&str; 3] = ["data", "standby", "processor"];

/// The processor's, among [`FOLDERS`].
const PROCESSORS: usize = 2;

/// By this name the primary knows its standby.
const STANDBY_NAME: &str = "standby";

/// How long one step may take: a start, a promotion, a standby that catches up.
const STEP_LIMIT: Duration = Duration::from_secs(20);

/// How long the old primary is tried to be brought back. The disk may be full meanwhile.
const COMEBACK_LIMIT: Duration = Duration::from_secs(60);

const LOOK_PAUSE: Duration = Duration::from_millis(25);

const WATCH_PAUSE: Duration = Duration::from_millis(300);

/// Whether COMMIT waits for the standby.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standby {
    Synchronous,
    Asynchronous,
}

/// How the primary ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// `kill -9` of all of its processes.
    Killed,
    /// `pg_ctl stop -m immediate`.
    Stopped,
    /// It goes on for a while, as one that is cut off from everything but its clients.
    LateBy(Duration),
}

/// How it comes back as a standby.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Comeback {
    /// `pg_rewind`
    Rewound,
    /// `pg_basebackup`
    Afresh,
}

pub(crate) struct Pair {
    servers: Arc<Mutex<Servers>>,
    /// Between the standby and its primary.
    pub(crate) link: Arc<Proxy>,
    watch: JoinHandle<()>,
}

impl Pair {
    /// Starts the data in `folder/data`, which was stopped in good order, and two copies of it.
    pub(crate) async fn start(
        folder: &Path,
        programs: PathBuf,
        standby: Standby,
    ) -> anyhow::Result<Self> {
        let socket = folder.join(PRIMARY).join("run/.s.PGSQL.5432");
        let link = Proxy::start(Target::Unix(socket)).await?;
        let owner = fs::metadata(folder.join("data/pgdata"))?;
        let mut servers = Servers {
            folder: folder.to_owned(),
            programs,
            owner: (owner.uid(), owner.gid()),
            settings: settings(standby, &link),
            primary: 0,
            running: [None, None, None],
        };
        for copy in 1..FOLDERS.len() {
            servers.copy_first_to(copy).await?;
        }
        servers.lead_to(0)?;
        servers.follow(1)?;
        for server in 0..FOLDERS.len() {
            servers.launch(server)?;
        }
        for server in [0, PROCESSORS] {
            servers.answers(server).await?;
        }
        servers.streams().await?;
        let servers = Arc::new(Mutex::new(servers));
        let watch = tokio::spawn(watch_over(Arc::clone(&servers)));
        Ok(Self {
            servers,
            link: Arc::new(link),
            watch,
        })
    }

    /// Ends the primary, promotes the standby, leads to it, and brings the old primary back as its
    /// standby. What has begun goes on if the caller doesn't wait for it.
    pub(crate) async fn fail_over(&self, end: End, comeback: Comeback) -> anyhow::Result<()> {
        let (servers, link) = (Arc::clone(&self.servers), Arc::clone(&self.link));
        let failing = async move { servers.lock().await.fail_over(&link, end, comeback).await };
        tokio::spawn(failing).await?
    }

    /// Ends the primary without a checkpoint, and starts it again as the primary.
    pub(crate) async fn restart_primary(&self) -> anyhow::Result<()> {
        let servers = Arc::clone(&self.servers);
        let restarting = async move {
            let mut servers = servers.lock().await;
            let primary = servers.primary;
            servers.end(primary, Signal::SIGQUIT).await?;
            servers.launch(primary)?;
            servers.answers(primary).await
        };
        tokio::spawn(restarting).await?
    }

    /// `kill -9` of the standby, which is started again.
    pub(crate) async fn kill_standby(&self) -> anyhow::Result<()> {
        let servers = Arc::clone(&self.servers);
        let killing = async move {
            let mut servers = servers.lock().await;
            let standby = 1 - servers.primary;
            servers.end(standby, Signal::SIGKILL).await?;
            servers.launch(standby)
        };
        tokio::spawn(killing).await?
    }

    /// Waits for a failover that goes on, and until the standby follows the primary.
    pub(crate) async fn heal(&self) -> anyhow::Result<()> {
        self.link.inject(NetworkFault::None);
        let mut servers = self.servers.lock().await;
        servers.restart_ended()?;
        let Err(_) = servers.streams().await else {
            return Ok(());
        };
        // It lacks what the primary no longer has, or could not be brought back on a full disk.
        let standby = 1 - servers.primary;
        servers.end(standby, Signal::SIGKILL).await?;
        servers.come_back(standby, Comeback::Afresh).await
    }

    pub(crate) async fn stop(&self) {
        self.watch.abort();
        let mut servers = self.servers.lock().await;
        for server in 0..FOLDERS.len() {
            let _ = servers.end(server, Signal::SIGINT).await;
        }
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        // Dropped with it, the servers' main processes are killed, and the others notice.
        self.watch.abort();
    }
}

/// Starts servers again that have ended, unless one is being failed over.
async fn watch_over(servers: Arc<Mutex<Servers>>) {
    loop {
        sleep(WATCH_PAUSE).await;
        // What can't be started now can in a moment.
        let _ = servers.lock().await.restart_ended();
    }
}

/// What all servers are started with. Whether one is a standby is told by a file in its data.
fn settings(standby: Standby, link: &Proxy) -> Vec<String> {
    let names = match standby {
        Standby::Synchronous => STANDBY_NAME,
        Standby::Asynchronous => "",
    };
    let port = link.address.port();
    vec![
        format!("synchronous_standby_names={names}"),
        format!(
            "primary_conninfo=host=127.0.0.1 port={port} user={DATABASE} sslmode=disable \
             application_name={STANDBY_NAME}"
        ),
        // A standby that was away finds what it missed, and is back at once.
        "wal_keep_size=512MB".to_owned(),
        "max_wal_size=256MB".to_owned(),
        "wal_retrieve_retry_interval=200ms".to_owned(),
        "wal_receiver_timeout=2s".to_owned(),
        "wal_sender_timeout=2s".to_owned(),
        // As `charge_once_postgres::embedded` has them.
        "max_connections=100".to_owned(),
        "shared_buffers=64MB".to_owned(),
        "listen_addresses=".to_owned(),
        "unix_socket_permissions=0700".to_owned(),
        "fsync=on".to_owned(),
        "full_page_writes=on".to_owned(),
        "synchronous_commit=on".to_owned(),
        "logging_collector=off".to_owned(),
        "timezone=UTC".to_owned(),
        "port=5432".to_owned(),
    ]
}

struct Servers {
    folder: PathBuf,
    /// The folder of PostgreSQL's programs.
    programs: PathBuf,
    /// The user and the group that PostgreSQL runs as.
    owner: (u32, u32),
    settings: Vec<String>,
    /// Which one of the first two leads.
    primary: usize,
    running: [Option<Child>; FOLDERS.len()],
}

impl Servers {
    fn folder(&self, server: usize) -> PathBuf {
        self.folder.join(FOLDERS.get(server).unwrap_or(&""))
    }

    fn data(&self, server: usize) -> PathBuf {
        self.folder(server).join("pgdata")
    }

    fn running(&mut self, server: usize) -> Option<&mut Child> {
        self.running.get_mut(server)?.as_mut()
    }

    async fn copy_first_to(&self, server: usize) -> anyhow::Result<()> {
        let folder = self.folder(server);
        fs::create_dir(&folder)?;
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755))?;
        self.make_folder(&folder.join("run"))?;
        let copied = Command::new("cp")
            .arg("-a")
            .args([self.data(0), self.data(server)])
            .status();
        ensure!(copied.await?.success(), "the data can't be copied");
        Ok(())
    }

    /// Makes a folder that only PostgreSQL's user can enter.
    fn make_folder(&self, folder: &Path) -> io::Result<()> {
        fs::create_dir(folder)?;
        fs::set_permissions(folder, fs::Permissions::from_mode(0o700))?;
        chown(folder, Some(self.owner.0), Some(self.owner.1))
    }

    /// Has the link lead to this server.
    fn lead_to(&mut self, server: usize) -> io::Result<()> {
        let next = self.folder.join("next");
        symlink(FOLDERS.get(server).unwrap_or(&""), &next)?;
        fs::rename(next, self.folder.join(PRIMARY))?;
        self.primary = server;
        Ok(())
    }

    /// Makes this server a standby from its next start on.
    fn follow(&self, server: usize) -> io::Result<()> {
        fs::write(self.data(server).join("standby.signal"), "")
    }

    /// One of PostgreSQL's programs, as the data's owner.
    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.programs.join(name));
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("LC_ALL", "C")
            .current_dir("/")
            .stdin(Stdio::null())
            .process_group(0)
            .kill_on_drop(true);
        if nix::unistd::Uid::effective().is_root() {
            command.uid(self.owner.0).gid(self.owner.1);
        }
        command
    }

    fn launch(&mut self, server: usize) -> anyhow::Result<()> {
        let folder = self.folder(server);
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(folder.join("postgres.log"))?;
        let mut command = self.program("postgres");
        command.arg("-D").arg(self.data(server));
        let mut settings = self.settings.clone();
        if server == PROCESSORS {
            settings.push("synchronous_standby_names=".to_owned());
        }
        let sockets = folder.join("run");
        settings.push(format!("unix_socket_directories={}", sockets.display()));
        let started = command
            .args(settings.iter().flat_map(|setting| ["-c", setting]))
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("PostgreSQL can't be started")?;
        if let Some(running) = self.running.get_mut(server) {
            *running = Some(started);
        }
        Ok(())
    }

    fn restart_ended(&mut self) -> anyhow::Result<()> {
        for server in 0..FOLDERS.len() {
            self.restart_if_ended(server)?;
        }
        Ok(())
    }

    fn restart_if_ended(&mut self, server: usize) -> anyhow::Result<()> {
        match self.running(server).map(Child::try_wait) {
            Some(Ok(None)) => Ok(()),
            _ => self.launch(server),
        }
    }

    /// Sends the signal, to all of its processes if it is SIGKILL, and waits for the end.
    async fn end(&mut self, server: usize, signal: Signal) -> anyhow::Result<()> {
        let slot = self.running.get_mut(server);
        let Some(mut running) = slot.and_then(Option::take) else {
            return Ok(());
        };
        if let Some(id) = running.id() {
            let main = Pid::from_raw(id.cast_signed());
            if signal == Signal::SIGKILL {
                // Stopped, it makes no more of them.
                let _ = kill(main, Signal::SIGSTOP);
                for process in children_of(main) {
                    let _ = kill(process, signal);
                }
            }
            let _ = kill(main, signal);
        }
        match timeout(STEP_LIMIT, running.wait()).await {
            Ok(ended) => ended.map(drop).context("a server's end"),
            Err(_) => running.kill().await.context("a server doesn't end"),
        }
    }

    async fn connect(&self, server: usize) -> Result<PgConnection, sqlx::Error> {
        let options = PgConnectOptions::new_without_pgpass()
            .socket(self.folder(server).join("run"))
            .username(DATABASE)
            .database("postgres")
            .application_name("torture");
        let connecting = PgConnection::connect_with(&options);
        let connected = timeout(Duration::from_secs(2), connecting).await;
        connected.unwrap_or(Err(sqlx::Error::PoolTimedOut))
    }

    /// Waits until the server answers, and starts it again where remains of the last one kept it
    /// from starting.
    async fn answers(&mut self, server: usize) -> anyhow::Result<()> {
        let until = Instant::now() + STEP_LIMIT;
        while self.connect(server).await.is_err() {
            ensure!(Instant::now() < until, "{server} doesn't answer");
            self.restart_ended()?;
            sleep(LOOK_PAUSE).await;
        }
        Ok(())
    }

    /// Waits until the standby follows the primary.
    async fn streams(&mut self) -> anyhow::Result<()> {
        let until = Instant::now() + STEP_LIMIT;
        loop {
            if let Ok(mut connection) = self.connect(self.primary).await {
                let following = "SELECT EXISTS (SELECT FROM pg_stat_replication
                                  WHERE application_name = $1 AND state = 'streaming')";
                let following = sqlx::query_scalar(following).bind(STANDBY_NAME);
                if following.fetch_one(&mut connection).await.unwrap_or(false) {
                    return Ok(());
                }
            }
            ensure!(Instant::now() < until, "the standby doesn't follow");
            self.restart_ended()?;
            sleep(LOOK_PAUSE).await;
        }
    }

    async fn fail_over(
        &mut self,
        link: &Proxy,
        end: End,
        comeback: Comeback,
    ) -> anyhow::Result<()> {
        let (old, new) = (self.primary, 1 - self.primary);
        match end {
            End::Killed => self.end(old, Signal::SIGKILL).await?,
            End::Stopped => self.end(old, Signal::SIGQUIT).await?,
            End::LateBy(_) => {}
        }
        let promoted = self.promote(new).await;
        if let (Ok(()), End::LateBy(late)) = (&promoted, end) {
            sleep(late).await;
            self.end(old, Signal::SIGKILL).await?;
        }
        if let Err(error) = promoted {
            // The old one goes on.
            link.inject(NetworkFault::None);
            self.restart_ended()?;
            return Err(error);
        }
        self.lead_to(new)?;
        link.inject(NetworkFault::None);
        self.come_back(old, comeback).await
    }

    async fn promote(&mut self, server: usize) -> anyhow::Result<()> {
        let until = Instant::now() + STEP_LIMIT;
        loop {
            if let Ok(mut standby) = self.connect(server).await {
                let promoting = "SELECT NOT pg_is_in_recovery() OR pg_promote(true, 15)";
                let promoted = sqlx::query_scalar(promoting).fetch_one(&mut standby).await;
                if promoted.unwrap_or(false) {
                    return Ok(());
                }
            }
            ensure!(Instant::now() < until, "the standby isn't promoted");
            // The primary has ended on purpose.
            self.restart_if_ended(server)?;
            sleep(LOOK_PAUSE).await;
        }
    }

    async fn come_back(&mut self, server: usize, comeback: Comeback) -> anyhow::Result<()> {
        let until = Instant::now() + COMEBACK_LIMIT;
        let mut next = comeback;
        loop {
            let made = match next {
                Comeback::Rewound => self.rewind(server).await,
                Comeback::Afresh => self.copy_primary_to(server).await,
            };
            let back = match made {
                Ok(()) => {
                    self.follow(server)?;
                    self.launch(server)?;
                    self.streams().await
                }
                Err(error) => Err(error),
            };
            let Err(error) = back else { return Ok(()) };
            self.end(server, Signal::SIGKILL).await?;
            if Instant::now() > until {
                return Err(error.context("the old primary doesn't come back"));
            }
            // What a rewind leaves behind when it fails is no database.
            next = Comeback::Afresh;
            // The disk may have been full for the primary, too.
            self.restart_if_ended(self.primary)?;
            sleep(WATCH_PAUSE).await;
        }
    }

    async fn rewind(&self, server: usize) -> anyhow::Result<()> {
        // Before it, the new primary's files still say that it is on the timeline of the old one.
        let mut primary = self.connect(self.primary).await?;
        sqlx::query("CHECKPOINT").execute(&mut primary).await?;
        let source = self.folder(self.primary).join("run");
        let source = format!(
            "--source-server=host={} user={DATABASE} dbname=postgres",
            source.display()
        );
        let mut rewind = self.program("pg_rewind");
        rewind.arg("-D").arg(self.data(server)).arg(source);
        self.succeeds(server, rewind).await
    }

    async fn copy_primary_to(&self, server: usize) -> anyhow::Result<()> {
        let data = self.data(server);
        match fs::remove_dir_all(&data) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
            _ => self.make_folder(&data)?,
        }
        let mut copy = self.program("pg_basebackup");
        copy.arg("-D").arg(&data);
        copy.args(["--username", DATABASE, "--checkpoint=fast", "--no-sync"]);
        copy.arg("--host")
            .arg(self.folder(self.primary).join("run"));
        self.succeeds(server, copy).await
    }

    /// Runs a program to its end, with its words in the server's log.
    async fn succeeds(&self, server: usize, mut program: Command) -> anyhow::Result<()> {
        let output = timeout(COMEBACK_LIMIT, program.output()).await??;
        let log = self.folder(server).join("postgres.log");
        let mut log = fs::OpenOptions::new().append(true).open(log)?;
        io::Write::write_all(&mut log, &output.stderr)?;
        if !output.status.success() {
            bail!("{}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(())
    }
}
