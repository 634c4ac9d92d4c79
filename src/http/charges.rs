//! `/charges`

use std::collections::BTreeMap;

use actix_web::{HttpRequest, HttpResponse, web};
use serde::Deserialize;
use utoipa::ToSchema;

use super::{
    app::App,
    error::HttpError,
    error_responses::errors,
    list,
    parameters::{ExpandDataRefunds, ExpandRefunds, MutatingHeaders, PageQuery, SourceParam},
    reply::run,
    request::{Caller, MutatingRequest, expands, path_id, query_params},
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

/// The parameters of a new charge.
#[derive(Deserialize, ToSchema)]
#[schema(as = CreateCharge, example = json!({
    "amount": 2000, "currency": "usd", "source": "tok_visa", "description": "Two mugs",
    "metadata": {"order_id": "6735"},
}))]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "describes the body; `parse` reads it")]
struct CreateChargeBody {
    /// Minor units.
    #[schema(minimum = 1, maximum = 99_999_999)]
    amount: i64,
    /// The ISO 4217 code of a currency in use, in any case.
    #[schema(format = "iso-4217", pattern = "^[A-Za-z]{3}$", example = "usd")]
    currency: String,
    /// A test token, or a test card. Default: tok_visa.
    source: Option<SourceParam>,
    /// Whether to take the money at once. Default: true.
    capture: Option<bool>,
    /// Your own reference.
    #[schema(max_length = 255)]
    customer: Option<String>,
    /// For people.
    #[schema(max_length = 1000)]
    description: Option<String>,
    /// On the card statement.
    #[schema(max_length = 22)]
    statement_descriptor: Option<String>,
    /// Where the receipt goes.
    #[schema(
        max_length = 254,
        example = "jenny@example.com",
        pattern = r"^[^@\s\u0000-\u001f\u007f-\u009f]+@[^@\s\u0000-\u001f\u007f-\u009f]+$"
    )]
    receipt_email: Option<String>,
    /// Your own names: at most 50 keys of 40 characters with values of 500.
    metadata: Option<BTreeMap<String, String>>,
    /// References to expand in the reply.
    #[schema(max_items = 20)]
    expand: Option<Vec<ExpandRefunds>>,
}

errors! {
    CreateChargeErrors: Charging [ParameterMissing, AmountTooLarge]
}

/// Charge a card
#[utoipa::path(
    post, path = "/charges", tag = "Charges", operation_id = "createCharge",
    params(MutatingHeaders),
    request_body(
        content = CreateChargeBody,
        description = "Amounts are in minor units: 2000 is 20.00 of a currency with cents.",
    ),
    responses(
        (status = 201, description = "The charge.", body = ChargeView),
        CreateChargeErrors,
    ),
)]
pub async fn create(
    app: web::Data<App>,
    request: MutatingRequest,
) -> Result<HttpResponse, HttpError> {
    let (app, slow_lane) = (&**app, app.slow_lane.clone());
    run(app, request, |request, origin, params| async move {
        let command = CreateCharge {
            origin,
            params,
            slow_lane,
        };
        match &app.phases {
            None => app.batches.run(request, command).await,
            Some(phases) => phases.run(request, command).await,
        }
    })
    .await
}

/// What may change of a charge.
#[derive(Deserialize, ToSchema)]
#[schema(as = UpdateCharge, example = json!({"description": "Two mugs, blue"}))]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "describes the body; `parse` reads it")]
struct UpdateChargeBody {
    /// For people.
    #[schema(max_length = 1000)]
    description: Option<String>,
    /// Where the receipt goes.
    #[schema(
        max_length = 254,
        example = "jenny@example.com",
        pattern = r"^[^@\s\u0000-\u001f\u007f-\u009f]+@[^@\s\u0000-\u001f\u007f-\u009f]+$"
    )]
    receipt_email: Option<String>,
    /// Your own names; an empty or null value unsets one.
    metadata: Option<BTreeMap<String, Option<String>>>,
    /// References to expand in the reply.
    #[schema(max_items = 20)]
    expand: Option<Vec<ExpandRefunds>>,
}

errors! {
    UpdateChargeErrors: Mutating [ResourceMissing]
}

/// Update a charge
///
/// Names of metadata that the request doesn't mention stay; an empty value unsets.
#[utoipa::path(
    post, path = "/charges/{id}", tag = "Charges", operation_id = "updateCharge",
    params(
        ("id" = String, Path, description = "The charge's id: ch_…"),
        MutatingHeaders,
    ),
    request_body = UpdateChargeBody,
    responses(
        (status = 200, description = "The charge.", body = ChargeView),
        UpdateChargeErrors,
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
            .run(request, UpdateCharge { origin, id, params })
    })
    .await
}

/// How much is captured.
#[derive(Deserialize, ToSchema)]
#[schema(as = CaptureCharge, example = json!({"amount": 1500}))]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "describes the body; `parse` reads it")]
struct CaptureChargeBody {
    /// Minor units. Default: all of it.
    #[schema(minimum = 1, maximum = 99_999_999)]
    amount: Option<i64>,
    /// References to expand in the reply.
    #[schema(max_items = 20)]
    expand: Option<Vec<ExpandRefunds>>,
}

errors! {
    CaptureChargeErrors: Mutating [
        ResourceMissing, AmountTooLarge, ChargeAlreadyCaptured, ChargeAlreadyRefunded,
        CaptureAmountTooLarge
    ]
}

/// Capture a charge
///
/// Takes money that was promised with `capture=false`: all of it, or a part; the rest is released.
/// Once only.
#[utoipa::path(
    post, path = "/charges/{id}/capture", tag = "Charges", operation_id = "captureCharge",
    params(
        ("id" = String, Path, description = "The charge's id: ch_…"),
        MutatingHeaders,
    ),
    request_body = CaptureChargeBody,
    responses(
        (status = 200, description = "The charge.", body = ChargeView),
        CaptureChargeErrors,
    ),
)]
pub async fn capture(
    app: web::Data<App>,
    id: web::Path<String>,
    request: MutatingRequest,
) -> Result<HttpResponse, HttpError> {
    let id = id.into_inner();
    run(&app, request, |request, origin, params| {
        app.run_with_processor(request, CaptureCharge { origin, id, params })
    })
    .await
}

errors! {
    RetrieveChargeErrors: Reading [ResourceMissing]
}

/// Retrieve a charge
#[utoipa::path(
    get, path = "/charges/{id}", tag = "Charges", operation_id = "retrieveCharge",
    params(
        ("id" = String, Path, description = "The charge's id: ch_…"),
        (
            "expand[]" = Option<Vec<ExpandRefunds>>, Query,
            description = "`refunds` lists its refunds in it.", max_items = 20,
        ),
    ),
    responses(
        (status = 200, description = "The charge.", body = ChargeView),
        RetrieveChargeErrors,
    ),
)]
pub async fn retrieve(
    app: web::Data<App>,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, HttpError> {
    let expand_refunds = expands(&request, "refunds")?;
    let id = path_id(&request, ChargeId::parse, ChargeId::PREFIX)?;
    let Caller { account, dialect } = caller;
    let charge = app
        .snapshot(account, move |connection| {
            Box::pin(async move {
                let found = store::charges::find(&mut *connection, account, id).await?;
                let Some(charge) = found else { return Ok(None) };
                let view = charge_view(connection, account, dialect, &charge, expand_refunds);
                view.await.map(Some)
            })
        })
        .await?
        .ok_or_else(|| HttpError::missing_id(ChargeId::PREFIX))?;
    Ok(HttpResponse::Ok().json(charge))
}

errors! {
    ListChargesErrors: Reading []
}

/// List charges
#[utoipa::path(
    get, path = "/charges", tag = "Charges", operation_id = "listCharges",
    params(
        PageQuery,
        (
            "customer" = Option<String>, Query, description = "Only charges with this reference.",
            max_length = 255,
        ),
        (
            "order" = Option<String>, Query, description = "Only charges for this order: or_…",
            pattern = "^or_[0-7][0-9a-hjkmnp-tv-z]{25}$",
        ),
        (
            "expand[]" = Option<Vec<ExpandDataRefunds>>, Query,
            description = "`data.refunds` lists the refunds in each.", max_items = 20,
        ),
    ),
    responses(
        (status = 200, description = "A page, newest first.", body = List<ChargeView>),
        ListChargesErrors,
    ),
)]
pub async fn list(
    app: web::Data<App>,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, HttpError> {
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
        .snapshot(account, move |connection| {
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
    list::reply(dialect, "/charges", &cursor, list::AN_OBJECT, listed)
}
