//! `/refunds`

use super::prelude::*;
use crate::{
    commands::{CreateRefund, Update},
    domain::refund::Refund,
    store::refunds::RefundFilter,
    wire::refunds::{CreateRefundParams, RefundView, UpdateRefundParams},
};

endpoints! { "Refunds", RefundView;
    /// Refund a charge
    ///
    /// Never more than was captured, however many requests race. A charge that was not captured is
    /// released by a refund of its whole amount.
    create "createRefund": post "/refunds" (CreateRefundParams) => 201 "The refund.",
        Mutating [
            ParameterMissing, ResourceMissing, AmountTooLarge, ChargeAlreadyRefunded,
            ChargeNotCaptured, RefundAmountTooLarge,
        ],
        CreateRefund;

    /// Update a refund
    ///
    /// Names of metadata that the request doesn't mention stay; an empty value unsets.
    update "updateRefund": post "/refunds/{id}" of id "The refund's id: re_…" (UpdateRefundParams)
        => 200 "The refund.", Mutating [ResourceMissing],
        |params| Update::<Refund> { id, params };

    /// Retrieve a refund
    one retrieve "retrieveRefund": "/refunds/{id}" of RefundId "The refund's id: re_…"
        (ExpandRefund "`charge` shows the whole charge, and so on.") => RefundView "The refund.",
        store::refunds::find;

    /// List refunds
    page list "listRefunds": "/refunds" of RefundId (ListRefundsQuery) [],
        query => RefundFilter { charge: query.charge, intent: query.payment_intent },
        store::refunds::list;
}

parameters! {
    /// Which refunds are listed, and how.
    struct ListRefundsQuery {
        /// Only refunds of this charge: ch_…
        charge: Option<ChargeId>,
        /// Only refunds of this intent: pi_…
        payment_intent: Option<PaymentIntentId>,
        /// `data.charge` shows the whole charge in each, and so on.
        expand: Expand<ExpandRefunds>,
    }
}

parameters! {
    /// How the refunds of a charge are shown.
    struct ListRefundsOfChargeQuery {
        /// `data.charge` shows the whole charge in each, and so on.
        expand: Expand<ExpandRefunds>,
    }
}

/// List the refunds of a charge
#[utoipa::path(
    get, path = "/charges/{id}/refunds", tag = "Refunds", operation_id = "listRefundsOfCharge",
    params(
        ("id" = String, Path, description = "The charge's id: ch_…"),
        PageQuery,
        ListRefundsOfChargeQuery,
    ),
    responses(
        (status = 200, description = "A page, newest first.", body = List<RefundView>),
        ObjectErrors,
    ),
)]
pub async fn list_of_charge(app: Data<App>, caller: Caller, request: HttpRequest) -> HttpResult {
    let id = path_id::<ChargeId>(&request)?;
    let account = caller.account;
    app.read(account, move |connection| {
        Box::pin(store::charges::find(connection, account, id))
    })
    .await?
    .ok_or_else(|| reads::missing_id(caller, id))?;
    let (page, query) = reads::query::<RefundId, ListRefundsOfChargeQuery>(&request)?;
    let filter = RefundFilter {
        charge: Some(id),
        intent: None,
    };
    let path = format!("/charges/{id}/refunds");
    reads::listed(
        &app,
        caller,
        &path,
        page,
        query.expand,
        move |connection, page| Box::pin(store::refunds::list(connection, account, page, filter)),
    )
    .await
}
