//! How requests are read: credentials, media types, card numbers.

use crate::support::{prelude::*, records::assert_nothing_stored, wire::param};

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
    assert_eq!(
        error(&Answer::of(bare()).await),
        (401, "api_key_missing".into())
    );
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
        bare()
            .header("authorization", format!("Bearer {API_KEY}"))
            .header("authorization", format!("Bearer {API_KEY}")),
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
    for (method, path, header) in [
        (Method::POST, "/v1/charges", "stripe-account"),
        (Method::GET, "/charges", "stripe-account"),
        (Method::POST, "/v1/charges", "stripe-context"),
        (Method::GET, "/charges", "stripe-context"),
    ] {
        let request = server
            .client
            .request(method, path)
            .header("idempotency-key", "key-1")
            .header(header, "acct_1");
        let answer = Answer::of(request.json(&charge())).await;
        assert_eq!(answer.status, 400, "{path} {header}");
    }
    assert_nothing_stored(&server.database, "it was refused").await;
}

#[tokio::test]
async fn other_media_types_charsets_and_content_encodings_are_415() {
    let server = TestServer::start().await;
    let form = "amount=2000&currency=usd";
    let json = charge().to_string();
    let send = async |key: &str, headers: &[(&str, &str)], body: &str| {
        let mut request = server
            .client
            .request(Method::POST, "/charges")
            .header("idempotency-key", key);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        Answer::of(request.body(body.to_owned())).await
    };
    let kind = "content-type";
    let accepted: &[(&[(&str, &str)], &str)] = &[
        (&[(kind, JSON)], &json),
        (&[(kind, "application/json;charset=UTF-8")], &json),
        (&[(kind, "application/json; charset=\"utf-8\"")], &json),
        (&[(kind, "application/json; charset=UTF8")], &json),
        (&[(kind, "application/json; charset=\"utf8\"")], &json),
        (&[(kind, FORM)], form),
        (
            &[(kind, "application/x-www-form-urlencoded; charset=utf-8")],
            form,
        ),
        (&[(kind, JSON), ("content-encoding", "identity")], &json),
    ];
    for (index, (headers, body)) in accepted.iter().enumerate() {
        let answer = send(&format!("key-{index}"), headers, body).await;
        assert_eq!(answer.status, 201, "{headers:?}");
    }
    let refused: &[(&[(&str, &str)], &str)] = &[
        (&[], &json),
        (&[(kind, "text/plain")], &json),
        (&[(kind, "multipart/form-data; boundary=x")], form),
        (&[(kind, "application/json; charset=latin1")], &json),
        (&[(kind, "application/json; charset=utf-16")], &json),
        (
            &[(
                kind,
                "application/x-www-form-urlencoded; charset=iso-8859-1",
            )],
            form,
        ),
        (&[(kind, "nonsense")], &json),
        (&[(kind, "")], &json),
        (&[(kind, JSON), (kind, JSON)], &json),
        (&[(kind, JSON), (kind, FORM)], &json),
        (&[(kind, JSON), ("content-encoding", "gzip")], &json),
        (
            &[
                (kind, JSON),
                ("content-encoding", "identity"),
                ("content-encoding", "br"),
            ],
            &json,
        ),
    ];
    for (headers, body) in refused {
        let answer = send("key-refused", headers, body).await;
        assert_eq!(
            error(&answer),
            (415, "unsupported_media_type".into()),
            "{headers:?}"
        );
    }
    assert_eq!(server.database.records().await, accepted.len() as i64);
}

#[tokio::test]
async fn a_card_number_anywhere_is_refused_before_anything_is_stored() {
    const CARD: &str = "4242424242424242";
    let server = TestServer::start().await;
    let client = &server.client;
    let with = |name: &str, value: Value| {
        let mut body = charge();
        body[name] = value;
        body.to_string()
    };
    let bodies = [
        (
            JSON,
            with("description", "4242 4242 4242 4242, please".into()),
            "description",
        ),
        (
            JSON,
            with("description", "4242-4242-4242-4242".into()),
            "description",
        ),
        (
            JSON,
            with(
                "description",
                "4242\u{a0}4242\u{2007}4242\u{202f}4242 12/30".into(),
            ),
            "description",
        ),
        (
            JSON,
            with("metadata", json!({"card": "\u{ff14}242.4242.4242.4242"})),
            "metadata[card]",
        ),
        (
            FORM,
            "amount=1&currency=usd&customer=4242%E2%80%894242%E2%80%894242%E2%80%894242".to_owned(),
            "customer",
        ),
        (JSON, with("customer", CARD.into()), "customer"),
        (JSON, with("source", CARD.into()), "source"),
        (
            JSON,
            with("metadata", json!({"card": CARD})),
            "metadata[card]",
        ),
        (JSON, with("metadata", json!({CARD: "x"})), "metadata"),
        (
            JSON,
            with("amount", json!(4_242_424_242_424_242_i64)),
            "amount",
        ),
        (
            JSON,
            with(
                "source",
                json!({"object": "card", "number": "4111111111111111"}),
            ),
            "source[number]",
        ),
        (
            JSON,
            with(
                "source",
                json!({"number": "4242424242424242", "cvc": "4242424242424242"}),
            ),
            "source[cvc]",
        ),
        (JSON, format!("{{\"a\": \"{CARD}\""), ""),
        (JSON, format!("not json {CARD}"), ""),
        (
            FORM,
            format!("amount=1&currency=usd&description={CARD}"),
            "description",
        ),
        (
            FORM,
            "amount=1&currency=usd&source[number]=4111111111111111".to_owned(),
            "source[number]",
        ),
        (FORM, format!("amount=1&amount=2&description={CARD}"), ""),
    ];
    for (media_type, body, field) in &bodies {
        let answer = client
            .post_raw("/charges", "key-1", media_type, body.as_bytes())
            .await;
        assert_eq!(
            error(&answer),
            (400, "card_number_forbidden".into()),
            "{body}"
        );
        assert_eq!(
            param(&answer).as_str().unwrap_or_default(),
            *field,
            "{body}"
        );
        assert!(
            !String::from_utf8_lossy(&answer.body).contains("4242"),
            "echoed: {body}"
        );
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
    for key in [
        "4222222222222",
        "4006380000094",
        "20261121-0042",
        "1795000000000000001",
        "42-42-42-42-42-42-42-42",
        "0.4242424242424242",
    ] {
        assert_eq!(server.client.charge(key).await.status, 201, "{key}");
    }
    for key in [
        "4242424242424242",
        "4242.4242.4242.4242",
        "a-4242424242424242-1",
    ] {
        let answer = server.client.charge(key).await;
        assert_eq!(
            error(&answer),
            (400, "card_number_forbidden".into()),
            "{key}"
        );
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
        let mut body = charge();
        body["source"] =
            json!({"object": "card", "number": number, "exp_month": 12, "exp_year": 2030});
        let answer = server.client.post_new("/charges", &body).await;
        assert_eq!(answer.status, 201, "{number}: {answer:?}");
        assert_eq!(answer.json()["source"]["last4"], "4242", "{number}");
    }
}

#[tokio::test]
async fn messages_never_echo_values() {
    const SECRET: &str = "hunter2";
    let server = TestServer::start().await;
    let mut answers = vec![
        server
            .client
            .post_raw("/charges", "raw", JSON, format!("{{{SECRET}").as_bytes())
            .await,
        server
            .client
            .post_raw("/charges", SECRET, "text/hunter2", b"x")
            .await,
        server.client.get(&format!("/charges/{SECRET}")).await,
        server.client.get(&format!("/{SECRET}")).await,
        server.client.get(&format!("/charges?limit={SECRET}")).await,
        server
            .client
            .get(&format!("/charges?starting_after={SECRET}"))
            .await,
        server.client.with_api_key(SECRET).get("/charges").await,
    ];
    for name in [
        "amount",
        "currency",
        "source",
        "capture",
        "receipt_email",
        "metadata",
        "unknown",
    ] {
        let mut body = charge();
        body[name] = SECRET.into();
        answers.push(server.client.post("/charges", name, &body).await);
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
    for (path, status, code) in [
        (long.as_str(), 404, "route_not_found"),
        ("/charges/%00", 404, "route_not_found"),
        ("/v1/charges/a%00b/capture", 404, "route_not_found"),
        ("/orders/%00/pay", 404, "route_not_found"),
        ("/charges/%ff", 404, "route_not_found"),
        ("/charges/4242424242424242", 400, "card_number_forbidden"),
        ("/charges/%2F4242424242424242", 400, "card_number_forbidden"),
        ("/charges/%254242424242424242", 400, "card_number_forbidden"),
        (
            "/v1/charges/4242%2D4242%2d4242-4242/capture",
            400,
            "card_number_forbidden",
        ),
        (
            "/v1/charges/4242%C2%A04242%E2%80%AF4242%204242/capture",
            400,
            "card_number_forbidden",
        ),
        (
            "/charges/%EF%BC%94242424242424242",
            400,
            "card_number_forbidden",
        ),
    ] {
        let refused = server.client.post_new(path, &serde_json::json!({})).await;
        assert_eq!(
            (refused.status.as_u16(), refused.code().as_str()),
            (status, code),
            "{path}"
        );
    }
    assert_eq!(server.database.records().await, 0);
}
