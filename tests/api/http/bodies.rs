//! Bodies of every kind, hostile ones first: decoded to one tree, or refused, never a 500.

use std::sync::atomic::{AtomicU32, Ordering};

use proptest::{collection::vec, prelude::*, test_runner::TestRunner};

use crate::support::{
    connection::{Connection, request},
    prelude::*,
    records::assert_nothing_stored,
    wire::param,
};

/// A JSON body, nested `depth` levels deep, the root being the first.
fn nested(depth: usize) -> Vec<u8> {
    format!(
        "{{\"a\":{}{}}}",
        "[".repeat(depth - 1),
        "]".repeat(depth - 1)
    )
    .into_bytes()
}

fn bodies() -> impl Strategy<Value = Vec<u8>> {
    let soup = "[\\[\\]{}\":,=&%a-z0-9\\\\ .+-]{0,80}";
    let almost = ("(amount|currency|source|items|metadata)", soup)
        .prop_map(|(name, soup)| format!("{{\"{name}\":{soup}}}").into_bytes());
    let form = (
        "(amount|currency|source|items|metadata)(\\[[a-z0-9]{0,2}\\]){0,3}",
        soup,
    )
        .prop_map(|(name, soup)| format!("{name}={soup}").into_bytes());
    prop_oneof![
        vec(any::<u8>(), 0..200),
        soup.prop_map(String::into_bytes),
        almost,
        form
    ]
}

#[tokio::test]
async fn brackets_make_the_same_tree_as_json_percent_encoded_or_not() {
    let server = TestServer::start().await;
    let json = json!({
        "currency": "eur", "metadata": {"order_id": "6735", "0": "zero"},
        "items": [
            {"sku": "mug", "quantity": 2, "unit_amount": 1200},
            {"sku": "cup", "quantity": 1, "unit_amount": 900},
        ],
    });
    let expected = server.client.post("/orders", "json", &json).await.json();
    let metadata = "currency=eur&metadata[order_id]=6735&metadata[0]=zero";
    let forms = [
        "&items[0][sku]=mug&items[0][quantity]=2&items[0][unit_amount]=1200\
         &items[1][sku]=cup&items[1][quantity]=1&items[1][unit_amount]=900",
        "&items[1][sku]=cup&items[1][quantity]=1&items[1][unit_amount]=900\
         &items[0][sku]=mug&items[0][quantity]=2&items[0][unit_amount]=1200",
        "&items[][sku]=mug&items[][quantity]=2&items[][unit_amount]=1200\
         &items[][sku]=cup&items[][quantity]=1&items[][unit_amount]=900",
        "&items%5B%5D%5Bsku%5D=mug&items%5b%5d%5bquantity%5d=2&items[][unit_amount]=1200\
         &items%5B%5D%5Bsku%5D=cup&items[][quantity]=1&items[][unit_amount]=900",
    ];
    for (index, items) in forms.iter().enumerate() {
        let body = format!("{metadata}{items}");
        let key = format!("form-{index}");
        let answer = server
            .client
            .post_raw("/orders", &key, FORM, body.as_bytes())
            .await;
        assert_eq!(answer.status, 201, "{items}: {:?}", answer.json());
        for member in ["amount", "items", "metadata", "currency"] {
            assert_eq!(answer.json()[member], expected[member], "{items}");
        }
    }
}

#[tokio::test]
async fn hostile_json_is_body_invalid() {
    let server = TestServer::start().await;
    let mut bodies: Vec<Vec<u8>> = [
        "{",
        "[]",
        "null",
        "\"amount\"",
        "1",
        "{}{}",
        "{} x",
        "{'a':1}",
        "{\"a\":1,}",
        "{\"a\"}",
        "\u{feff}{}",
        "{\"a\":1,\"a\":1}",
        "{\"a\":1,\"\\u0061\":2}",
        "{\"b\":{\"a\":1,\"a\":2}}",
        "{\"amount\":1.0}",
        "{\"amount\":1e3}",
        "{\"amount\":-0}",
        "{\"amount\":01}",
        "{\"amount\":9007199254740992}",
        "{\"amount\":-9007199254740992}",
        "{\"amount\":NaN}",
        "{\"amount\":1e999}",
        "{\"amount\":18446744073709551616}",
        "{\"description\":\"a\\u0000b\"}",
        "{\"\\u0000\":1}",
        "{\"description\":\"\\ud800\"}",
        "{\"description\":\"\\udc00\\ud800\"}",
        "{\"\\udfff\":1}",
        "{\"description\":\"\n\"}",
    ]
    .map(|text| text.as_bytes().to_vec())
    .into();
    bodies.push(b"{\"description\":\"\xff\"}".to_vec());
    bodies.push(b"{\"description\":\"\xed\xa0\x80\"}".to_vec());
    bodies.push(b"\xff\xfe{\0}\0".to_vec());
    bodies.push(nested(33));
    bodies.push([b"{\"a\":".as_slice(), &vec![b'['; 60_000]].concat());
    bodies.push(format!("{{\"amount\":[{}1]}}", "1,".repeat(30_000)).into_bytes());
    for (index, body) in bodies.iter().enumerate() {
        let answer = server
            .client
            .post_raw("/charges", &format!("key-{index}"), JSON, body)
            .await;
        let shown = String::from_utf8_lossy(&body[..body.len().min(60)]);
        assert_eq!(error(&answer), (400, "body_invalid".into()), "{shown}");
    }
    // At the limits, syntax is fine and the parameter is what is wrong.
    let fine = [
        (nested(32), "parameter_missing"),
        (
            br#"{"amount":9007199254740991}"#.to_vec(),
            "amount_too_large",
        ),
        (
            br#"{"amount":-9007199254740991}"#.to_vec(),
            "parameter_invalid",
        ),
        (
            format!("{{\"amount\":[{}1]}}", "1,".repeat(999)).into_bytes(),
            "parameter_invalid",
        ),
    ];
    for (index, (body, code)) in fine.iter().enumerate() {
        let answer = server
            .client
            .post_raw("/charges", &format!("fine-{index}"), JSON, body)
            .await;
        assert_eq!(error(&answer), (400, (*code).into()), "{index}");
    }
}

#[tokio::test]
async fn hostile_forms_are_body_invalid_and_name_the_field() {
    let server = TestServer::start().await;
    let cases: &[(&[u8], Value)] = &[
        (b"amount=1&amount=1", "amount".into()),
        (b"metadata[a]=1&metadata[a]=2", "metadata[a]".into()),
        (b"metadata=1&metadata[a]=2", "metadata[a]".into()),
        (b"items[0]=1&items[2]=1", "items".into()),
        (b"items[1][sku]=a", "items".into()),
        (b"items[0][sku]=a&items[][sku]=b", "items[][sku]".into()),
        (b"items[0][sku]=a&items[sku]=b", "items[sku]".into()),
        (b"items[00][sku]=a", "items".into()),
        (b"items[99999999999999999999][sku]=a", "items".into()),
        (b"items[", "items".into()),
        (b"items]=a", Value::Null),
        (b"[a]=1", Value::Null),
        (b"=1", Value::Null),
        (b"%=1", Value::Null),
        (b"description=%zz", "description".into()),
        (b"description=%ff", "description".into()),
        (b"description=\xff", "description".into()),
        (b"description=%ED%A0%80", "description".into()),
        (b"description=a%00b", "description".into()),
    ];
    for (index, (body, field)) in cases.iter().enumerate() {
        let answer = server
            .client
            .post_raw("/orders", &format!("key-{index}"), FORM, body)
            .await;
        let shown = String::from_utf8_lossy(body);
        assert_eq!(error(&answer), (400, "body_invalid".into()), "{shown}");
        assert_eq!(param(&answer), *field, "{shown}");
    }
    let many = "a&".repeat(30_000);
    let deep = format!("a{}=1", "[a]".repeat(10_000));
    for body in [many, deep] {
        let answer = server
            .client
            .post_raw("/orders", &body[..5], FORM, body.as_bytes())
            .await;
        assert_eq!(
            error(&answer),
            (400, "body_invalid".into()),
            "{}",
            &body[..9]
        );
    }
}

#[tokio::test]
async fn integers_and_booleans_have_one_spelling_in_each_encoding() {
    let server = TestServer::start().await;
    let forms = [
        ("amount=01&currency=usd", "amount"),
        ("amount=%2B1&currency=usd", "amount"),
        ("amount=1.0&currency=usd", "amount"),
        ("amount=-1&currency=usd", "amount"),
        ("amount=1e3&currency=usd", "amount"),
        ("amount=+1&currency=usd", "amount"),
        ("amount=%D9%A1&currency=usd", "amount"),
        ("amount=1&currency=usd&capture=yes", "capture"),
        ("amount=1&currency=usd&capture=1", "capture"),
        ("amount[]=1&currency=usd", "amount"),
        ("amount=1&currency[a]=usd", "currency"),
    ];
    for (body, field) in forms {
        let answer = server
            .client
            .post_raw("/charges", body, FORM, body.as_bytes())
            .await;
        assert_eq!(
            (error(&answer), param(&answer)),
            ((400, "parameter_invalid".into()), field.into()),
            "{body}"
        );
    }
    for (field, value) in [
        ("amount", json!("1")),
        ("amount", json!(true)),
        ("capture", json!("true")),
        ("capture", json!(1)),
        ("currency", json!(1)),
        ("description", json!(5)),
        ("metadata", json!("a")),
    ] {
        let mut body = charge();
        body[field] = value.clone();
        let answer = server
            .client
            .post(
                "/charges",
                &format!("{field}{value}").replace('"', "'"),
                &body,
            )
            .await;
        assert_eq!(
            (error(&answer), param(&answer)),
            ((400, "parameter_invalid".into()), field.into()),
            "{body}"
        );
    }
}

#[tokio::test]
async fn a_body_may_have_64_kib_and_not_a_byte_more_chunked_or_not() {
    let server = TestServer::start().await;
    for (length, status) in [(65_536, 201), (65_537, 413)] {
        let mut body = charge().to_string();
        body.push_str(&" ".repeat(length - body.len()));
        let whole = server
            .client
            .post_raw("/charges", "key-1", JSON, body.as_bytes())
            .await;
        assert_eq!(whole.status, status, "{length} bytes at once");

        let (first, second) = body.split_at(40_000);
        let request = format!(
            "POST /charges HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {API_KEY}\r\nConnection: close\r\n\
             Content-Type: {JSON}\r\nIdempotency-Key: key-1\r\nTransfer-Encoding: chunked\r\n\r\n\
             {:x}\r\n{first}\r\n{:x}\r\n{second}\r\n0\r\n\r\n",
            first.len(),
            second.len(),
        );
        let reply = send_raw(&server.client, request.as_bytes()).await;
        assert!(
            reply.starts_with(&format!("HTTP/1.1 {status} ")),
            "{length} bytes in chunks: {reply}"
        );
    }
    // Chunked or not is not part of the request's identity: the second one was a replay.
    assert_eq!(server.database.charges().await, 1);
}

/// The request for a charge in chunks, up to its body.
fn chunked_charge(method: &str, path: &str) -> String {
    format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {API_KEY}\r\n\
         Content-Type: {JSON}\r\nIdempotency-Key: key-1\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
}

#[tokio::test]
async fn malformed_chunks_are_body_invalid_and_nothing_is_stored() {
    let server = TestServer::start().await;
    let (head, charge) = (chunked_charge("POST", "/charges"), charge().to_string());
    let whole = format!("{:x}\r\n{charge}\r\n", charge.len());
    let alive = request("GET", "/livez", "", "");
    for malformed in [
        "10000000000000000\r\n",
        "ffffffffffffffffff\r\n",
        "x\r\n",
        "-1\r\n",
        "\r\n",
        // Proxies and servers have disagreed about these, which smuggled requests.
        "1 2\r\n",
        "1;\u{1}\r\n",
        "1;a\nX\r\n",
        &format!("{whole}x\r\n"),
    ] {
        let mut connection = Connection::open(&server.client).await;
        // A request before it has its reply, and one behind it has none.
        let behind = format!("{charge}\r\n0\r\n\r\n{alive}");
        connection
            .send(format!("{alive}{head}{malformed}{behind}"))
            .await;
        let (first, _) = connection.reply().await;
        assert!(first.starts_with("HTTP/1.1 200 "), "{malformed}: {first}");
        let (head, body) = connection.reply().await;
        assert!(head.starts_with("HTTP/1.1 400 "), "{malformed}: {head}");
        assert!(head.contains("\r\nconnection: close\r\n"), "{head}");
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(body["error"]["code"], "body_invalid", "{malformed}");
        assert_eq!(connection.rest().await, "", "{malformed}");
    }
    assert_nothing_stored(&server.database, "the chunks are malformed").await;
    assert_eq!(server.client.charge("key-1").await.status, 201);
}

#[tokio::test]
async fn who_sends_much_after_a_malformed_chunk_reads_the_refusal() {
    let server = TestServer::start().await;
    let mut connection = Connection::open(&server.client).await;
    let head = chunked_charge("POST", "/charges");
    connection.send(head + "x\r\n").await;
    connection.send(vec![b'x'; 200 * 1024]).await;
    let (head, _) = connection.reply().await;
    assert!(head.starts_with("HTTP/1.1 400 "), "{head}");
}

#[test]
fn no_bytes_of_any_media_type_are_answered_with_500() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = runtime.block_on(TestServer::start());
    let media_types = prop_oneof![4 => Just(JSON), 4 => Just(FORM), 1 => "[a-z/;=*\" ]{0,20}".prop_map(|text| &*text.leak())];
    let paths = prop_oneof![
        Just("/charges".to_owned()),
        Just("/v1/orders".to_owned()),
        "/(charges|orders|idempotency-keys)\\?[a-z%0-9\\[\\]=&]{0,30}",
        "/(v1/)?(charges|orders|idempotency-keys)/[a-zA-Z0-9%._~-]{0,30}",
    ];
    let number = AtomicU32::new(0);
    let mut runner = TestRunner::new(ProptestConfig::with_cases(200));
    runner
        .run(
            &(paths, media_types, bodies()),
            |(path, media_type, body)| {
                let number = number.fetch_add(1, Ordering::Relaxed);
                let answers = runtime.block_on(async {
                    let key = format!("key-{number}");
                    let post = server.client.post_raw(&path, &key, media_type, &body).await;
                    [post, server.client.get(&path).await]
                });
                for answer in answers {
                    prop_assert!(answer.status.as_u16() < 500, "{:?}", answer);
                    prop_assert!(answer.status.is_success() || !answer.code().is_empty());
                }
                Ok(())
            },
        )
        .unwrap();
    runtime.block_on(server.stop());
}
