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

use std::sync::Arc;

use super::attempt::PaymentAttempt;
use crate::{
    commands::{
        holder_pages::{client_secret, holder_page},
        payment_methods::given::{self, Given},
        prelude::*,
    },
    wire::{
        payment_intents::{CreatePaymentIntentParams, must_be_possible},
        payment_methods::{GivenMethod, refused},
    },
};

/// Creates an intent.
pub struct CreateIntent {
    params: CreatePaymentIntentParams,
    given: Given,
    /// What the address of the holder's page begins with.
    public_url: Arc<str>,
}

impl CreateIntent {
    /// With the parameters of the request, and what the address of the holder's page begins with.
    pub fn new(mut params: CreatePaymentIntentParams, public_url: Arc<str>) -> Self {
        Self {
            given: params.given(),
            params,
            public_url,
        }
    }
}

impl Rules for CreateIntent {
    fn reads(&self, seen: &SeenRows<'_>) -> Vec<RowId> {
        let customer = self.params.customer.flatten();
        let usage = self.params.setup_future_usage;
        let makes_ready = usage == Some(FutureUsage::OffSession);
        let keeps_for = customer.filter(|_| usage.is_some() && self.is_confirmed());
        let mut rows = given::reads(seen, &self.given, None, makes_ready, keeps_for);
        rows.extend(customer.map(RowId::CustomerSeen));
        rows
    }

    fn decide(&self, draft: &mut Draft<'_>) -> Result<Verdict, Rejection> {
        let mut params = self.params.clone();
        let confirmation = params.confirmation()?;
        let (return_url, expand) = (params.return_url.take(), &self.params.expand);
        let given = self.given.clone()?;
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
            return Ok(Verdict::Said(Said::show(CREATED, intent, expand)));
        };
        let account = draft.origin.account;
        let page = holder_page(&self.public_url, account, intent.id, return_url);
        let attempt = PaymentAttempt {
            by: ConfirmedBy::Creation,
            intent,
            method,
            expand,
        };
        attempt.confirm(draft, makes_method, confirmation, page)
    }

    fn card(&self) -> Option<&Card> {
        given::card_of(&self.given).filter(|_| self.is_confirmed())
    }
}

impl CreateIntent {
    fn is_confirmed(&self) -> bool {
        self.params.confirm == Some(true)
    }
}
