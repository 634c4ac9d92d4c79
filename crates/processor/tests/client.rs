//! `HttpProcessor`: what is certain and what is doubt, tried on real sockets.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may stop at the first surprise"
)]

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use charge_once_processor::{
    Answer, CardProcessor, HttpProcessor, Instruction, InstructionOutcome,
};
use chrono::Utc;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpSocket, TcpStream},
};
use uuid::Uuid;

/// Long enough for a loaded machine.
const AMPLE: Duration = Duration::from_secs(20);

/// For the cases that must run into it.
const SHORT: Duration = Duration::from_millis(600);

/// 2000, taken at once.
fn authorize() -> Instruction {
    Instruction::Authorize {
        charge: "ch_1".to_owned(),
        amount: 2000,
        currency: "usd".to_owned(),
        card: "tok_visa".to_owned(),
        capture: true,
    }
}

/// A port that is bound, on which nothing listens: it refuses connections for as long as the socket
/// lives.
fn refused() -> (TcpSocket, SocketAddr) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

/// Listens below the ports that the kernel chooses from, 32768 and more on Linux: nothing else
/// listens there once this is gone.
async fn lasting_listener() -> TcpListener {
    let first = 20_000 + u16::try_from(std::process::id() % 10_000).unwrap();
    for port in first..32_000 {
        if let Ok(listener) = TcpListener::bind(("127.0.0.1", port)).await {
            return listener;
        }
    }
    unreachable!("a free port");
}

fn client(address: SocketAddr, time_limit: Duration) -> HttpProcessor {
    HttpProcessor::new(&format!("http://{address}/base/"), time_limit, || None).unwrap()
}

/// What the test's own server does with a connection, once it has read `reads` of the request.
#[derive(Debug, Clone)]
struct Behaviour {
    reads: Reads,
    sends: String,
    then: Then,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reads {
    Nothing,
    Everything,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    Closes,
    Resets,
    StaysSilent,
}

fn behaves(reads: Reads, sends: &str, then: Then) -> Behaviour {
    let sends = sends.to_owned();
    Behaviour { reads, sends, then }
}

/// Reads the request, answers it, and keeps the connection.
fn answers(sends: &str) -> Behaviour {
    behaves(Reads::Everything, sends, Then::StaysSilent)
}

fn replies(key: Uuid, status: &str, body: &str) -> Behaviour {
    answers(&reply(status, &body.replace("KEY", &key.to_string())))
}

fn reply(head: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {head}\r\ncontent-length: {length}\r\n\r\n{body}")
}

/// A server that behaves like that on every connection, and how many it has accepted.
async fn serve(behaviour: Behaviour) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let accepted = Arc::new(AtomicUsize::new(0));
    let counter = accepted.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            counter.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(behave(stream, behaviour.clone()));
        }
    });
    (address, accepted)
}

async fn behave(mut stream: TcpStream, behaviour: Behaviour) {
    if behaviour.reads == Reads::Everything {
        read_request(&mut stream).await;
    }
    // A client that has given up is no failure of the test's.
    let _ = stream.write_all(behaviour.sends.as_bytes()).await;
    match behaviour.then {
        Then::Closes => {}
        Then::Resets => {
            stream.set_zero_linger().unwrap();
        }
        Then::StaysSilent => std::future::pending().await,
    }
}

async fn read_request(stream: &mut TcpStream) -> String {
    let mut request = Vec::new();
    loop {
        let mut buffer = [0; 4096];
        let length = stream.read(&mut buffer).await.unwrap_or_default();
        request.extend_from_slice(&buffer[..length]);
        let text = String::from_utf8_lossy(&request).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let announced = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "))
                .map_or(0, |length| length.parse().unwrap());
            if body.len() >= announced {
                return text;
            }
        }
        if length == 0 {
            return text;
        }
    }
}

async fn execute(processor: &HttpProcessor, key: Uuid) -> InstructionOutcome {
    let not_after = Utc::now() + Duration::from_secs(3600);
    processor.execute(key, &authorize(), not_after).await
}

#[track_caller]
fn assert_not_executed(asked: &InstructionOutcome) {
    let is_certain = matches!(asked, InstructionOutcome::NotExecuted(_));
    assert!(is_certain, "{asked:?}");
}

#[track_caller]
fn assert_doubt(asked: &InstructionOutcome, case: &str) {
    let is_doubt = matches!(asked, InstructionOutcome::Unknown(_));
    assert!(is_doubt, "{case}: {asked:?}");
}

#[tokio::test]
async fn a_refused_connection_is_tried_again_and_certainly_not_executed_but_answers_no_question() {
    let (_bound, refused) = refused();
    let (processor, key) = (client(refused, AMPLE), Uuid::now_v7());
    let began = Instant::now();
    assert_not_executed(&execute(&processor, key).await);
    // Two pauses of at least 50 ms lie between three attempts.
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(100), "{took:?}");
    assert_doubt(&processor.look_up(key).await, "a look-up");
}

#[tokio::test]
async fn what_was_not_executed_is_sent_again_and_the_answer_counts() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let key = Uuid::now_v7();
    let server = tokio::spawn(async move {
        for (head, status) in [
            (
                "503 Service Unavailable\r\nconnection: close",
                "not_executed",
            ),
            ("200 OK", "done"),
        ] {
            let (mut stream, _) = listener.accept().await.unwrap();
            read_request(&mut stream).await;
            let body = json!({"key": key, "status": status}).to_string();
            let reply = reply(head, &body);
            stream.write_all(reply.as_bytes()).await.unwrap();
        }
    });
    let asked = execute(&client(address, AMPLE), key).await;
    assert_eq!(asked, InstructionOutcome::Answered(Answer::Done));
    server.await.unwrap();
}

#[tokio::test]
async fn a_connection_that_is_never_accepted_is_certainly_not_executed_and_ends_in_time() {
    // A listener whose backlog is full: the kernel answers no further attempt to connect.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut backlog = Vec::new();
    while let Ok(connected) =
        tokio::time::timeout(Duration::from_millis(300), TcpStream::connect(address)).await
    {
        backlog.push(connected.unwrap());
    }
    let time_limit = Duration::from_secs(3);
    let began = Instant::now();
    let asked = execute(&client(address, time_limit), Uuid::now_v7()).await;
    assert_not_executed(&asked);
    assert!(began.elapsed() < time_limit, "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_name_that_leads_nowhere_and_a_failed_tls_handshake_are_certainly_not_executed() {
    let no_tls = behaves(Reads::Nothing, "this is no TLS\r\n", Then::Closes);
    let (address, _) = serve(no_tls).await;
    for url in [
        "http://processor.invalid:8081".to_owned(),
        format!("https://{address}"),
    ] {
        let processor = HttpProcessor::new(&url, AMPLE, || None).unwrap();
        assert_not_executed(&execute(&processor, Uuid::now_v7()).await);
    }
}

#[tokio::test]
async fn whatever_ends_an_exchange_that_began_is_doubt_and_is_not_sent_again() {
    let key = Uuid::now_v7();
    let done = format!(r#"{{"key":"{key}","status":"done"}}"#);
    let half_a_head = "HTTP/1.1 200 OK\r\ncontent-le";
    let half_a_body = &reply("200 OK", &done)[..60];
    let never_ends = format!("HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{done}");
    let too_large = done.replacen('{', &format!("{{{}", " ".repeat(64 * 1024)), 1);
    let redirect = "307 Temporary Redirect\r\nlocation: /elsewhere";
    let says = |status: &str| format!(r#"{{"key":"KEY","status":"{status}"}}"#);
    for behaviour in [
        behaves(Reads::Nothing, "", Then::Closes),
        behaves(Reads::Nothing, "", Then::Resets),
        behaves(Reads::Everything, "", Then::Closes),
        behaves(Reads::Everything, "", Then::Resets),
        behaves(Reads::Everything, half_a_head, Then::Closes),
        behaves(Reads::Everything, half_a_body, Then::Closes),
        answers(&never_ends),
        answers(""),
        answers("\x16\x03\x01 what?\r\n\r\n"),
        answers(&reply("200 OK", &too_large)),
        answers(&reply(redirect, &done)),
        replies(key, "200 OK", "<html>It works!</html>"),
        replies(key, "500 Internal Server Error", ""),
        // Of a proxy.
        replies(key, "503 Service Unavailable", "no upstream"),
        replies(key, "502 Bad Gateway", &says("not_executed")),
        // Of another key.
        replies(Uuid::now_v7(), "200 OK", &says("done")),
        replies(
            Uuid::now_v7(),
            "503 Service Unavailable",
            &says("not_executed"),
        ),
        replies(key, "409 Conflict", &says("in_progress")),
        replies(key, "404 Not Found", &says("not_found")),
    ] {
        // Short only where the time limit is what ends it.
        let ends_by_itself = behaviour.then != Then::StaysSilent || !behaviour.sends.is_empty();
        let time_limit = if ends_by_itself && behaviour.sends != never_ends {
            AMPLE
        } else {
            SHORT
        };
        let case = format!("{behaviour:?}");
        let (address, accepted) = serve(behaviour).await;
        let processor = client(address, time_limit);
        assert_doubt(&execute(&processor, key).await, &case);
        assert_eq!(accepted.load(Ordering::SeqCst), 1, "{case}");
        let processor = client(address, time_limit);
        assert_doubt(&processor.look_up(key).await, &case);
    }
}

/// The target of a redirect is not the processor, so its answer proves nothing.
#[tokio::test]
async fn a_redirect_is_doubt_and_is_not_followed() {
    let key = Uuid::now_v7();
    let done = replies(key, "200 OK", r#"{"key":"KEY","status":"done"}"#);
    let (target, followed) = serve(done).await;
    for status in ["301 Moved Permanently", "307 Temporary Redirect"] {
        let head = format!("{status}\r\nlocation: http://{target}/base/operations/{key}");
        let (address, _) = serve(answers(&reply(&head, ""))).await;
        assert_doubt(&execute(&client(address, AMPLE), key).await, status);
        assert_doubt(&client(address, AMPLE).look_up(key).await, status);
    }
    assert_eq!(followed.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn the_processor_s_own_word_is_certain_and_is_asked_for_three_times_at_most() {
    let key = Uuid::now_v7();
    let body = r#"{"key":"KEY","status":"not_executed"}"#;
    let mut behaviour = replies(key, "503 Service Unavailable", body);
    behaviour.then = Then::Closes;
    let (address, accepted) = serve(behaviour).await;
    assert_not_executed(&execute(&client(address, AMPLE), key).await);
    assert_eq!(accepted.load(Ordering::SeqCst), 3);
    let asked = client(address, AMPLE).look_up(key).await;
    assert_doubt(&asked, "a look-up");
}

/// Where a pooled connection is used again, "could not connect" must still mean that nothing was
/// sent.
#[tokio::test]
async fn an_instruction_that_went_out_on_a_reused_connection_is_doubt_though_nobody_listens_now() {
    let listener = lasting_listener().await;
    let processor = client(listener.local_addr().unwrap(), AMPLE);
    let (first, second) = (Uuid::now_v7(), Uuid::now_v7());
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_request(&mut stream).await;
        let done = json!({"key": first, "status": "done"}).to_string();
        let reply = reply("200 OK", &done);
        stream.write_all(reply.as_bytes()).await.unwrap();
        let request = read_request(&mut stream).await;
        drop((stream, listener));
        request
    });
    let asked = execute(&processor, first).await;
    assert_eq!(asked, InstructionOutcome::Answered(Answer::Done));
    let asked = execute(&processor, second).await;
    let request = server.await.unwrap();
    assert!(
        request.starts_with(&format!("PUT /base/operations/{second} ")),
        "{request}"
    );
    assert_doubt(&asked, "it went out");
    // And now there is neither a connection nor a listener.
    assert_not_executed(&execute(&processor, Uuid::now_v7()).await);
}

#[tokio::test]
async fn what_is_said_for_the_log_holds_no_password_and_no_card() {
    let (_bound, refused) = refused();
    let processor =
        HttpProcessor::new(&format!("http://shop:hunter2@{refused}"), AMPLE, || None).unwrap();
    let said = format!("{:?}", execute(&processor, Uuid::now_v7()).await);
    assert!(
        !said.contains("hunter2") && !said.contains("tok_visa"),
        "{said}"
    );
}
