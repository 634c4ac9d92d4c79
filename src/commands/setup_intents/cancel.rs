//! `POST /setup_intents/{id}/cancel`: close a setup intent for good.
//!
//! Reads    the setup intent
//! Writes   its status
//! Emits    setup_intent.canceled
//! Refuses  a setup intent that has ended

use super::attempt::unexpected;
use crate::{commands::prelude::*, wire::setup_intents::CancelSetupIntentParams};

/// Cancels a setup intent.
pub type CancelSetupIntent = On<SetupIntentId, CancelSetupIntentParams>;

impl Rules for CancelSetupIntent {
    fn reads(&self, _: &SeenRows<'_>) -> Vec<RowId> {
        self.id.map(RowId::Setup).into_iter().collect()
    }

    fn decide(&self, draft: &mut Draft<'_>) -> Result<Verdict, Rejection> {
        let setup = draft.find::<SetupIntent>(self.id, "intent")?.clone();
        let reason = self.params.cancellation_reason;
        let canceled = setup.clone().canceled(reason).map_err(|status| {
            let UnexpectedSetupStatus(status) = status;
            let message = format!(
                "You cannot cancel this SetupIntent because it has a status of {}. Only a SetupIntent \
                 with one of the following statuses may be canceled: requires_payment_method, \
                 requires_confirmation, requires_action.",
                status.as_str()
            );
            unexpected(&setup, message)
        })?;
        let setup = draft.put_with(EventType::SetupIntentCanceled, canceled)?;
        Ok(show(OK, setup))
    }
}
