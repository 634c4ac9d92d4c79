//! `POST /setup_intents`: begin to set a card up, and try it at once with `confirm`.
//!
//! Reads    the method and the customer that it names; the customer is locked if a new method is to
//!          be theirs
//! Writes   one setup intent, and a method that is made on the way
//! Emits    setup_intent.created; with confirm also requires_action, succeeded (after
//!          payment_method.attached) or setup_failed
//! Refuses  parameters that are unknown or wrong; unknown customers and methods; a method of
//!          another customer
//! Fails    while a payment with a new method has no answer
//! Declines a card that its issuer refuses: the setup intent stays

use super::attempt::SetupAttempt;
use crate::{
    commands::{holder_pages::client_secret, payment_methods::given, prelude::*},
    domain::setup_intent::SetupTerms,
    wire::{
        intent_parameters::{chosen_methods, nothing_to_confirm, without_confirm},
        payment_methods::refused,
        setup_intents::CreateSetupIntentParams,
    },
};

/// Creates a setup intent.
pub struct CreateSetupIntent(pub CreateSetupIntentParams);

impl CreateSetupIntent {
    fn is_confirmed(&self) -> bool {
        self.0.confirm == Some(true)
    }
}

impl Rules for CreateSetupIntent {
    fn reads(&self, seen: &SeenRows<'_>) -> Vec<RowId> {
        let customer = self.0.customer.flatten();
        let keeps_for = customer.filter(|_| self.is_confirmed());
        let mut rows = given::reads(seen, &self.0.given(), None, true, keeps_for);
        rows.extend(customer.map(RowId::CustomerSeen));
        rows
    }

    fn decide(&self, draft: &mut Draft<'_>) -> Result<Verdict, Rejection> {
        let params = self.0.clone();
        let confirm = self.is_confirmed();
        let for_confirm = [
            ("mandate_data", params.mandate_data.is_some()),
            ("return_url", params.return_url.is_some()),
        ];
        if let Some((param, _)) = for_confirm
            .iter()
            .find(|(_, is_given)| *is_given && !confirm)
        {
            return Err(without_confirm(param).into());
        }
        let automatic_payment_methods = chosen_methods(
            params.automatic_payment_methods,
            params.payment_method_types,
        )?;
        let method = match self.0.given()? {
            None if confirm => return Err(nothing_to_confirm().into()),
            given => given.map(|given| given::take(draft, given)).transpose()?,
        };
        let customer = params
            .customer
            .map(|id| given::customer(draft, id))
            .transpose()?;
        if let Some(method) = &method {
            method.may_pay_for(customer).map_err(refused)?;
        }
        let terms = SetupTerms {
            automatic_payment_methods,
            customer,
            description: params.description,
            metadata: params.metadata,
            payment_method: method.as_ref().map(|method| method.id),
            usage: params.usage.unwrap_or(FutureUsage::OffSession),
        };
        let id = SetupIntentId(Uuid::now_v7());
        let setup = SetupIntent::begun(id, client_secret(id), terms, draft.now);
        let setup = draft.put_with(EventType::SetupIntentCreated, setup)?;
        let Some(method) = method.filter(|_| confirm) else {
            return Ok(show(CREATED, setup));
        };
        let attempt = SetupAttempt {
            return_url: params.return_url,
            status: CREATED,
        };
        attempt.run(draft, setup, method).map(Verdict::Answered)
    }
}
