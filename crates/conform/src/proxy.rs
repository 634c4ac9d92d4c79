//! A TCP proxy that loses replies: the service gets the whole request, and the client not a byte
//! of the answer.

use std::{net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
    time::{Instant, sleep_until},
};

use crate::checks::Flaw;

/// When both connections end.
#[derive(Debug, Clone, Copy)]
pub(crate) enum CutAt {
    /// The service has begun to answer.
    Reply,
    /// So long after the last byte of the request, or when the service begins to answer before.
    After(Duration),
}

impl CutAt {
    /// When the service answers, and after each of these times.
    pub(crate) fn each(cuts_ms: &[u64]) -> Vec<Self> {
        let after = cuts_ms.iter().copied().map(Duration::from_millis);
        std::iter::once(Self::Reply)
            .chain(after.map(Self::After))
            .collect()
    }
}

/// A way to lose a reply. Over TLS, a proxy can't tell where a request ends, so there the client
/// goes itself.
#[derive(Debug)]
pub(crate) enum Loss {
    Proxy(Proxy),
    /// And how long a connection takes.
    Client(CutAt, Duration),
}

/// Listens until it is dropped.
#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    listening: JoinHandle<()>,
}

impl Proxy {
    pub(crate) async fn start(target: SocketAddr, cut: CutAt) -> Result<Self, Flaw> {
        let failed = |error: std::io::Error| Flaw::Unknown(format!("no proxy: {error}"));
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let listening = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(lose_the_reply(client, target, cut));
            }
        });
        Ok(Self { address, listening })
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

async fn lose_the_reply(mut client: TcpStream, target: SocketAddr, cut: CutAt) {
    let Ok(mut server) = TcpStream::connect(target).await else {
        return;
    };
    let mut buffer = vec![0; 16 * 1024];
    let mut first = [0];
    let mut end = None;
    loop {
        let waits = async {
            match end {
                Some(end) => sleep_until(end).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // A request that has arrived is passed on before anything ends.
            biased;
            read = client.read(&mut buffer) => {
                let Ok(length @ 1..) = read else { return };
                let Some(bytes) = buffer.get(..length) else { return };
                if server.write_all(bytes).await.is_err() {
                    return;
                }
                if let CutAt::After(delay) = cut {
                    end = Some(Instant::now() + delay);
                }
            }
            // Either the first byte of a reply, or the service has closed the connection.
            _ = server.peek(&mut first) => return,
            () = waits => return,
        }
    }
}
