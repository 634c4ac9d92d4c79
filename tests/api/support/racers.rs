//! Requests that race, and requests that are repeated until they are decided.

use crate::support::prelude::*;

pub async fn all_at_once<F>(count: usize, mut request: impl FnMut(usize) -> F) -> Vec<Answer>
where
    F: Future<Output = Answer> + Send + 'static,
{
    let racers: JoinSet<Answer> = (0..count).map(&mut request).collect();
    racers.join_all().await
}

/// Twenty updates of one object at once, each of a name of its own in the metadata.
pub async fn twenty_names_at_once(client: &Client, path: &str) -> Vec<Answer> {
    all_at_once(20, |number| {
        let (client, path) = (client.clone(), path.to_owned());
        async move {
            let body = json!({"metadata": {format!("k{number}"): "v"}});
            until_definite(&client, &path, &body).await
        }
    })
    .await
}

/// A new operation, sent with one key until the reply is a definite one: on a busy machine a lock
/// or a connection may take longer than the server waits for it.
pub async fn until_definite(client: &Client, path: &str, body: &Value) -> Answer {
    let key = Uuid::now_v7().to_string();
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let answer = client.post(path, &key, body).await;
        if ![409, 503].contains(&answer.status.as_u16()) {
            return answer;
        }
        assert!(tokio::time::Instant::now() < deadline, "{answer:?}");
    }
}
