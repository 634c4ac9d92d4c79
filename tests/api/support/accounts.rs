//! More accounts than the one of the harness.

use charge_once::{cli::api_key, database::Database};

use crate::support::harness::{Client, TestServer, config};

/// A client of `server` with an API key of the account `name`.
pub async fn client_of_account(server: &TestServer, name: &str) -> Client {
    let database = Database::connect(&server.database.url, &config(&[]))
        .await
        .unwrap();
    let key = api_key::create_key(&database, name).await.unwrap();
    database.pool().close().await;
    server.client.with_api_key(&key)
}
