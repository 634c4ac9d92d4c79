//! Checkouts that stopped on the way, and the retry, worker or replica that continues them.

use reqwest::StatusCode;

use crate::support::{
    checkouts::{checkout_of, end_the_outage, level, steps},
    prelude::*,
};

#[tokio::test]
async fn after_a_failure_the_same_key_goes_on_where_the_checkout_stopped() {
    let (server, client) = TestServer::with_client(&[]).await;
    stock(&client, "mug", 5).await;

    // The processor is down: the order is there, the charge is not.
    let body = checkout_with("tok_outage");
    let failed = client.post("/checkouts", "key-1", &body).await;
    assert_eq!(failed.code(), "service_unavailable");
    assert_eq!(failed.header("stripe-should-retry"), Some("true"));
    let listed = client.get("/checkouts?customer=jenny").await.json();
    let checkout = &listed["data"][0];
    assert_eq!(checkout["status"], "in_progress");
    let begun = ["create_order done 1", "create_charge pending 1"];
    assert_eq!(steps(checkout)[..2], begun);
    // Who has nothing but the key finds it.
    let looked_up = client.get("/idempotency-keys/key-1").await.json();
    assert_eq!(looked_up["status"], "in_doubt");
    assert_eq!(looked_up["resource"], checkout["id"]);
    // It is up again.
    end_the_outage(&server.database).await;
    let made = client.post("/checkouts", "key-1", &body).await;
    assert_eq!(made.status, 201, "{made:?}");
    assert_eq!(made.json()["order"], checkout["order"]);
    let expected = "create_order done 1, create_charge done 2, allocate_inventory done 1";
    assert_eq!(steps(&made.json()).join(", "), expected);
    assert_eq!(server.database.orders().await, 1);
    server.stop().await;
}

#[tokio::test]
async fn the_checkout_s_table_decides_what_has_run_not_the_records_of_its_steps() {
    let (server, client) = TestServer::with_client(&[]).await;
    stock(&client, "mug", 1).await;
    // Stops after the charge: there is no such level any more to lock.
    let sql = "ALTER TABLE inventory RENAME TO inventory_elsewhere";
    server.database.execute(sql).await;
    let failed = client.post("/checkouts", "key-1", &checkout()).await;
    assert_eq!(failed.status, 500);
    // However long ago that was.
    let sql = "DELETE FROM idempotency_keys WHERE key <> 'key-1'";
    server.database.execute(sql).await;
    let sql = "ALTER TABLE inventory_elsewhere RENAME TO inventory";
    server.database.execute(sql).await;
    let refused = client.post("/checkouts", "key-1", &checkout()).await;
    assert_eq!(refused.code(), "out_of_stock");
    let checkout = checkout_of(&client, "key-1").await;
    let expected = "create_order done 1, create_charge done 1, allocate_inventory refused 2, \
                    create_refund done 1, cancel_order done 1";
    assert_eq!(steps(&checkout).join(", "), expected);
    assert_eq!(server.database.charges().await, 1);
    server.stop().await;
}

#[tokio::test]
async fn nobody_else_touches_the_order_or_the_charge_of_a_checkout_in_progress() {
    let (server, client) = TestServer::with_client(&[]).await;
    server.database.is_left_broken("a table is gone");
    let sql = "ALTER TABLE inventory RENAME TO inventory_elsewhere";
    server.database.execute(sql).await;
    client.post("/checkouts", "key-1", &checkout()).await;
    let listed = client.get("/checkouts").await.json();
    let checkout = &listed["data"][0];
    let order = checkout["order"].as_str().unwrap();
    let charge = checkout["charge"].as_str().unwrap();
    for (path, body) in [
        (format!("/orders/{order}/cancel"), json!({})),
        (format!("/orders/{order}/pay"), json!({})),
        ("/refunds".to_owned(), json!({"charge": charge})),
    ] {
        let busy = client.post_new(&path, &body).await;
        assert_eq!(busy.code(), "resource_busy", "{path}");
        assert_eq!(busy.header("stripe-should-retry"), Some("true"), "{path}");
    }
    server.stop().await;
}

#[tokio::test]
async fn an_abandoned_checkout_is_completed_by_a_worker() {
    let (server, client) = TestServer::with_client(&[]).await;
    stock(&client, "mug", 5).await;
    let body = checkout_with("tok_outage");
    client.post("/checkouts", "key-1", &body).await;
    end_the_outage(&server.database).await;
    let sql = "UPDATE idempotency_leases SET recover_after = now()";
    server.database.execute(sql).await;
    eventually("the checkout is completed", || async {
        client.get("/checkouts").await.json()["data"][0]["status"] == "completed"
    })
    .await;
    let answer = client.post("/checkouts", "key-1", &body).await;
    assert_eq!((answer.status.as_u16(), answer.is_replay()), (201, true));
    assert_eq!(level(&client, "mug").await, 3);
    server.stop().await;
}

/// The first one's lease is over while it still runs a step. Who takes over, on another replica,
/// meets it at the step's key.
#[tokio::test]
async fn two_who_run_one_checkout_run_each_step_once_and_answer_the_same() {
    let late = TestServer::start_with(PATIENT).await;
    let database = late.database.clone();
    let prompt = TestServer::start_on(database.clone(), PATIENT).await;
    stock(&late.client, "mug", 5).await;
    for (key, step) in [("key-1", "create_order"), ("key-2", "create_charge")] {
        let keys = format!(",/checkouts/%/{step}");
        let mut pause = PausePoint::at(Stage::Claiming, &database, &keys).await;
        // The process that lost the lease is told so, until the new holder is done.
        let send = |client: &Client| client.sending_and_waiting(20, "/checkouts", key, checkout());
        let first = send(&late.client);
        pause.is_reached().await;
        let sql = "UPDATE idempotency_leases SET leased_until = now()";
        database.execute(sql).await;
        let second = send(&prompt.client);
        pause.is_reached_by(2).await;
        pause.release().await;
        let (first, second) = (first.await.unwrap(), second.await.unwrap());
        assert_eq!([first.status, second.status], [StatusCode::CREATED; 2]);
        assert_eq!(first.body, second.body, "one answer");
        let sql = "DROP TRIGGER pause_point ON idempotency_keys; DROP FUNCTION wait_at_pause_point;
             DROP SEQUENCE pause_point_arrivals";
        database.execute(sql).await;
    }
    assert_eq!(database.charges().await, 2);
    assert_eq!(level(&late.client, "mug").await, 1);
    assert_eq!(database.orders().await, 2);
    late.stop().await;
    prompt.stop().await;
}
