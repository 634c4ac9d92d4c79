//! Bodies of every kind, hostile ones first: decoded to one tree, or refused, never a 500.

use std::sync::atomic::{AtomicU32, Ordering};

use proptest::{collection::vec, prelude::*, test_runner::TestRunner};

use crate::support::{
    connection::{Connection, request},
    prelude::*,
    records::assert_nothing_stored,
    resources::charge_with,
    wire::param,
};

/// A JSON body, nested `depth` levels deep, the root being the first.
fn nested(depth: usize) -> Vec<u8> {
    let (open, close) = ("[".repeat(depth - 1), "]".repeat(depth - 1));
    format!("{{\"a\":{open}{close}}}").into_bytes()
}

/// A charge whose amount is a list of so many numbers.
fn long(count: usize) -> Vec<u8> {
    format!("{{\"amount\":[{}1]}}", "1,".repeat(count - 1)).into_bytes()
}

fn body_invalid() -> (u16, String) {
    (400, "body_invalid".into())
}

fn bodies() -> impl Strategy<Value = Vec<u8>> {
    let soup = "[\\[\\]{}\":,=&%a-z0-9\\\\ .+-]{0,80}";
    let name = "(amount|currency|source|items|metadata)";
    let path = "(amount|currency|source|items|metadata)(\\[[a-z0-9]{0,2}\\]){0,3}";
    let almost =
        (name, soup).prop_map(|(name, soup)| format!("{{\"{name}\":{soup}}}").into_bytes());
    let form = (path, soup).prop_map(|(name, soup)| format!("{name}={soup}").into_bytes());
    prop_oneof![
        vec(any::<u8>(), 0..200),
        soup.prop_map(String::into_bytes),
        almost,
        form
    ]
}

#[tokio::test]
async fn brackets_make_the_same_tree_as_json_percent_encoded_or_not() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let json = json!({
        "currency": "eur", "metadata": {"order_id": "6735", "0": "zero"},
        "items": [
            {"sku": "mug", "quantity": 2, "unit_amount": 1200},
            {"sku": "cup", "quantity": 1, "unit_amount": 900},
        ],
    });
    let expected = client.post("/orders", "json", &json).await.json();
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
        let (key, body) = (format!("form-{index}"), format!("{metadata}{items}"));
        let answer = client.post_raw("/orders", &key, FORM, body.as_bytes());
        let answer = answer.await;
        assert_eq!(answer.status, 201, "{items}: {:?}", answer.json());
        for member in ["amount", "items", "metadata", "currency"] {
            assert_eq!(answer.json()[member], expected[member], "{items}");
        }
    }
}

#[tokio::test]
async fn hostile_json_is_body_invalid() {
    let server = TestServer::start().await;
    let send = async |body: &[u8]| {
        let key = Uuid::now_v7().to_string();
        let answer = server.client.post_raw("/charges", &key, JSON, body).await;
        error(&answer)
    };
    let lines = HOSTILE_JSON.trim().lines();
    let mut bodies: Vec<_> = lines.map(|line| line.as_bytes().to_vec()).collect();
    bodies.extend([
        "\u{feff}{}".as_bytes().to_vec(),
        b"{\"description\":\"\n\"}".to_vec(),
        b"{\"description\":\"\xff\"}".to_vec(),
        b"{\"description\":\"\xed\xa0\x80\"}".to_vec(),
        b"\xff\xfe{\0}\0".to_vec(),
        nested(33),
        [b"{\"a\":".as_slice(), &vec![b'['; 60_000]].concat(),
        long(30_001),
    ]);
    for body in &bodies {
        let shown = String::from_utf8_lossy(&body[..body.len().min(60)]);
        assert_eq!(send(body).await, body_invalid(), "{shown}");
    }
    // At the limits, syntax is fine and the parameter is what is wrong.
    let (most, least) = (
        r#"{"amount":9007199254740991}"#,
        r#"{"amount":-9007199254740991}"#,
    );
    for (index, (body, code)) in [
        (nested(32), "parameter_missing"),
        (most.into(), "amount_too_large"),
        (least.into(), "parameter_invalid"),
        (long(1000), "parameter_invalid"),
    ]
    .iter()
    .enumerate()
    {
        assert_eq!(send(body).await, (400, (*code).into()), "{index}");
    }
}

/// A body on each line.
const HOSTILE_JSON: &str = r#"
{
[]
null
"amount"
1
{}{}
{} x
{'a':1}
{"a":1,}
{"a"}
{"a":1,"a":1}
{"a":1,"\u0061":2}
{"b":{"a":1,"a":2}}
{"amount":1.0}
{"amount":1e3}
{"amount":-0}
{"amount":01}
{"amount":9007199254740992}
{"amount":-9007199254740992}
{"amount":NaN}
{"amount":1e999}
{"amount":18446744073709551616}
{"description":"a\u0000b"}
{"\u0000":1}
{"description":"\ud800"}
{"description":"\udc00\ud800"}
{"\udfff":1}"#;

#[tokio::test]
async fn hostile_forms_are_body_invalid_and_name_the_field() {
    let (_server, client) = TestServer::with_client(&[]).await;
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
        let key = format!("key-{index}");
        let answer = client.post_raw("/orders", &key, FORM, body).await;
        let shown = String::from_utf8_lossy(body);
        assert_eq!(error(&answer), body_invalid(), "{shown}");
        assert_eq!(param(&answer), *field, "{shown}");
    }
    let many = "a&".repeat(30_000);
    let deep = format!("a{}=1", "[a]".repeat(10_000));
    for body in [many, deep] {
        let answer = client.post_raw("/orders", &body[..5], FORM, body.as_bytes());
        assert_eq!(error(&answer.await), body_invalid(), "{}", &body[..9]);
    }
}

#[tokio::test]
async fn integers_and_booleans_have_one_spelling_in_each_encoding() {
    let (_server, client) = TestServer::with_client(&[]).await;
    let is_invalid = |answer: &Answer, field: &str, body: &str| {
        let (told, expected) = (error(answer), (400, "parameter_invalid".into()));
        assert_eq!((told, param(answer)), (expected, field.into()), "{body}");
    };
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
        let answer = client.post_raw("/charges", body, FORM, body.as_bytes());
        is_invalid(&answer.await, field, body);
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
        let shown = format!("{field} {value}");
        let answer = charge_with(&client, &[(field, value)]).await;
        is_invalid(&answer, field, &shown);
    }
}

#[tokio::test]
async fn a_body_may_have_64_kib_and_not_a_byte_more_chunked_or_not() {
    let (server, client) = TestServer::with_client(&[]).await;
    for (length, status) in [(65_536, 201), (65_537, 413)] {
        let mut body = charge().to_string();
        body.push_str(&" ".repeat(length - body.len()));
        let whole = client.post_raw("/charges", "key-1", JSON, body.as_bytes());
        assert_eq!(whole.await.status, status, "{length} bytes at once");
        let (first, second) = body.split_at(40_000);
        let request = chunked_charge("Connection: close\r\n")
            + &format!("{:x}\r\n{first}\r\n", first.len())
            + &format!("{:x}\r\n{second}\r\n0\r\n\r\n", second.len());
        let reply = send_raw(&client, request.as_bytes()).await;
        let has_status = reply.starts_with(&format!("HTTP/1.1 {status} "));
        assert!(has_status, "{length} bytes in chunks: {reply}");
    }
    // Chunked or not is not part of the request's identity: the second one was a replay.
    assert_eq!(server.database.charges().await, 1);
}

/// The request for a charge in chunks, up to its body.
fn chunked_charge(headers: &str) -> String {
    let headers = format!(
        "Content-Type: {JSON}\r\nIdempotency-Key: key-1\r\nTransfer-Encoding: chunked\r\n{headers}"
    );
    request("POST", "/charges", &headers, "")
}

#[tokio::test]
async fn malformed_chunks_are_body_invalid_and_nothing_is_stored() {
    let server = TestServer::start().await;
    let (head, charge) = (chunked_charge(""), charge().to_string());
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
        let requests = format!("{alive}{head}{malformed}{charge}\r\n0\r\n\r\n{alive}");
        connection.send(requests).await;
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
    connection.send(chunked_charge("") + "x\r\n").await;
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
