//! `/refunds`

use std::collections::BTreeMap;

use actix_web::{HttpRequest, HttpResponse, web};
use charge_once_strict_params::Fields;
use serde::Deserialize;
use utoipa::ToSchema;

use super::{
    app::App,
    error::HttpError,
    error_responses::errors,
    list,
    parameters::{ExpandCharge, ExpandDataCharge, MutatingHeaders, PageQuery, UpdateMetadataBody},
    reply::run,
    request::{Caller, MutatingRequest, expands, path_id, query_params},
};
use crate::{
    api::{list::List, refunds::RefundView},
    commands::{
        CreateRefund, UpdateRefund,
        expansions::{refund_view, refund_views},
    },
    domain::ids::{ChargeId, RefundId},
    store::{self, page::Listed, refunds::Filter},
};

/// The parameters of a new refund.
#[derive(Deserialize, ToSchema)]
#[schema(as = CreateRefund, example = json!({
    "charge": "ch_01kar2w7n9e4xt8f5mq0v3z6yd", "amount": 500, "reason": "requested_by_customer",
}))]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "describes the body; `parse` reads it")]
struct CreateRefundBody {
    /// Which charge: ch_…
    #[schema(pattern = "^ch_[0-7][0-9a-hjkmnp-tv-z]{25}$")]
    charge: String,
    /// Minor units. Default: what remains.
    #[schema(minimum = 1, maximum = 99_999_999)]
    amount: Option<i64>,
    /// duplicate, fraudulent or requested_by_customer.
    #[schema(pattern = "^(duplicate|fraudulent|requested_by_customer)$")]
    reason: Option<String>,
    /// Your own names: at most 50 keys of 40 characters with values of 500.
    metadata: Option<BTreeMap<String, String>>,
    /// References to expand in the reply.
    #[schema(max_items = 20)]
    expand: Option<Vec<ExpandCharge>>,
}

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
    request_body = CreateRefundBody,
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
    request_body = UpdateMetadataBody,
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

errors! {
    RetrieveRefundErrors: Reading [ResourceMissing]
}

/// Retrieve a refund
#[utoipa::path(
    get, path = "/refunds/{id}", tag = "Refunds", operation_id = "retrieveRefund",
    params(
        ("id" = String, Path, description = "The refund's id: re_…"),
        (
            "expand[]" = Option<Vec<ExpandCharge>>, Query,
            description = "`charge` shows the whole charge.", max_items = 20,
        ),
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
    let expand_charge = expands(&request, "charge")?;
    let id = path_id(&request, RefundId::parse, RefundId::PREFIX)?;
    let account = caller.account;
    let refund = app
        .snapshot(account, move |connection| {
            Box::pin(async move {
                let found = store::refunds::find(&mut *connection, account, id).await?;
                let Some(refund) = found else { return Ok(None) };
                let view = refund_view(connection, account, &refund, expand_charge);
                view.await.map(Some)
            })
        })
        .await?
        .ok_or_else(|| HttpError::missing_id(RefundId::PREFIX))?;
    Ok(HttpResponse::Ok().json(refund))
}

errors! {
    ListRefundsErrors: Reading []
}

/// List refunds
#[utoipa::path(
    get, path = "/refunds", tag = "Refunds", operation_id = "listRefunds",
    params(
        PageQuery,
        (
            "charge" = Option<String>, Query, description = "Only refunds of this charge: ch_…",
            pattern = "^ch_[0-7][0-9a-hjkmnp-tv-z]{25}$",
        ),
        (
            "expand[]" = Option<Vec<ExpandDataCharge>>, Query,
            description = "`data.charge` shows the whole charge in each.", max_items = 20,
        ),
    ),
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
    let params = query_params(&request)?;
    let mut fields = params.fields()?;
    let charge = list::id(&mut fields, "charge", ChargeId::parse)?;
    page(&app, caller, fields, charge, "/refunds").await
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
        (
            "expand[]" = Option<Vec<ExpandDataCharge>>, Query,
            description = "`data.charge` shows the whole charge in each.", max_items = 20,
        ),
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
    let params = query_params(&request)?;
    let path = format!("/charges/{id}/refunds");
    page(&app, caller, params.fields()?, Some(id), &path).await
}

/// One page of the list at `path`, with the parameters that every list has.
async fn page(
    app: &App,
    caller: Caller,
    mut fields: Fields<'_>,
    charge: Option<ChargeId>,
    path: &str,
) -> Result<HttpResponse, HttpError> {
    let page = list::page(&mut fields, |text| RefundId::parse(text).map(|id| id.0))?;
    let expand_charge = fields.expands("data.charge")?;
    fields.finish()?;
    let (account, cursor, filter) = (caller.account, page.cursor, Filter { charge });
    let listed = app
        .snapshot(account, move |connection| {
            Box::pin(async move {
                let found = store::refunds::list(&mut *connection, account, &page, &filter).await?;
                let Some(Listed { data, has_more }) = found else {
                    return Ok(None);
                };
                let data = refund_views(connection, account, &data, expand_charge).await?;
                Ok(Some(Listed { data, has_more }))
            })
        })
        .await?;
    list::reply(caller.dialect, path, &cursor, list::AN_OBJECT, listed)
}
