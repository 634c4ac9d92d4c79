//! The program: its variables and its end.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::support::{
    SECRET, charge_succeeded, deliver, effects, empty_database, eventually, http_client, now,
    signature,
};

fn program(database_url: &str, secret: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_webhook-receiver"));
    command
        .env("DATABASE_URL", database_url)
        .env("WEBHOOK_SECRET", secret)
        .env("BIND_ADDRESS", "127.0.0.1:0")
        .env("RUST_LOG", "info")
        .env("NO_COLOR", "1");
    command
}

/// Ends the program with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn it_receives_until_sigterm_and_ends_with_exit_code_0() {
    let database_url = empty_database().await;
    let mut running = Running(
        program(&database_url, SECRET)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let log = BufReader::new(running.0.stdout.take().unwrap());
    let address = log
        .lines()
        .map(Result::unwrap)
        .find_map(|line| {
            let (_, url) = line.split_once("listening on http://")?;
            url.strip_suffix("/webhooks")?.parse().ok()
        })
        .expect("it says where it listens");

    let body = charge_succeeded("evt_1");
    let signed = signature(SECRET, now(), &body);
    assert_eq!(deliver(&http_client(), address, &signed, &body).await, 200);
    let pool = webhook_receiver::connect(&database_url).await.unwrap();
    assert_eq!(effects(&pool).await, (1, 2000));

    let pid = i32::try_from(running.0.id()).unwrap();
    kill(Pid::from_raw(pid), Signal::SIGTERM).unwrap();
    let mut status = None;
    eventually("it ends", || {
        status = running.0.try_wait().unwrap();
        std::future::ready(status.is_some())
    })
    .await;
    assert!(status.unwrap().success(), "{status:?}");
}

#[test]
fn it_does_not_start_with_a_secret_that_anybody_knows() {
    for secret in ["", "secret"] {
        let output = program("postgres://unused@localhost/unused", secret)
            .output()
            .unwrap();
        let complaint = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success());
        assert!(complaint.contains("WEBHOOK_SECRET"), "{complaint}");
    }
}
