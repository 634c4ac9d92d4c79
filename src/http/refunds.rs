//! `/refunds`

use actix_web::{HttpRequest, HttpResponse, web};
use charge_once_pages::{AN_OBJECT, Listed, Page, PageQuery};
use charge_once_strict_params::{Expand, parameters};
use uuid::Uuid;

use super::{
    app::App,
    error::HttpError,
    error_responses::errors,
    list,
    parameters::MutatingHeaders,
    reply::run,
    request::{Caller, MutatingRequest, path_id, query_params},
};
use crate::{
    commands::{
        CreateRefund, UpdateRefund,
        expansions::{Shown, view},
    },
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

errors! {
    CreateRefundErrors: Mutating [
        ParameterMissing, ResourceMissing, AmountTooLarge, ChargeAlreadyRefunded,
        ChargeNotCaptured, RefundAmountTooLarge
    ]
}

/// Refund a charge
///
/// Never more than was captured, however many requests race. A charge that was not captured is
/// released by a refund of its whole amount.
#[utoipa::path(
    post, path = "/refunds", tag = "Refunds", operation_id = "createRefund",
    params(MutatingHeaders),
    request_body = CreateRefundParams,
    responses(
        (status = 201, description = "The refund.", body = RefundView),
        CreateRefundErrors,
    ),
)]
pub async fn create(
    app: web::Data<App>,
    request: MutatingRequest,
) -> Result<HttpResponse, HttpError> {
    run(&app, request, |request, origin, params| {
        app.run_with_processor(request, CreateRefund { origin, params })
    })
    .await
}

errors! {
    UpdateRefundErrors: Mutating [ResourceMissing]
}

/// Update a refund
///
/// Names of metadata that the request doesn't mention stay; an empty value unsets.
#[utoipa::path(
    post, path = "/refunds/{id}", tag = "Refunds", operation_id = "updateRefund",
    params(
        ("id" = String, Path, description = "The refund's id: re_…"),
        MutatingHeaders,
    ),
    request_body = UpdateRefundParams,
    responses(
        (status = 200, description = "The refund.", body = RefundView),
        UpdateRefundErrors,
    ),
)]
pub async fn update(
    app: web::Data<App>,
    id: web::Path<String>,
    request: MutatingRequest,
) -> Result<HttpResponse, HttpError> {
    let id = id.into_inner();
    run(&app, request, |request, origin, params| {
        app.idempotency
            .run(request, UpdateRefund { origin, id, params })
    })
    .await
}

parameters! {
    /// How a refund is shown.
    struct ExpandRefundQuery {
        /// `charge` shows the whole charge, and so on.
        expand: Expand<ExpandRefund>,
    }
}

errors! {
    RetrieveRefundErrors: Reading [ResourceMissing]
}

/// Retrieve a refund
#[utoipa::path(
    get, path = "/refunds/{id}", tag = "Refunds", operation_id = "retrieveRefund",
    params(
        ("id" = String, Path, description = "The refund's id: re_…"),
        ExpandRefundQuery,
    ),
    responses(
        (status = 200, description = "The refund.", body = RefundView),
        RetrieveRefundErrors,
    ),
)]
pub async fn retrieve(
    app: web::Data<App>,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, HttpError> {
    let expand = query_params::<ExpandRefundQuery>(&request)?.expand;
    let id = path_id(&request, RefundId::parse, RefundId::PREFIX)?;
    let (account, audience) = (caller.account, caller.audience());
    let refund = app
        .snapshot(account, move |connection| {
            Box::pin(async move {
                let found = store::refunds::find(&mut *connection, account, id).await?;
                let Some(refund) = found else { return Ok(None) };
                view(connection, audience, &refund, &expand).await.map(Some)
            })
        })
        .await?
        .ok_or_else(|| HttpError::missing_id(RefundId::PREFIX))?;
    Ok(HttpResponse::Ok().json(refund))
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

errors! {
    ListRefundsErrors: Reading []
}

/// List refunds
#[utoipa::path(
    get, path = "/refunds", tag = "Refunds", operation_id = "listRefunds",
    params(PageQuery, ListRefundsQuery),
    responses(
        (status = 200, description = "A page, newest first.", body = List<RefundView>),
        ListRefundsErrors,
    ),
)]
pub async fn list(
    app: web::Data<App>,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, HttpError> {
    let (page, query) = list::query::<ListRefundsQuery>(&request, refund_id)?;
    reply(&app, caller, page, query, "/refunds").await
}

parameters! {
    /// How the refunds of a charge are shown.
    struct ListRefundsOfChargeQuery {
        /// `data.charge` shows the whole charge in each, and so on.
        expand: Expand<ExpandRefunds>,
    }
}

errors! {
    ListRefundsOfChargeErrors: Reading [ResourceMissing]
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
        ListRefundsOfChargeErrors,
    ),
)]
pub async fn list_of_charge(
    app: web::Data<App>,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, HttpError> {
    let id = path_id(&request, ChargeId::parse, ChargeId::PREFIX)?;
    let account = caller.account;
    app.read(account, move |connection| {
        Box::pin(store::charges::find(connection, account, id))
    })
    .await?
    .ok_or_else(|| HttpError::missing_id(ChargeId::PREFIX))?;
    let (page, query) = list::query::<ListRefundsOfChargeQuery>(&request, refund_id)?;
    let query = ListRefundsQuery {
        charge: Some(id),
        payment_intent: None,
        expand: query.expand,
    };
    let path = format!("/charges/{id}/refunds");
    reply(&app, caller, page, query, &path).await
}

fn refund_id(text: &str) -> Option<Uuid> {
    RefundId::parse(text).map(|id| id.0)
}

/// One page of the list at `path`.
async fn reply(
    app: &App,
    caller: Caller,
    page: Page,
    query: ListRefundsQuery,
    path: &str,
) -> Result<HttpResponse, HttpError> {
    let ListRefundsQuery {
        charge,
        payment_intent: intent,
        expand,
    } = query;
    let (account, audience) = (caller.account, caller.audience());
    let (cursor, filter) = (page.cursor, RefundFilter { charge, intent });
    let listed = app
        .snapshot(account, move |connection| {
            Box::pin(async move {
                let found = store::refunds::list(&mut *connection, account, &page, &filter).await?;
                let Some(Listed { data, has_more }) = found else {
                    return Ok(None);
                };
                let data = Refund::views(connection, audience, &data, &expand).await?;
                Ok(Some(Listed { data, has_more }))
            })
        })
        .await?;
    list::reply(caller.dialect, path, &cursor, AN_OBJECT, listed)
}
