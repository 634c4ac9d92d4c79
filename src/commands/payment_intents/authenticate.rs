//! The form of the page on which a card's holder authenticates: complete it, or fail it.
//!
//! Reads    the intent, its method; the customer, if a new method is to be theirs
//! Writes   as a confirmation does; or that the intent is to be confirmed once more; or that its
//!          method failed
//! Emits    as a confirmation does; payment_intent.payment_failed
//! Refuses  nothing: a page that the intent doesn't wait for is answered that it is not needed
//! Fails    as a confirmation does
//! Asks     for the money

use super::attempt::{PaymentAttempt, sets_up};
use crate::{
    commands::{
        holder_pages::{authentication_failed, landing, no_longer_needed},
        payment_methods::given,
        prelude::*,
    },
    domain::payment_intent::ConfirmationMethod,
    wire::payment_methods::refused,
};

/// Answers the form of a holder's page. A reply leads back to the shop.
pub struct AuthenticateIntent {
    /// The intent, as the path names it.
    pub id: PaymentIntentId,
    /// Opens the page.
    pub token: String,
    /// Whether the holder has authenticated.
    pub is_complete: bool,
}

impl Rules for AuthenticateIntent {
    fn reads(&self, seen: &SeenRows<'_>) -> Vec<RowId> {
        let mut rows = vec![RowId::Intent(self.id)];
        if let Some(intent) = seen.get::<PaymentIntent>(self.id)
            && self.is_awaited(intent)
        {
            let (ready, keeps_for) = (sets_up(&intent.terms), intent.keeps_method_for());
            let method = intent.terms.payment_method;
            rows.extend(given::reads(seen, &Ok(None), method, ready, keeps_for));
        }
        rows
    }

    fn decide(&self, draft: &mut Draft<'_>) -> Result<Verdict, Rejection> {
        let intent = draft
            .find::<PaymentIntent>(Some(self.id), "intent")?
            .clone();
        if intent.status == IntentStatus::Processing {
            // If the processor is never asked, the page is awaited again.
            let busy = "the processor is asked about the intent";
            return Err(Rejection::Failed(Failure::busy(busy)));
        }
        let method = intent
            .terms
            .payment_method
            .filter(|_| self.is_awaited(&intent));
        let Some(method) = method else {
            return Ok(Verdict::Answered(no_longer_needed(self.id)));
        };
        let method = given::free(draft, Some(method), "payment_method")?;
        // It may have been detached, or used up, since the page was made.
        let error = match method.may_pay_for(intent.terms.customer) {
            Err(refusal) => Some(refused(refusal)),
            Ok(()) if self.is_complete => None,
            Ok(()) => {
                let code = ErrorCode::PaymentIntentAuthenticationFailure;
                Some(authentication_failed(code, "PaymentIntent"))
            }
        };
        let attempt = PaymentAttempt {
            by: ConfirmedBy::Holder,
            intent: intent.clone(),
            method,
        };
        if let Some(error) = error {
            attempt.fail(draft, error)?;
            return lands(&intent, false).map(Verdict::Answered);
        }
        match intent.terms.confirmation_method {
            ConfirmationMethod::Automatic => attempt.ask(draft, false),
            ConfirmationMethod::Manual => {
                draft.put(intent.clone().authenticated());
                lands(&intent, true).map(Verdict::Answered)
            }
        }
    }
}

impl AuthenticateIntent {
    /// Whether the intent waits for the page.
    fn is_awaited(&self, intent: &PaymentIntent) -> bool {
        let page = intent.holder_page.as_ref();
        intent.may_authenticate() && page.is_some_and(|page| page.opens_with(&self.token))
    }
}

/// Leads the holder from an intent's page back to the shop.
pub(super) fn lands(intent: &PaymentIntent, has_succeeded: bool) -> Result<Said, Rejection> {
    let of = (
        "payment_intent",
        intent.id.to_string(),
        &*intent.client_secret,
    );
    landing(intent.holder_page.as_ref(), of, has_succeeded)
}
