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
        holder_pages::{ReturnToShop, no_longer_needed},
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
            && self.page(intent).is_some()
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
        let ended = |reply| Ok(Verdict::Said(Said::Reply(reply)));
        let (Some(page), Some(method)) = (self.page(&intent), intent.terms.payment_method) else {
            return ended(no_longer_needed(self.id));
        };
        let method = given::free(draft, Some(method), "payment_method")?;
        // It may have been detached, or used up, since the page was made.
        let error = match method.may_pay_for(intent.terms.customer) {
            Err(refusal) => Some(refused(refusal)),
            Ok(()) if self.is_complete => None,
            Ok(()) => Some(authentication_failed()),
        };
        let attempt = PaymentAttempt {
            by: ConfirmedBy::Holder,
            intent: intent.clone(),
            method,
            expand: &Expansion::default(),
        };
        if let Some(error) = error {
            attempt.fail(draft, error)?;
            return ended(landing(&intent, &page, false)?);
        }
        match intent.terms.confirmation_method {
            ConfirmationMethod::Automatic => attempt.ask(draft, false),
            ConfirmationMethod::Manual => {
                let intent = draft.put(intent.authenticated());
                ended(landing(&intent, &page, true)?)
            }
        }
    }
}

impl AuthenticateIntent {
    /// The page, if the intent waits for it.
    fn page(&self, intent: &PaymentIntent) -> Option<HolderPage> {
        let page = intent.holder_page.clone();
        page.filter(|page| intent.may_authenticate() && page.opens_with(&self.token))
    }
}

/// Why an intent's method failed whose holder didn't authenticate.
fn authentication_failed() -> ApiError {
    ApiError::new(
        ErrorCode::PaymentIntentAuthenticationFailure,
        "The provided PaymentMethod has failed authentication. You can provide payment_method_data or a new \
         PaymentMethod to attempt to fulfill this PaymentIntent again.",
    )
}

/// Leads the holder from `page` back to the shop.
pub(super) fn landing(
    intent: &PaymentIntent,
    page: &HolderPage,
    has_succeeded: bool,
) -> Result<Reply, Rejection> {
    let landing = ReturnToShop {
        kind: "payment_intent",
        id: intent.id.to_string(),
        client_secret: intent.client_secret.clone(),
        has_succeeded,
    };
    landing.of(page)
}

/// The page of an intent that the processor has answered about.
pub(super) fn page_of(intent: &PaymentIntent) -> Result<HolderPage, Rejection> {
    let page = intent.holder_page.clone();
    page.ok_or_else(|| lost("an intent's page"))
}
