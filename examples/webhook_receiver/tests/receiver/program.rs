//! The program: its variables and its end.

use std::process::Command;

use example_test_support::{Program, answers_upgrades, empty_database, http_client};

use crate::support::{SECRET, charge_succeeded, deliver, effects, now, signature};

const PROGRAM: &str = env!("CARGO_BIN_EXE_webhook-receiver");

#[tokio::test]
async fn it_receives_until_sigterm_and_ends_with_exit_code_0() {
    let database_url = empty_database().await;
    let variables = [
        ("DATABASE_URL", database_url.as_str()),
        ("WEBHOOK_SECRET", SECRET),
    ];
    let program = Program::start(PROGRAM, &variables);
    let body = charge_succeeded("evt_1");
    let signed = signature(SECRET, now(), &body);
    let status = deliver(&http_client(), program.address, &signed, &body).await;
    assert_eq!(status, 200);
    let pool = webhook_receiver::connect(&database_url).await.unwrap();
    assert_eq!(effects(&pool).await, (1, 2000));
    let length = body.len();
    let request = format!(
        "POST /webhooks HTTP/1.1\r\nHost: localhost\r\n{{upgrade}}\r\nStripe-Signature: {signed}\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    );
    answers_upgrades(program.address, &request, 200, false).await;
    assert_eq!(program.terminate().await, Some(0));
}

#[test]
fn it_does_not_start_with_a_secret_that_anybody_knows() {
    for secret in ["", "secret"] {
        let output = Command::new(PROGRAM)
            .env("DATABASE_URL", "postgres://unused@localhost/unused")
            .env("WEBHOOK_SECRET", secret)
            .output()
            .unwrap();
        let complaint = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success());
        assert!(complaint.contains("WEBHOOK_SECRET"), "{complaint}");
    }
}
