//! `POST /webhook_endpoints`: have events sent somewhere.
//!
//! Locks    the account, against other creations of endpoints only
//! Writes   one endpoint with its secret
//! Emits    nothing
//! Refuses  a URL that can't be sent to; an endpoint too many

use charge_once_strict_params::Params;
use rand::distr::{Alphanumeric, SampleString};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::commands::{
    Origin,
    replies::{CREATED, checked},
};
use crate::{
    domain::{
        ids::WebhookEndpointId,
        webhook_endpoint::{ENDPOINTS_MAX, NewWebhookEndpoint},
    },
    idempotency::{Command, Rejection, Reply},
    store,
    webhooks::Secret,
    wire::webhook_endpoints::{
        CreateWebhookEndpointParams, WebhookEndpointView, too_many_endpoints,
    },
};

/// Random characters in a secret: 32 of 62 letters and digits are 190 bits.
const SECRET_RANDOM_CHARS: usize = 32;

/// Creates a webhook endpoint.
pub struct CreateWebhookEndpoint {
    /// The request's origin.
    pub origin: Origin,
    /// As decoded; checked here, so that a wrong one is a stored refusal.
    pub params: Params,
}

impl Command for CreateWebhookEndpoint {
    async fn execute(&self, tx: &mut PgConnection) -> Result<Reply, Rejection> {
        let new = NewWebhookEndpoint::from(checked::<CreateWebhookEndpointParams>(&self.params)?);
        let account = self.origin.account;
        store::webhook_endpoints::lock_creation(tx, account).await?;
        if store::webhook_endpoints::count(tx, account).await? >= ENDPOINTS_MAX {
            return Err(too_many_endpoints().into());
        }
        let random = Alphanumeric.sample_string(&mut rand::rng(), SECRET_RANDOM_CHARS);
        let secret = Secret::of(format!("{}{random}", Secret::PREFIX));
        let id = WebhookEndpointId(Uuid::now_v7());
        let endpoint = store::webhook_endpoints::insert(tx, account, id, &new, &secret).await?;
        // Shown here only. The stored reply holds it too, so a client that lost the reply gets it
        // by retrying, for as long as the key lives.
        let mut view = WebhookEndpointView::from(&endpoint);
        view.secret = Some(secret.reveal().to_owned());
        self.origin
            .reply(CREATED, "webhook_endpoints", id.to_string(), &view)
    }
}
