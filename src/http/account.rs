//! `GET /account`: whose API key it is.
//!
//! Programs that were written for Stripe ask before they begin whether their account may charge.

use actix_web::{HttpRequest, HttpResponse};
use serde::Serialize;

use super::{
    error::HttpResult,
    error_responses::errors,
    request::{Caller, no_query},
};

/// The account of an API key. Of what Stripe knows about an account, it has what is true here.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = Account)]
struct AccountView {
    /// `acct_…`
    #[schema(example = "acct_01kar2w7n9e4xt8f5mq0v3z6yd")]
    id: String,
    /// Always `account`.
    #[schema(example = "account")]
    object: &'static str,
    /// What it may do.
    capabilities: CapabilitiesView,
    /// Always true.
    #[schema(example = true)]
    charges_enabled: bool,
    /// Always null.
    #[schema(value_type = Option<String>, required = true)]
    country: (),
    /// Unix seconds.
    #[schema(example = 1_795_000_000)]
    created: i64,
    /// Always null: each charge says its currency.
    #[schema(value_type = Option<String>, required = true)]
    default_currency: (),
    /// Always true: there are none to submit.
    #[schema(example = true)]
    details_submitted: bool,
    /// Always null.
    #[schema(value_type = Option<String>, required = true)]
    email: (),
    /// Always false: money that was taken stays at the processor.
    #[schema(example = false)]
    payouts_enabled: bool,
    /// Always `standard`.
    #[schema(rename = "type", example = "standard")]
    #[serde(rename = "type")]
    kind: &'static str,
}

/// What an account may do.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = AccountCapabilities)]
struct CapabilitiesView {
    /// Always `active`.
    #[schema(example = "active")]
    card_payments: &'static str,
}

errors! { RetrieveAccountErrors: Reading [] }

/// Retrieve the account of the API key
#[utoipa::path(
    get, path = "/account", tag = "Account", operation_id = "retrieveAccount",
    responses(
        (status = 200, description = "The account.", body = AccountView),
        RetrieveAccountErrors,
    ),
)]
pub async fn retrieve(caller: Caller, request: HttpRequest) -> HttpResult {
    no_query(&request)?;
    let made_at = caller.account.0.get_timestamp();
    Ok(HttpResponse::Ok().json(AccountView {
        id: caller.account.to_string(),
        object: "account",
        capabilities: CapabilitiesView {
            card_payments: "active",
        },
        charges_enabled: true,
        country: (),
        created: made_at.map_or(0, |at| at.to_unix().0.cast_signed()),
        default_currency: (),
        details_submitted: true,
        email: (),
        payouts_enabled: false,
        kind: "standard",
    }))
}
