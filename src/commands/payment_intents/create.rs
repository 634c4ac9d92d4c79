//! `POST /payment_intents`: begin a payment, and confirm it at once if the client says so.
//!
//! Reads    the customer and the method that it names; the customer is locked if a new method is to
//!          be theirs
//! Writes   one intent; a new method, if its card comes with the request; of a confirmation, what
//!          that writes
//! Emits    payment_intent.created, and what a confirmation emits
//! Refuses  parameters that are missing, unknown or wrong; a customer or a method that isn't there;
//!          a method that may not be used for it
//! Fails    as a confirmation does
//! Asks     for the money, if it is confirmed

use super::attempt::PaymentAttempt;
use crate::{
    commands::{holder_pages::client_secret, payment_methods::given, prelude::*},
    wire::{
        payment_intents::{CreatePaymentIntentParams, must_be_possible},
        payment_methods::{GivenMethod, refused},
    },
};

/// Creates an intent.
pub struct CreateIntent(pub CreatePaymentIntentParams);

impl Rules for CreateIntent {
    fn reads(&self, seen: &SeenRows<'_>) -> Vec<RowId> {
        let customer = self.0.customer.flatten();
        let usage = self.0.setup_future_usage;
        let makes_ready = usage == Some(FutureUsage::OffSession);
        let keeps_for = customer.filter(|_| usage.is_some() && self.is_confirmed());
        let mut rows = given::reads(seen, &self.0.given(), None, makes_ready, keeps_for);
        rows.extend(customer.map(RowId::CustomerSeen));
        rows
    }

    fn decide(&self, draft: &mut Draft<'_>) -> Result<Verdict, Rejection> {
        let mut params = self.0.clone();
        let confirmation = params.confirmation()?;
        let return_url = params.return_url.take();
        let given = self.0.given()?;
        if confirmation.is_some() && given.is_none() {
            let message = "An intent that is confirmed at once needs a payment method.";
            let error = ApiError::new(ErrorCode::ParameterMissing, message);
            return Err(error.with_param("payment_method".to_owned()).into());
        }
        let customer = params.customer.map(|id| given::customer(draft, id));
        let customer = customer.transpose()?;
        let mut terms = params.terms(customer)?;
        if let Some(confirmation) = confirmation {
            must_be_possible(confirmation, &terms, false, return_url.as_deref())?;
        }
        let makes_method = matches!(given, Some(GivenMethod::New(_)));
        let method = given.map(|given| given::take(draft, given)).transpose()?;
        if let Some(method) = &method {
            method.may_pay_for(customer).map_err(refused)?;
            terms.payment_method = Some(method.id);
        }
        let id = PaymentIntentId(Uuid::now_v7());
        let intent = PaymentIntent::begun(id, client_secret(id), terms, draft.now);
        let intent = draft.put(intent);
        let (Some(method), Some(confirmation)) = (method, confirmation) else {
            draft.emit(EventType::PaymentIntentCreated, &intent)?;
            return Ok(show(CREATED, intent));
        };
        let attempt = PaymentAttempt {
            by: ConfirmedBy::Creation,
            intent,
            method,
        };
        attempt.confirm(draft, makes_method, confirmation, return_url)
    }

    fn card(&self) -> Option<Card> {
        given::card_of(self.0.given()).filter(|_| self.is_confirmed())
    }
}

impl CreateIntent {
    fn is_confirmed(&self) -> bool {
        self.0.confirm == Some(true)
    }
}
