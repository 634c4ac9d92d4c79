//! `GET /account`: whose API key it is.
//!
//! Programs that were written for Stripe ask before they begin whether their account may charge.

use super::prelude::*;

views! {
    /// The account of an API key. Of what Stripe knows about an account, it has what is true here.
    struct AccountView as Account from account: AccountId {
        /// `acct_…`
        id: String [example = "acct_01kar2w7n9e4xt8f5mq0v3z6yd"] = account.to_string();
        /// Always `account`.
        always object: &'static str = "account";
        /// What it may do.
        capabilities: CapabilitiesView = CapabilitiesView::of();
        /// Always true.
        always charges_enabled: bool = true;
        null country;
        created = account.0.get_timestamp().map_or(0, |at| at.to_unix().0.cast_signed());
        /// Always null: each charge says its currency.
        null default_currency;
        /// Always true: there are none to submit.
        always details_submitted: bool = true;
        null email;
        /// Always false: money that was taken stays at the processor.
        always payouts_enabled: bool = false;
        /// Always `standard`.
        #[serde(rename = "type")]
        always kind: &'static str = "standard";
    }

    /// What an account may do.
    struct CapabilitiesView as AccountCapabilities of() {
        /// Always `active`.
        always card_payments: &'static str = "active";
    }
}

/// Retrieve the account of the API key
#[utoipa::path(
    get, path = "/account", tag = "Account", operation_id = "retrieveAccount",
    responses((status = 200, description = "The account.", body = AccountView), ReadErrors),
)]
pub async fn retrieve(caller: Caller, request: HttpRequest) -> HttpResult {
    no_query(&request)?;
    Ok(HttpResponse::Ok().json(AccountView::from(caller.account)))
}
