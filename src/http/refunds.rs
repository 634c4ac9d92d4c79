//! `/refunds`

use actix_web::{HttpRequest, HttpResponse, web::Data};
use charge_once_pages::{Page, PageQuery};
use charge_once_strict_params::{Expand, Expansion, parameters};

use super::{
    app::App,
    error::{HttpError, HttpResult},
    error_responses::errors,
    list,
    request::{Caller, path_id, query_params},
    verbs::verbs,
};
use crate::{
    commands::{CreateRefund, Update},
    domain::{
        ids::{ChargeId, PaymentIntentId, RefundId},
        refund::Refund,
    },
    store::{self, refunds::RefundFilter},
    wire::{
        list::List,
        parameter::{ExpandRefund, ExpandRefunds},
        refunds::{CreateRefundParams, RefundView, UpdateRefundParams},
    },
};

verbs! { "Refunds", RefundView;
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
}

parameters! {
    /// How a refund is shown.
    struct ExpandRefundQuery {
        /// `charge` shows the whole charge, and so on.
        expand: Expand<ExpandRefund>,
    }
}

errors! { RetrieveRefundErrors: Reading [ResourceMissing] }

/// Retrieve a refund
#[utoipa::path(
    get, path = "/refunds/{id}", tag = "Refunds", operation_id = "retrieveRefund",
    params(("id" = String, Path, description = "The refund's id: re_…"), ExpandRefundQuery),
    responses(
        (status = 200, description = "The refund.", body = RefundView),
        RetrieveRefundErrors,
    ),
)]
pub async fn retrieve(app: Data<App>, caller: Caller, request: HttpRequest) -> HttpResult {
    let expand = query_params::<ExpandRefundQuery>(&request)?.expand;
    let id = path_id::<RefundId>(&request)?;
    let found = list::shown(&app, caller, expand, move |connection| {
        Box::pin(store::refunds::find(connection, caller.account, id))
    });
    let shown = found.await?.ok_or_else(HttpError::missing_id::<RefundId>)?;
    Ok(HttpResponse::Ok().json(shown))
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

errors! { ListRefundsErrors: Reading [] }

/// List refunds
#[utoipa::path(
    get, path = "/refunds", tag = "Refunds", operation_id = "listRefunds",
    params(PageQuery, ListRefundsQuery),
    responses(
        (status = 200, description = "A page, newest first.", body = List<RefundView>),
        ListRefundsErrors,
    ),
)]
pub async fn list(app: Data<App>, caller: Caller, request: HttpRequest) -> HttpResult {
    let (page, query) = list::query::<RefundId, ListRefundsQuery>(&request)?;
    let filter = RefundFilter {
        charge: query.charge,
        intent: query.payment_intent,
    };
    reply(&app, caller, "/refunds", page, filter, query.expand).await
}

parameters! {
    /// How the refunds of a charge are shown.
    struct ListRefundsOfChargeQuery {
        /// `data.charge` shows the whole charge in each, and so on.
        expand: Expand<ExpandRefunds>,
    }
}

errors! { ListRefundsOfChargeErrors: Reading [ResourceMissing] }

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
        ListRefundsOfChargeErrors,
    ),
)]
pub async fn list_of_charge(app: Data<App>, caller: Caller, request: HttpRequest) -> HttpResult {
    let id = path_id::<ChargeId>(&request)?;
    let account = caller.account;
    app.read(account, move |connection| {
        Box::pin(store::charges::find(connection, account, id))
    })
    .await?
    .ok_or_else(HttpError::missing_id::<ChargeId>)?;
    let (page, query) = list::query::<RefundId, ListRefundsOfChargeQuery>(&request)?;
    let filter = RefundFilter {
        charge: Some(id),
        intent: None,
    };
    let path = format!("/charges/{id}/refunds");
    reply(&app, caller, &path, page, filter, query.expand).await
}

/// One page of the list at `path`.
async fn reply(
    app: &App,
    caller: Caller,
    path: &str,
    page: Page,
    filter: RefundFilter,
    expand: Expansion,
) -> HttpResult {
    let account = caller.account;
    let listed = list::shown_page(app, caller, page, expand, move |connection, page| {
        Box::pin(store::refunds::list(connection, account, page, filter))
    });
    list::reply(caller.dialect, path, listed.await?)
}
