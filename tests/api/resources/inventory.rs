//! Levels of inventory: setting them, and many who take from them at once.

use crate::support::{prelude::*, records::assert_nothing_stored};

fn level(quantity: i64) -> Value {
    json!({"quantity": quantity})
}

/// A path that names `sku`, all of it percent-encoded.
fn path_of(sku: &str) -> String {
    let encoded: String = sku.bytes().map(|byte| format!("%{byte:02X}")).collect();
    format!("/inventory/{encoded}")
}

#[tokio::test]
async fn a_level_is_set_and_read_with_exactly_the_documented_members() {
    let server = TestServer::start().await;
    let now = "SELECT floor(extract(epoch FROM now()))::bigint";
    let before = server.database.count(now).await;
    for (key, quantity) in [("new", 40), ("changed", 0), ("highest", 1_000_000_000)] {
        let level = level(quantity);
        let set = server.client.put("/inventory/mug", key, &level).await;
        assert_eq!((set.status.as_u16(), set.is_replay()), (200, false));
        assert_eq!(set.header("location"), None);
        let mut object = set.json();
        let updated = object["updated"].take().as_i64().unwrap();
        assert!((before..before + 60).contains(&updated), "{updated}");
        let expected =
            json!({"object": "inventory", "quantity": quantity, "sku": "mug", "updated": null});
        assert_eq!(object, expected);
        for path in ["/inventory/mug", "/v1/inventory/mug"] {
            let answer = server.client.get(path).await;
            assert_eq!((answer.status.as_u16(), answer.json()), (200, set.json()));
        }
    }
    assert_eq!(server.database.count_of("inventory").await, 1);
    let key = server.client.get("/idempotency-keys/new").await.json();
    key.assert_shows(json!({"method": "PUT", "path": "/inventory/mug", "resource": "mug"}));
    // It is no event that a level was set.
    assert_eq!(server.database.count_of("events").await, 0);
}

#[tokio::test]
async fn a_late_retry_gets_its_answer_and_undoes_nothing() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let five = client.put("/inventory/mug", "key-1", &level(5)).await;
    client.put("/inventory/mug", "key-2", &level(7)).await;
    let late = client.put("/inventory/mug", "key-1", &level(5)).await;
    late.assert_replays(&five);
    assert_eq!(late.json()["quantity"], 5);
    assert_eq!(client.get("/inventory/mug").await.json()["quantity"], 7);
}

#[tokio::test]
async fn a_key_belongs_to_one_level_of_one_sku_in_one_encoding() {
    let (server, client) = TestServer::with_client(&[]).await;
    client.put("/inventory/mug", "key-1", &level(5)).await;
    for (path, quantity) in [("/inventory/mug", 6), ("/inventory/Mug", 5)] {
        for (path, status) in [(path, 422), (&format!("/v1{path}"), 400)] {
            let reused = client.put(path, "key-1", &level(quantity)).await;
            assert_eq!(error(&reused), (status, "idempotency_key_reused".into()));
        }
    }
    let form = b"quantity=5";
    let reused = client.send_raw(Method::PUT, "/inventory/mug", "key-1", FORM, form);
    let reused = reused.await;
    assert_eq!(error(&reused), (422, "idempotency_key_reused".into()));
    assert_eq!(server.database.count_of("inventory").await, 1);
}

#[tokio::test]
async fn without_a_key_nothing_is_set() {
    let server = TestServer::start().await;
    for path in ["/inventory/mug", "/v1/inventory/mug"] {
        let request = server.client.request(Method::PUT, path).json(&level(1));
        let refused = Answer::of(request).await;
        assert_eq!(error(&refused), (400, "idempotency_key_required".into()));
    }
    assert_nothing_stored(&server.database, "no key was sent").await;
    assert_eq!(server.database.count_of("inventory").await, 0);
}

#[tokio::test]
async fn a_quantity_is_0_to_1000000000_in_both_encodings() {
    let server = TestServer::start().await;
    // A body, and the code and the parameter of its refusal.
    let cases = r#"
        {"quantity":0}              -
        {"quantity":1000000000}     -
        {}                          parameter_missing quantity
        {"quantity":null}           parameter_missing quantity
        {"quantity":""}             parameter_missing quantity
        {"quantity":-1}             parameter_invalid quantity
        {"quantity":1000000001}     parameter_invalid quantity
        {"quantity":"1"}            parameter_invalid quantity
        {"quantity":true}           parameter_invalid quantity
        {"quantity":[1]}            parameter_invalid quantity
        {"quantity":1,"sku":"mug"}  parameter_unknown sku
        {"quantity":1,"expand":[]}  parameter_unknown expand
        quantity=0                     -
        quantity=1000000000            -
        quantity=                      parameter_missing quantity
        quantity=-1                    parameter_invalid quantity
        quantity=1000000001            parameter_invalid quantity
        quantity=99999999999999999999  parameter_invalid quantity
        quantity=01                    parameter_invalid quantity
        quantity=%2B1                  parameter_invalid quantity
        quantity=1.0                   parameter_invalid quantity
        quantity=1e3                   parameter_invalid quantity
        quantity[]=1                   parameter_invalid quantity
        quantity=1&amount=1            parameter_unknown amount"#;
    let cases = cases.lines().skip(1).map(|line| {
        let (body, told) = line.trim().split_once(' ').unwrap();
        let media_type = if body.starts_with('{') { JSON } else { FORM };
        (media_type, body, told.trim().split_once(' '))
    });
    let empty =
        [JSON, FORM].map(|media_type| (media_type, "", Some(("parameter_missing", "quantity"))));
    for (number, (media_type, body, refused)) in cases.chain(empty).enumerate() {
        let (key, body) = (format!("key-{number}"), body.as_bytes());
        let put = || {
            server
                .client
                .send_raw(Method::PUT, "/inventory/mug", &key, media_type, body)
        };
        let answer = put().await;
        let shown = String::from_utf8_lossy(body);
        match refused {
            None => assert_eq!(answer.status, 200, "{shown}"),
            Some((code, param)) => {
                assert_eq!(answer.refusal(), refusal(code, param), "{shown}");
            }
        }
        // A refusal is an outcome like any other.
        put().await.assert_replays(&answer);
    }
    for body in ["{\"quantity\":1.5}", "{\"quantity\":1e3}", "{"] {
        let key = Uuid::now_v7().to_string();
        let (client, bytes) = (&server.client, body.as_bytes());
        let put = client.send_raw(Method::PUT, "/inventory/mug", &key, JSON, bytes);
        let answer = put.await;
        assert_eq!(error(&answer), (400, "body_invalid".into()), "{body}");
    }
    let path = "/inventory/mug?quantity=3";
    let in_the_query = server.client.put(path, "query", &level(1)).await;
    assert_eq!(error(&in_the_query), (400, "parameter_unknown".into()));
}

#[tokio::test]
async fn a_sku_may_hold_any_character() {
    let (server, client) = TestServer::with_client(&[]).await;
    let longest = "\u{1f36f}".repeat(255);
    let skus = [
        "mug", "Mug", "a b", " ", "a/b", "/", "%", "100%", "%2F", "%41", "a+b", "+", "a?b", "#1",
        "a&b=c", "é", "e\u{301}", "茶碗", "\u{fffd}", "\u{202e}", "\n", "a\\b", "{sku}", ":", ";",
        "~", "'", "\"", "pay", &longest,
    ];
    for (number, sku) in skus.iter().enumerate() {
        let quantity = 100 + i64::try_from(number).unwrap();
        let key = format!("key-{number}");
        let set = client.put(&path_of(sku), &key, &level(quantity)).await;
        assert_eq!(set.status, 200, "{sku}: {set:?}");
        assert_eq!(set.json()["sku"], **sku);
    }
    // No two of them were taken for one.
    for (number, sku) in skus.iter().enumerate() {
        for prefix in ["", "/v1"] {
            let url = format!("{prefix}{}", path_of(sku));
            let found = client.get(&url).await.json();
            let quantity = 100 + i64::try_from(number).unwrap();
            found.assert_shows(json!({"sku": sku, "quantity": quantity}));
        }
    }
    let levels = server.database.count_of("inventory").await;
    assert_eq!(levels, skus.len() as i64);
    // Not every character has to be encoded.
    for path in ["/inventory/a+b", "/inventory/a%2bb", "/inventory/a%2Bb"] {
        assert_eq!(client.get(path).await.json()["sku"], "a+b");
    }
}

#[tokio::test]
async fn what_no_item_could_have_is_no_sku() {
    let (server, client) = TestServer::with_client(&[]).await;
    let too_long = path_of(&"é".repeat(256));
    let far_too_long = path_of(&"e".repeat(2000));
    let missing = refusal("resource_missing", "sku");
    let no_route = (404, "route_not_found".to_owned(), None);
    for (path, set, read) in [
        (too_long.as_str(), &missing, &missing),
        (&far_too_long, &no_route, &missing),
        ("/inventory/a%00b", &no_route, &missing),
        ("/inventory/%ff", &no_route, &missing),
        ("/inventory/a%c3", &no_route, &missing),
        ("/inventory/", &no_route, &no_route),
        ("/inventory/a/b", &no_route, &no_route),
    ] {
        let key = Uuid::now_v7().to_string();
        let answer = client.put(path, &key, &level(1)).await;
        assert_eq!(&answer.refusal(), set, "PUT {path}");
        assert_eq!(&client.get(path).await.refusal(), read, "GET {path}");
    }
    let card = "4242424242424242";
    for before in ["", "%2F", "%25", "x%20"] {
        let path = format!("/inventory/{before}{card}");
        let key = Uuid::now_v7().to_string();
        let answer = client.put(&path, &key, &level(1)).await;
        let expected = (400, "card_number_forbidden".into());
        assert_eq!(error(&answer), expected, "{path}");
    }
    assert_eq!(server.database.count_of("inventory").await, 0);
    // What looks like an encoding and is none stands for itself, and is decoded once.
    let head = "PUT /inventory/%%300 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nIdempotency-Key: k";
    let authorization = format!("Authorization: Bearer {}", crate::support::harness::API_KEY);
    let request = format!(
        "{head}\r\n{authorization}\r\nContent-Type: {FORM}\r\nContent-Length: 10\r\n\r\nquantity=1"
    );
    let reply = send_raw(&client, request.as_bytes()).await;
    assert!(reply.starts_with("HTTP/1.1 200 "), "{reply}");
    assert!(reply.contains(r#""sku":"%00""#), "{reply}");
}

/// Every tenth article number has the check digit of a card number too, and those of Germany begin
/// with 4, as cards do.
#[tokio::test]
async fn an_article_number_is_a_sku() {
    let server = TestServer::start().await;
    for sku in ["4006381333931", "4006380000094", "4000000000006"] {
        let path = format!("/inventory/{sku}");
        let key = Uuid::now_v7().to_string();
        let answer = server.client.put(&path, &key, &level(1)).await;
        assert_eq!(answer.status, 200, "{sku}: {answer:?}");
        let items = json!([{"sku": sku, "quantity": 1, "unit_amount": 1}]);
        let order = json!({"currency": "eur", "items": items});
        let ordered = server.client.post_new("/orders", &order).await;
        assert_eq!(ordered.status, 201, "{sku}: {ordered:?}");
    }
}

#[tokio::test]
async fn a_sku_that_was_never_set_and_another_accounts_are_the_same_404() {
    let server = TestServer::start().await;
    let other = client_of_account(&server, "other").await;
    let client = &server.client;
    client.put("/inventory/mug", "key-1", &level(5)).await;
    let theirs = other.get("/inventory/mug").await;
    let unknown = client.get("/v1/inventory/cup").await;
    let missing = refusal("resource_missing", "sku");
    assert_eq!(theirs.refusal(), missing);
    assert_eq!(theirs.body, unknown.body);
    // A sku is a level of its own in each account, and so is a key.
    other.put("/inventory/mug", "key-1", &level(9)).await;
    for (client, quantity) in [(client, 5), (&other, 9)] {
        let level = client.get("/inventory/mug").await.json();
        assert_eq!(level["quantity"], quantity);
    }
    let unknown_parameter = client.get("/inventory/mug?expand[]=x").await;
    assert_eq!(error(&unknown_parameter), (400, "parameter_unknown".into()));
}

#[tokio::test]
async fn a_level_answers_head_without_a_body() {
    let (_server, client) = TestServer::with_client(&[]).await;
    stock(&client, "mug", 5).await;
    let head = Answer::of(client.request(Method::HEAD, "/inventory/mug")).await;
    assert_eq!((head.status.as_u16(), head.body.len()), (200, 0));
}
