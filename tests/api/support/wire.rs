//! Requests written byte by byte, and what their replies say.

use crate::support::{
    connection::{Connection, request},
    prelude::*,
};

pub const JSON: &str = "application/json";

pub const FORM: &str = "application/x-www-form-urlencoded";

/// Sends bytes as they are and reads to the end of the connection.
pub async fn send_raw(client: &Client, request: &[u8]) -> String {
    let exchange = async {
        let mut stream = TcpStream::connect(client.address).await.unwrap();
        stream.write_all(request).await.unwrap();
        let mut reply = Vec::new();
        stream.read_to_end(&mut reply).await.unwrap();
        String::from_utf8_lossy(&reply).into_owned()
    };
    let exchanged = timeout(PATIENCE, exchange).await;
    exchanged.expect("the connection ends")
}

pub fn error(answer: &Answer) -> (u16, String) {
    (answer.status.as_u16(), answer.code())
}

pub fn param(answer: &Answer) -> Value {
    answer.json()["error"]["param"].clone()
}

/// A charge with one parameter set.
pub fn charge_with(name: &str, value: Value) -> Vec<u8> {
    let mut body = charge();
    body[name] = value;
    body.to_string().into_bytes()
}

/// Announces a body, sends a part of it, and reads the reply's head and body as text.
pub async fn send_slowly(client: &Client, path: &str, headers: &str) -> String {
    let mut stream = TcpStream::connect(client.address).await.unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n{headers}\r\n{{"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut reply = Vec::new();
    let read = async {
        // The server answers while the body is missing; whether it then closes is its own matter.
        while !String::from_utf8_lossy(&reply).contains("\"doc_url\"") {
            let mut chunk = [0; 4096];
            let count = stream.read(&mut chunk).await.unwrap();
            assert_ne!(count, 0, "closed without an answer");
            reply.extend_from_slice(&chunk[..count]);
        }
    };
    timeout(PATIENCE, read).await.expect("an answer");
    String::from_utf8_lossy(&reply).into_owned()
}

/// Sends a whole request without waiting for the reply.
pub async fn send_charge(client: &Client, key: &str, header: &str) -> TcpStream {
    let headers = format!("Idempotency-Key: {key}\r\nContent-Type: {JSON}\r\n{header}");
    let request = request("POST", "/charges", &headers, &charge().to_string());
    let mut connection = Connection::open(client).await;
    connection.send(request).await;
    connection.socket
}

/// One HTTP/1.1 request, whole: its head and its body.
pub async fn read_request(stream: &mut TcpStream) -> std::io::Result<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    loop {
        if stream.read_buf(&mut bytes).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
            continue;
        };
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let length = head.lines().filter_map(|line| line.split_once(": "));
        let mut length = length.filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
        let length = length.next().map(|(_, length)| length.parse());
        let length: usize = length.map_or(0, Result::unwrap);
        if bytes.len() == end + 4 + length {
            return Ok((head, bytes.split_off(end + 4)));
        }
    }
}
