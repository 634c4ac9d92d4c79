//! One connection, and what is on it.

use crate::support::prelude::*;

/// Headers that ask for another protocol: of Java's client, Apache's for Java, a common
/// configuration of nginx, a browser, and the forms that are harder to read.
pub const UPGRADES: [&str; 6] = [
    "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAA\r\n",
    "Upgrade: TLS/1.2\r\nConnection: Upgrade\r\n",
    "Upgrade: \r\nConnection: upgrade\r\n",
    "Upgrade: websocket\r\nConnection: keep-alive, Upgrade\r\nSec-WebSocket-Version: 13\r\n",
    "Upgrade: h2c, websocket\r\nupgrade: WebSocket\r\n",
    "connection: keep-alive\r\nconnection: ,UPGRADE ,\tupgrade\r\nUpgrade: h2c\r\n",
];

pub fn request(method: &str, path: &str, headers: &str, body: &str) -> String {
    let length = match body.len() {
        0 => String::new(),
        length => format!("Content-Length: {length}\r\n"),
    };
    format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {API_KEY}\r\n{headers}\
         {length}\r\n{body}"
    )
}

/// A connection to a server. What is expected of it has [`PATIENCE`] to come.
pub struct Connection {
    pub socket: TcpStream,
    received: Vec<u8>,
}

impl Connection {
    pub async fn open(client: &Client) -> Self {
        Self::open_to(client.address).await
    }

    pub async fn open_to(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).await.unwrap())
    }

    pub fn over(socket: TcpStream) -> Self {
        Self {
            socket,
            received: Vec::new(),
        }
    }

    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.socket.write_all(bytes.as_ref()).await.unwrap();
    }

    /// Whether anything came.
    async fn receive(&mut self) -> bool {
        let mut bytes = [0; 16 * 1024];
        let count = timeout(PATIENCE, self.socket.read(&mut bytes)).await;
        // A reset is an end, too.
        let count = count.expect("more, or the end").unwrap_or(0);
        self.received.extend_from_slice(&bytes[..count]);
        count > 0
    }

    /// The next head, with the empty line.
    pub async fn head(&mut self) -> String {
        let end = loop {
            let mut fours = self.received.windows(4);
            match fours.position(|four| four == b"\r\n\r\n") {
                Some(end) => break end + 4,
                None => assert!(self.receive().await, "no whole head: {:?}", self.text()),
            }
        };
        let head = self.received.drain(..end).collect();
        let head = String::from_utf8(head).unwrap();
        // What is left of a body would stand in front.
        assert!(head.starts_with("HTTP/1.1 "), "{head}");
        head
    }

    /// The next reply, to another method than HEAD: its head, and the body that this announces.
    pub async fn reply(&mut self) -> (String, String) {
        let head = self.head().await;
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.expect("a length").parse().unwrap();
        while self.received.len() < length {
            assert!(self.receive().await, "{head} and {:?}", self.text());
        }
        let body = self.received.drain(..length).collect();
        (head, String::from_utf8(body).unwrap())
    }

    /// All that comes until the server closes the connection.
    pub async fn rest(&mut self) -> String {
        timeout(PATIENCE, async { while self.receive().await {} })
            .await
            .expect("the connection ends");
        self.text()
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.received).into_owned()
    }

    /// Sends as much as the connection takes, and returns what came until the server closed it.
    pub async fn flood(&mut self) -> String {
        let (mut read, mut write) = self.socket.split();
        let sending = async { while write.write_all(&[b'x'; 64 * 1024]).await.is_ok() {} };
        let both = async { tokio::join!(sending, read.read_to_end(&mut self.received)) };
        // A reset is an end, too.
        let _ = timeout(PATIENCE, both).await.expect("the connection ends");
        self.text()
    }

    /// Sends `piece` again and again, and returns what came until the server closed the connection.
    pub async fn drip(&mut self, piece: &str) -> String {
        let dripping = async {
            let mut pause = tokio::time::interval(std::time::Duration::from_millis(40));
            loop {
                tokio::select! {
                    more = self.receive() => if !more { break },
                    _ = pause.tick() => {
                        let _ = self.socket.try_write(piece.as_bytes());
                    }
                }
            }
        };
        let dripped = timeout(PATIENCE, dripping).await;
        dripped.expect("the connection ends");
        self.text()
    }
}
