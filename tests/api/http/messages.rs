//! What error messages say: the parameter and the nearest route, and no value that was sent.

use crate::support::prelude::*;

fn message(answer: &Answer) -> String {
    let message = answer.json()["error"]["message"].take();
    message.as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_message_names_the_parameter_and_not_its_value() {
    let server = TestServer::start().await;
    let with = |name: &str, value: Value| {
        let mut body = json!({"amount": 2000, "currency": "usd", "capture": true});
        body[name] = value;
        body
    };
    let cases = [
        (
            with("shopping", json!("secret-value")),
            "Unknown parameter: shopping.",
        ),
        (
            with("descripton", json!("secret-value")),
            "Unknown parameter: descripton. Did you mean description?",
        ),
        (
            with("amount", json!("secret-value")),
            "Invalid parameter: amount. Must be an integer from 1 to 99999999, in minor units.",
        ),
        (
            with("amount", json!(-5)),
            "Invalid parameter: amount. Must be an integer from 1 to 99999999, in minor units.",
        ),
        (with("amount", json!(null)), "Missing parameter: amount."),
        (
            with("metadata", json!({"a": ["secret-value"]})),
            "Invalid parameter: metadata[a]. Values are strings.",
        ),
        (
            with("secret-välue", json!(1)),
            "This endpoint has no such parameter.",
        ),
    ];
    for (index, (body, expected)) in cases.iter().enumerate() {
        let key = format!("key-{index}");
        let answer = server.client.post("/charges", &key, body).await;
        assert_eq!(answer.status, 400, "{body}");
        let message = message(&answer);
        assert!(message.starts_with(expected), "{message}");
        assert!(!message.contains("secret"), "{message}");
    }
    for (query, expected) in [
        (
            "limit=secret-value",
            "limit. Must be an integer from 1 to 100.",
        ),
        ("limit=-5", "limit. Must be an integer from 1 to 100."),
        (
            "starting_after=secret-value",
            "starting_after. Must be an id of the kind that is listed.",
        ),
        (
            "ending_before=or_00000000000000000000000000",
            "ending_before. Must be an id of the kind that is listed.",
        ),
    ] {
        let listed = server.client.get(&format!("/charges?{query}")).await;
        assert_eq!(message(&listed), format!("Invalid parameter: {expected}"));
    }
    let form = "amount=-5&currency=usd";
    let negative = server
        .client
        .post_raw("/charges", "key-form", FORM, form.as_bytes());
    assert!(message(&negative.await).starts_with(cases[2].1));
    for path in ["/charges", "/v1/charges"] {
        let reused = server.client.post(path, "key-0", &json!({})).await;
        assert_eq!(reused.code(), "idempotency_key_reused");
        assert!(!message(&reused).contains("/v1"), "{}", message(&reused));
    }
    let unknown = server.client.get("/charges?page=secret-value").await;
    assert_eq!(message(&unknown), "Unknown parameter: page.");
}

#[tokio::test]
async fn a_path_without_a_route_is_answered_with_the_nearest_one() {
    let server = TestServer::start().await;
    for (path, route) in [
        ("/charge", "GET, POST /charges."),
        ("/v1/charge", "GET, POST /charges."),
        ("/orders/or_1/payments", "POST /orders/{id}/pay."),
        ("/idempotency_keys/secret", "GET /idempotency-keys/{key}."),
    ] {
        let answer = Answer::of(server.client.bare(Method::POST, path)).await;
        assert_eq!(
            (answer.status.as_u16(), answer.code().as_str()),
            (404, "route_not_found")
        );
        let message = message(&answer);
        assert!(
            message.ends_with(&format!("The nearest route is {route}")),
            "{message}"
        );
        assert!(!message.contains("secret"), "{message}");
    }
    let nowhere = Answer::of(server.client.bare(Method::GET, "/wp-login.php")).await;
    assert!(message(&nowhere).ends_with("GET / lists where to begin."));
}

#[tokio::test]
async fn a_word_in_the_place_of_an_id_is_no_id() {
    let server = TestServer::start().await;
    for (path, prefix) in [
        ("/charges/find", "ch_"),
        ("/v1/orders/search", "or_"),
        ("/refunds/search", "re_"),
        ("/checkouts/search", "co_"),
        ("/setup_intents/search", "seti_"),
        ("/events/search", "evt_"),
        ("/payment_methods/search", "pm_"),
        ("/webhook_endpoints/search", "we_"),
    ] {
        let answer = server.client.get(path).await;
        assert_eq!(
            (answer.status.as_u16(), answer.code().as_str()),
            (404, "resource_missing")
        );
        let expected = format!("An id here is {prefix} and 26 characters.");
        assert!(
            message(&answer).ends_with(&expected),
            "{path}: {}",
            message(&answer)
        );
    }
}
