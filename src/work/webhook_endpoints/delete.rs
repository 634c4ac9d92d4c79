//! `DELETE /webhook_endpoints/{id}` with an idempotency key: send nothing more there.
//!
//! Locks    the endpoint, but not against events that are being written
//! Writes   that it is deleted; its secret is erased
//! Emits    nothing
//! Refuses  parameters; an endpoint that was deleted, or never was

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
    wire::webhook_endpoints::DeletedWebhookEndpointView,
};

/// Deletes a webhook endpoint under an idempotency key.
pub struct DeleteWebhookEndpoint {
    /// The request's origin. Its path names the endpoint.
    pub origin: Origin,
    /// As decoded; there may be none, and that refusal is stored.
    pub params: Params,
}

impl Command for DeleteWebhookEndpoint {
    async fn execute(&self, tx: &mut PgConnection) -> Result<Reply, Rejection> {
        checked::<()>(&self.params)?;
        let id = WebhookEndpointId::parse(&self.origin.path_id);
        let gone = || self.origin.missing("id", id);
        let id = id.ok_or_else(gone)?;
        if !endpoints::delete(tx, self.origin.account.0, id.0).await? {
            return Err(gone().into());
        }
        let view = DeletedWebhookEndpointView::of(id.to_string());
        self.origin
            .reply(OK, "webhook_endpoints", id.to_string(), &view)
    }
}
