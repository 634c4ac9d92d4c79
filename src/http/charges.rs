//! `/charges`

use actix_web::{HttpRequest, HttpResponse, web};
use charge_once_pages::{AN_OBJECT, Listed, PageQuery};
use charge_once_strict_params::{Expand, parameters};

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
        CaptureCharge, CreateCharge, UpdateCharge,
        expansions::{Shown, view},
    },
    domain::{
        charge::Charge,
        ids::{ChargeId, OrderId, PaymentIntentId},
    },
    store::{self, charges::ChargeFilter},
    wire::{
        charges::{CaptureChargeParams, ChargeView, CreateChargeParams, UpdateChargeParams},
        list::List,
        parameter::{ExpandCharge, ExpandCharges, Reference},
    },
};

errors! {
    CreateChargeErrors: Charging [ParameterMissing, AmountTooLarge]
}

/// Charge a card
#[utoipa::path(
    post, path = "/charges", tag = "Charges", operation_id = "createCharge",
    params(MutatingHeaders),
    request_body(
        content = CreateChargeParams,
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
    request_body = UpdateChargeParams,
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
    request_body = CaptureChargeParams,
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

parameters! {
    /// How a charge is shown.
    struct RetrieveChargeQuery {
        /// `refunds` lists its refunds in it.
        expand: Expand<ExpandCharge>,
    }
}

errors! {
    RetrieveChargeErrors: Reading [ResourceMissing]
}

/// Retrieve a charge
#[utoipa::path(
    get, path = "/charges/{id}", tag = "Charges", operation_id = "retrieveCharge",
    params(
        ("id" = String, Path, description = "The charge's id: ch_…"),
        RetrieveChargeQuery,
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
    let expand = query_params::<RetrieveChargeQuery>(&request)?.expand;
    let id = path_id(&request, ChargeId::parse, ChargeId::PREFIX)?;
    let (account, audience) = (caller.account, caller.audience());
    let charge = app
        .snapshot(account, move |connection| {
            Box::pin(async move {
                let found = store::charges::find(&mut *connection, account, id).await?;
                let Some(charge) = found else { return Ok(None) };
                view(connection, audience, &charge, &expand).await.map(Some)
            })
        })
        .await?
        .ok_or_else(|| HttpError::missing_id(ChargeId::PREFIX))?;
    Ok(HttpResponse::Ok().json(charge))
}

parameters! {
    /// Which charges are listed, and how.
    struct ListChargesQuery {
        /// Only charges with this reference.
        customer: Option<Reference>,
        /// Only charges for this order: or_…
        order: Option<OrderId>,
        /// Only charges of this intent: pi_…
        payment_intent: Option<PaymentIntentId>,
        /// `data.refunds` lists the refunds in each.
        expand: Expand<ExpandCharges>,
    }
}

errors! {
    ListChargesErrors: Reading []
}

/// List charges
#[utoipa::path(
    get, path = "/charges", tag = "Charges", operation_id = "listCharges",
    params(PageQuery, ListChargesQuery),
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
    let (page, query) =
        list::query::<ListChargesQuery>(&request, |text| ChargeId::parse(text).map(|id| id.0))?;
    let expand = query.expand;
    let filter = ChargeFilter {
        customer: query.customer,
        order: query.order,
        intent: query.payment_intent,
    };
    let (account, audience, cursor) = (caller.account, caller.audience(), page.cursor);
    let listed = app
        .snapshot(account, move |connection| {
            Box::pin(async move {
                let found = store::charges::list(&mut *connection, account, &page, &filter).await?;
                let Some(Listed { data, has_more }) = found else {
                    return Ok(None);
                };
                let data = Charge::views(connection, audience, &data, &expand).await?;
                Ok(Some(Listed { data, has_more }))
            })
        })
        .await?;
    list::reply(audience.dialect, "/charges", &cursor, AN_OBJECT, listed)
}
