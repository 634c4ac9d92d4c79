//! A network between the server and PostgreSQL that fails on command.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use sqlx::postgres::PgConnectOptions;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, UnixStream, tcp, unix},
    sync::watch,
};

/// What the network does from now on, with open connections and new ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weather {
    /// Forwards everything.
    Fine,
    /// Forwards nothing and says nothing: a cable was pulled. A connection that has met this stays
    /// silent for ever, whatever the weather later.
    Stalled,
    /// Closes every connection, new ones too.
    Cut,
    /// Forwards a `COMMIT`, swallows the answer, and closes the connection.
    LosesAnswersToCommit,
    /// Swallows a `COMMIT` and closes the connection.
    LosesCommits,
}

/// A TCP proxy in front of a unix socket.
pub struct Proxy {
    /// The database, by way of this proxy.
    pub url: String,
    weather: watch::Sender<Weather>,
    lost_commits: Arc<AtomicUsize>,
}

impl Proxy {
    /// In front of the database that `url` names.
    pub async fn in_front_of(url: &str) -> Self {
        let options: PgConnectOptions = url.parse().unwrap();
        let folder = options.get_socket().expect("a socket's folder").clone();
        let database = options.get_database().unwrap();
        let socket = folder.join(format!(".s.PGSQL.{}", options.get_port()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let weather = watch::Sender::new(Weather::Fine);
        let lost_commits = Arc::new(AtomicUsize::new(0));
        tokio::spawn(accept(
            listener,
            socket,
            weather.clone(),
            lost_commits.clone(),
        ));
        Self {
            url: format!("postgres://charge_once@127.0.0.1:{port}/{database}?sslmode=disable"),
            weather,
            lost_commits,
        }
    }

    pub fn turn(&self, weather: Weather) {
        self.weather.send_replace(weather);
    }

    /// How many commits, or answers to them, were lost.
    pub fn lost_commits(&self) -> usize {
        self.lost_commits.load(Ordering::SeqCst)
    }
}

async fn accept(
    listener: TcpListener,
    socket: PathBuf,
    weather: watch::Sender<Weather>,
    lost_commits: Arc<AtomicUsize>,
) {
    while let Ok((client, _)) = listener.accept().await {
        let (socket, lost_commits) = (socket.clone(), lost_commits.clone());
        let weather = weather.clone();
        let (mut is_cut, mut is_stalled) = (weather.subscribe(), weather.subscribe());
        tokio::spawn(async move {
            if *weather.borrow() == Weather::Cut {
                return;
            }
            let Ok(server) = UnixStream::connect(socket).await else {
                return;
            };
            let (mut from_client, mut to_client) = client.into_split();
            let (mut from_server, mut to_server) = server.into_split();
            let commit_sent = watch::Sender::new(false);
            let now = weather.subscribe();
            // Pinned out here: the sockets stay open while a dead connection says nothing.
            let flow = std::pin::pin!(async {
                // The first side to end takes both connections with it.
                tokio::select! {
                    _ = requests(&mut from_client, &mut to_server, &now, &commit_sent, &lost_commits) => {}
                    _ = answers(&mut from_server, &mut to_client, &commit_sent, &lost_commits) => {}
                }
            });
            tokio::select! {
                biased;
                () = until(&mut is_cut, Weather::Cut) => {}
                () = until(&mut is_stalled, Weather::Stalled) => {
                    until(&mut is_cut, Weather::Cut).await;
                }
                () = flow => {}
            }
        });
    }
}

async fn until(weather: &mut watch::Receiver<Weather>, awaited: Weather) {
    // An error means that the test is over.
    let _ = weather.wait_for(|now| *now == awaited).await;
}

/// From the server under test to PostgreSQL.
async fn requests(
    from: &mut tcp::OwnedReadHalf,
    to: &mut unix::OwnedWriteHalf,
    weather: &watch::Receiver<Weather>,
    commit_sent: &watch::Sender<bool>,
    lost_commits: &AtomicUsize,
) -> std::io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let length = from.read(&mut buffer).await?;
        let Some(bytes) = buffer.get(..length).filter(|bytes| !bytes.is_empty()) else {
            return Ok(());
        };
        let now = *weather.borrow();
        if bytes.windows(6).any(|window| window == b"COMMIT") {
            if now == Weather::LosesCommits {
                lost_commits.fetch_add(1, Ordering::SeqCst);
                return Ok(());
            }
            if now == Weather::LosesAnswersToCommit {
                commit_sent.send_replace(true);
            }
        }
        to.write_all(bytes).await?;
    }
}

/// From PostgreSQL to the server under test.
async fn answers(
    from: &mut unix::OwnedReadHalf,
    to: &mut tcp::OwnedWriteHalf,
    commit_sent: &watch::Sender<bool>,
    lost_commits: &AtomicUsize,
) -> std::io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let length = from.read(&mut buffer).await?;
        let Some(bytes) = buffer.get(..length).filter(|bytes| !bytes.is_empty()) else {
            return Ok(());
        };
        if *commit_sent.borrow() {
            // PostgreSQL has answered, so it has committed.
            lost_commits.fetch_add(1, Ordering::SeqCst);
            return Ok(());
        }
        to.write_all(bytes).await?;
    }
}
