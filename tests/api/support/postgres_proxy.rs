//! A network between the server and PostgreSQL that fails when a test says so.

use std::sync::atomic::AtomicBool;

use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, UnixStream},
    sync::watch,
};

use crate::support::prelude::*;

/// What the network does from now on, to open connections and to new ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NetworkFault {
    /// Forwards everything.
    None,
    /// Forwards nothing and closes nothing, like a pulled cable. A connection that was open during
    /// this fault stays silent forever, even after the fault has ended.
    Stalled,
    /// Closes every connection, new ones too.
    Cut,
    /// Forwards a `COMMIT`, swallows the answer, and closes the connection.
    LosesAnswersToCommit,
    /// Swallows a `COMMIT` and closes the connection.
    LosesCommits,
}

/// A TCP proxy in front of a unix socket.
pub struct PostgresProxy {
    /// The database, by way of this proxy.
    pub url: String,
    fault: watch::Sender<NetworkFault>,
    lost_commits: Arc<AtomicUsize>,
}

impl PostgresProxy {
    /// In front of the database that `url` names.
    pub async fn in_front_of(url: &str) -> Self {
        let options: PgConnectOptions = url.parse().unwrap();
        let folder = options.get_socket().expect("a socket's folder").clone();
        let database = options.get_database().unwrap();
        let socket = folder.join(format!(".s.PGSQL.{}", options.get_port()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let fault = watch::Sender::new(NetworkFault::None);
        let lost_commits = Arc::new(AtomicUsize::new(0));
        let lost = lost_commits.clone();
        tokio::spawn(accept(listener, socket, fault.clone(), lost));
        Self {
            url: format!("postgres://charge_once@127.0.0.1:{port}/{database}?sslmode=disable"),
            fault,
            lost_commits,
        }
    }

    pub fn inject(&self, fault: NetworkFault) {
        self.fault.send_replace(fault);
    }

    /// How many commits, or answers to them, were lost.
    pub fn lost_commits(&self) -> usize {
        self.lost_commits.load(Ordering::SeqCst)
    }
}

async fn accept(
    listener: TcpListener,
    socket: PathBuf,
    fault: watch::Sender<NetworkFault>,
    lost_commits: Arc<AtomicUsize>,
) {
    while let Ok((client, _)) = listener.accept().await {
        let (socket, lost_commits) = (socket.clone(), lost_commits.clone());
        let fault = fault.clone();
        let (mut is_cut, mut is_stalled) = (fault.subscribe(), fault.subscribe());
        tokio::spawn(async move {
            if *fault.borrow() == NetworkFault::Cut {
                return;
            }
            let Ok(server) = UnixStream::connect(socket).await else {
                return;
            };
            let (from_client, to_client) = client.into_split();
            let (from_server, to_server) = server.into_split();
            let commit_was_sent = AtomicBool::new(false);
            let requests = pass_on(from_client, to_server, |bytes| {
                if !bytes.windows(7).any(|window| window == b"COMMIT\0") {
                    return true;
                }
                let now = *fault.borrow();
                if now == NetworkFault::LosesCommits {
                    lost_commits.fetch_add(1, Ordering::SeqCst);
                }
                commit_was_sent.store(now == NetworkFault::LosesAnswersToCommit, Ordering::SeqCst);
                now != NetworkFault::LosesCommits
            });
            let answers = pass_on(from_server, to_client, |_| {
                // PostgreSQL has answered, so it has committed.
                let is_lost = commit_was_sent.load(Ordering::SeqCst);
                if is_lost {
                    lost_commits.fetch_add(1, Ordering::SeqCst);
                }
                !is_lost
            });
            // Pinned out here: the sockets stay open while a dead connection says nothing.
            let flow = std::pin::pin!(async {
                // The first side to end takes both connections with it.
                tokio::select! {
                    _ = requests => {}
                    _ = answers => {}
                }
            });
            tokio::select! {
                biased;
                () = until(&mut is_cut, NetworkFault::Cut) => {}
                () = until(&mut is_stalled, NetworkFault::Stalled) => {
                    until(&mut is_cut, NetworkFault::Cut).await;
                }
                () = flow => {}
            }
        });
    }
}

async fn until(fault: &mut watch::Receiver<NetworkFault>, awaited: NetworkFault) {
    // An error means that the test is over.
    let _ = fault.wait_for(|now| *now == awaited).await;
}

/// Passes on what `passes` lets through, to the end of the connection or the first that it doesn't.
async fn pass_on(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut passes: impl FnMut(&[u8]) -> bool,
) -> std::io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let length = from.read(&mut buffer).await?;
        let bytes = &buffer[..length];
        if bytes.is_empty() || !passes(bytes) {
            return Ok(());
        }
        to.write_all(bytes).await?;
    }
}
