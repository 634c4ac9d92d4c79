//! `POST /webhook_endpoints`: have events sent somewhere.
//!
//! Locks    the account, against other creations of endpoints only
//! Writes   one endpoint with its secret
//! Emits    nothing
//! Refuses  a URL that can't be sent to; an endpoint too many

use charge_once_strict_params::Params;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::commands::{
    Origin,
    replies::{CREATED, checked},
};
use crate::{
    domain::ids::WebhookEndpointId,
    idempotency::{Command, Rejection, Reply},
    webhooks::{NewEndpoint, Secret, endpoints},
    wire::webhook_endpoints::{
        CreateWebhookEndpointParams, ENDPOINTS_MAX, WebhookEndpointView, too_many_endpoints,
    },
};

/// Creates a webhook endpoint.
pub struct CreateWebhookEndpoint {
    /// The request's origin.
    pub origin: Origin,
    /// As decoded; checked here, so that a wrong one is a stored refusal.
    pub params: Params,
}

impl Command for CreateWebhookEndpoint {
    async fn execute(&self, tx: &mut PgConnection) -> Result<Reply, Rejection> {
        let new = NewEndpoint::from(checked::<CreateWebhookEndpointParams>(&self.params)?);
        let account = self.origin.account;
        charge_once_postgres::api_keys::lock_account(tx, account.0).await?;
        if endpoints::count(tx, account.0).await? >= ENDPOINTS_MAX {
            return Err(too_many_endpoints().into());
        }
        let secret = Secret::random();
        let id = WebhookEndpointId(Uuid::now_v7());
        let endpoint = endpoints::insert(tx, account.0, id.0, &new, &secret).await?;
        // Shown here only. The stored reply holds it too, so a client that lost the reply gets it
        // by retrying, for as long as the key lives.
        let mut view = WebhookEndpointView::from(&endpoint);
        view.secret = Some(secret.reveal().to_owned());
        self.origin
            .reply(CREATED, "webhook_endpoints", id.to_string(), &view)
    }
}
