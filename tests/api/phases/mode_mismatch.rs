//! A charge, an order, a key or a checkout that needs the other setting of PROCESSOR_URL: no
//! waiting helps.

use charge_once::domain::ids::ChargeId;

use crate::support::{
    intents::{path, standing},
    prelude::*,
    processor::REMEDY,
    resources::uncaptured,
};

/// A refusal that no retry changes, and that is stored nowhere.
fn assert_no_retry_helps(answer: &Answer, what: &str) {
    assert_eq!(answer.status, 503, "{what}: {answer:?}");
    assert_eq!(answer.code(), "service_unavailable", "{what}");
    let should_retry = answer.header("stripe-should-retry");
    assert_eq!(should_retry, Some("false"), "{what}: {answer:?}");
    let message = answer.json()["error"]["message"].to_string();
    for words in [
        "not set up for the card processor",
        "retrying does not help",
    ] {
        assert!(message.contains(words), "{what}: {message}");
    }
    assert_eq!(answer.header("idempotency-expires"), None, "{what}");
}

#[tokio::test]
async fn a_retry_is_not_advised_where_the_process_is_set_up_for_another_processor() {
    let processor = Processor::start().await;
    let url = processor.url();
    let across: &[(&str, &str)] = &[("PROCESSOR_URL", &url)];
    for (made_with, asked_with) in [(across, [].as_slice()), (&[], across)] {
        let database = TestDatabase::create().await;
        let server = ServerProcess::start(&database, made_with);
        let id = uncaptured(&server.client).await;
        let captured = standing(&server.client, "requires_capture").await;
        let canceled = standing(&server.client, "requires_capture").await;
        let refunded = standing(&server.client, "succeeded").await;
        let records = database.records().await;
        drop(server);

        let log = tempfile::NamedTempFile::new().unwrap();
        let server = ServerProcess::start_logging_to(log.reopen().unwrap(), &database, asked_with);
        let refund = json!({"payment_intent": refunded});
        let requests = [
            (format!("/charges/{id}/capture"), json!({})),
            ("/refunds".to_owned(), json!({"charge": id})),
            (path(&captured, "capture"), json!({})),
            (path(&canceled, "cancel"), json!({})),
            ("/v1/refunds".to_owned(), refund),
        ];
        for (path, body) in &requests {
            let answer = server.client.post(path, path, body).await;
            assert_no_retry_helps(&answer, path);
        }
        assert_eq!(database.records().await, records, "of what was made");
        drop(server);
        let text = std::fs::read_to_string(log.path()).unwrap();
        let remedy = match asked_with {
            [] => REMEDY,
            _ => "send the request to a server without it",
        };
        assert_eq!(text.matches(remedy).count(), requests.len(), "{text}");

        // The same keys are free for the server that can.
        let server = ServerProcess::start(&database, made_with);
        for (path, body) in &requests {
            let answer = server.client.post(path, path, body).await;
            assert!(answer.status.is_success(), "{path}: {answer:?}");
        }
    }
}

/// What was in flight across the network when the setting was taken away: no process continues it.
#[tokio::test]
async fn a_retry_is_not_advised_while_what_is_in_flight_needs_the_processor() {
    let processor = Processor::start().await;
    let url = processor.url();
    let across = [("PROCESSOR_URL", url.as_str())];
    let database = TestDatabase::create().await;
    let server = ServerProcess::start(&database, &across);
    let id = server.client.charge("key-1").await.id();
    let part = json!({"charge": id, "amount": 500});
    processor.set_fault(json!({"fault": "drop_after"})).await;
    let lost = server.client.post("/refunds", "key-2", &part).await;
    assert_eq!(lost.status, 503);
    server.kill();
    let log = tempfile::NamedTempFile::new().unwrap();
    let server = ServerProcess::start_logging_to(log.reopen().unwrap(), &database, &[]);
    for (path, key, body) in [
        ("/refunds", "key-2", part.clone()),
        ("/refunds", "key-3", part.clone()),
        ("/refunds", "key-4", json!({"charge": id})),
    ] {
        let answer = server.client.post(path, key, &body).await;
        assert_no_retry_helps(&answer, key);
    }
    let refunds = "SELECT count(*) FROM refunds WHERE status <> 'pending'";
    assert_eq!(database.count(refunds).await, 0);
    server.kill();
    let text = std::fs::read_to_string(log.path()).unwrap();
    assert_eq!(text.matches(REMEDY).count(), 3, "{text}");
    let server = ServerProcess::start(&database, &across);
    database.expire_leases().await;
    for key in ["key-2", "key-3"] {
        let answer = server.client.post_waiting(20, "/refunds", key, &part).await;
        assert_eq!(answer.status, 201, "{key}: {answer:?}");
    }
    let [_, _, _, refunded] = processor.sums(&id).await;
    assert_eq!(refunded, 1000);
}

/// A payment and a charge that the processor has not answered when the setting was taken away. No
/// process finishes them, so waiting for their order and their charge doesn't help either.
#[tokio::test]
async fn a_retry_is_not_advised_about_what_the_processor_has_not_answered() {
    let processor = Processor::start().await;
    let url = processor.url();
    let across = [("PROCESSOR_URL", url.as_str())];
    let database = TestDatabase::create().await;
    let server = ServerProcess::start(&database, &across);
    let body = json!({"currency": "usd", "items": [{"quantity": 1, "unit_amount": 500}]});
    let order = server.client.post("/orders", "key-1", &body).await.id();
    let pay = format!("/orders/{order}/pay");
    let card = json!({"source": "tok_visa"});
    let mut authorized = charge();
    authorized["capture"] = false.into();
    for (path, key, body) in [
        (pay.as_str(), "key-2", &card),
        ("/charges", "key-3", &authorized),
    ] {
        processor.set_fault(json!({"fault": "drop_after"})).await;
        assert_eq!(server.client.post(path, key, body).await.status, 503);
    }
    server.kill();

    let server = ServerProcess::start(&database, &[]);
    let pending = "SELECT id FROM charges WHERE order_id IS NULL";
    let pending = ChargeId(database.value(pending).await).to_string();
    let others = [
        (pay.clone(), "key-4", card.clone()),
        (format!("/orders/{order}/cancel"), "key-5", json!({})),
        (format!("/charges/{pending}/capture"), "key-6", json!({})),
        ("/refunds".to_owned(), "key-7", json!({"charge": pending})),
    ];
    for (path, key, body) in &others {
        let answer = server.client.post(path, key, body).await;
        assert_no_retry_helps(&answer, path);
    }
    server.kill();

    // Where they are finished, the same keys have their answers.
    let server = ServerProcess::start(&database, &across);
    database.expire_leases().await;
    for (path, key, body, status) in [
        (pay.as_str(), "key-2", &card, 200),
        ("/charges", "key-3", &authorized, 201),
    ] {
        let answer = server.client.post_waiting(20, path, key, body).await;
        assert_eq!(answer.status, status, "{path}: {answer:?}");
    }
    for ((path, key, body), status) in others.iter().zip([400, 400, 200, 201]) {
        let answer = server.client.post(path, key, body).await;
        assert_eq!(answer.status, status, "{path}: {answer:?}");
    }
}
