//! Fault plans: faults that act on requests which don't ask for any.

use crate::support::{accounts::client_of_test_account, prelude::*};

/// Plans a fault, and returns the plan.
async fn plan(client: &Client, plan: Value) -> Value {
    let made = client.post_new("/test/faults", &plan).await;
    assert_eq!(made.status, 201, "{}", made.json());
    made.json()
}

/// The statuses of so many new charges; 0: no reply came.
async fn statuses(client: &Client, path: &str, count: usize) -> Vec<u16> {
    let mut statuses = Vec::new();
    for _ in 0..count {
        let key = Uuid::new_v4().to_string();
        let request = client.request(Method::POST, path);
        let request = request.header("idempotency-key", key).json(&charge());
        let answer = client.reply_or_none(request).await;
        statuses.push(answer.map_or(0, |answer| answer.status.as_u16()));
    }
    statuses
}

#[tokio::test]
async fn a_plan_acts_on_the_requests_that_it_is_about_and_counts_them() {
    let (server, dev) = TestServer::with_client(&[FAULTS]).await;
    for (wanted, path, expected) in [
        (
            json!({"route": "POST /charges", "fault": "503"}),
            "/charges",
            [503, 201, 201, 201, 201],
        ),
        (
            json!({"route": "/v1/charges", "fault": "500", "first": 2}),
            "/v1/charges",
            [500, 500, 201, 201, 201],
        ),
        (
            json!({"route": "*", "fault": "429", "every": 2}),
            "/charges",
            [201, 429, 201, 429, 201],
        ),
        (
            json!({"route": "*", "fault": "in_use", "every": 1, "requests": 3}),
            "/charges",
            [409, 409, 409, 201, 201],
        ),
        (
            json!({"route": "/charges", "fault": "reply_lost"}),
            "/charges",
            [0, 201, 201, 201, 201],
        ),
        (
            json!({"route": "/charges", "fault": "request_lost", "percent": 100, "requests": 1}),
            "/charges",
            [0, 201, 201, 201, 201],
        ),
        (
            json!({"route": "/charges", "fault": "delay", "seconds": 0}),
            "/charges",
            [201; 5],
        ),
        (
            json!({"route": "/refunds", "fault": "503"}),
            "/charges",
            [201; 5],
        ),
    ] {
        let client = client_of_test_account(&dev).await;
        let made = plan(&client, wanted.clone()).await;
        assert_eq!((&made["matched"], &made["acted"]), (&0.into(), &0.into()));
        assert_eq!(statuses(&client, path, 5).await, expected, "{wanted}");
        // What has nothing to do with it is left alone: reads, `/test`, and other accounts.
        assert_eq!(client.get("/charges").await.status, 200);
        let expired = client.post_new("/test/expire_keys", &json!({})).await;
        assert_eq!(expired.status, 200);
        let listed = client.get("/test/faults").await.json();
        let acted = expected.iter().filter(|status| **status != 201).count();
        let is_delay = wanted["fault"] == "delay";
        assert_eq!(
            listed["data"][0]["acted"],
            acted + usize::from(is_delay),
            "{wanted}"
        );
    }
    assert_eq!(statuses(&dev, "/charges", 1).await, [201]);
    assert_eq!(dev.get("/test/faults").await.json()["data"], json!([]));
    // A lost reply is that of a charge which was made: 5 of each account, but for what was refused
    // or never came.
    let made = 5 * 9 - (1 + 2 + 2 + 3 + 1) - 4;
    assert_eq!(server.database.charges().await, made);
}

#[tokio::test]
async fn chance_comes_again_with_its_seed_and_a_deleted_plan_acts_no_more() {
    let (_server, dev) = TestServer::with_client(&[FAULTS]).await;
    let mut seen = Vec::new();
    for _ in 0..2 {
        let client = client_of_test_account(&dev).await;
        let wanted = json!({"route": "*", "fault": "503", "percent": 40, "seed": 3});
        let made = plan(&client, wanted).await;
        seen.push(statuses(&client, "/charges", 20).await);
        let path = format!("/test/faults/{}", made["id"].as_str().unwrap());
        for status in [200, 404] {
            let answer = Answer::of(client.request(Method::DELETE, &path)).await;
            assert_eq!(answer.status, status);
        }
        assert_eq!(statuses(&client, "/charges", 10).await, [201; 10]);
    }
    assert_eq!(seen[0], seen[1]);
    let faults = seen[0].iter().filter(|status| **status == 503).count();
    assert!((3..=13).contains(&faults), "{seen:?}");
}

#[tokio::test]
async fn replicas_count_together() {
    let database = TestDatabase::create().await;
    let one = TestServer::start_on(database.clone(), &[FAULTS]).await;
    let other = TestServer::start_on(database.clone(), &[FAULTS]).await;
    let client = client_of_test_account(&one.client).await;
    plan(
        &client,
        json!({"route": "/charges", "fault": "503", "first": 7}),
    )
    .await;
    let clients = [client.clone(), client.at(&other.client)];
    let racers = (0..20).map(|n| {
        let client = clients[n % 2].clone();
        async move { client.charge(&format!("key-{n}")).await.status }
    });
    let answers = join_all(racers).await;
    let faults = answers.iter().filter(|status| **status == 503).count();
    assert_eq!(faults, 7);
    assert_eq!(database.charges().await, 13);
}

#[tokio::test]
async fn what_a_plan_may_be_is_said_with_the_nearest_name() {
    let (_server, dev) = TestServer::with_client(&[FAULTS]).await;
    let client = client_of_test_account(&dev).await;
    for (wrong, param, told) in [
        (
            json!({"route": "POST /refnds", "fault": "503"}),
            "route",
            "/refunds",
        ),
        (
            json!({"route": "GET /refunds", "fault": "503"}),
            "route",
            "POST /refunds",
        ),
        (
            json!({"route": "/events", "fault": "503"}),
            "route",
            "POST /refunds",
        ),
        (
            json!({"route": "*", "fault": "reply-lost"}),
            "fault",
            "The nearest is reply_lost.",
        ),
        (
            json!({"route": "*", "fault": "webhook_lost"}),
            "event",
            "event alone",
        ),
        (
            json!({"event": "*", "fault": "503"}),
            "route",
            "route alone",
        ),
        (json!({"fault": "503"}), "route", "route alone"),
        (
            json!({"event": "charge.sold", "fault": "webhook_late"}),
            "event",
            "type of event",
        ),
        (
            json!({"route": "*", "fault": "503", "first": 1, "every": 2}),
            "first",
            "At most one",
        ),
        (
            json!({"route": "*", "fault": "503", "percent": 101}),
            "percent",
            "100",
        ),
        (
            json!({"route": "*", "fault": "delay", "seconds": 31}),
            "seconds",
            "30",
        ),
    ] {
        let refused = client.post_new("/test/faults", &wrong).await;
        assert_eq!(
            refused.refusal(),
            refusal("parameter_invalid", param),
            "{wrong}"
        );
        let message = refused.json()["error"]["message"].to_string();
        assert!(message.contains(told), "{wrong}: {message}");
    }
    let wanted = json!({"route": "/orders", "fault": "503"});
    for _ in 0..32 {
        plan(&client, wanted.clone()).await;
    }
    let refused = client.post_new("/test/faults", &wanted).await;
    assert_eq!(error(&refused), (400, "parameter_invalid".into()));
    let listed = client.get("/v1/test/faults").await.json();
    assert_eq!(listed["data"].as_array().unwrap().len(), 32);
    assert_eq!(listed["url"], "/v1/test/faults");
}

#[tokio::test]
async fn only_test_accounts_plan_faults_and_have_a_report() {
    let (server, _) = TestServer::with_client(&[FAULTS]).await;
    let other = client_of_account(&server, "live").await;
    let wanted = json!({"route": "*", "fault": "503"});
    let refused = other.post_new("/test/faults", &wanted).await;
    assert_eq!(
        refused.refusal(),
        refusal("parameter_invalid", "Authorization")
    );
    for path in ["/test/faults", "/test/report"] {
        let refused = other.get(path).await;
        assert_eq!(
            refused.refusal(),
            refusal("parameter_invalid", "Authorization")
        );
    }
}
