//! `/charges`

use actix_web::{HttpRequest, HttpResponse, web};

use super::{
    App,
    error::EdgeError,
    list,
    reply::run,
    request::{Caller, Mutation, no_query, query_params},
};
use crate::{
    commands::CreateCharge,
    domain::{
        charge::{Charge, REFERENCE_MAX_CHARS},
        ids::{ChargeId, OrderId},
    },
    store::{self, charges::Filter},
};

/// Charge a card
#[utoipa::path(
    post, path = "/charges", tag = "Charges", operation_id = "createCharge",
    params(super::openapi::IdempotencyKeyHeader, super::openapi::PreferHeader),
    request_body(
        content(
            (super::openapi::CreateChargeBody = "application/json"),
            (super::openapi::CreateChargeBody = "application/x-www-form-urlencoded"),
        ),
        description = "Amounts are in minor units: 2000 is 20.00 of a currency with cents.",
    ),
    responses((status = 201, description = "The charge.", body = Charge)),
)]
pub async fn create(app: web::Data<App>, mutation: Mutation) -> Result<HttpResponse, EdgeError> {
    let command = |mutation: &Mutation| CreateCharge {
        account: mutation.account,
        dialect: mutation.dialect,
        params: mutation.params.clone(),
        processor: app.processor.clone(),
    };
    run(&app, mutation, command).await
}

/// Retrieve a charge
#[utoipa::path(
    get, path = "/charges/{id}", tag = "Charges", operation_id = "retrieveCharge",
    params((
        "id" = String, Path, description = "The charge's id: ch_…",
        pattern = "^ch_[0-7][0-9a-hjkmnp-tv-z]{25}$",
    )),
    responses((status = 200, description = "The charge.", body = Charge)),
)]
pub async fn retrieve(
    app: web::Data<App>,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, EdgeError> {
    no_query(&request)?;
    let id = ChargeId::parse(request.match_info().query("id"))
        .ok_or_else(|| EdgeError::missing("id"))?;
    let charge = app
        .database
        .read(move |connection| Box::pin(store::charges::find(connection, caller.account, id)))
        .await
        .map_err(EdgeError::failed_read)?
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
    ),
    responses((status = 200, description = "A page, newest first.", body = list::List<Charge>)),
)]
pub async fn list(
    app: web::Data<App>,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, EdgeError> {
    let params = query_params(&request)?;
    let mut fields = params.fields()?;
    let asked = list::page(&mut fields, |text| ChargeId::parse(text).map(|id| id.0))?;
    let customer = fields.text("customer", REFERENCE_MAX_CHARS)?;
    let order = match fields.text("order", REFERENCE_MAX_CHARS)? {
        None => None,
        Some(id) => Some(
            OrderId::parse(&id)
                .ok_or_else(|| fields.invalid("order", "Must be the id of an order."))?,
        ),
    };
    let unknown_cursor = asked
        .cursor
        .map(|(name, id)| (ChargeId(id), list::unknown_cursor(&fields, name)));
    fields.finish()?;
    let filter = Filter { customer, order };
    let account = caller.account;
    let listed = app
        .database
        .read(move |connection| {
            Box::pin(async move {
                if let Some((id, error)) = unknown_cursor
                    && store::charges::find(&mut *connection, account, id)
                        .await?
                        .is_none()
                {
                    return Ok(Err(error));
                }
                store::charges::list(connection, account, &asked.page, &filter)
                    .await
                    .map(Ok)
            })
        })
        .await
        .map_err(EdgeError::failed_read)??;
    Ok(list::reply(caller.dialect, "charges", listed))
}
