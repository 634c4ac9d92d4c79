//! Reading a workflow: its pages, its names and its URLs.

use crate::support::{
    prelude::*,
    workflows::{charge_in, completed, expected, page, post, sending},
};

#[tokio::test]
async fn pages_lead_through_a_workflow_from_its_oldest_request_to_those_in_flight() {
    let (server, client) = TestServer::with_client(PATIENT).await;
    for key in ["key-5", "key-4", "key-3"] {
        charge_in(&client, "checkout-1", key).await;
    }
    let mut pause = PausePoint::at(Stage::Executing, &server.database, "slow%").await;
    let slow_2 = sending(&client, "checkout-1", "slow-2");
    pause.is_reached_by(1).await;
    let slow_1 = sending(&client, "checkout-1", "slow-1");
    pause.is_reached_by(2).await;

    let all = expected(&[
        ("key-5", "completed"),
        ("key-4", "completed"),
        ("key-3", "completed"),
        ("slow-2", "in_flight"),
        ("slow-1", "in_flight"),
    ]);
    let path = "/workflows/checkout-1";
    assert_eq!(page(&client, path).await, (all.clone(), false));
    for limit in 1..=5 {
        let (mut walked, mut query) = (Vec::new(), format!("?limit={limit}"));
        loop {
            let (keys, has_more) = page(&client, &format!("{path}{query}")).await;
            assert!(keys.len() <= limit && !keys.is_empty());
            walked.extend(keys);
            if !has_more {
                break;
            }
            let (last, _) = walked.last().unwrap();
            query = format!("?limit={limit}&starting_after={last}");
        }
        assert_eq!(walked, all, "pages of {limit}");
    }
    let after = |key: &str| format!("{path}?starting_after={key}");
    assert_eq!(page(&client, &after("slow-1")).await, (vec![], false));
    pause.release().await;
    slow_1.await.unwrap();
    slow_2.await.unwrap();
    let order = ["key-5", "key-4", "key-3", "slow-2", "slow-1"];
    assert_eq!(completed(&client, "checkout-1").await, order);
    assert_eq!(page(&client, &after("slow-1")).await, (vec![], false));
}

#[tokio::test]
async fn no_outcome_is_missed_between_a_page_and_those_in_flight_after_it() {
    let (server, client) = TestServer::with_client(PATIENT).await;
    charge_in(&client, "checkout-1", "before").await;
    let mut pause = PausePoint::at(Stage::Executing, &server.database, "slow%").await;
    let slow_1 = sending(&client, "checkout-1", "slow-1");
    pause.is_reached_by(1).await;
    let slow_2 = sending(&client, "checkout-1", "slow-2");
    pause.is_reached_by(2).await;

    // There is room for one of them: from that one the next page would lead past the outcome that
    // comes in between.
    let path = "/workflows/checkout-1?limit=2";
    let before = expected(&[("before", "completed")]);
    assert_eq!(page(&client, path).await, (before, true));
    charge_in(&client, "checkout-1", "between").await;
    let next = page(&client, &format!("{path}&starting_after=before")).await;
    let between = expected(&[("between", "completed")]);
    assert_eq!(next, (between, true));
    let last = page(&client, &format!("{path}&starting_after=between")).await;
    let slow = expected(&[("slow-1", "in_flight"), ("slow-2", "in_flight")]);
    assert_eq!(last, (slow, false));
    pause.release().await;
    slow_1.await.unwrap();
    slow_2.await.unwrap();
    let order = ["before", "slow-1", "slow-2", "between"];
    assert_eq!(completed(&client, "checkout-1").await, order);
}

#[tokio::test]
async fn what_is_first_used_in_one_moment_is_listed_by_key() {
    let (server, client) = TestServer::with_client(&[]).await;
    for key in ["b", "a", "B", "A"] {
        charge_in(&client, "checkout-1", key).await;
    }
    let sql = "UPDATE idempotency_keys SET created_at = date_trunc('day', created_at)";
    server.database.execute(sql).await;
    assert_eq!(completed(&client, "checkout-1").await, ["A", "B", "a", "b"]);
    let after = page(&client, "/workflows/checkout-1?starting_after=B&limit=1").await;
    assert_eq!(after, (expected(&[("a", "completed")]), true));
}

#[tokio::test]
async fn any_name_is_found_by_query_and_by_path_and_its_url_leads_there() {
    let (_server, client) = TestServer::with_client(&[]).await;
    for name in [
        "a/b", "what?", "100%", "%41", "a+b", "a&name=b", "#1", "~", "a;b", "..", "[0]",
    ] {
        charge_in(&client, name, name).await;
        let encoded: String = name.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let mut paths = vec![format!("/workflows?name={encoded}")];
        if name != ".." {
            paths.push(format!("/workflows/{encoded}"));
            let url = client.get(&paths[0]).await.json()["url"].clone();
            paths.push(url.as_str().unwrap().to_owned());
        }
        for path in paths {
            let (keys, _) = page(&client, &path).await;
            assert_eq!(keys, expected(&[(name, "completed")]), "{path}");
        }
    }
    let encoded = client.get("/workflows?name=a%2Fb%7E1").await.json();
    assert_eq!(encoded["url"], "/workflows/a%2Fb~1");
}

#[tokio::test]
async fn under_v1_the_same_workflow_has_its_url_there() {
    let (_server, client) = TestServer::with_client(&[]).await;
    charge_in(&client, "checkout-1", "key-1").await;
    post(&client, "checkout-1", "/v1/charges", "key-2", &charge()).await;
    for (path, url) in [
        ("/v1/workflows/checkout-1", "/v1/workflows/checkout-1"),
        ("/v1/workflows?name=checkout-1", "/v1/workflows/checkout-1"),
        ("/workflows?name=checkout-1", "/workflows/checkout-1"),
    ] {
        let list = client.get(path).await.json();
        assert_eq!(list["url"], url);
        assert_eq!(list["data"][1]["path"], "/v1/charges");
    }
}

#[tokio::test]
async fn a_workflow_that_nobody_knows_is_an_empty_list() {
    let server = TestServer::start().await;
    let list = server.client.get("/workflows/checkout-1").await;
    let empty = json!({
        "object": "list", "data": [], "has_more": false, "url": "/workflows/checkout-1",
    });
    assert_eq!((list.status.as_u16(), list.json()), (200, empty));
}

#[tokio::test]
async fn wrong_questions_about_a_workflow_are_refused_with_the_parameter() {
    let (_server, client) = TestServer::with_client(&[]).await;
    charge_in(&client, "checkout-1", "key-1").await;
    charge_in(&client, "checkout-2", "key-2").await;
    let too_long = "n".repeat(256);
    let long_query = format!("/workflows?name={too_long}");
    let long_path = format!("/workflows/{too_long}");
    let assert_refused = async |path: &str, code: &str, param: &str| {
        let answer = client.get(path).await;
        assert_eq!(answer.refusal(), refusal(code, param), "{path}");
    };
    for path in ["/workflows", "/workflows?name="] {
        assert_refused(path, "parameter_missing", "name").await;
    }
    for path in [
        "/workflows?name=a%20b",
        "/workflows/a%20b",
        &long_query,
        &long_path,
    ] {
        assert_refused(path, "parameter_invalid", "name").await;
    }
    for (query, code, param) in [
        ("name=a", "parameter_unknown", "name"),
        ("limit=0", "parameter_invalid", "limit"),
        ("limit=101", "parameter_invalid", "limit"),
        ("ending_before=key-1", "parameter_unknown", "ending_before"),
    ] {
        let path = format!("/workflows/checkout-1?{query}");
        assert_refused(&path, code, param).await;
    }
    for path in [
        "/workflows/checkout-1?starting_after=key-2",
        "/workflows?name=checkout-1&starting_after=a%20b",
    ] {
        assert_refused(path, "parameter_invalid", "starting_after").await;
    }
    for path in [
        "/workflows/4242424242424242",
        "/workflows?name=4242424242424242",
    ] {
        let answer = client.get(path).await;
        assert_eq!(answer.code(), "card_number_forbidden", "{path}");
    }
}
