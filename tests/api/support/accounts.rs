//! More accounts than the one of the harness.

use charge_once::cli::api_key;

use crate::support::prelude::*;

pub async fn api_key_of(database: &TestDatabase, name: &str) -> String {
    let database = database.connect(&[]).await;
    let key = api_key::create_key(&database, name).await.unwrap();
    database.pool().close().await;
    key
}

/// A client of `server` with an API key of the account `name`.
pub async fn client_of_account(server: &TestServer, name: &str) -> Client {
    let key = api_key_of(&server.database, name).await;
    server.client.with_api_key(&key)
}

/// A client with the key of a new test account. The server must have `FAULTS`.
pub async fn client_of_test_account(client: &Client) -> Client {
    let made = client.post_new("/test/accounts", &json!({})).await;
    assert_eq!(made.status, 201, "{}", made.json());
    client.with_api_key(made.json()["api_key"].as_str().unwrap())
}
