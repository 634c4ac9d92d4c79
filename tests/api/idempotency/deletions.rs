//! A DELETE with an idempotency key is claimed and replayed like a POST. Without one, a second
//! DELETE finds nothing.

use crate::support::{
    prelude::*,
    racers::definite,
    resources::{attached, customer, method},
};

const DELETED: &str = "
    SELECT (SELECT count(*) FROM customers WHERE deleted_at IS NOT NULL)
         + (SELECT count(*) FROM webhook_endpoints WHERE deleted_at IS NOT NULL)";

/// The record of the deletion under `key-1`.
const RECORD: &str = "SELECT count(*) FROM idempotency_keys WHERE key = 'key-1'";

/// One of each kind that can be deleted, by its path.
async fn deletable(client: &Client) -> [String; 2] {
    let endpoint = endpoint("https://example.com/hook");
    let endpoint = client.post_new("/webhook_endpoints", &endpoint).await;
    [
        format!("/customers/{}", customer(client).await),
        format!("/webhook_endpoints/{}", endpoint.id()),
    ]
}

fn deletion(client: &Client, path: &str, key: &str) -> RequestBuilder {
    let request = client.request(Method::DELETE, path);
    request.header("idempotency-key", key)
}

async fn delete(client: &Client, path: &str, key: &str) -> Answer {
    Answer::of(deletion(client, path, key)).await
}

#[tokio::test]
async fn a_deletion_with_a_key_is_replayed_and_so_is_its_refusal() {
    let (server, client) = TestServer::with_client(&[]).await;
    let missing = refusal("resource_missing", "id");
    for prefix in ["", "/v1"] {
        for path in deletable(&client).await {
            let path = format!("{prefix}{path}");
            let first = delete(&client, &path, &path).await;
            assert_eq!((first.status.as_u16(), first.is_replay()), (200, false));
            assert_eq!(first.json()["deleted"], true, "{path}");
            assert_eq!(first.header("idempotency-key"), Some(&*path));
            assert_eq!(first.header("original-request"), first.header("request-id"));

            // Under another key it is a request of its own, whose refusal is kept.
            let again = format!("{path}-again");
            let refused = delete(&client, &path, &again).await;
            assert_eq!(refused.refusal(), missing);
            assert!(!refused.is_replay());
            delete(&client, &path, &again)
                .await
                .assert_replays(&refused);

            let without = Answer::of(client.request(Method::DELETE, &path)).await;
            assert_eq!(without.refusal(), missing);
            assert_eq!(without.header("original-request"), None);
            delete(&client, &path, &path).await.assert_replays(&first);
        }
        for path in ["/customers/nothing", "/webhook_endpoints/nothing"] {
            let path = format!("{prefix}{path}");
            let refused = delete(&client, &path, &path).await;
            assert_eq!(refused.refusal(), missing);
            delete(&client, &path, &path).await.assert_replays(&refused);
        }
    }
    assert_eq!(server.database.count(DELETED).await, 4);
}

#[tokio::test]
async fn ten_racers_through_two_replicas_delete_once_and_get_one_answer() {
    let database = TestDatabase::create().await;
    let replicas = [(); 2].map(|()| ServerProcess::start(&database, &[]));
    let client = &replicas[0].client;
    for path in deletable(client).await {
        if let Some(id) = path.strip_prefix("/customers/") {
            attached(client, &method(client, "tok_visa").await, id).await;
        }
        let answers = all_at_once(10, |racer| {
            let (client, path) = (replicas[racer % 2].client.clone(), path.clone());
            async move { definite(|| delete(&client, &path, &path)).await }
        })
        .await;
        let (first, others): (Vec<_>, Vec<_>) = answers.iter().partition(|one| !one.is_replay());
        assert!(first.len() <= 1, "more than one executed: {first:?}");
        let original = first.first().copied().unwrap_or(&answers[0]);
        assert_eq!(original.status, 200, "{path}");
        for answer in others {
            answer.assert_replays(original);
        }
    }
    assert_eq!(database.count(DELETED).await, 2);
    let events = "SELECT count(*) FROM events
                   WHERE type IN ('customer.deleted', 'payment_method.detached')";
    assert_eq!(database.count(events).await, 2);
}

#[tokio::test]
async fn a_deletions_key_is_no_other_requests_key() {
    let (server, client) = TestServer::with_client(&[]).await;
    let [gone, endpoint] = deletable(&client).await;
    let [stays, _] = deletable(&client).await;
    let first = delete(&client, &gone, "key-1").await;
    for (request, status) in [
        (deletion(&client, &stays, "key-1"), 422),
        (deletion(&client, &endpoint, "key-1"), 422),
        (deletion(&client, &format!("/v1{gone}"), "key-1"), 400),
        (
            deletion(&client, &gone, "key-1").json(&json!({"a": "b"})),
            422,
        ),
        (deletion(&client, &format!("{gone}?a=b"), "key-1"), 422),
    ] {
        let reuse = Answer::of(request).await;
        assert_eq!(error(&reuse), (status, "idempotency_key_reused".into()));
    }
    let posted = client.post(&stays, "key-1", &json!({})).await;
    assert_eq!(error(&posted), (422, "idempotency_key_reused".into()));
    assert_eq!(server.database.count(DELETED).await, 1);
    delete(&client, &gone, "key-1").await.assert_replays(&first);
}

#[tokio::test]
async fn what_a_post_refuses_a_deletion_with_a_key_refuses() {
    let (server, client) = TestServer::with_client(&[]).await;
    for path in deletable(&client).await {
        // A refusal of parameters is kept.
        let query = format!("{path}?force=true");
        let force = json!({"force": 1});
        for request in [
            deletion(&client, &query, &format!("{path}-query")),
            deletion(&client, &path, &format!("{path}-body")).json(&force),
        ] {
            let again = request.try_clone().unwrap();
            let refused = Answer::of(request).await;
            assert_eq!(refused.refusal(), refusal("parameter_unknown", "force"));
            Answer::of(again).await.assert_replays(&refused);
        }
        let before = server.database.records().await;
        let card = json!({"note": "4242424242424242"});
        for (request, code) in [
            (deletion(&client, &path, "a b"), "idempotency_key_invalid"),
            (deletion(&client, &path, ""), "idempotency_key_invalid"),
            (deletion(&client, &path, API_KEY), "idempotency_key_invalid"),
            (
                deletion(&client, &path, "key-1").json(&card),
                "card_number_forbidden",
            ),
        ] {
            assert_eq!(error(&Answer::of(request).await), (400, code.to_owned()));
        }
        assert_eq!(server.database.records().await, before);
    }
    assert_eq!(server.database.count(DELETED).await, 0);
}

#[tokio::test]
async fn a_deletion_whose_record_is_not_saved_did_not_happen() {
    for kind in 0..2 {
        let server = TestServer::start().await;
        let (client, database) = (&server.client, &server.database);
        let path = &deletable(client).await[kind];
        let mut pause = PausePoint::at(Stage::Saving, database, "key-1").await;
        let deleting = tokio::spawn(deletion(client, path, "key-1").send());
        pause.is_reached().await;
        pause.break_the_paused().await;
        assert_eq!(deleting.await.unwrap().unwrap().status(), 503, "{path}");
        assert_eq!(database.count(DELETED).await, 0, "{path}");
        assert_eq!(database.count(RECORD).await, 0, "{path}");
        pause.release().await;
        // The ended session may hold the key for a moment.
        let retry = definite(|| delete(client, path, "key-1")).await;
        assert_eq!((retry.status.as_u16(), retry.is_replay()), (200, false));
        assert_eq!(database.count(DELETED).await, 1, "{path}");
        assert_eq!(database.count(RECORD).await, 1, "{path}");
        every_connection_is_clean(database).await;
    }
}

#[tokio::test]
async fn a_deletion_that_is_not_committed_has_no_record() {
    let server = TestServer::start().await;
    let (client, database) = (&server.client, &server.database);
    let refuse = "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
                  $$ BEGIN RAISE EXCEPTION 'refused' USING ERRCODE = '23514'; END $$;";
    database.execute(refuse).await;
    for path in deletable(client).await {
        let table = path.split('/').nth(1).unwrap();
        let refuse = format!(
            "CREATE CONSTRAINT TRIGGER refuse AFTER UPDATE ON {table}
                 DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()"
        );
        database.execute(refuse).await;
        let before = database.records().await;
        assert_eq!(delete(client, &path, &path).await.status, 503, "{path}");
        assert_eq!(database.records().await, before, "{path}");
        database
            .execute(format!("DROP TRIGGER refuse ON {table}"))
            .await;
        let retry = definite(|| delete(client, &path, &path)).await;
        assert_eq!((retry.status.as_u16(), retry.is_replay()), (200, false));
    }
    assert_eq!(database.count(DELETED).await, 2);
}

#[tokio::test]
async fn a_deletion_whose_reply_is_lost_is_replayed() {
    let (server, client) = TestServer::with_client(&[FAULTS]).await;
    for path in deletable(&client).await {
        let lost = deletion(&client, &path, &path).header("fault", "reply_lost");
        assert!(client.reply_or_none(lost).await.is_none(), "{path}");
        let replay = delete(&client, &path, &path).await;
        assert_eq!((replay.status.as_u16(), replay.is_replay()), (200, true));
    }
    assert_eq!(server.database.count(DELETED).await, 2);
    // Without a key, the header is an unknown one.
    for path in deletable(&client).await {
        let request = client.request(Method::DELETE, &path).header("fault", "503");
        assert_eq!(Answer::of(request).await.status, 200, "{path}");
    }
}

#[tokio::test]
async fn look_ups_and_events_name_the_key_of_a_deletion() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let id = customer(&client).await;
    let path = format!("/customers/{id}");
    let request = deletion(&client, &path, "key-1").header("idempotency-workflow", "cleanup");
    let deleted = Answer::of(request.header("prefer", "wait=7")).await;
    assert_eq!(deleted.header("preference-applied"), Some("wait=7"));
    let known = client.get("/idempotency-keys/key-1").await.json();
    known.assert_shows(json!({
        "method": "DELETE", "path": path, "resource": id, "response_status": 200,
        "workflow": "cleanup",
    }));
    assert_eq!(
        client.get("/workflows/cleanup").await.json()["data"][0],
        known
    );
    let events = client.get("/events?type=customer.deleted").await.json();
    events["data"][0].assert_shows(json!({
        "request": {"id": deleted.header("request-id"), "idempotency_key": "key-1"},
    }));
}

#[tokio::test]
async fn a_deletion_without_a_key_gets_none_where_keys_are_assigned() {
    let (server, client) = TestServer::with_client(&[("KEYS", "assign")]).await;
    for path in deletable(&client).await {
        let before = server.database.records().await;
        let request = client
            .request(Method::DELETE, &path)
            .header("prefer", "wait=7");
        let deleted = Answer::of(request).await;
        assert_eq!(deleted.status, 200, "{path}");
        let of_keys = "idempotency-key original-request idempotency-expires preference-applied";
        for header in of_keys.split(' ') {
            assert_eq!(deleted.header(header), None, "{path} {header}");
        }
        assert_eq!(server.database.records().await, before, "{path}");
    }
}
