//! `/refunds`

use actix_web::{HttpRequest, HttpResponse, web};

use super::{
    App,
    error::EdgeError,
    list,
    reply::{run, run_with_processor},
    request::{Caller, Mutation, expands, query_params},
};
use crate::{
    api::{list::List, params::Fields, refunds::RefundView},
    commands::{
        CreateRefund, UpdateRefund,
        expansions::{refund_view, refund_views},
    },
    domain::ids::{ChargeId, RefundId},
    store::{self, page::Listed, refunds::Filter},
};

/// Refund a charge
///
/// Never more than was captured, however many requests race. A charge that was not captured is
/// released by a refund of its whole amount.
#[utoipa::path(
    post, path = "/refunds", tag = "Refunds", operation_id = "createRefund",
    params(super::openapi::IdempotencyHeaders, super::openapi::PreferHeader),
    request_body(content(
        (super::openapi::CreateRefundBody = "application/json"),
        (super::openapi::CreateRefundBody = "application/x-www-form-urlencoded"),
    )),
    responses((status = 201, description = "The refund.", body = RefundView)),
)]
pub async fn create(app: web::Data<App>, mutation: Mutation) -> Result<HttpResponse, EdgeError> {
    run_with_processor(&app, mutation, |origin, params| CreateRefund {
        origin,
        params,
    })
    .await
}

/// Update a refund
///
/// Names of metadata that the request doesn't mention stay; an empty value unsets.
#[utoipa::path(
    post, path = "/refunds/{id}", tag = "Refunds", operation_id = "updateRefund",
    params(
        ("id" = String, Path, description = "The refund's id: re_…"),
        super::openapi::IdempotencyHeaders, super::openapi::PreferHeader,
    ),
    request_body(content(
        (super::openapi::UpdateMetadataBody = "application/json"),
        (super::openapi::UpdateMetadataBody = "application/x-www-form-urlencoded"),
    )),
    responses((status = 200, description = "The refund.", body = RefundView)),
)]
pub async fn update(
    app: web::Data<App>,
    id: web::Path<String>,
    mutation: Mutation,
) -> Result<HttpResponse, EdgeError> {
    let id = id.into_inner();
    run(&app, mutation, |origin, params| UpdateRefund {
        origin,
        id,
        params,
    })
    .await
}

/// Retrieve a refund
#[utoipa::path(
    get, path = "/refunds/{id}", tag = "Refunds", operation_id = "retrieveRefund",
    params(
        ("id" = String, Path, description = "The refund's id: re_…"),
        (
            "expand[]" = Option<Vec<super::openapi::ExpandCharge>>, Query,
            description = "`charge` shows the whole charge.", max_items = 20,
        ),
    ),
    responses((status = 200, description = "The refund.", body = RefundView)),
)]
pub async fn retrieve(
    app: web::Data<App>,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, EdgeError> {
    let expand_charge = expands(&request, "charge")?;
    let id = RefundId::parse(request.match_info().query("id"))
        .ok_or_else(|| EdgeError::missing("id"))?;
    let account = caller.account;
    let refund = app
        .snapshot(move |connection| {
            Box::pin(async move {
                let found = store::refunds::find(&mut *connection, account, id).await?;
                let Some(refund) = found else { return Ok(None) };
                let view = refund_view(connection, account, &refund, expand_charge);
                view.await.map(Some)
            })
        })
        .await?
        .ok_or_else(|| EdgeError::missing("id"))?;
    Ok(HttpResponse::Ok().json(refund))
}

/// List refunds
#[utoipa::path(
    get, path = "/refunds", tag = "Refunds", operation_id = "listRefunds",
    params(
        super::openapi::PageQuery,
        (
            "charge" = Option<String>, Query, description = "Only refunds of this charge: ch_…",
            pattern = "^ch_[0-7][0-9a-hjkmnp-tv-z]{25}$",
        ),
        (
            "expand[]" = Option<Vec<super::openapi::ExpandDataCharge>>, Query,
            description = "`data.charge` shows the whole charge in each.", max_items = 20,
        ),
    ),
    responses((status = 200, description = "A page, newest first.", body = List<RefundView>)),
)]
pub async fn list(
    app: web::Data<App>,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, EdgeError> {
    let params = query_params(&request)?;
    let mut fields = params.fields()?;
    let charge = list::id(&mut fields, "charge", ChargeId::parse)?;
    page(&app, caller, fields, charge, "/refunds").await
}

/// List the refunds of a charge
#[utoipa::path(
    get, path = "/charges/{id}/refunds", tag = "Refunds", operation_id = "listRefundsOfCharge",
    params(
        ("id" = String, Path, description = "The charge's id: ch_…"),
        super::openapi::PageQuery,
        (
            "expand[]" = Option<Vec<super::openapi::ExpandDataCharge>>, Query,
            description = "`data.charge` shows the whole charge in each.", max_items = 20,
        ),
    ),
    responses((status = 200, description = "A page, newest first.", body = List<RefundView>)),
)]
pub async fn list_of_charge(
    app: web::Data<App>,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, EdgeError> {
    let id = ChargeId::parse(request.match_info().query("id"))
        .ok_or_else(|| EdgeError::missing("id"))?;
    let account = caller.account;
    app.read(move |connection| Box::pin(store::charges::find(connection, account, id)))
        .await?
        .ok_or_else(|| EdgeError::missing("id"))?;
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
) -> Result<HttpResponse, EdgeError> {
    let page = list::page(&mut fields, |text| RefundId::parse(text).map(|id| id.0))?;
    let expand_charge = fields.expands("data.charge")?;
    fields.finish()?;
    let (account, cursor, filter) = (caller.account, page.cursor, Filter { charge });
    let listed = app
        .snapshot(move |connection| {
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
    list::reply(caller.dialect, path, cursor, listed)
}
