//! A network between a client and the server that does to each request what the test says, and
//! records every byte of it.

use std::collections::VecDeque;

use tokio::net::TcpListener;

use crate::support::{prelude::*, wire::read_request};

#[derive(Debug, Clone)]
pub enum Act {
    /// The request is forwarded, and so is the answer.
    Pass,
    /// The server answers, and the answer is lost with the connection.
    LoseTheAnswer,
    /// The connection ends before the server sees anything.
    LoseTheRequest,
    /// The server doesn't see it, and no answer ever comes.
    Swallow,
    /// The server doesn't see it; this is the answer: status line and headers, and a body.
    Answer(&'static str, &'static str),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    pub head: String,
    pub body: String,
}

impl Seen {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (known, value) = line.split_once(": ")?;
            known.eq_ignore_ascii_case(name).then_some(value)
        })
    }

    pub fn key(&self) -> &str {
        self.header("idempotency-key").expect("a key")
    }
}

/// A proxy in front of one server. Each connection carries one request.
pub struct HttpProxy {
    pub address: SocketAddr,
    acts: Arc<Mutex<VecDeque<Act>>>,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl HttpProxy {
    /// Applies `acts` to the first requests, one each, and forwards all later ones.
    pub async fn in_front_of(server: SocketAddr, acts: impl IntoIterator<Item = Act>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = Self {
            address: listener.local_addr().unwrap(),
            acts: Arc::new(Mutex::new(acts.into_iter().collect())),
            seen: Arc::default(),
        };
        let (acts, seen) = (proxy.acts.clone(), proxy.seen.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (acts, seen) = (acts.clone(), seen.clone());
                tokio::spawn(async move {
                    // A broken connection is one of the acts, not a failure of the test.
                    let _ = serve(client, server, &acts, &seen).await;
                });
            }
        });
        proxy
    }

    /// In front of a server of its own.
    pub async fn with_server(acts: impl IntoIterator<Item = Act>) -> (TestServer, Self) {
        let server = TestServer::start().await;
        let proxy = Self::in_front_of(server.client.address, acts).await;
        (server, proxy)
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }
}

async fn serve(
    mut client: TcpStream,
    server: SocketAddr,
    acts: &Mutex<VecDeque<Act>>,
    seen: &Mutex<Vec<Seen>>,
) -> std::io::Result<()> {
    let (head, body) = read_request(&mut client).await?;
    let body = String::from_utf8(body).unwrap();
    let request = Seen { head, body };
    let act = {
        seen.lock().unwrap().push(request.clone());
        acts.lock().unwrap().pop_front().unwrap_or(Act::Pass)
    };
    match act {
        Act::LoseTheRequest => Ok(()),
        Act::Swallow => {
            // Until the client closes the connection.
            client.read_to_end(&mut Vec::new()).await.map(drop)
        }
        Act::Answer(head, body) => {
            let length = body.len();
            let answer = format!(
                "HTTP/1.1 {head}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
            );
            client.write_all(answer.as_bytes()).await
        }
        Act::Pass => client.write_all(&answer_of(server, &request).await?).await,
        Act::LoseTheAnswer => answer_of(server, &request).await.map(drop),
    }
}

async fn answer_of(server: SocketAddr, request: &Seen) -> std::io::Result<Vec<u8>> {
    let mut server = TcpStream::connect(server).await?;
    let Seen { head, body } = request;
    let request = format!("{head}\r\nconnection: close\r\n\r\n{body}");
    server.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    server.read_to_end(&mut answer).await?;
    Ok(answer)
}
