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

use std::sync::Arc;

use super::attempt::{SetupAttempt, unconfirmable};
use crate::{
    commands::{
        payment_methods::given::{self, Given},
        prelude::*,
    },
    wire::{payment_methods::GivenMethod, setup_intents::ConfirmSetupIntentParams},
};

/// Confirms a setup intent.
pub struct ConfirmSetupIntent {
    id: Option<SetupIntentId>,
    params: ConfirmSetupIntentParams,
    given: Given,
    public_url: Arc<str>,
}

impl ConfirmSetupIntent {
    /// The setup intent that a path names by `id`, with what the address of a holder's page begins
    /// with.
    pub fn new(id: &str, mut params: ConfirmSetupIntentParams, public_url: Arc<str>) -> Self {
        let reference = params.payment_method.take();
        Self {
            id: SetupIntentId::parse(id),
            given: GivenMethod::of(reference, params.payment_method_data.take()),
            params,
            public_url,
        }
    }
}

impl Rules for ConfirmSetupIntent {
    fn reads(&self, seen: &SeenRows<'_>) -> Vec<RowId> {
        let mut rows: Vec<RowId> = self.id.map(RowId::Setup).into_iter().collect();
        let setup = self.id.and_then(|id| seen.get::<SetupIntent>(id));
        if let Some(setup) = setup.filter(|setup| setup.status.is_open()) {
            let (default, customer) = (setup.terms.payment_method, setup.terms.customer);
            rows.extend(given::reads(seen, &self.given, default, true, customer));
        }
        rows
    }

    fn decide(&self, draft: &mut Draft<'_>) -> Result<Verdict, Rejection> {
        let given = self.given.clone()?;
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
            public_url: &self.public_url,
            return_url: self.params.return_url.clone(),
            status: OK,
            expand: &self.params.expand,
        };
        attempt.run(draft, setup, method).map(Verdict::Said)
    }
}
