//! Clients that hold a connection and do nothing: it ends, whatever they did before.

use std::{
    fs,
    io::{BufRead, BufReader},
    pin::pin,
    time::Instant,
};

use futures_util::future::join_all;
use tokio::net::TcpSocket;

use crate::support::{
    connection::{Connection, request},
    prelude::*,
};

/// So short that the client of a test waits for them.
const SHORT: &[(&str, &str)] = &[
    ("KEEP_ALIVE_TIMEOUT", "1s"),
    ("REQUEST_HEAD_TIMEOUT", "400ms"),
    ("REPLY_WRITE_TIMEOUT", "1s"),
];

fn livez() -> String {
    request("GET", "/livez", "", "")
}

/// A connection that has served a request.
async fn used(client: &Client) -> Connection {
    let mut used = Connection::open(client).await;
    used.send(livez()).await;
    used.reply().await;
    used
}

/// Opened when it is needed: the time for its next head runs at once.
async fn new_or_used(client: &Client, is_new: bool) -> Connection {
    match is_new {
        true => Connection::open(client).await,
        false => used(client).await,
    }
}

#[tokio::test]
async fn a_head_that_does_not_arrive_in_time_is_408() {
    let server = TestServer::start_with(SHORT).await;
    let mut refusals = Vec::new();
    for is_new in [true, false] {
        let mut connection = new_or_used(&server.client, is_new).await;
        connection.send("GET /li").await;
        refusals.push(connection.rest().await);
        // Nor does a byte now and then help.
        let mut connection = new_or_used(&server.client, is_new).await;
        connection.send("GET /livez?").await;
        refusals.push(connection.drip("x").await);
    }
    // Behind a request in the same write.
    let mut connection = Connection::open(&server.client).await;
    connection.send(livez() + "GET /li").await;
    connection.reply().await;
    refusals.push(connection.rest().await);
    for refusal in refusals {
        assert!(refusal.starts_with("HTTP/1.1 408 "), "{refusal}");
    }
}

#[tokio::test]
async fn a_connection_without_a_request_ends_without_a_reply() {
    let server = TestServer::start_with(SHORT).await;
    for is_new in [true, false] {
        let mut connection = new_or_used(&server.client, is_new).await;
        assert_eq!(connection.rest().await, "");
        // Empty lines are no request (RFC 9112, section 2.2).
        let mut connection = new_or_used(&server.client, is_new).await;
        assert_eq!(connection.drip("\r\n").await, "");
    }
}

#[tokio::test]
async fn a_connection_is_kept_for_its_time() {
    let server = TestServer::start_with(&[("REQUEST_HEAD_TIMEOUT", "300ms")]).await;
    let mut used = used(&server.client).await;
    // Three times as long as a head may take.
    let rest = tokio::time::timeout(Duration::from_millis(900), used.rest());
    assert!(rest.await.is_err());
    used.send(livez()).await;
    assert!(used.reply().await.0.starts_with("HTTP/1.1 200 "));
}

/// How a body does not end.
#[derive(Debug, Clone, Copy)]
enum Sending {
    Nothing,
    Chunks,
    OneHugeChunk,
}

/// No handler reads these bodies, so none ends them by its own limit.
#[tokio::test]
async fn a_body_that_nobody_reads_and_that_never_ends_ends_the_connection() {
    let server = TestServer::start_with(SHORT).await;
    let client = &server.client;
    let chunked = "Transfer-Encoding: chunked\r\n";
    let sized = "Content-Length: 1000000000000\r\n";
    let mut cases = Vec::new();
    for (method, path, status) in [
        ("GET", "/livez", "200"),
        ("POST", "/nothing", "404"),
        ("PUT", "/charges", "405"),
        ("POST", "/charges", "415"),
    ] {
        for headers in [chunked, sized] {
            let head = request(method, path, headers, "");
            for sending in [Sending::Nothing, Sending::Chunks, Sending::OneHugeChunk] {
                cases.push((head.clone(), status, sending));
            }
        }
    }
    let all = cases.into_iter().map(|(head, status, sending)| async move {
        let mut connection = Connection::open(client).await;
        connection.send(&head).await;
        let received = match sending {
            Sending::Nothing => connection.rest().await,
            Sending::Chunks => connection.drip("1\r\nx\r\n").await,
            Sending::OneHugeChunk => {
                connection.send("fffffffffff\r\n").await;
                connection.flood().await
            }
        };
        let expected = format!("HTTP/1.1 {status} ");
        assert!(received.starts_with(&expected), "{head}: {received}");
        let replies = received.matches("HTTP/1.1").count();
        assert_eq!(replies, 1, "{head}: {received}");
    });
    join_all(all).await;
}

#[tokio::test]
async fn a_reply_that_is_not_read_ends_the_connection() {
    let database = TestDatabase::create().await;
    let log = [SHORT, &[("RUST_LOG", "charge_once=debug")]].concat();
    let mut server = ServerProcess::start_logging_to(Stdio::piped(), &database, &log);
    // Many large replies, because the kernels of both sides hold some.
    let file = request("GET", "/swagger-ui/swagger-ui-bundle.js", "", "");
    let whole = server.client.get("/swagger-ui/swagger-ui-bundle.js").await;
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let socket = socket.connect(server.client.address).await.unwrap();
    let mut connection = Connection::over(socket);
    connection.send(file.repeat(20)).await;
    logged(&mut server, "its client did not read in time").await;
    let received = connection.rest().await;
    assert!(received.starts_with("HTTP/1.1 200 "));
    assert!(received.len() < 20 * whole.body.len(), "{}", received.len());
}

/// The next line of the server's log with this text.
async fn logged(server: &mut ServerProcess, text: &'static str) -> String {
    let log = BufReader::new(server.child.stderr.take().unwrap());
    let line = tokio::task::spawn_blocking(move || {
        let mut lines = log.lines().map_while(Result::ok);
        lines.find(|line| line.contains(text))
    });
    let line = tokio::time::timeout(PATIENCE, line).await;
    line.expect("a line of the log").unwrap().expect(text)
}

/// Resident memory of a process, in kilobytes: now, or the most that it ever had.
fn memory_kb(server: &ServerProcess, line: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", server.child.id())).ok()?;
    let value = status.lines().find_map(|text| text.strip_prefix(line))?;
    value.trim().strip_suffix(" kB")?.parse().ok()
}

#[tokio::test]
async fn heads_that_are_too_large_are_refused_and_take_little_memory() {
    const CLIENTS: u64 = 500;
    const SENT: usize = 120_000;
    let database = TestDatabase::create().await;
    // A busy machine takes longer than five seconds to send all of them.
    let server = ServerProcess::start(&database, &[("REQUEST_HEAD_TIMEOUT", "60s")]);
    // The largest head of all is served.
    let padding = "x".repeat(16 * 1024 - livez().len() - "X: \r\n".len());
    let largest = request("GET", "/livez", &format!("X: {padding}\r\n"), "");
    let mut connection = Connection::open(&server.client).await;
    connection.send(largest).await;
    assert!(connection.reply().await.0.starts_with("HTTP/1.1 200 "));
    let before = memory_kb(&server, "VmRSS:");
    let half = request("GET", "/livez", &format!("X: {}", "x".repeat(SENT)), "");
    let half = half.trim_end();
    let refusals = join_all((0..CLIENTS).map(|_| async {
        loop {
            let mut connection = Connection::open(&server.client).await;
            connection.send(half).await;
            let refusal = connection.rest().await;
            // On a busy machine, the server closes while the client still sends: the rest of it
            // resets the connection before the refusal is read.
            if !refusal.is_empty() {
                return refusal;
            }
        }
    }));
    let refusals = tokio::time::timeout(PATIENCE, refusals).await;
    for refusal in refusals.expect("each client is told") {
        assert!(refusal.starts_with("HTTP/1.1 431 "), "{refusal}");
    }
    // Only Linux tells.
    if let (Some(before), Some(most)) = (before, memory_kb(&server, "VmHWM:")) {
        let half_of_all = CLIENTS * SENT as u64 / 1000 / 2;
        assert!(most - before < half_of_all, "{before} kB, then {most} kB");
    }
}

/// One body has as many objects as it may: a hundred times its bytes as a tree. The other one is as
/// long as it may be, and six times as long in JSON.
#[tokio::test]
async fn requests_that_wait_hold_no_decoded_body() {
    const CLIENTS: u64 = 300;
    const HELD_KB: u64 = 250;
    let long = format!("metadata[a]={}", "\u{1}".repeat(65_000));
    let fault = "delay; seconds=8";
    let database = TestDatabase::create().await;
    let server = ServerProcess::start(&database, &[FAULTS]);
    let body = json!({"items": vec![json!({"a": 1}); 990]});
    let client = &server.client;
    let send = async |key: String| {
        let answer = client.post_with_fault(fault, "/charges", &key, &body);
        answer.await.expect("a reply").status.as_u16()
    };
    let send_long = async |key: String| {
        let request = client
            .request(Method::POST, "/charges")
            .header("fault", fault);
        let request = request
            .header("idempotency-key", key)
            .header("content-type", FORM);
        Answer::of(request.body(long.clone())).await.status.as_u16()
    };
    assert_eq!(client.post("/charges", "key", &body).await.status, 400);
    let before = memory_kb(&server, "VmRSS:");
    let decoded = join_all((0..CLIENTS).map(|number| send(format!("key-{number}"))));
    let long = join_all((0..CLIENTS).map(|number| send_long(format!("long-{number}"))));
    let answers = [decoded.await, long.await].concat();
    assert!(answers.iter().all(|status| *status == 400), "{answers:?}");
    if let (Some(before), Some(most)) = (before, memory_kb(&server, "VmHWM:")) {
        let more = most - before;
        assert!(more < CLIENTS * HELD_KB, "{before} kB, then {most} kB");
    }
}

/// It has 116 connections: 256 less what the process needs for everything else.
#[tokio::test]
async fn idle_clients_keep_others_out_of_a_process_with_few_files_for_a_short_time_only() {
    let database = TestDatabase::create_unsharded().await;
    let mut few_files = Command::new("sh");
    few_files.args(["-c", "ulimit -n 256 && exec \"$0\""]);
    few_files.arg(env!("CARGO_BIN_EXE_charge-once"));
    let few = [("WORKERS", "1"), ("POOL_CONNECTIONS", "2"), ("BATCH", "on")];
    let variables = [SHORT, &few].concat();
    let mut server = ServerProcess::start_by(few_files, Stdio::piped(), &database, &variables);
    let warning = logged(&mut server, "raise the hard limit").await;
    assert!(warning.contains("116"), "{warning}");
    let mut clients = Vec::new();
    for _ in 0..300 {
        let mut connection = Connection::open(&server.client).await;
        connection.send(livez() + "GET /li").await;
        clients.push(connection);
    }
    let mut answered = pin!(tokio::time::timeout(PATIENCE, server.client.get("/livez")));
    let mut most_files = 0;
    let answered = loop {
        // Only Linux tells.
        if let Ok(files) = fs::read_dir(format!("/proc/{}/fd", server.child.id())) {
            most_files = most_files.max(files.count());
        }
        let pause = Duration::from_millis(20);
        if let Ok(answered) = tokio::time::timeout(pause, &mut answered).await {
            break answered;
        }
    };
    assert_eq!(answered.expect("a free connection").status, 200);
    assert!(most_files < 200, "{most_files} files");
}

#[tokio::test]
async fn a_server_that_stops_closes_idle_connections_at_once() {
    let server = TestServer::start_with(&[("REQUEST_HEAD_TIMEOUT", "60s")]).await;
    let mut new = Connection::open(&server.client).await;
    let mut used = used(&server.client).await;
    let mut half = Connection::open(&server.client).await;
    half.send("GET /li").await;
    let started = Instant::now();
    server.stop().await;
    for connection in [&mut new, &mut used, &mut half] {
        assert_eq!(connection.rest().await, "");
    }
    // Their own limits are 60 s and 75 s.
    assert!(started.elapsed() < PATIENCE);
}
