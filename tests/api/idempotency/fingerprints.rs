//! The fingerprint: which requests are the same request.

use charge_once::idempotency::{Fingerprint, FingerprintInput, Parameters};
use charge_once_strict_params::Encoding;
use proptest::{
    collection::{btree_map, vec},
    prelude::*,
};
use serde_json::Map;

use crate::support::prelude::*;

/// The fingerprint of a JSON body sent to `POST /charges`.
fn of_json(body: &[u8]) -> Fingerprint {
    of(body, Encoding::Json.decode(body, &[]).ok().as_ref(), "json")
}

fn of_form(body: &[u8]) -> Fingerprint {
    let tree = Encoding::Form.decode(body, &["metadata"]).ok();
    of(body, tree.as_ref(), "form")
}

fn of(body: &[u8], tree: Option<&Map<String, Value>>, media_type: &str) -> Fingerprint {
    let canonical = tree.map(|tree| serde_json_canonicalizer::to_vec(tree).unwrap());
    let parameters = match &canonical {
        Some(canonical) => Parameters::Canonical(canonical),
        None => Parameters::Raw(body),
    };
    Fingerprint::of(&FingerprintInput {
        method: "POST",
        path: "/charges",
        query: Parameters::Canonical(b"{}"),
        media_type,
        parameters,
    })
}

fn values() -> impl Strategy<Value = Value> {
    const MAX_INTEGER: i64 = 9_007_199_254_740_991;
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-MAX_INTEGER..=MAX_INTEGER).prop_map(Value::from),
        texts().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            btree_map(texts(), inner, 0..4).prop_map(|members| members.into_iter().collect()),
        ]
    })
}

/// Any text that a body may hold.
fn texts() -> impl Strategy<Value = String> {
    vec(any::<char>(), 0..8)
        .prop_map(|chars| chars.into_iter().filter(|c| *c != '\0').collect::<String>())
}

fn bodies() -> impl Strategy<Value = Map<String, Value>> {
    btree_map(texts(), values(), 0..5).prop_map(|members| members.into_iter().collect())
}

/// Writes JSON with the white space, the order of members and the escapes that `choices` decide.
struct Speller<'a> {
    choices: std::iter::Cycle<std::slice::Iter<'a, u8>>,
}

impl<'a> Speller<'a> {
    fn new(choices: &'a [u8]) -> Self {
        Self {
            choices: choices.iter().cycle(),
        }
    }

    fn choose(&mut self, options: usize) -> usize {
        usize::from(*self.choices.next().unwrap()) % options
    }

    fn space(&mut self) -> &'static str {
        ["", " ", "\n", "\t\r\n  "][self.choose(4)]
    }

    fn text(&mut self, text: &str) -> String {
        let mut spelled = String::from("\"");
        for c in text.chars() {
            let must_escape = c < ' ' || c == '"' || c == '\\';
            if must_escape || self.choose(2) == 0 {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    spelled.push_str(&format!("\\u{unit:04x}"));
                }
            } else {
                spelled.push(c);
            }
        }
        spelled.push('"');
        spelled
    }

    fn object(&mut self, members: &Map<String, Value>) -> String {
        let mut spelled = Vec::new();
        for (name, value) in members {
            let at = self.choose(spelled.len() + 1);
            let (name, value) = (self.text(name), self.value(value));
            spelled.insert(at, format!("{name}{}:{value}", self.space()));
        }
        format!("{}{{{}}}{}", self.space(), spelled.join(","), self.space())
    }

    fn value(&mut self, value: &Value) -> String {
        let spelled = match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
            Value::String(text) => self.text(text),
            Value::Array(items) => {
                let items: Vec<_> = items.iter().map(|item| self.value(item)).collect();
                format!("[{}]", items.join(","))
            }
            Value::Object(members) => self.object(members),
        };
        format!("{}{spelled}{}", self.space(), self.space())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn order_white_space_and_escapes_do_not_matter(
        body in bodies(), choices in vec(any::<u8>(), 1..64),
    ) {
        let plain = serde_json::to_vec(&body).unwrap();
        let spelled = Speller::new(&choices).object(&body);
        prop_assert!(Encoding::Json.decode(spelled.as_bytes(), &[]).is_ok(), "{}", spelled);
        prop_assert_eq!(of_json(&plain), of_json(spelled.as_bytes()));
    }

    #[test]
    fn any_other_value_matters(
        body in bodies(), name in texts(), one in values(), other in values(),
    ) {
        prop_assume!(one != other);
        let with = |value: Value| {
            let mut body = body.clone();
            body.insert(name.clone(), value);
            of_json(&serde_json::to_vec(&body).unwrap())
        };
        prop_assert_ne!(with(one), with(other));
    }

    #[test]
    fn a_member_more_matters(body in bodies(), name in texts(), value in values()) {
        prop_assume!(!body.contains_key(&name));
        let mut longer = body.clone();
        longer.insert(name, value);
        prop_assert_ne!(
            of_json(&serde_json::to_vec(&body).unwrap()),
            of_json(&serde_json::to_vec(&longer).unwrap())
        );
    }

    #[test]
    fn the_order_of_a_list_matters(items in vec(0_i64..9, 2..6)) {
        let mut reversed = items.clone();
        reversed.reverse();
        prop_assume!(items != reversed);
        let body = |items: &[i64]| serde_json::json!({ "a": items }).to_string().into_bytes();
        prop_assert_ne!(of_json(&body(&items)), of_json(&body(&reversed)));
    }

    #[test]
    fn the_order_of_form_pairs_and_their_percent_encoding_do_not_matter(
        pairs in btree_map("[a-z]{1,6}", "[a-z0-9 ]{0,6}", 1..6),
    ) {
        let plain: Vec<_> = pairs.iter().map(|(k, v)| format!("{k}={}", v.replace(' ', "+")))
            .collect();
        let encoded: Vec<_> = pairs.iter().rev().map(|(k, v)| {
            let hex = |text: &str| text.bytes().map(|b| format!("%{b:02X}")).collect::<String>();
            format!("{}={}", hex(k), hex(v))
        }).collect();
        prop_assert_eq!(
            of_form(plain.join("&").as_bytes()),
            of_form(encoded.join("&").as_bytes())
        );
    }

    #[test]
    fn a_body_that_does_not_parse_is_told_by_its_raw_bytes(
        one in vec(any::<u8>(), 0..16), other in vec(any::<u8>(), 0..16),
    ) {
        let unparsable = |rest: &[u8]| [b"{", rest, b"\xff"].concat();
        let (one, other) = (unparsable(&one), unparsable(&other));
        prop_assert!(Encoding::Json.decode(&one, &[]).is_err());
        prop_assert_eq!(of_json(&one), of_json(&one));
        prop_assert_eq!(of_json(&one) == of_json(&other), one == other);
    }
}

#[test]
fn method_path_query_and_encoding_matter() {
    let empty = Parameters::Canonical(b"{}");
    let other = Parameters::Canonical(br#"{"a":"1"}"#);
    let raw = Parameters::Raw(b"{}");
    let inputs = [
        ("POST", "/charges", empty, "json", empty),
        ("PUT", "/charges", empty, "json", empty),
        ("POST", "/v1/charges", empty, "json", empty),
        ("POST", "/charges", other, "json", empty),
        ("POST", "/charges", raw, "json", empty),
        ("POST", "/charges", empty, "form", empty),
        ("POST", "/charges", empty, "json", raw),
    ];
    let all = inputs.map(|(method, path, query, media_type, parameters)| {
        let input = FingerprintInput {
            method,
            path,
            query,
            media_type,
            parameters,
        };
        Fingerprint::of(&input).bytes().to_vec()
    });
    assert_eq!(BTreeSet::from(all).len(), inputs.len());
}

/// Posts it under `key-1`, and compares the status and whether it is a replay.
async fn gets(client: &Client, path: &str, media_type: &str, body: &str, expected: (u16, bool)) {
    let posting = client.post_raw(path, "key-1", media_type, body.as_bytes());
    let answer = posting.await;
    let got = (answer.status.as_u16(), answer.is_replay());
    assert_eq!(got, expected, "{path} {media_type} {body}");
}

#[tokio::test]
async fn a_client_that_serialises_afresh_for_its_retry_is_a_retry() {
    let server = TestServer::start().await;
    let first = server.client.charge("key-1").await;
    assert_eq!(first.status, 201);
    let spellings = [
        r#"{"source":"tok_visa","currency":"usd","amount":2000}"#,
        " {\n\t\"currency\" : \"usd\",\r\n \"amount\":2000 , \"source\": \"tok_visa\" } ",
        r#"{"\u0061mount":2000,"currency":"\u0075sd","source":"tok\u005Fvisa"}"#,
        r#" { "source":"tok_vis\u0061", "currency":"usd", "amount":2000 } "#,
    ];
    for body in spellings {
        for media_type in [JSON, "application/json; charset=utf-8", "Application/JSON"] {
            let body = body.as_bytes();
            let client = &server.client;
            let retry = client.post_raw("/charges", "key-1", media_type, body);
            retry.await.assert_replays(&first);
        }
    }
    assert_eq!(server.database.charges().await, 1);
}

#[tokio::test]
async fn another_value_path_query_or_encoding_under_the_same_key_is_a_reuse() {
    let server = TestServer::start().await;
    let body = charge().to_string();
    let first = server.client.charge("key-1").await;
    let changed = [
        body.replace("2000", "2001"),
        body.replace("usd", "USD"),
        body.replace('}', ",\"capture\":true}"),
        body.replace('}', ",\"description\":null}"),
        String::new(),
        "not json".into(),
    ];
    for other in &changed {
        gets(&server.client, "/charges", JSON, other, (422, false)).await;
    }
    for path in ["/orders", "/charges?a=1", "/charges?%"] {
        gets(&server.client, path, JSON, &body, (422, false)).await;
    }
    for path in ["/v1/charges", "/v1/orders"] {
        let answer = server.client.post(path, "key-1", &charge()).await;
        assert_eq!(error(&answer), (400, "idempotency_key_reused".into()));
    }
    let form = "amount=2000&currency=usd&source=tok_visa";
    gets(&server.client, "/charges", FORM, form, (422, false)).await;
    server.client.charge("key-1").await.assert_replays(&first);
    assert_eq!(server.database.charges().await, 1);
}

#[tokio::test]
async fn form_brackets_may_be_percent_encoded_on_the_retry() {
    let server = TestServer::start().await;
    let plain = "amount=2000&currency=usd&metadata[order_id]=67+35";
    let encoded = "metadata%5Border_id%5d=67%2035&currency=%75sd&amount=2000";
    gets(&server.client, "/charges", FORM, plain, (201, false)).await;
    gets(&server.client, "/charges", FORM, encoded, (201, true)).await;
}

#[tokio::test]
async fn an_unparsable_body_is_replayed_for_the_same_bytes_only() {
    let server = TestServer::start().await;
    for (media_type, path, body) in [
        (JSON, "/charges", "{\"amount\": 1.5}"),
        (FORM, "/orders", "a=1&a=2"),
    ] {
        let key = format!("key-{path}");
        let send = async |body: &str| {
            let body = body.as_bytes();
            server.client.post_raw(path, &key, media_type, body).await
        };
        let first = send(body).await;
        assert_eq!(first.code(), "body_invalid");
        send(body).await.assert_replays(&first);
        let other = send(&format!("{body} ")).await;
        assert_eq!(other.code(), "idempotency_key_reused");
    }
}

#[tokio::test]
async fn a_record_of_a_fingerprint_version_that_this_build_does_not_know_is_neither_same_nor_other()
{
    let server = TestServer::start_with(&[FORGETFUL]).await;
    let first = server.client.charge("key-1").await;
    let unknown = "UPDATE idempotency_keys SET fingerprint_version = 99";
    server.database.execute(unknown).await;
    let unsure = server.client.charge("key-1").await;
    assert_eq!(error(&unsure), (503, "service_unavailable".into()));
    let known = "UPDATE idempotency_keys SET fingerprint_version = 1";
    server.database.execute(known).await;
    server.client.charge("key-1").await.assert_replays(&first);
    assert_eq!(server.database.charges().await, 1);
}
