//! A receiver of webhooks. Each request is handed to the test, which decides whether, when and what
//! it is answered.

use tokio::{net::TcpListener, sync::mpsc};

use crate::support::{prelude::*, wire::read_request};

pub struct Receiver {
    pub address: SocketAddr,
    requests: mpsc::UnboundedReceiver<Received>,
    connections: Arc<AtomicUsize>,
}

/// A request that waits for its answer. Dropped, it never gets one.
pub struct Received {
    /// The method and the target.
    pub line: String,
    /// By lower-case name.
    pub headers: HashMap<String, String>,
    pub body: Vec<u8>,
    stream: TcpStream,
}

impl Receiver {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (hand_over, requests) = mpsc::unbounded_channel();
        let connections = Arc::new(AtomicUsize::new(0));
        let accepted = Arc::clone(&connections);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                accepted.fetch_add(1, Ordering::SeqCst);
                let hand_over = hand_over.clone();
                tokio::spawn(async move {
                    if let Some(received) = read(stream).await {
                        let _ = hand_over.send(received);
                    }
                });
            }
        });
        Self {
            address,
            requests,
            connections,
        }
    }

    pub fn url(&self) -> String {
        format!("http://{}/hook?tenant=7", self.address)
    }

    /// The next request. Fails if none arrives.
    pub async fn next(&mut self) -> Received {
        tokio::time::timeout(PATIENCE, self.requests.recv())
            .await
            .expect("a webhook arrives")
            .unwrap()
    }

    /// As many requests as this, none of which is answered yet.
    pub async fn several(&mut self, count: usize) -> Vec<Received> {
        let mut received = Vec::new();
        for _ in 0..count {
            received.push(self.next().await);
        }
        received
    }

    /// The next request, however long it takes. `None` at the end of the test.
    pub async fn wait(&mut self) -> Option<Received> {
        self.requests.recv().await
    }

    pub fn arrived(&mut self) -> Option<Received> {
        self.requests.try_recv().ok()
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// One HTTP/1.1 request with a Content-Length; `None` if the sender goes before it is whole.
async fn read(mut stream: TcpStream) -> Option<Received> {
    let (head, body) = read_request(&mut stream).await.ok()?;
    let mut lines = head.lines();
    let line = lines.next().unwrap().to_owned();
    let headers: HashMap<_, _> = lines
        .map(|line| line.split_once(": ").unwrap())
        .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
        .collect();
    assert!(headers.contains_key("content-length"), "{head}");
    Some(Received {
        line,
        headers,
        body,
        stream,
    })
}

impl Received {
    pub fn event(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub fn event_id(&self) -> String {
        self.event()["id"].as_str().unwrap().to_owned()
    }

    pub fn signature(&self) -> &str {
        &self.headers["stripe-signature"]
    }

    /// A part of an answer.
    pub async fn write(&mut self, part: &[u8]) {
        self.stream.write_all(part).await.unwrap();
    }

    /// Answers, and returns when the sender has seen it: it closes the connection then.
    pub async fn answer(self, status: u16) {
        self.answer_with(status, "").await;
    }

    /// Answers with more headers, each ended by CR LF.
    pub async fn answer_with(self, status: u16, headers: &str) {
        self.say(status, headers, "ok").await;
    }

    /// As [`Self::answer_with`], with this body.
    pub async fn say(mut self, status: u16, headers: &str, body: &str) {
        let length = body.len();
        let head = format!("HTTP/1.1 {status} Whatever\r\n{headers}Content-Length: {length}");
        let answer = format!("{head}\r\n\r\n{body}");
        self.stream.write_all(answer.as_bytes()).await.unwrap();
        let mut rest = Vec::new();
        // A reset is an end like any other.
        let _ = tokio::time::timeout(PATIENCE, self.stream.read_to_end(&mut rest))
            .await
            .expect("the sender closes the connection");
    }
}
