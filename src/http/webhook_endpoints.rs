//! `/webhook_endpoints`

use actix_web::web::Path;

use super::prelude::*;
use crate::{
    webhooks::{Endpoint, deliveries, endpoints},
    wire::{
        webhook_deliveries::WebhookDeliveryView,
        webhook_endpoints::{
            CreateWebhookEndpointParams, DeletedWebhookEndpointView, UpdateWebhookEndpointParams,
            WebhookEndpointView,
        },
    },
    work::{CreateWebhookEndpoint, DeleteWebhookEndpoint, UpdateWebhookEndpoint},
};

errors! { CreateWebhookEndpointErrors: Mutating [ParameterMissing] }

/// Create a webhook endpoint
///
/// From now on, events of the enabled types are sent there, at least once each. The reply holds the
/// secret that they are signed with; it is shown only here, and again by a retry with the same key.
#[utoipa::path(
    post, path = "/webhook_endpoints", tag = "Webhooks", operation_id = "createWebhookEndpoint",
    // The reply shows what deliveries are signed with.
    extensions(("x-idempotency" = json!({"secret": true}))),
    params(MutatingHeaders),
    request_body = CreateWebhookEndpointParams,
    responses(
        (status = 201, description = "The endpoint, with its secret.", body = WebhookEndpointView),
        CreateWebhookEndpointErrors,
    ),
)]
pub async fn create(app: Data<App>, request: MutatingRequest) -> HttpResult {
    run(&app, request, |request, origin, params| {
        app.idempotency
            .run(request, CreateWebhookEndpoint { origin, params })
    })
    .await
}

errors! { UpdateWebhookEndpointErrors: Mutating [ResourceMissing] }

/// Update a webhook endpoint
///
/// What the request doesn't mention stays, and so does the secret. A disabled endpoint gets no
/// deliveries of new events, and a delivery that falls due meanwhile fails without being sent.
/// Enabled again, it gets the events from then on.
#[utoipa::path(
    post, path = "/webhook_endpoints/{id}", tag = "Webhooks",
    operation_id = "updateWebhookEndpoint",
    params(("id" = String, Path, description = "The endpoint's id: we_…"), MutatingHeaders),
    request_body = UpdateWebhookEndpointParams,
    responses(
        (status = 200, description = "The endpoint, without its secret.", body = WebhookEndpointView),
        UpdateWebhookEndpointErrors,
    ),
)]
pub async fn update(app: Data<App>, id: Path<String>, request: MutatingRequest) -> HttpResult {
    let id = id.into_inner();
    run(&app, request, |request, origin, params| {
        let command = UpdateWebhookEndpoint { origin, id, params };
        app.idempotency.run(request, command)
    })
    .await
}

/// Delete a webhook endpoint
///
/// Nothing more is sent there, but for an attempt that is just being made. An idempotency key is
/// optional: a retry with it gets the first answer. Without one, deleting twice does nothing more,
/// and 404 on a retry says that it is done.
#[utoipa::path(
    delete, path = "/webhook_endpoints/{id}", tag = "Webhooks",
    operation_id = "deleteWebhookEndpoint",
    params(("id" = String, Path, description = "The endpoint's id: we_…"), DeletionHeaders),
    responses(
        (status = 200, description = "It is gone.", body = DeletedWebhookEndpointView),
        DeletionErrors,
    ),
)]
pub async fn delete(app: Data<App>, request: HttpRequest, deletion: Deletion) -> HttpResult {
    let caller = match deletion {
        Deletion::WithKey(with_key) => {
            let by = |request, origin, params| {
                app.idempotency
                    .run(request, DeleteWebhookEndpoint { origin, params })
            };
            return run(&app, *with_key, by).await;
        }
        Deletion::WithoutKey(caller) => caller,
    };
    no_query(&request)?;
    let (account, id) = (caller.account, path_id::<WebhookEndpointId>(&request)?);
    let deleted = app.write(account, move |tx| {
        Box::pin(endpoints::delete(tx, account.0, id.0))
    });
    match deleted.await? {
        true => Ok(HttpResponse::Ok().json(DeletedWebhookEndpointView::of(id.to_string()))),
        false => Err(reads::missing_id(caller, id)),
    }
}

/// Retrieve a webhook endpoint
///
/// Without its secret.
#[utoipa::path(
    get, path = "/webhook_endpoints/{id}", tag = "Webhooks",
    operation_id = "retrieveWebhookEndpoint",
    params(("id" = String, Path, description = "The endpoint's id: we_…")),
    responses(
        (status = 200, description = "The endpoint.", body = WebhookEndpointView),
        ObjectErrors,
    ),
)]
pub async fn retrieve(app: Data<App>, caller: Caller, request: HttpRequest) -> HttpResult {
    no_query(&request)?;
    let endpoint = find(&app, caller, path_id(&request)?).await?;
    Ok(HttpResponse::Ok().json(WebhookEndpointView::from(&endpoint)))
}

async fn find(app: &App, caller: Caller, id: WebhookEndpointId) -> Result<Endpoint, HttpError> {
    let account = caller.account;
    let found = app.read(account, move |connection| {
        Box::pin(endpoints::find(connection, account.0, id.0))
    });
    let found = found.await?;
    found.ok_or_else(|| reads::missing_id(caller, id))
}

/// List webhook endpoints
#[utoipa::path(
    get, path = "/webhook_endpoints", tag = "Webhooks", operation_id = "listWebhookEndpoints",
    params(PageQuery),
    responses(
        (status = 200, description = "A page, newest first.", body = List<WebhookEndpointView>),
        ReadErrors,
    ),
)]
pub async fn list(app: Data<App>, caller: Caller, request: HttpRequest) -> HttpResult {
    let (page, ()) = reads::query::<WebhookEndpointId, _>(&request)?;
    let account = caller.account;
    let listed = app.read(account, move |connection| {
        Box::pin(async move {
            let found = endpoints::list(connection, account.0, &reads::slice(&page)).await?;
            Ok(page.cut(found))
        })
    });
    let views = listed.await?.map(|one| WebhookEndpointView::from(&one));
    reads::reply(caller.dialect, "/webhook_endpoints", views)
}

/// List the deliveries to a webhook endpoint
///
/// One for each event that was to be sent there, with every attempt.
#[utoipa::path(
    get, path = "/webhook_endpoints/{id}/deliveries", tag = "Webhooks",
    operation_id = "listWebhookDeliveries",
    params(("id" = String, Path, description = "The endpoint's id: we_…"), PageQuery),
    responses(
        (status = 200, description = "A page, newest first.", body = List<WebhookDeliveryView>),
        ObjectErrors,
    ),
)]
pub async fn list_deliveries(app: Data<App>, caller: Caller, request: HttpRequest) -> HttpResult {
    let (account, id) = (caller.account, path_id::<WebhookEndpointId>(&request)?);
    find(&app, caller, id).await?;
    let (page, ()) = reads::query::<WebhookDeliveryId, _>(&request)?;
    let listed = app.read(account, move |connection| {
        Box::pin(async move {
            let slice = reads::slice(&page);
            let found = deliveries::list(connection, account.0, id.0, &slice).await?;
            Ok(page.cut(found))
        })
    });
    let path = format!("/webhook_endpoints/{id}/deliveries");
    let views = listed.await?.map(|one| WebhookDeliveryView::from(&one));
    reads::reply(caller.dialect, &path, views)
}
