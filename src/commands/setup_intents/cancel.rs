//! `POST /setup_intents/{id}/cancel`: close a setup intent for good.
//!
//! Locks    the setup intent
//! Writes   its status
//! Emits    setup_intent.canceled
//! Refuses  a setup intent that has ended

use charge_once_strict_params::Params;
use sqlx::PgConnection;

use super::attempt::{lock, unexpected, write};
use crate::commands::{
    Origin,
    replies::{OK, checked},
};
use crate::{
    domain::{event::EventType, setup_intent::UnexpectedSetupStatus},
    idempotency::{Command, Rejection, Reply},
    wire::setup_intent_params::CancelSetupIntentParams,
};

/// Cancels a setup intent.
pub struct CancelSetupIntent {
    /// The request's origin.
    pub origin: Origin,
    /// The setup intent, as the path names it.
    pub id: String,
    /// As decoded; checked here, so that a wrong one is a stored refusal.
    pub params: Params,
}

impl Command for CancelSetupIntent {
    async fn execute(&self, tx: &mut PgConnection) -> Result<Reply, Rejection> {
        let params: CancelSetupIntentParams = checked(&self.params)?;
        let origin = &self.origin;
        let setup = lock(origin, tx, &self.id).await?;
        let canceled = match setup.clone().canceled(params.cancellation_reason) {
            Ok(canceled) => canceled,
            Err(UnexpectedSetupStatus(status)) => {
                let message = format!(
                    "You cannot cancel this SetupIntent because it has a status of {}. Only a SetupIntent \
                     with one of the following statuses may be canceled: requires_payment_method, \
                     requires_confirmation, requires_action.",
                    status.as_str()
                );
                return Err(unexpected(origin, tx, &setup, message).await);
            }
        };
        let setup = write(origin, tx, &canceled, EventType::SetupIntentCanceled).await?;
        let id = setup.id.to_string();
        origin.show(tx, OK, id, &setup, &params.expand).await
    }
}
