//! `POST /payment_intents/{id}/confirm`: charge the card, or send its holder to a page first.
//!
//! Reads    the intent, with the charge that a processor may be asked about; the method; the
//!          customer, if a new method is to be theirs
//! Writes   one charge, and what became of the intent and the method; across a network the charge
//!          is pending and the intent processing meanwhile
//! Emits    charge.succeeded, payment_method.attached, and payment_intent.succeeded or
//!          payment_intent.amount_capturable_updated; or charge.failed and
//!          payment_intent.payment_failed; or payment_intent.requires_action
//! Refuses  an intent whose money was promised, or that was canceled; a method that may not be used
//!          for it
//! Fails    when the processor is down or its slow lane is full; while an answer about the intent
//!          is out
//! Asks     for the money

use super::attempt::{PaymentAttempt, sets_up};
use crate::{
    commands::{
        found_intents::{reads, refusal, settled, unexpected},
        payment_methods::given,
        prelude::*,
    },
    domain::payment_intent::UnexpectedStatus,
    wire::{
        payment_intents::{ConfirmPaymentIntentParams, must_be_possible},
        payment_methods::GivenMethod,
    },
};

/// Confirms an intent.
pub type ConfirmIntent = On<PaymentIntentId, ConfirmPaymentIntentParams>;

impl ConfirmIntent {
    /// The intent as the request changes it.
    fn changed(&self, before: &PaymentIntent) -> Result<PaymentIntent, UnexpectedStatus> {
        before.must_be_confirmable()?;
        let terms = self.params.clone().apply(before.terms.clone());
        before.clone().updated(terms, false)
    }
}

impl Rules for ConfirmIntent {
    fn reads(&self, seen: &SeenRows<'_>) -> Vec<RowId> {
        let mut rows = reads(seen, self.id);
        let before = self.id.and_then(|id| seen.get::<PaymentIntent>(id));
        if let Some(Ok(intent)) = before.map(|before| self.changed(before)) {
            let terms = &intent.terms;
            let (default, keeps_for) = (terms.payment_method, intent.keeps_method_for());
            let (given, makes_ready) = (self.params.given(), sets_up(terms));
            rows.extend(given::reads(seen, &given, default, makes_ready, keeps_for));
        }
        rows
    }

    fn decide(&self, draft: &mut Draft<'_>) -> Result<Verdict, Rejection> {
        let confirmation = self.params.confirmation();
        let return_url = self.params.return_url.clone();
        let given = self.params.given()?;
        let before = settled(draft, self.id, "intent")?;
        let refuse = |status| unexpected(&before, "confirm", status);
        let intent = self.changed(&before).map_err(refuse)?;
        let (terms, is_authenticated) = (&intent.terms, intent.is_authenticated);
        must_be_possible(confirmation, terms, is_authenticated, return_url.as_deref())?;
        let makes_method = matches!(given, Some(GivenMethod::New(_)));
        let method = match (given, terms.payment_method) {
            (Some(given), _) => given::take(draft, given)?,
            (None, Some(id)) => given::free(draft, Some(id), "payment_method")?,
            (None, None) => {
                let message = "You cannot confirm this PaymentIntent because it's missing a \
                               payment method. Send payment_method or payment_method_data.";
                return Err(refusal(&before, message.to_owned()));
            }
        };
        let attempt = PaymentAttempt {
            by: ConfirmedBy::Confirmation,
            intent,
            method,
        };
        attempt.confirm(draft, makes_method, confirmation, return_url)
    }

    fn card(&self) -> Option<Card> {
        given::card_of(self.params.given())
    }
}
