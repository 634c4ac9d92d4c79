//! `POST /webhook_endpoints/{id}`: change where events are sent, which, and whether any.
//!
//! Locks    the endpoint, but not against events that are being written
//! Writes   url, enabled_events, description, metadata, disabled, standard_webhooks
//! Emits    nothing
//! Refuses  parameters that are unknown or wrong; a URL that can't be sent to

use charge_once_strict_params::Params;
use sqlx::PgConnection;

use crate::commands::{
    Origin,
    replies::{OK, checked},
};
use crate::{
    domain::ids::WebhookEndpointId,
    idempotency::{Command, Rejection, Reply},
    webhooks::endpoints,
    wire::{
        error::ApiError,
        webhook_endpoints::{UpdateWebhookEndpointParams, WebhookEndpointView},
    },
};

/// Updates a webhook endpoint. Its secret stays, and is not shown.
pub struct UpdateWebhookEndpoint {
    /// The request's origin.
    pub origin: Origin,
    /// The endpoint, as the path names it.
    pub id: String,
    /// As decoded; checked here, so that a wrong one is a stored refusal.
    pub params: Params,
}

impl Command for UpdateWebhookEndpoint {
    async fn execute(&self, tx: &mut PgConnection) -> Result<Reply, Rejection> {
        let update: UpdateWebhookEndpointParams = checked(&self.params)?;
        let account = self.origin.account.0;
        let id = WebhookEndpointId::parse(&self.id);
        let gone = || self.origin.missing("id", id);
        let id = id.ok_or_else(gone)?;
        let before = endpoints::lock(tx, account, id.0).await?.ok_or_else(gone)?;
        let mut endpoint = before.clone();
        endpoint.url = update.url.unwrap_or(endpoint.url);
        endpoint.enabled_events = update.enabled_events.unwrap_or(endpoint.enabled_events);
        endpoint.description = update.description.apply(endpoint.description);
        endpoint.metadata = update
            .metadata
            .apply(endpoint.metadata)
            .map_err(ApiError::from)?;
        endpoint.disabled = update.disabled.unwrap_or(endpoint.disabled);
        let standard_webhooks = update.standard_webhooks;
        endpoint.standard_webhooks = standard_webhooks.unwrap_or(endpoint.standard_webhooks);
        if endpoint != before {
            endpoint = endpoints::update(tx, account, &endpoint).await?;
        }
        let view = WebhookEndpointView::from(&endpoint);
        self.origin
            .reply(OK, "webhook_endpoints", id.to_string(), &view)
    }
}
