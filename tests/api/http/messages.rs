//! What error messages say: the parameter and the nearest route, and no value that was sent.

use crate::support::{prelude::*, shorthand::message};

#[tokio::test]
async fn a_message_names_the_parameter_and_not_its_value() {
    let server = TestServer::start().await;
    let with = |name: &str, value: Value| {
        let mut body = json!({"amount": 2000, "currency": "usd", "capture": true});
        body[name] = value;
        body
    };
    let secret = json!("secret-value");
    let no_amount =
        "Invalid parameter: amount. Must be an integer from 1 to 99999999, in minor units.";
    let misspelled = "Unknown parameter: descripton. Did you mean description?";
    let nested = json!({"a": [secret]});
    let no_text = "Invalid parameter: metadata[a]. Values are strings.";
    let unspeakable = "This endpoint has no such parameter.";
    for (index, (name, value, expected)) in [
        ("shopping", secret.clone(), "Unknown parameter: shopping."),
        ("descripton", secret.clone(), misspelled),
        ("amount", secret, no_amount),
        ("amount", json!(-5), no_amount),
        ("amount", Value::Null, "Missing parameter: amount."),
        ("metadata", nested, no_text),
        ("secret-välue", json!(1), unspeakable),
    ]
    .into_iter()
    .enumerate()
    {
        let (key, body) = (format!("key-{index}"), &with(name, value));
        let answer = server.client.post("/charges", &key, body).await;
        assert_eq!(answer.status, 400, "{body}");
        let message = message(&answer);
        assert!(message.starts_with(expected), "{message}");
        assert!(!message.contains("secret"), "{message}");
    }
    let (number, id) = (
        "an integer from 1 to 100",
        "an id of the kind that is listed",
    );
    for (name, value, expected) in [
        ("limit", "secret-value", number),
        ("limit", "-5", number),
        ("starting_after", "secret-value", id),
        ("ending_before", "or_00000000000000000000000000", id),
    ] {
        let listed = server.client.get(&format!("/charges?{name}={value}")).await;
        let expected = format!("Invalid parameter: {name}. Must be {expected}.");
        assert_eq!(message(&listed), expected);
    }
    let form = "amount=-5&currency=usd";
    let client = &server.client;
    let negative = client.post_raw("/charges", "key-form", FORM, form.as_bytes());
    assert!(message(&negative.await).starts_with(no_amount));
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
        assert_eq!(error(&answer), (404, "route_not_found".into()));
        let message = message(&answer);
        let nearest = format!("The nearest route is {route}");
        assert!(message.ends_with(&nearest), "{message}");
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
        ("/orders/search", "or_"),
        ("/refunds/search", "re_"),
        ("/checkouts/search", "co_"),
        ("/setup_intents/search", "seti_"),
        ("/events/search", "evt_"),
        ("/payment_methods/search", "pm_"),
        ("/webhook_endpoints/search", "we_"),
    ] {
        let answer = server.client.get(path).await;
        assert_eq!(error(&answer), (404, "resource_missing".into()));
        let (expected, told) = (
            format!("An id here is {prefix} and 26 characters."),
            message(&answer),
        );
        assert!(told.ends_with(&expected), "{path}: {told}");
    }
}
