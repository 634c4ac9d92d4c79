//! Requests that belong to a workflow, and the pages that list them.

use crate::support::prelude::*;

/// Sends a request that says which workflow it belongs to.
pub async fn post(client: &Client, workflow: &str, path: &str, key: &str, body: &Value) -> Answer {
    let request = client
        .request(Method::POST, path)
        .header("idempotency-key", key)
        .header("idempotency-workflow", workflow);
    Answer::of(request.json(body)).await
}

pub async fn charge_in(client: &Client, workflow: &str, key: &str) -> Answer {
    post(client, workflow, "/charges", key, &charge()).await
}

pub fn sending(client: &Client, workflow: &'static str, key: &'static str) -> JoinHandle<Answer> {
    let client = client.clone();
    tokio::spawn(async move { charge_in(&client, workflow, key).await })
}

/// A page: its keys with their status, and whether there are more.
pub async fn page(client: &Client, path: &str) -> (Vec<(String, String)>, bool) {
    let answer = client.get(path).await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.json());
    let list = answer.json();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let keys = list["data"].as_array().unwrap().iter();
    let keys = keys.map(|key| (text(&key["key"]), text(&key["status"])));
    (keys.collect(), list["has_more"].as_bool().unwrap())
}

/// The keys of a whole workflow, all of them completed.
pub async fn completed(client: &Client, workflow: &str) -> Vec<String> {
    let (keys, has_more) = page(client, &format!("/workflows/{workflow}")).await;
    assert!(!has_more);
    let all = keys.into_iter().map(|(key, status)| {
        assert_eq!(status, "completed", "{key}");
        key
    });
    all.collect()
}

pub fn expected(keys: &[(&str, &str)]) -> Vec<(String, String)> {
    let text = |(key, status): &(&str, &str)| ((*key).to_owned(), (*status).to_owned());
    keys.iter().map(text).collect()
}
