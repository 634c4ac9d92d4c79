//! `/webhook_endpoints`

use actix_web::{HttpRequest, HttpResponse, web};

use super::{
    App,
    error::EdgeError,
    list,
    reply::run,
    request::{Caller, Mutation, no_query, query_params},
};
use crate::{
    api::{
        list::List,
        webhook_deliveries::WebhookDeliveryView,
        webhook_endpoints::{DeletedWebhookEndpointView, WebhookEndpointView},
    },
    commands::CreateWebhookEndpoint,
    domain::ids::{WebhookDeliveryId, WebhookEndpointId},
    store,
};

/// Create a webhook endpoint
///
/// From now on, events of the enabled types are sent there, at least once each. The reply holds the
/// secret that they are signed with; it is shown only here, and again by a retry with the same key.
#[utoipa::path(
    post, path = "/webhook_endpoints", tag = "Webhooks", operation_id = "createWebhookEndpoint",
    params(super::openapi::IdempotencyHeaders, super::openapi::PreferHeader),
    request_body(content(
        (super::openapi::CreateWebhookEndpointBody = "application/json"),
        (super::openapi::CreateWebhookEndpointBody = "application/x-www-form-urlencoded"),
    )),
    responses((status = 201, description = "The endpoint, with its secret.", body = WebhookEndpointView)),
)]
pub async fn create(app: web::Data<App>, mutation: Mutation) -> Result<HttpResponse, EdgeError> {
    let allow_private = app.webhooks_allow_private;
    run(&app, mutation, |origin, params| CreateWebhookEndpoint {
        origin,
        params,
        allow_private,
    })
    .await
}

/// Delete a webhook endpoint
///
/// Nothing more is sent there, but for an attempt that is just being made. Needs no idempotency key:
/// deleting twice does nothing more, and 404 on a retry says that it is done.
#[utoipa::path(
    delete, path = "/webhook_endpoints/{id}", tag = "Webhooks",
    operation_id = "deleteWebhookEndpoint",
    params(("id" = String, Path, description = "The endpoint's id: we_…")),
    responses((status = 200, description = "It is gone.", body = DeletedWebhookEndpointView)),
)]
pub async fn delete(
    app: web::Data<App>,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, EdgeError> {
    no_query(&request)?;
    let (account, id) = (caller.account, endpoint_id(&request)?);
    let deleted = app
        .write(move |tx| Box::pin(store::webhook_endpoints::delete(tx, account, id)))
        .await?;
    if deleted {
        Ok(HttpResponse::Ok().json(DeletedWebhookEndpointView::new(id.to_string())))
    } else {
        Err(EdgeError::missing("id"))
    }
}

/// Retrieve a webhook endpoint
///
/// Without its secret.
#[utoipa::path(
    get, path = "/webhook_endpoints/{id}", tag = "Webhooks",
    operation_id = "retrieveWebhookEndpoint",
    params(("id" = String, Path, description = "The endpoint's id: we_…")),
    responses((status = 200, description = "The endpoint.", body = WebhookEndpointView)),
)]
pub async fn retrieve(
    app: web::Data<App>,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, EdgeError> {
    no_query(&request)?;
    let (account, id) = (caller.account, endpoint_id(&request)?);
    let endpoint = app
        .read(move |connection| Box::pin(store::webhook_endpoints::find(connection, account, id)))
        .await?
        .ok_or_else(|| EdgeError::missing("id"))?;
    Ok(HttpResponse::Ok().json(WebhookEndpointView::from(&endpoint)))
}

/// List webhook endpoints
#[utoipa::path(
    get, path = "/webhook_endpoints", tag = "Webhooks", operation_id = "listWebhookEndpoints",
    params(super::openapi::PageQuery),
    responses((status = 200, description = "A page, newest first.", body = List<WebhookEndpointView>)),
)]
pub async fn list(
    app: web::Data<App>,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, EdgeError> {
    let params = query_params(&request)?;
    let mut fields = params.fields()?;
    let page = list::page(&mut fields, |text| {
        WebhookEndpointId::parse(text).map(|id| id.0)
    })?;
    fields.finish()?;
    let (account, cursor) = (caller.account, page.cursor);
    let listed = app
        .read(move |connection| {
            Box::pin(
                async move { store::webhook_endpoints::list(connection, account, &page).await },
            )
        })
        .await?;
    let views = listed.map(|page| page.map(|endpoint| WebhookEndpointView::from(&endpoint)));
    list::reply(caller.dialect, "/webhook_endpoints", cursor, views)
}

/// List the deliveries to a webhook endpoint
///
/// One for each event that was to be sent there, with every attempt.
#[utoipa::path(
    get, path = "/webhook_endpoints/{id}/deliveries", tag = "Webhooks",
    operation_id = "listWebhookDeliveries",
    params(
        ("id" = String, Path, description = "The endpoint's id: we_…"),
        super::openapi::PageQuery,
    ),
    responses((status = 200, description = "A page, newest first.", body = List<WebhookDeliveryView>)),
)]
pub async fn list_deliveries(
    app: web::Data<App>,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, EdgeError> {
    let (account, id) = (caller.account, endpoint_id(&request)?);
    app.read(move |connection| Box::pin(store::webhook_endpoints::find(connection, account, id)))
        .await?
        .ok_or_else(|| EdgeError::missing("id"))?;
    let params = query_params(&request)?;
    let mut fields = params.fields()?;
    let page = list::page(&mut fields, |text| {
        WebhookDeliveryId::parse(text).map(|id| id.0)
    })?;
    fields.finish()?;
    let cursor = page.cursor;
    let listed = app
        .read(move |connection| {
            Box::pin(async move {
                store::webhook_deliveries::list(connection, account, id, &page).await
            })
        })
        .await?;
    let path = format!("/webhook_endpoints/{id}/deliveries");
    let views = listed.map(|page| page.map(|delivery| WebhookDeliveryView::from(&delivery)));
    list::reply(caller.dialect, &path, cursor, views)
}

fn endpoint_id(request: &HttpRequest) -> Result<WebhookEndpointId, EdgeError> {
    WebhookEndpointId::parse(request.match_info().query("id"))
        .ok_or_else(|| EdgeError::missing("id"))
}
