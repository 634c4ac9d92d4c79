//! `POST /setup_intents/{id}/confirm`: try to set the card up.
//!
//! Locks    the setup intent, then the method; then the customer, if the method is attached
//! Writes   the setup intent, its method, and a method that is made on the way
//! Emits    setup_intent.requires_action, .succeeded (after payment_method.attached) or
//!          .setup_failed
//! Refuses  a setup intent that has ended or has no method; unknown methods; a method of another
//!          customer
//! Declines a card that its issuer refuses: the setup intent stays

use std::sync::Arc;

use charge_once_strict_params::Params;
use sqlx::PgConnection;

use super::attempt::{SetupAttempt, lock, unconfirmable};
use crate::commands::{
    Origin,
    payment_methods::given,
    replies::{OK, checked},
};
use crate::{
    domain::setup_intent::UnexpectedSetupStatus,
    idempotency::{Command, Rejection, Reply},
    wire::{payment_methods::GivenMethod, setup_intents::ConfirmSetupIntentParams},
};

/// Confirms a setup intent.
pub struct ConfirmSetupIntent {
    /// The request's origin.
    pub origin: Origin,
    /// The setup intent, as the path names it.
    pub id: String,
    /// As decoded; checked here, so that a wrong one is a stored refusal.
    pub params: Params,
    /// What the address of a holder's page begins with.
    pub public_url: Arc<str>,
}

impl Command for ConfirmSetupIntent {
    async fn execute(&self, tx: &mut PgConnection) -> Result<Reply, Rejection> {
        let params: ConfirmSetupIntentParams = checked(&self.params)?;
        let origin = &self.origin;
        let given = GivenMethod::of(params.payment_method, params.payment_method_data)?;
        let setup = lock(origin, tx, &self.id).await?;
        // First: whatever else is wrong, what has ended is what a client must learn.
        if !setup.status.is_open() {
            let status = UnexpectedSetupStatus(setup.status);
            return Err(unconfirmable(origin, tx, &setup, status).await);
        }
        let method = match (given, setup.terms.payment_method) {
            (Some(given), _) => given::take(origin, tx, given, true).await?,
            (None, Some(id)) => given::lock(origin, tx, Some(id), "payment_method").await?,
            (None, None) => {
                let status = UnexpectedSetupStatus(setup.status);
                return Err(unconfirmable(origin, tx, &setup, status).await);
            }
        };
        let asked = SetupAttempt {
            origin,
            public_url: &self.public_url,
            status: OK,
            expand: &params.expand,
        };
        asked.attempt(tx, setup, method, params.return_url).await
    }
}
