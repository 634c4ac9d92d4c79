//! `/account`: whose API key it is.

use charge_once::domain::ids::AccountId;

use crate::support::prelude::*;

#[tokio::test]
async fn an_api_key_is_told_its_own_account_and_no_other() {
    let server = TestServer::start().await;
    for name in ["one", "other"] {
        let client = client_of_account(&server, name).await;
        let account = client.get("/v1/account").await.json();
        let expected = json!({
            "id": account["id"], "object": "account", "capabilities": {"card_payments": "active"},
            "charges_enabled": true, "country": null, "created": account["created"],
            "default_currency": null, "details_submitted": true, "email": null,
            "payouts_enabled": false, "type": "standard",
        });
        assert_eq!(account, expected);
        assert_eq!(client.get("/account").await.json(), account);
        assert!(account["created"].as_i64().unwrap() > 1_700_000_000);
        let known = sqlx::query_scalar("SELECT id FROM accounts WHERE name = $1").bind(name);
        let known: uuid::Uuid = known.fetch_one(&server.database.pool).await.unwrap();
        assert_eq!(account["id"], AccountId(known).to_string());
    }
    let refused = server.client.get("/account?limit=1").await.refusal();
    assert_eq!((refused.0, &*refused.1), (400, "parameter_unknown"));
    let bare = Answer::of(server.client.bare(Method::GET, "/account")).await;
    assert_eq!(bare.code(), "api_key_missing");
}
