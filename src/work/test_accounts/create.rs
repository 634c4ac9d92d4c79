//! `POST /test/accounts`: an account for one test.
//!
//! Locks    nothing
//! Writes   one account that ends by itself, and its API key
//! Emits    nothing
//! Refuses  any parameter; an account too many

use charge_once_postgres::api_keys::{count_test_accounts, insert_key, insert_test_account};
use charge_once_strict_params::Params;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::{
    commands::{
        Origin,
        replies::{CREATED, checked},
    },
    domain::{api_key::API_KEY, ids::AccountId},
    idempotency::{Command, Rejection, Reply},
    wire::test_accounts::{OPEN_MAX, TestAccountView, too_many_test_accounts},
};

/// Creates a test account with an API key.
pub struct CreateTestAccount {
    /// The request's origin: the dev account.
    pub origin: Origin,
    /// As decoded; there is none to be given.
    pub params: Params,
}

impl Command for CreateTestAccount {
    async fn execute(&self, tx: &mut PgConnection) -> Result<Reply, Rejection> {
        let () = checked(&self.params)?;
        // Two that race may make one account too many, which does no harm.
        if count_test_accounts(tx, OPEN_MAX).await? >= OPEN_MAX {
            return Err(too_many_test_accounts().into());
        }
        let id = AccountId(Uuid::now_v7());
        let api_key = API_KEY.new_key();
        let ends_at = insert_test_account(tx, id.0, &id.to_string()).await?;
        insert_key(tx, id.0, &api_key).await?;
        // The key is shown here only. The stored reply holds it too, so that a client that lost the
        // reply gets it by retrying, for as long as its idempotency key lives.
        let view = TestAccountView::of(id, api_key, ends_at);
        let mut reply = Reply::json(CREATED, &view)?;
        reply.resource_id = Some(view.id);
        Ok(reply)
    }
}
