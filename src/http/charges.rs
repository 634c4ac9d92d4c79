//! `/charges`

use actix_web::{HttpRequest, HttpResponse, web};

use super::{
    App,
    error::EdgeError,
    list,
    reply::{run, run_with_processor},
    request::{Caller, Mutation, expands, query_params},
};
use crate::{
    api::{charges::ChargeView, list::List, params::REFERENCE_MAX_CHARS},
    commands::{
        CaptureCharge, CreateCharge, UpdateCharge,
        expansions::{charge_view, charge_views},
    },
    domain::ids::{ChargeId, OrderId},
    store::{self, charges::Filter, page::Listed},
};

/// Charge a card
#[utoipa::path(
    post, path = "/charges", tag = "Charges", operation_id = "createCharge",
    params(super::openapi::IdempotencyHeaders, super::openapi::PreferHeader),
    request_body(
        content(
            (super::openapi::CreateChargeBody = "application/json"),
            (super::openapi::CreateChargeBody = "application/x-www-form-urlencoded"),
        ),
        description = "Amounts are in minor units: 2000 is 20.00 of a currency with cents.",
    ),
    responses((status = 201, description = "The charge.", body = ChargeView)),
)]
pub async fn create(app: web::Data<App>, mutation: Mutation) -> Result<HttpResponse, EdgeError> {
    let processor = app.processor.clone();
    run_with_processor(&app, mutation, |origin, params| CreateCharge {
        origin,
        params,
        processor,
    })
    .await
}

/// Update a charge
///
/// Names of metadata that the request doesn't mention stay; an empty value unsets.
#[utoipa::path(
    post, path = "/charges/{id}", tag = "Charges", operation_id = "updateCharge",
    params(
        ("id" = String, Path, description = "The charge's id: ch_…"),
        super::openapi::IdempotencyHeaders, super::openapi::PreferHeader,
    ),
    request_body(content(
        (super::openapi::UpdateChargeBody = "application/json"),
        (super::openapi::UpdateChargeBody = "application/x-www-form-urlencoded"),
    )),
    responses((status = 200, description = "The charge.", body = ChargeView)),
)]
pub async fn update(
    app: web::Data<App>,
    id: web::Path<String>,
    mutation: Mutation,
) -> Result<HttpResponse, EdgeError> {
    let id = id.into_inner();
    run(&app, mutation, |origin, params| UpdateCharge {
        origin,
        id,
        params,
    })
    .await
}

/// Capture a charge
///
/// Takes money that was promised with `capture=false`: all of it, or a part; the rest is released.
/// Once only.
#[utoipa::path(
    post, path = "/charges/{id}/capture", tag = "Charges", operation_id = "captureCharge",
    params(
        ("id" = String, Path, description = "The charge's id: ch_…"),
        super::openapi::IdempotencyHeaders, super::openapi::PreferHeader,
    ),
    request_body(content(
        (super::openapi::CaptureChargeBody = "application/json"),
        (super::openapi::CaptureChargeBody = "application/x-www-form-urlencoded"),
    )),
    responses((status = 200, description = "The charge.", body = ChargeView)),
)]
pub async fn capture(
    app: web::Data<App>,
    id: web::Path<String>,
    mutation: Mutation,
) -> Result<HttpResponse, EdgeError> {
    let id = id.into_inner();
    run_with_processor(&app, mutation, |origin, params| CaptureCharge {
        origin,
        id,
        params,
    })
    .await
}

/// Retrieve a charge
#[utoipa::path(
    get, path = "/charges/{id}", tag = "Charges", operation_id = "retrieveCharge",
    params(
        ("id" = String, Path, description = "The charge's id: ch_…"),
        (
            "expand[]" = Option<Vec<super::openapi::ExpandRefunds>>, Query,
            description = "`refunds` lists its refunds in it.", max_items = 20,
        ),
    ),
    responses((status = 200, description = "The charge.", body = ChargeView)),
)]
pub async fn retrieve(
    app: web::Data<App>,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, EdgeError> {
    let expand_refunds = expands(&request, "refunds")?;
    let id = ChargeId::parse(request.match_info().query("id"))
        .ok_or_else(|| EdgeError::missing("id"))?;
    let Caller { account, dialect } = caller;
    let charge = app
        .snapshot(move |connection| {
            Box::pin(async move {
                let found = store::charges::find(&mut *connection, account, id).await?;
                let Some(charge) = found else { return Ok(None) };
                let view = charge_view(connection, account, dialect, &charge, expand_refunds);
                view.await.map(Some)
            })
        })
        .await?
        .ok_or_else(|| EdgeError::missing("id"))?;
    Ok(HttpResponse::Ok().json(charge))
}

/// List charges
#[utoipa::path(
    get, path = "/charges", tag = "Charges", operation_id = "listCharges",
    params(
        super::openapi::PageQuery,
        (
            "customer" = Option<String>, Query, description = "Only charges with this reference.",
            max_length = 255,
        ),
        (
            "order" = Option<String>, Query, description = "Only charges for this order: or_…",
            pattern = "^or_[0-7][0-9a-hjkmnp-tv-z]{25}$",
        ),
        (
            "expand[]" = Option<Vec<super::openapi::ExpandDataRefunds>>, Query,
            description = "`data.refunds` lists the refunds in each.", max_items = 20,
        ),
    ),
    responses((status = 200, description = "A page, newest first.", body = List<ChargeView>)),
)]
pub async fn list(
    app: web::Data<App>,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, EdgeError> {
    let params = query_params(&request)?;
    let mut fields = params.fields()?;
    let page = list::page(&mut fields, |text| ChargeId::parse(text).map(|id| id.0))?;
    let filter = Filter {
        customer: fields.text("customer", REFERENCE_MAX_CHARS)?,
        order: list::id(&mut fields, "order", OrderId::parse)?,
    };
    let expand_refunds = fields.expands("data.refunds")?;
    fields.finish()?;
    let (Caller { account, dialect }, cursor) = (caller, page.cursor);
    let listed = app
        .snapshot(move |connection| {
            Box::pin(async move {
                let found = store::charges::list(&mut *connection, account, &page, &filter).await?;
                let Some(Listed { data, has_more }) = found else {
                    return Ok(None);
                };
                let views = charge_views(connection, account, dialect, &data, expand_refunds);
                let data = views.await?;
                Ok(Some(Listed { data, has_more }))
            })
        })
        .await?;
    list::reply(dialect, "/charges", cursor, listed)
}
