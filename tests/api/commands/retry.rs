//! `charge-once webhooks retry`: webhooks that failed are sent again.

use super::*;
use crate::support::webhooks::{ATTEMPTS, told};

/// Failed attempts wait for hours.
const SLOW: &[(&str, &str)] = &[("WEBHOOK_RETRY_MIN", "1h"), ("WEBHOOK_RETRY_MAX", "8h")];

async fn retry(database: &TestDatabase, arguments: &[&str]) -> Run {
    let arguments = [&["webhooks", "retry"], arguments].concat();
    run_to_end(program(&arguments, &[("DATABASE_URL", &database.url)])).await
}

fn id(delivery: &Value) -> &str {
    delivery["id"].as_str().unwrap()
}

#[tokio::test]
async fn a_given_up_delivery_is_sent_again_and_a_delivered_one_is_left() {
    let (server, mut receiver, endpoint) = told(QUICK).await;
    let client = &server.client;
    client.charge("key-1").await;
    let failed = endpoint.gives_up(client, &mut receiver).await;
    let printed = retry(&server.database, &[id(&failed)]).await.succeeded();
    assert_eq!(printed, format!("{}  due now\n", id(&failed)));
    receiver.next().await.answer(200).await;
    let delivered = endpoint.newest_succeeds(client).await;
    let attempts = delivered["attempts"].as_array().unwrap();
    assert_eq!(attempts.len(), ATTEMPTS + 1);

    let again = retry(&server.database, &[id(&failed)]).await;
    again.stdout.must_have(&["left as it is: it was delivered"]);
    assert_has(&again.failed(1), "1 of 1 will not be sent again");
    assert_eq!(endpoint.newest_succeeds(client).await, delivered);
}

#[tokio::test]
async fn all_that_failed_at_an_endpoint_is_sent_again_and_nothing_else() {
    let (server, mut receiver, endpoint) = told(QUICK).await;
    let client = &server.client;
    client.charge("delivered").await;
    receiver.next().await.answer(200).await;
    let delivered = endpoint.newest_succeeds(client).await;
    let mut failed = Vec::new();
    for key in ["key-1", "key-2"] {
        client.charge(key).await;
        failed.push(endpoint.gives_up(client, &mut receiver).await);
    }
    failed.reverse();
    let of_endpoint = ["--endpoint", &endpoint.id, "--dry-run"];
    let printed = retry(&server.database, &of_endpoint).await.succeeded();
    assert_eq!(printed, "     2  charge.succeeded\n     2  would be due\n");
    assert_eq!(endpoint.deliveries(client).await[..2], failed);
    let of_endpoint = &of_endpoint[..2];
    let printed = retry(&server.database, of_endpoint).await.succeeded();
    assert_eq!(printed, "     2  charge.succeeded\n     2  due now\n");
    for _ in &failed {
        receiver.next().await.answer(200).await;
    }
    endpoint.newest_succeeds(client).await;
    let untouched = &endpoint.deliveries(client).await[2];
    assert_eq!(*untouched, delivered);
    let none = retry(&server.database, of_endpoint).await;
    let says = "no delivery to this endpoint has failed";
    none.stderr.must_have(&[says]);
    assert_eq!(none.succeeded(), "");
}

#[tokio::test]
async fn what_waits_for_hours_is_sent_now_only_if_that_was_asked_for() {
    let server = TestServer::start_with(&quick_but(SLOW)).await;
    let client = &server.client;
    let mut receiver = Receiver::start().await;
    let (endpoint, waiting) = Endpoint::with_a_waiting_delivery(client, &mut receiver).await;
    let of_endpoint = ["--endpoint", &endpoint.id];
    assert_eq!(retry(&server.database, &of_endpoint).await.succeeded(), "");
    assert_eq!(endpoint.deliveries(client).await, [waiting]);
    let with_pending = [&of_endpoint[..], &["--pending"]].concat();
    let printed = retry(&server.database, &with_pending).await.succeeded();
    assert_eq!(printed, "     1  charge.succeeded\n     1  due now\n");
    receiver.next().await.answer(200).await;
    endpoint.newest_succeeds(client).await;
}

#[tokio::test]
async fn more_than_a_page_of_failures_is_sent_again() {
    let (server, mut receiver, endpoint) = told(&quick_but(SLOW)).await;
    let client = &server.client;
    client.charge("key-1").await;
    receiver.next().await.answer(200).await;
    endpoint.newest_succeeds(client).await;
    let database = &server.database;
    database.is_left_broken("many events tell of one charge");
    let failed = "
        WITH copied AS (
             INSERT INTO events (account_id, id, type, object, request_id, idempotency_key)
             SELECT account_id, gen_random_uuid(), type, object, request_id, idempotency_key
               FROM events, generate_series(1, 230)
             RETURNING account_id, id
         )
         INSERT INTO webhook_deliveries
                     (account_id, id, endpoint_id, event_id, status, ready, next_attempt_at)
         SELECT copied.account_id, gen_random_uuid(), endpoint.id, copied.id, 'failed', false, NULL
           FROM copied, webhook_endpoints AS endpoint";
    database.execute(failed).await;
    let all = ["--endpoint", &endpoint.id];
    let printed = retry(&server.database, &all).await.succeeded();
    assert_eq!(printed, "   230  charge.succeeded\n   230  due now\n");
    for _ in 0..230 {
        receiver.next().await.answer(200).await;
    }
    everything_is_delivered(&server.database).await;
}

#[tokio::test]
async fn what_can_t_be_sent_again_is_named_with_what_to_do() {
    let server = TestServer::start_with(&quick_but(SLOW)).await;
    let client = &server.client;
    let mut receiver = Receiver::start().await;
    let (endpoint, waiting) = Endpoint::with_a_waiting_delivery(client, &mut receiver).await;
    let of_endpoint = ["--endpoint", &endpoint.id];
    api_key_of(&server.database, "alice").await;

    endpoint.disable(client, true).await;
    let disabled = retry(&server.database, &of_endpoint).await.failed(1);
    disabled.must_have(&["is disabled", "disabled=false"]);
    endpoint.disable(client, false).await;
    let both = vec![id(&waiting), "--endpoint", &endpoint.id];
    let of_bob = vec!["--account", "bob", id(&waiting)];
    let elsewhere = vec!["--account", "alice", "--endpoint", &endpoint.id];
    let waiting_elsewhere = vec!["--account", "alice", id(&waiting)];
    for (arguments, code, told) in [
        (vec![], 2, "--endpoint <ENDPOINT>"),
        (vec!["evt_1"], 2, "whd_…"),
        (vec!["--endpoint", "we_1"], 2, "we_…"),
        (vec![id(&waiting), "--pending"], 2, "--endpoint"),
        (both, 2, "cannot be used with"),
        (of_bob, 1, "there is no account \"bob\""),
        (elsewhere, 1, "has no webhook endpoint"),
        (waiting_elsewhere, 1, "1 of 1 will not be sent again"),
    ] {
        let said = retry(&server.database, &arguments).await.failed(code);
        assert!(said.contains(told), "{arguments:?}: {said}");
    }
    let unchanged = endpoint.deliveries(client).await;
    assert_eq!(unchanged.first(), Some(&waiting), "as it was");
    delete(client, &endpoint.id).await;
    let gone = retry(&server.database, &of_endpoint).await.failed(1);
    gone.must_have(&["has no webhook endpoint"]);
    retry(&server.database, &[id(&waiting)]).await.failed(1);
}
