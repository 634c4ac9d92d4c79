//! Proves the retry code of a client against every fault that the server can be asked for.
//!
//! Copy it, and put your own client in the place of `charge_once_client`.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may stop at the first surprise"
)]

use std::{env, time::Duration};

use charge_once_client::{
    Charge, Client, Error, ListQuery, NewCharge, RetryPolicy, transport::http_client_builder,
};
use serde_json::Value;
use uuid::Uuid;

const FAULTS: &[&str] = &[
    "reply_lost",
    "reply_lost; requests=3",
    "request_lost",
    "request_lost; requests=3",
    "delay; seconds=2; requests=2",
    "500; requests=2",
    "503; requests=2",
    "429; requests=2",
    "in_use; seconds=1",
];

/// An attempt is cut off sooner than the delays above end.
const PATIENT: RetryPolicy = RetryPolicy {
    deadline: Duration::from_secs(30),
    attempt_timeout: Duration::from_secs(1),
    backoff_min: Duration::from_millis(50),
    backoff_max: Duration::from_millis(500),
    resend_within: Duration::from_secs(3600),
    budget: 20,
};

/// It gives up after its first attempt.
const ONCE: RetryPolicy = RetryPolicy {
    budget: 0,
    ..PATIENT
};

fn variable(name: &str, default: &str) -> String {
    env::var(name).unwrap_or_else(|_| default.to_owned())
}

fn server() -> String {
    variable("CHARGE_ONCE_URL", "http://127.0.0.1:8080")
}

/// A POST without parameters, to what exists for tests only.
async fn post(path: &str, api_key: &str) -> Value {
    let http = http_client_builder().unwrap().build().unwrap();
    let request = http
        .post(format!("{}{path}", server()))
        .bearer_auth(api_key)
        .header("idempotency-key", Uuid::new_v4().to_string());
    let reply = request.send().await.unwrap().error_for_status().unwrap();
    serde_json::from_slice(&reply.bytes().await.unwrap()).unwrap()
}

/// An account of the test's own, without any charge.
struct Account {
    api_key: String,
}

impl Account {
    async fn new() -> Self {
        let dev_api_key = variable("DEV_API_KEY", "sk_test_ChargeOnceDevelopmentKey00");
        let account = post("/test/accounts", &dev_api_key).await;
        let api_key = account["api_key"].as_str().unwrap().to_owned();
        Self { api_key }
    }

    /// Each of its requests asks for the fault, which acts on the first ones with a key.
    fn client(&self, fault: Option<&str>, policy: RetryPolicy) -> Client {
        let mut builder = Client::builder(server(), &self.api_key).retry_policy(policy);
        if let Some(fault) = fault {
            builder = builder.header("fault", fault);
        }
        builder.build().unwrap()
    }

    async fn pay(
        &self,
        order: &str,
        source: &str,
        fault: Option<&str>,
        policy: RetryPolicy,
    ) -> Result<Charge, Error> {
        let charge = NewCharge {
            source: Some(source.to_owned()),
            ..NewCharge::new(2000, "usd")
        };
        let client = self.client(fault, policy);
        client.create_charge(&charge)?.with_key(order)?.send().await
    }

    /// All charges, the newest first.
    async fn charges(&self) -> Vec<Charge> {
        let client = self.client(None, PATIENT);
        client
            .list_charges(&ListQuery::default())
            .await
            .unwrap()
            .data
    }
}

/// An error that says what is true: it is not known whether the card was charged.
fn is_unknown(result: &Result<Charge, Error>) -> bool {
    matches!(result, Err(Error::GaveUp(gave_up)) if gave_up.sent)
}

#[tokio::test]
async fn a_charge_that_meets_a_fault_is_made_once() {
    for fault in FAULTS {
        let account = Account::new().await;
        let charge = account
            .pay("order-1", "tok_visa", Some(fault), PATIENT)
            .await;
        let charge = charge.unwrap_or_else(|error| panic!("{fault}: {error}"));
        assert_eq!(charge.status, "succeeded", "{fault}");
        assert_eq!(account.charges().await, [charge], "{fault}");
    }
}

#[tokio::test]
async fn a_lost_reply_of_the_execution_is_found_again() {
    let account = Account::new().await;
    let charge = account.pay("order-1", "tok_lostReply", None, PATIENT).await;
    assert_eq!(account.charges().await, [charge.unwrap()]);
}

#[tokio::test]
async fn two_faults_in_a_row() {
    let account = Account::new().await;
    let unlucky = account
        .pay("order-1", "tok_visa", Some("request_lost"), ONCE)
        .await;
    assert!(is_unknown(&unlucky), "{unlucky:?}");
    let charge = account
        .pay("order-1", "tok_visa", Some("reply_lost"), PATIENT)
        .await;
    assert_eq!(account.charges().await, [charge.unwrap()]);
}

#[tokio::test]
async fn what_is_not_known_is_not_called_a_failure() {
    let account = Account::new().await;
    let lost = Some("reply_lost; requests=100");
    let impatient = RetryPolicy {
        deadline: Duration::from_secs(1),
        ..PATIENT
    };
    let unknown = account.pay("order-1", "tok_visa", lost, impatient).await;
    assert!(is_unknown(&unknown), "{unknown:?}");
    // It was made: the same key says so.
    assert_eq!(account.charges().await.len(), 1);
    let charge = account.pay("order-1", "tok_visa", None, PATIENT).await;
    assert_eq!(account.charges().await, [charge.unwrap()]);
}

#[tokio::test]
async fn a_decline_is_an_answer_and_is_not_retried() {
    for fault in [None, Some("reply_lost")] {
        let account = Account::new().await;
        let declined = account
            .pay("order-1", "tok_chargeDeclined", fault, PATIENT)
            .await;
        let Err(Error::Declined(refusal)) = declined else {
            panic!("{fault:?}: {declined:?}");
        };
        assert_eq!(refusal.code, "card_declined");
        let charges = account.charges().await;
        let states: Vec<_> = charges
            .iter()
            .map(|charge| charge.status.as_str())
            .collect();
        assert_eq!(states, ["failed"], "{fault:?}");
    }
}

#[tokio::test]
async fn an_expired_key_is_a_new_charge() {
    let account = Account::new().await;
    let first = account
        .pay("order-1", "tok_visa", None, PATIENT)
        .await
        .unwrap();
    post("/test/expire_keys", &account.api_key).await;
    let second = account
        .pay("order-1", "tok_visa", None, PATIENT)
        .await
        .unwrap();
    assert_ne!(first.id, second.id);
}

/// The mistake that this suite is for: a new key for each attempt.
#[tokio::test]
async fn the_suite_finds_a_caller_who_makes_a_new_key_for_each_attempt() {
    let account = Account::new().await;
    for attempt in 1..=3 {
        let order = format!("order-1-attempt-{attempt}");
        let lost = account
            .pay(&order, "tok_visa", Some("reply_lost"), ONCE)
            .await;
        assert!(is_unknown(&lost), "{lost:?}");
    }
    assert_eq!(account.charges().await.len(), 3);
}
