//! The vectors are data: each obeys the schema, and another vector gives another verdict.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may stop at the first surprise"
)]

use charge_once_conform::{Config, Grade, RECEIVER_CHECKS, Service, Url, run};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

const SCHEMA: &str = include_str!("../vectors/schema.json");
const REPLIES: &str = include_str!("../vectors/replies.json");

/// Why the value isn't what the schema says. It knows what this schema uses, and nothing else.
fn mistake(root: &Value, schema: &Value, value: &Value) -> Option<String> {
    let told = |what: &str| Some(format!("{what}: {value} in {schema}"));
    for (word, rule) in schema.as_object().unwrap() {
        let holds = match word.as_str() {
            "$schema" | "$defs" | "title" => true,
            "$ref" => {
                let place = rule.as_str().unwrap().strip_prefix('#').unwrap();
                match mistake(root, root.pointer(place).unwrap(), value) {
                    None => true,
                    found => return found,
                }
            }
            "const" => value == rule,
            "enum" => rule.as_array().unwrap().contains(value),
            "type" => match rule.as_str().unwrap() {
                "object" => value.is_object(),
                "array" => value.is_array(),
                "string" => value.is_string(),
                "boolean" => value.is_boolean(),
                "integer" => value.is_i64(),
                other => panic!("{other}"),
            },
            "minimum" => value.as_i64() >= rule.as_i64(),
            "minItems" => value.as_array().unwrap().len() as u64 >= rule.as_u64().unwrap(),
            // The program itself refuses what it can't read.
            "pattern" => value.as_str().is_some_and(|text| !text.is_empty()),
            "required" => {
                let mut names = rule.as_array().unwrap().iter();
                names.all(|name| value.get(name.as_str().unwrap()).is_some())
            }
            "oneOf" => {
                let all = rule.as_array().unwrap().iter();
                all.filter(|one| mistake(root, one, value).is_none())
                    .count()
                    == 1
            }
            "items" => {
                let Some(items) = value.as_array() else {
                    return told(word);
                };
                match items.iter().find_map(|item| mistake(root, rule, item)) {
                    None => true,
                    found => return found,
                }
            }
            "properties" | "additionalProperties" => {
                let known = schema.get("properties").unwrap_or(&Value::Null);
                let Some(members) = value.as_object() else {
                    return told(word);
                };
                for (name, member) in members {
                    let found = match (known.get(name), word.as_str()) {
                        (Some(own), "properties") => mistake(root, own, member),
                        (None, "additionalProperties") if *rule == json!(false) => told(name),
                        (None, "additionalProperties") => mistake(root, rule, member),
                        _ => None,
                    };
                    if found.is_some() {
                        return found;
                    }
                }
                true
            }
            other => panic!("the test doesn't know {other}"),
        };
        if !holds {
            return told(word);
        }
    }
    None
}

#[test]
fn each_vector_obeys_the_schema_and_what_does_not_is_refused() {
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    for text in [
        REPLIES,
        include_str!("../vectors/keys.json"),
        include_str!("../vectors/procedures.json"),
        include_str!("../vectors/webhooks.json"),
        include_str!("../vectors/words.json"),
    ] {
        let vectors: Value = serde_json::from_str(text).unwrap();
        assert_eq!(mistake(&schema, &schema, &vectors), None);
    }
    let changes = [
        ("/checks/0/severity", json!("MUST")),
        ("/checks/0/cases/0/steps/0/effects", json!(-1)),
        ("/checks/0/cases/0/steps/0/account", json!("stranger")),
        ("/checks/0/procedure", json!("racers")),
        ("/checks/0/cases/0/steps/0/sleep_ms", json!(5)),
    ];
    for (pointer, value) in changes {
        let mut vectors: Value = serde_json::from_str(REPLIES).unwrap();
        let (place, name) = pointer.rsplit_once('/').unwrap();
        vectors.pointer_mut(place).unwrap()[name] = value;
        assert!(mistake(&schema, &schema, &vectors).is_some(), "{pointer}");
    }
    assert_eq!(RECEIVER_CHECKS.len(), 8);
}

/// An API with one answer to everything, whose effects are never counted.
async fn constant() -> Url {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let mut request = [0; 4096];
            let _ = client.read(&mut request).await;
            let reply = b"HTTP/1.1 201 Created\r\nContent-Length: 8\r\n\r\n{\"id\":1}";
            let _ = client.write_all(reply).await;
            // What is closed with bytes that were not read is reset.
            while let Ok(1..) = client.read(&mut request).await {}
        }
    });
    Url::parse(&url).unwrap()
}

#[tokio::test]
async fn another_vector_gives_another_verdict() {
    let config = "[effect]\npath = '/orders'\njson = '{}'\n";
    let url = constant().await;
    let verdict = async |vectors: &Value| {
        let config = Config::from_toml(config).unwrap();
        let config = config.with_vectors(&vectors.to_string()).unwrap();
        let service = Service {
            url: url.clone(),
            replicas: Vec::new(),
            crash: None,
        };
        let only = ["replay_equal".to_owned()];
        let report = run(config, service, &only, |_, _, _| {}).await.unwrap();
        report.findings[0].outcome
    };
    let step = "/checks/0/cases/0/steps/1/expect";
    let mut vectors: Value = serde_json::from_str(REPLIES).unwrap();
    // Its replies are right, and effects can't be counted.
    assert_eq!(verdict(&vectors).await, Grade::NotKnown);
    let first = vectors.pointer_mut("/checks/0/cases/0/steps/0").unwrap();
    first.as_object_mut().unwrap().remove("effects");
    assert_eq!(verdict(&vectors).await, Grade::Holds);
    *vectors.pointer_mut(step).unwrap() = json!("apart");
    assert_eq!(verdict(&vectors).await, Grade::Unsafe);
    vectors["checks"][0]["severity"] = json!("unclear");
    assert_eq!(verdict(&vectors).await, Grade::Unclear);

    vectors["checks"][0]["cases"][0]["steps"][0]["sleep_ms"] = json!(5);
    let config = Config::from_toml(config).unwrap();
    let refused = config.with_vectors(&vectors.to_string()).unwrap_err();
    assert!(refused.to_string().contains("sleep_ms"), "{refused}");
}
