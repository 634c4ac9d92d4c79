//! A network that fails: a TCP proxy whose fault can change at any moment.
//!
//! Promise: with no fault, every byte is forwarded in both directions, unchanged and in order.

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::Context;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream, UnixStream},
    sync::watch,
};

/// What the network does from now on, to open connections and to new ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NetworkFault {
    None,
    /// Forwards each piece later by this much.
    Delayed(Duration),
    /// Forwards nothing and closes nothing, like a pulled cable.
    Stalled,
    /// Closes every connection, new ones too.
    Cut,
    /// Closes every connection and refuses new ones: nothing is ever sent.
    Unreachable,
    /// Ends the direction to the server and keeps the other one open.
    HalfClosed,
    /// Forwards what the client sends, and closes the connection in place of the answer.
    LosesAnswers,
    /// Forwards a `COMMIT` to PostgreSQL, and closes the connection in place of the answer.
    LosesAnswersToCommit,
    /// Swallows a `COMMIT` and closes the connection.
    LosesCommits,
}

#[derive(Debug, Clone)]
pub(crate) enum Target {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    network: Network,
}

impl Proxy {
    pub(crate) async fn start(target: Target) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .context("a proxy can't listen")?;
        let address = listener.local_addr()?;
        let network = Network {
            fault: watch::Sender::new(NetworkFault::None),
            met: Arc::default(),
        };
        tokio::spawn(listen(listener, target, network.clone()));
        Ok(Self { address, network })
    }

    /// How many pieces of data and connections have met a fault until now.
    pub(crate) fn met(&self) -> u64 {
        self.network.met.load(Ordering::Relaxed)
    }

    pub(crate) fn inject(&self, fault: NetworkFault) {
        self.network.fault.send_replace(fault);
    }
}

/// The state that a proxy's connections share.
#[derive(Debug, Clone)]
struct Network {
    fault: watch::Sender<NetworkFault>,
    met: Arc<AtomicU64>,
}

impl Network {
    fn count(&self) {
        self.met.fetch_add(1, Ordering::Relaxed);
    }
}

/// Listens on the address, but for the times when it is unreachable.
async fn listen(listener: TcpListener, target: Target, network: Network) {
    let Ok(address) = listener.local_addr() else {
        return;
    };
    let mut now = network.fault.subscribe();
    let mut listener = Some(listener);
    loop {
        // The port is free while it is unreachable, and may be taken for a moment.
        let listening = match listener.take() {
            Some(listening) => Ok(listening),
            None => TcpListener::bind(address).await,
        };
        if let Ok(listening) = listening {
            let is_unreachable = |fault: &NetworkFault| *fault == NetworkFault::Unreachable;
            tokio::select! {
                () = accept(listening, target.clone(), network.clone()) => {}
                _ = now.wait_for(is_unreachable) => {}
            }
        }
        let is_reachable = |fault: &NetworkFault| *fault != NetworkFault::Unreachable;
        if now.wait_for(is_reachable).await.is_err() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn accept(listener: TcpListener, target: Target, network: Network) {
    while let Ok((client, _)) = listener.accept().await {
        let (target, network) = (target.clone(), network.clone());
        tokio::spawn(async move {
            if *network.fault.borrow() == NetworkFault::Cut {
                network.count();
                return;
            }
            let _ = client.set_nodelay(true);
            let (from_client, to_client) = client.into_split();
            match target {
                Target::Tcp(address) => {
                    let Ok(server) = TcpStream::connect(address).await else {
                        return;
                    };
                    let _ = server.set_nodelay(true);
                    let (from_server, to_server) = server.into_split();
                    forward(from_client, to_server, from_server, to_client, &network).await;
                }
                Target::Unix(socket) => {
                    let Ok(server) = UnixStream::connect(socket).await else {
                        return;
                    };
                    let (from_server, to_server) = server.into_split();
                    forward(from_client, to_server, from_server, to_client, &network).await;
                }
            }
        });
    }
}

/// Forwards until either side ends, or a fault ends both.
async fn forward(
    from_client: impl AsyncRead + Unpin,
    to_server: impl AsyncWrite + Unpin,
    from_server: impl AsyncRead + Unpin,
    to_client: impl AsyncWrite + Unpin,
    network: &Network,
) {
    let commit_was_sent = AtomicBool::new(false);
    let commit_was_sent = &commit_was_sent;
    let requests = pass_on(
        from_client,
        to_server,
        network,
        move |fault, bytes| match fault {
            NetworkFault::LosesCommits => !holds_commit(bytes),
            NetworkFault::LosesAnswersToCommit => {
                commit_was_sent.fetch_or(holds_commit(bytes), Ordering::SeqCst);
                true
            }
            NetworkFault::HalfClosed => false,
            NetworkFault::None
            | NetworkFault::Delayed(_)
            | NetworkFault::Stalled
            | NetworkFault::Cut
            | NetworkFault::Unreachable
            | NetworkFault::LosesAnswers => true,
        },
    );
    let answers = pass_on(from_server, to_client, network, move |fault, _| {
        // PostgreSQL has answered, so it has committed.
        fault != NetworkFault::LosesAnswers && !commit_was_sent.load(Ordering::SeqCst)
    });
    let mut is_cut = network.fault.subscribe();
    tokio::select! {
        _ = is_cut.wait_for(closes) => network.count(),
        () = answers => {}
        () = async {
            requests.await;
            // A half-closed connection still carries answers, for a while.
            tokio::time::sleep(HALF_CLOSED_FOR).await;
        } => {}
    }
}

/// Whether open connections end.
fn closes(fault: &NetworkFault) -> bool {
    matches!(fault, NetworkFault::Cut | NetworkFault::Unreachable)
}

/// How long answers still pass after the other direction has ended.
const HALF_CLOSED_FOR: Duration = Duration::from_secs(2);

fn holds_commit(bytes: &[u8]) -> bool {
    bytes.windows(7).any(|window| window == b"COMMIT\0")
}

/// Passes on what `passes` lets through, to the end of the stream or the first piece that it stops.
async fn pass_on(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    network: &Network,
    mut passes: impl FnMut(NetworkFault, &[u8]) -> bool,
) {
    let mut fault = network.fault.subscribe();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let length = match from.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(length) => length,
        };
        let Some(bytes) = buffer.get(..length) else {
            return;
        };
        let flows = |fault: &NetworkFault| *fault != NetworkFault::Stalled;
        if !flows(&fault.borrow()) {
            network.count();
        }
        let now = match fault.wait_for(flows).await {
            Ok(fault) => *fault,
            Err(_) => return,
        };
        if let NetworkFault::Delayed(by) = now {
            network.count();
            tokio::time::sleep(by).await;
        }
        let passes = passes(now, bytes);
        if !passes {
            network.count();
        }
        if !passes || to.write_all(bytes).await.is_err() {
            let _ = to.shutdown().await;
            return;
        }
    }
}
