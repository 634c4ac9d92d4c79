//! `/test`: for tests of a client's retries, on servers with `FAULTS`.

use super::{faults::must_be_allowed, prelude::*};
use crate::{
    wire::test_accounts::{ExpiredKeysView, TestAccountView},
    work::{CreateTestAccount, ExpireKeys},
};

/// Create a test account
///
/// Makes an account with an API key of its own, so that each test begins with nothing. It ends
/// after 24 hours: its API key is refused from then on, and its data is removed. Only the account
/// of DEV_API_KEY may ask for one.
#[utoipa::path(
    post, path = "/test/accounts", tag = "Test", operation_id = "createTestAccount",
    // The reply shows an API key. A test that asks again after an hour is another test.
    extensions(("x-idempotency" = json!({"keys_for": 3600, "secret": true}))),
    params(MutatingHeaders),
    responses(
        (status = 201, description = "The account, with its API key.", body = TestAccountView),
        MutatingErrors,
    ),
)]
pub async fn create(app: Data<App>, request: MutatingRequest) -> HttpResult {
    must_be_allowed(request.testing.is_allowed)?;
    if !request.testing.makes_accounts {
        let message =
            "A test account makes no test accounts. Send the request with the key of DEV_API_KEY.";
        return Err(ApiError::invalid("Authorization", message).into());
    }
    run(&app, request, |request, origin, params| {
        app.idempotency
            .run(request, CreateTestAccount { origin, params })
    })
    .await
}

/// Let keys expire
///
/// Lets the records of the account's completed idempotency keys expire, as if their time had come:
/// each key is new again, unless the server remembers it. Keys in flight stay, and so does the key
/// of this request.
#[utoipa::path(
    post, path = "/test/expire_keys", tag = "Test", operation_id = "expireKeys",
    params(MutatingHeaders),
    responses(
        (status = 200, description = "How many keys have expired.", body = ExpiredKeysView),
        MutatingErrors,
    ),
)]
pub async fn expire_keys(app: Data<App>, request: MutatingRequest) -> HttpResult {
    must_be_allowed(request.testing.is_allowed)?;
    run(&app, request, |request, origin, params| {
        app.idempotency.run(request, ExpireKeys { origin, params })
    })
    .await
}
