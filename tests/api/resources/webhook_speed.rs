//! How fast webhooks are sent, measured and not judged: machines differ. docs/webhooks.md has
//! figures.
//!
//! With `CHARGE_ONCE` naming a release build of the server:
//! `cargo test --locked --test api -- webhook_speed --ignored --nocapture --test-threads 1`

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Instant,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use super::webhook_receivers::receiver;
use crate::support::{prelude::*, webhooks::add_accounts};

/// What a server in production has, but for the receivers on this machine.
const DEFAULTS: &[(&str, &str)] = &[("WEBHOOK_ALLOW_PRIVATE", "true")];

/// What failed is due again at once, so that nothing but the turns protects the others.
const DUE_AT_ONCE: &[(&str, &str)] = &[
    ("WEBHOOK_ALLOW_PRIVATE", "true"),
    ("WEBHOOK_RETRY_MIN", "1ms"),
    ("WEBHOOK_RETRY_MAX", "2ms"),
];

/// The program that is measured.
fn replica(database: &TestDatabase, variables: &[(&str, &str)]) -> ServerProcess {
    let built_with_the_tests = env!("CARGO_BIN_EXE_charge-once").to_owned();
    let program = std::env::var("CHARGE_ONCE").unwrap_or(built_with_the_tests);
    ServerProcess::start_by(Command::new(program), Stdio::null(), database, variables)
}

const ACKNOWLEDGED: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

/// A receiver that does nothing but acknowledge and count. Returns its URL too.
async fn fast_receiver() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(acknowledge(stream, Arc::clone(&counted)));
        }
    });
    (url, count)
}

async fn acknowledge(mut stream: TcpStream, count: Arc<AtomicUsize>) {
    let (mut request, mut read) = ([0; 16 * 1024], 0);
    // An event is JSON, and the last byte of its object closes it.
    while !(request[..read].ends_with(b"}") && request[..read].windows(4).any(|w| w == b"\r\n\r\n"))
    {
        match stream.read(&mut request[read..]).await {
            Ok(more @ 1..) => read += more,
            _ => return,
        }
    }
    if stream.write_all(ACKNOWLEDGED).await.is_ok() {
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// Waits until `count` is at least `least`, and returns how long that took.
async fn until(count: &AtomicUsize, least: usize) -> Duration {
    let began = Instant::now();
    while count.load(Ordering::Relaxed) < least {
        assert!(began.elapsed() < Duration::from_secs(120), "not {least}");
        // The precision of the measurement.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    began.elapsed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it measures, and takes a minute"]
async fn deliveries_in_a_second_to_a_fast_receiver() {
    const EVENTS: i32 = 50_000;
    for accounts in [1, 10, 500] {
        let (url, count) = fast_receiver().await;
        let database = TestDatabase::create().await;
        add_accounts(&database, accounts, &url, EVENTS / accounts).await;
        let _replica = replica(&database, DEFAULTS);
        until(&count, 1).await;
        let took = until(&count, EVENTS as usize).await;
        let rate = f64::from(EVENTS) / took.as_secs_f64();
        println!("{accounts} accounts: {rate:.0}/s");
    }
}

/// How long the events of one account take from the reply to their arrival.
async fn delays(client: &Client, count: &AtomicUsize) -> String {
    let mut delays = Vec::new();
    for number in 0..30 {
        let arrived = count.load(Ordering::Relaxed);
        client.charge(&format!("delay-{number}")).await;
        delays.push(until(count, arrived + 1).await.as_millis());
        // At any time between two of the worker's looks.
        tokio::time::sleep(Duration::from_millis(number * 373 % 1000)).await;
    }
    delays.sort_unstable();
    format!("p50 {} ms, longest {} ms", delays[15], delays[29])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it measures, and takes a minute"]
async fn the_delay_of_one_event_beside_endpoints_that_fail() {
    // It takes connections, and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = format!("http://{}/", silent.local_addr().unwrap());
    let slow = receiver(b"", ACKNOWLEDGED, Duration::from_secs(5)).await;
    let refusing = "http://127.0.0.1:1/";
    let cases = [
        ("nothing else", 0, "-"),
        ("4,999 that refuse connections", 4_999, refusing),
        ("one that hangs", 1, &silent),
        ("4,999 that hang", 4_999, &silent),
        ("one that takes 5 s", 1, &slow),
        ("4,999 that take 5 s", 4_999, &slow),
    ];
    for (settings, variables) in [("defaults", DEFAULTS), ("retries at once", DUE_AT_ONCE)] {
        for (what, others, url) in &cases {
            let (receiver, count) = fast_receiver().await;
            let database = TestDatabase::create().await;
            let replica = replica(&database, variables);
            Endpoint::at(&replica.client, &receiver).await;
            // The endpoint is known to be quick when the others come.
            replica.client.charge("first").await;
            until(&count, 1).await;
            add_accounts(&database, *others, url, 10).await;
            println!(
                "{settings}, {what}: {}",
                delays(&replica.client, &count).await
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it measures, and takes a minute"]
async fn charges_beside_receivers_that_never_stop_answering() {
    const CHARGES: usize = 2_000;
    let hostile = receiver(b"", b"HTTP/1.1 100 Continue\r\n\r\n", Duration::ZERO).await;
    for (what, others) in [("alone", 0), ("beside 1", 1), ("beside 100", 100)] {
        let database = TestDatabase::create().await;
        let replica = replica(&database, DUE_AT_ONCE);
        add_accounts(&database, others, &hostile, 1_000).await;
        let mut latencies = Vec::new();
        for number in 0..CHARGES {
            let sent = Instant::now();
            let charge = replica.client.charge(&format!("key-{number}")).await;
            assert_eq!(charge.status, 201);
            latencies.push(sent.elapsed());
        }
        latencies.sort_unstable();
        let (median, late) = (latencies[CHARGES / 2], latencies[CHARGES * 99 / 100]);
        println!("{what}: p50 {median:.1?}, p99 {late:.1?}");
    }
}
