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

/// A new operation, sent with one key until the reply is a definite one.
pub async fn until_definite(client: &Client, path: &str, body: &Value) -> Answer {
    let key = Uuid::now_v7().to_string();
    definite(|| client.post(path, &key, body)).await
}

/// A request that is sent until the reply is a definite one: on a busy machine a lock or a
/// connection may take longer than the server waits for it.
pub async fn definite<F: Future<Output = Answer>>(mut send: impl FnMut() -> F) -> Answer {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let answer = send().await;
        let is_final = answer.header("stripe-should-retry") == Some("false");
        if is_final || ![409, 503].contains(&answer.status.as_u16()) {
            return answer;
        }
        assert!(tokio::time::Instant::now() < deadline, "{answer:?}");
    }
}

/// What one of two transactions does, without a lock and without a look at the row before.
pub type Step<T> = for<'c> fn(&'c mut PgConnection, T) -> Doing<'c>;
pub type Doing<'c> = Pin<Box<dyn Future<Output = Result<(), sqlx::Error>> + Send + 'c>>;

/// Interleaves two transactions: the second one's statement meets the first one's uncommitted row.
pub async fn interleave<T: Clone + Send + 'static>(
    database: &TestDatabase,
    target: T,
    first: Step<T>,
    second: Step<T>,
) -> Result<(), sqlx::Error> {
    let mut one = database.pool.begin().await.unwrap();
    let mut two = database.pool.begin().await.unwrap();
    first(&mut one, target.clone()).await.unwrap();
    let later = tokio::spawn(async move {
        second(&mut two, target).await?;
        two.commit().await
    });
    // The second waits for the first.
    database.comes_to(LOCK_WAITS, 1).await;
    one.commit().await.unwrap();
    later.await.unwrap()
}
