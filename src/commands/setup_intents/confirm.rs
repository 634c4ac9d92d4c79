//! `POST /setup_intents/{id}/confirm`: try to set the card up.
//!
//! Reads    the setup intent, the method; the customer, if a new method is to be theirs
//! Writes   the setup intent, its method, and a method that is made on the way
//! Emits    setup_intent.requires_action, .succeeded (after payment_method.attached) or
//!          .setup_failed
//! Refuses  a setup intent that has ended or has no method; unknown methods; a method of another
//!          customer
//! Fails    while a payment with a new method has no answer
//! Declines a card that its issuer refuses: the setup intent stays

use super::attempt::{SetupAttempt, unconfirmable};
use crate::{
    commands::{payment_methods::given, prelude::*},
    wire::setup_intents::ConfirmSetupIntentParams,
};

/// Confirms a setup intent.
pub type ConfirmSetupIntent = On<SetupIntentId, ConfirmSetupIntentParams>;

impl Rules for ConfirmSetupIntent {
    fn reads(&self, seen: &SeenRows<'_>) -> Vec<RowId> {
        let mut rows: Vec<RowId> = self.id.map(RowId::Setup).into_iter().collect();
        let setup = self.id.and_then(|id| seen.get::<SetupIntent>(id));
        if let Some(setup) = setup.filter(|setup| setup.status.is_open()) {
            let (default, customer) = (setup.terms.payment_method, setup.terms.customer);
            rows.extend(given::reads(
                seen,
                &self.params.given(),
                default,
                true,
                customer,
            ));
        }
        rows
    }

    fn decide(&self, draft: &mut Draft<'_>) -> Result<Verdict, Rejection> {
        let given = self.params.given()?;
        let setup = draft.find::<SetupIntent>(self.id, "intent")?.clone();
        let status = UnexpectedSetupStatus(setup.status);
        // First: whatever else is wrong, what has ended is what a client must learn.
        if !setup.status.is_open() {
            return Err(unconfirmable(&setup, status));
        }
        let method = match (given, setup.terms.payment_method) {
            (Some(given), _) => given::take(draft, given)?,
            (None, Some(id)) => given::free(draft, Some(id), "payment_method")?,
            (None, None) => return Err(unconfirmable(&setup, status)),
        };
        let attempt = SetupAttempt {
            return_url: self.params.return_url.clone(),
            status: OK,
        };
        attempt.run(draft, setup, method).map(Verdict::Answered)
    }
}
