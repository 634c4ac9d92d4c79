//! Checkouts that stopped on the way, and the retry, worker or replica that continues them.

use reqwest::StatusCode;

use crate::support::{
    checkouts::{checkout_of, level, steps},
    prelude::*,
};

#[tokio::test]
async fn after_a_failure_the_same_key_goes_on_where_the_checkout_stopped() {
    let server = TestServer::start().await;
    let client = &server.client;
    stock(client, "mug", 5).await;

    // The processor is down: the order is there, the charge is not.
    let body = checkout_with("tok_outage");
    let failed = client.post("/checkouts", "key-1", &body).await;
    assert_eq!(failed.code(), "service_unavailable");
    assert_eq!(failed.header("stripe-should-retry"), Some("true"));
    let listed = client.get("/checkouts?customer=jenny").await.json();
    let checkout = &listed["data"][0];
    assert_eq!(checkout["status"], "in_progress");
    assert_eq!(
        steps(checkout)[..2],
        ["create_order done 1", "create_charge pending 1"]
    );
    // Who has nothing but the key finds it.
    let looked_up = client.get("/idempotency-keys/key-1").await.json();
    assert_eq!(looked_up["status"], "in_doubt");
    assert_eq!(looked_up["resource"], checkout["id"]);
    // It is up again.
    sqlx::query("UPDATE checkouts SET card_token = 'tok_visa'")
        .execute(&server.database.pool)
        .await
        .unwrap();
    let made = client.post("/checkouts", "key-1", &body).await;
    assert_eq!(made.status, 201, "{made:?}");
    assert_eq!(made.json()["order"], checkout["order"]);
    assert_eq!(
        steps(&made.json()),
        [
            "create_order done 1",
            "create_charge done 2",
            "allocate_inventory done 1"
        ]
    );
    assert_eq!(
        server.database.count("SELECT count(*) FROM orders").await,
        1
    );
    server.stop().await;
}

#[tokio::test]
async fn the_checkout_s_table_decides_what_has_run_not_the_records_of_its_steps() {
    let server = TestServer::start().await;
    let client = &server.client;
    stock(client, "mug", 1).await;
    // Stops after the charge: there is no such level any more to lock.
    sqlx::query("ALTER TABLE inventory RENAME TO inventory_elsewhere")
        .execute(&server.database.pool)
        .await
        .unwrap();
    let failed = client.post("/checkouts", "key-1", &checkout()).await;
    assert_eq!(failed.status, 500);
    // However long ago that was.
    sqlx::query("DELETE FROM idempotency_keys WHERE key <> 'key-1'")
        .execute(&server.database.pool)
        .await
        .unwrap();
    sqlx::query("ALTER TABLE inventory_elsewhere RENAME TO inventory")
        .execute(&server.database.pool)
        .await
        .unwrap();
    let refused = client.post("/checkouts", "key-1", &checkout()).await;
    assert_eq!(refused.code(), "out_of_stock");
    let checkout = checkout_of(client, "key-1").await;
    assert_eq!(
        steps(&checkout),
        [
            "create_order done 1",
            "create_charge done 1",
            "allocate_inventory refused 2",
            "create_refund done 1",
            "cancel_order done 1",
        ]
    );
    assert_eq!(server.database.charges().await, 1);
    server.stop().await;
}

#[tokio::test]
async fn nobody_else_touches_the_order_or_the_charge_of_a_checkout_in_progress() {
    let server = TestServer::start().await;
    let client = &server.client;
    server.database.is_left_broken("a table is gone");
    sqlx::query("ALTER TABLE inventory RENAME TO inventory_elsewhere")
        .execute(&server.database.pool)
        .await
        .unwrap();
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
    let server = TestServer::start().await;
    let client = &server.client;
    stock(client, "mug", 5).await;
    client
        .post("/checkouts", "key-1", &checkout_with("tok_outage"))
        .await;
    sqlx::query("UPDATE checkouts SET card_token = 'tok_visa'")
        .execute(&server.database.pool)
        .await
        .unwrap();
    sqlx::query("UPDATE idempotency_leases SET recover_after = now()")
        .execute(&server.database.pool)
        .await
        .unwrap();
    eventually("the checkout is completed", || async {
        client.get("/checkouts").await.json()["data"][0]["status"] == "completed"
    })
    .await;
    let answer = client
        .post("/checkouts", "key-1", &checkout_with("tok_outage"))
        .await;
    assert_eq!(answer.status, 201);
    assert!(answer.is_replay());
    assert_eq!(level(client, "mug").await, 3);
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
        let send = |client: &Client| {
            let client = client.clone();
            tokio::spawn(async move {
                // The process that lost the lease is told so, until the new holder is done.
                client
                    .post_waiting(20, "/checkouts", key, &checkout())
                    .await
            })
        };
        let first = send(&late.client);
        pause.is_reached().await;
        sqlx::query("UPDATE idempotency_leases SET leased_until = now()")
            .execute(&database.pool)
            .await
            .unwrap();
        let second = send(&prompt.client);
        pause.is_reached_by(2).await;
        pause.release().await;
        let (first, second) = (first.await.unwrap(), second.await.unwrap());
        assert_eq!(
            (first.status, second.status),
            (StatusCode::CREATED, StatusCode::CREATED)
        );
        assert_eq!(first.body, second.body, "one answer");
        sqlx::raw_sql(
            "DROP TRIGGER pause_point ON idempotency_keys; DROP FUNCTION wait_at_pause_point;
             DROP SEQUENCE pause_point_arrivals",
        )
        .execute(&database.pool)
        .await
        .unwrap();
    }
    assert_eq!(
        (database.charges().await, level(&late.client, "mug").await),
        (2, 1)
    );
    assert_eq!(database.count("SELECT count(*) FROM orders").await, 2);
    late.stop().await;
    prompt.stop().await;
}
