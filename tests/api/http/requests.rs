//! How requests are read: credentials, media types, card numbers.

use crate::support::{
    prelude::*, records::assert_nothing_stored, resources::charge_with, wire::param,
};

#[tokio::test]
async fn bearer_and_basic_with_an_empty_password_authenticate() {
    let server = TestServer::start().await;
    let bare = || server.client.bare(Method::GET, "/charges");
    let accepted = [
        bare().bearer_auth(API_KEY),
        bare().header("authorization", format!("bearer {API_KEY}")),
        bare().basic_auth(API_KEY, Some("")),
        bare().basic_auth(API_KEY, None::<&str>),
    ];
    for request in accepted {
        assert_eq!(Answer::of(request).await.status, 200);
    }
    let missing = Answer::of(bare()).await;
    assert_eq!(error(&missing), (401, "api_key_missing".into()));
    let refused = [
        bare().bearer_auth("sk_test_nobody_at_all"),
        bare().bearer_auth(""),
        bare().basic_auth(API_KEY, Some("secret")),
        bare().basic_auth("", Some(API_KEY)),
        bare().header("authorization", API_KEY),
        bare().header("authorization", format!("Digest {API_KEY}")),
        bare().header("authorization", "Basic !!!"),
        bare().header("authorization", &b"Bearer \xff"[..]),
        bare().bearer_auth("k".repeat(5_000)),
        bare().bearer_auth(API_KEY).bearer_auth(API_KEY),
    ];
    for request in refused {
        let answer = Answer::of(request).await;
        assert_eq!(error(&answer), (401, "api_key_invalid".into()));
        assert!(answer.header("www-authenticate").is_some());
    }
}

#[tokio::test]
async fn a_header_of_another_account_is_refused_because_ignoring_it_would_charge_the_wrong_one() {
    let server = TestServer::start().await;
    for header in ["stripe-account", "stripe-context"] {
        for (method, path) in [(Method::POST, "/v1/charges"), (Method::GET, "/charges")] {
            let request = server.client.request(method, path).header(header, "acct_1");
            let request = request.header("idempotency-key", "key-1");
            let answer = Answer::of(request.json(&charge())).await;
            assert_eq!(answer.status, 400, "{path} {header}");
        }
    }
    assert_nothing_stored(&server.database, "it was refused").await;

    let own = server.client.get("/v1/account").await.id();
    for header in ["stripe-account", "stripe-context"] {
        let asking = server.client.request(Method::GET, "/v1/charges");
        assert_eq!(Answer::of(asking.header(header, &own)).await.status, 200);
        let twice = server
            .client
            .request(Method::GET, "/v1/charges")
            .header(header, &own);
        let refused = Answer::of(twice.header(header, "acct_1")).await;
        assert_eq!(refused.status, 400, "{header}");
    }
}

#[tokio::test]
async fn other_media_types_charsets_and_content_encodings_are_415() {
    let server = TestServer::start().await;
    let form = "amount=2000&currency=usd";
    let json = charge().to_string();
    let send = async |key: &str, headers: &[(&str, &str)], body: &str| {
        let request = server.client.request(Method::POST, "/charges");
        let mut request = request.header("idempotency-key", key);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        Answer::of(request.body(body.to_owned())).await
    };
    let accepted = [
        JSON,
        "application/json;charset=UTF-8",
        "application/json; charset=\"utf-8\"",
        "application/json; charset=UTF8",
        "application/json; charset=\"utf8\"",
        FORM,
        "application/x-www-form-urlencoded; charset=utf-8",
    ];
    let body_of = |kind: &str| if kind.contains("form") { form } else { &json };
    for (number, kind) in accepted.iter().enumerate() {
        let key = format!("key-{number}");
        let answer = send(&key, &[("content-type", kind)], body_of(kind)).await;
        assert_eq!(answer.status, 201, "{kind}");
    }
    let (json_type, encoding) = (("content-type", JSON), "content-encoding");
    let identity = (encoding, "identity");
    let plain = send("identity", &[json_type, identity], &json).await;
    assert_eq!(plain.status, 201);
    let is_refused = async |headers: &[(&str, &str)], body: &str| {
        let answer = send("key-refused", headers, body).await;
        let expected = (415, "unsupported_media_type".into());
        assert_eq!(error(&answer), expected, "{headers:?}");
    };
    for kind in [
        "text/plain",
        "multipart/form-data; boundary=x",
        "application/json; charset=latin1",
        "application/json; charset=utf-16",
        "application/x-www-form-urlencoded; charset=iso-8859-1",
        "nonsense",
        "",
    ] {
        is_refused(&[("content-type", kind)], body_of(kind)).await;
    }
    is_refused(&[], &json).await;
    for more in [json_type, ("content-type", FORM), (encoding, "gzip")] {
        is_refused(&[json_type, more], &json).await;
    }
    is_refused(&[json_type, identity, (encoding, "br")], &json).await;
    assert_eq!(server.database.records().await, accepted.len() as i64 + 1);
}

#[tokio::test]
async fn a_card_number_anywhere_is_refused_before_anything_is_stored() {
    const CARD: &str = "4242424242424242";
    let (server, client) = TestServer::with_client(&[]).await;
    let with = |name: &str, value: Value| {
        let mut body = charge();
        body[name] = value;
        body.to_string()
    };
    let is_forbidden = async |media_type: &str, body: String, field: &str| {
        let answer = client.post_raw("/charges", "key-1", media_type, body.as_bytes());
        let answer = answer.await;
        let forbidden = (400, "card_number_forbidden".into());
        assert_eq!(error(&answer), forbidden, "{body}");
        let param = param(&answer);
        assert_eq!(param.as_str().unwrap_or_default(), field, "{body}");
        let told = String::from_utf8_lossy(&answer.body);
        assert!(!told.contains("4242"), "echoed: {body}");
    };
    let in_words = "4242 4242 4242 4242, please";
    let spaced = "4242\u{a0}4242\u{2007}4242\u{202f}4242 12/30";
    let dotted = "\u{ff14}242.4242.4242.4242";
    let number = json!({"object": "card", "number": "4111111111111111"});
    let code = json!({"number": CARD, "cvc": CARD});
    for (name, value, field) in [
        ("description", json!(in_words), "description"),
        ("description", json!("4242-4242-4242-4242"), "description"),
        ("description", json!(spaced), "description"),
        ("metadata", json!({"card": dotted}), "metadata[card]"),
        ("customer", json!(CARD), "customer"),
        ("source", json!(CARD), "source"),
        ("metadata", json!({"card": CARD}), "metadata[card]"),
        ("metadata", json!({CARD: "x"}), "metadata"),
        ("amount", json!(4_242_424_242_424_242_i64), "amount"),
        ("source", number, "source[number]"),
        ("source", code, "source[cvc]"),
    ] {
        is_forbidden(JSON, with(name, value), field).await;
    }
    for body in [format!("{{\"a\": \"{CARD}\""), format!("not json {CARD}")] {
        is_forbidden(JSON, body, "").await;
    }
    let real = "currency=usd&source[number]=4111111111111111";
    let coded = "customer=4242%E2%80%894242%E2%80%894242%E2%80%894242";
    for (params, field) in [
        (format!("currency=usd&{coded}"), "customer"),
        (format!("currency=usd&description={CARD}"), "description"),
        (real.to_owned(), "source[number]"),
        (format!("amount=2&description={CARD}"), ""),
    ] {
        is_forbidden(FORM, format!("amount=1&{params}"), field).await;
    }
    let query = format!("/charges?customer={CARD}");
    for answer in [
        client.post(&query, "key-1", &charge()).await,
        client.get(&query).await,
    ] {
        assert_eq!(error(&answer), (400, "card_number_forbidden".into()));
    }
    assert_nothing_stored(&server.database, "a card number was sent").await;
    assert_eq!(client.charge("key-1").await.status, 201);
}

/// As the keys of clients that count, and of those that use the numbers of their orders.
#[tokio::test]
async fn a_number_that_is_no_card_is_a_key() {
    let server = TestServer::start().await;
    let keys = "4222222222222 4006380000094 20261121-0042 1795000000000000001 \
                42-42-42-42-42-42-42-42 0.4242424242424242";
    for key in keys.split(' ') {
        assert_eq!(server.client.charge(key).await.status, 201, "{key}");
    }
    for key in [
        "4242424242424242",
        "4242.4242.4242.4242",
        "a-4242424242424242-1",
    ] {
        let refused = error(&server.client.charge(key).await);
        assert_eq!(refused, (400, "card_number_forbidden".into()), "{key}");
    }
}

/// Customers write their card's number in groups, and copy it from pages that keep them together.
#[tokio::test]
async fn a_test_card_is_charged_in_any_spelling() {
    let server = TestServer::start().await;
    for number in [
        "4242 4242 4242 4242",
        "4242-4242-4242-4242",
        "4242\u{a0}4242\u{a0}4242\u{a0}4242",
        "4242 424242424242",
        "\u{ff14}\u{ff12}42424242424242",
    ] {
        let card = json!({"object": "card", "number": number, "exp_month": 12, "exp_year": 2030});
        let answer = charge_with(&server.client, &[("source", card)]).await;
        assert_eq!(answer.status, 201, "{number}: {answer:?}");
        assert_eq!(answer.json()["source"]["last4"], "4242", "{number}");
    }
}

#[tokio::test]
async fn messages_never_echo_values() {
    const SECRET: &str = "hunter2";
    let (_server, client) = TestServer::with_client(&[]).await;
    let mut answers = vec![
        client.post_raw("/charges", "raw", JSON, b"{hunter2").await,
        client
            .post_raw("/charges", SECRET, "text/hunter2", b"x")
            .await,
        client.with_api_key(SECRET).get("/charges").await,
    ];
    for path in [
        "/charges/",
        "/",
        "/charges?limit=",
        "/charges?starting_after=",
    ] {
        answers.push(client.get(&format!("{path}{SECRET}")).await);
    }
    let names = "amount currency source capture receipt_email metadata unknown";
    for name in names.split(' ') {
        answers.push(charge_with(&client, &[(name, SECRET.into())]).await);
    }
    for answer in &answers {
        assert!(answer.status.is_client_error());
        let text = String::from_utf8_lossy(&answer.body);
        assert!(!text.contains(SECRET), "{text}");
    }
}

#[tokio::test]
async fn a_path_that_would_be_stored_is_bounded_and_holds_no_card_number() {
    let server = TestServer::start().await;
    let long = format!("/charges/{}", "x".repeat(1100));
    let spaced = "/v1/charges/4242%C2%A04242%E2%80%AF4242%204242/capture";
    let not_found = (404, "route_not_found".to_owned());
    let forbidden = (400, "card_number_forbidden".to_owned());
    for (path, expected) in [
        (&*long, &not_found),
        ("/charges/%00", &not_found),
        ("/v1/charges/a%00b/capture", &not_found),
        ("/orders/%00/pay", &not_found),
        ("/charges/%ff", &not_found),
        ("/charges/4242424242424242", &forbidden),
        ("/charges/%2F4242424242424242", &forbidden),
        ("/charges/%254242424242424242", &forbidden),
        ("/v1/charges/4242%2D4242%2d4242-4242/capture", &forbidden),
        (spaced, &forbidden),
        ("/charges/%EF%BC%94242424242424242", &forbidden),
    ] {
        let refused = server.client.post_new(path, &json!({})).await;
        assert_eq!(error(&refused), *expected, "{path}");
    }
    assert_eq!(server.database.records().await, 0);
}
