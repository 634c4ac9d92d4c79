//! The form of the page on which a card's holder authenticates: complete it, or fail it.
//!
//! Locks    the intent, then the method, then the customer that it is attached to
//! Writes   as a confirmation does; or that the intent is to be confirmed once more; or that its
//!          method failed
//! Emits    as a confirmation does; payment_intent.payment_failed
//! Refuses  nothing: a page that the intent doesn't wait for is answered that it is not needed
//! Fails    as a confirmation does

use charge_once_strict_params::Expansion;
use sqlx::PgConnection;
use uuid::Uuid;

use super::{
    attempt::{PaymentAttempt, sets_up},
    found::lock,
};
use crate::commands::{
    Origin, SlowLane,
    holder_pages::{ReturnToShop, no_longer_needed},
    payment_methods::given,
};
use crate::{
    domain::{
        ids::PaymentIntentId,
        operation::Verb,
        payment_intent::{ConfirmationMethod, HolderPage, IntentStatus, PaymentIntent},
    },
    idempotency::{Begin, BeginOutcome, Command, Failure, Rejection, Reply},
    store,
    wire::{
        error::{ApiError, ErrorCode},
        payment_methods::refused,
    },
};

/// Answers the form of a holder's page. A reply leads back to the shop.
pub struct AuthenticateIntent {
    /// The origin of the page's own request.
    pub origin: Origin,
    /// The intent, as the path names it.
    pub id: PaymentIntentId,
    /// Opens the page.
    pub token: String,
    /// Whether the holder has authenticated.
    pub is_complete: bool,
    /// For `tok_slow`, where the processor is simulated.
    pub slow_lane: SlowLane,
}

/// What follows the form.
enum FormOutcome {
    /// It has ended.
    Landed(Reply),
    /// The card is to be asked.
    Asks(Box<PaymentAttempt>, HolderPage),
}

impl AuthenticateIntent {
    async fn answer(&self, tx: &mut PgConnection) -> Result<FormOutcome, Rejection> {
        let origin = &self.origin;
        let intent = lock(tx, origin.account, Some(self.id)).await?;
        if intent.status == IntentStatus::Processing {
            // If the processor is never asked, the page is awaited again.
            let busy = "the processor is asked about the intent";
            return Err(Rejection::Failed(Failure::busy(busy)));
        }
        let page = intent.holder_page.clone();
        let awaited = page.filter(|page| intent.may_authenticate() && page.opens_with(&self.token));
        let (Some(page), Some(method)) = (awaited, intent.terms.payment_method) else {
            return Ok(FormOutcome::Landed(no_longer_needed(self.id)));
        };
        let sets_up = sets_up(&intent.terms);
        let method = given::lock_to_pay(origin, tx, Some(method), sets_up).await?;
        let customer = intent.terms.customer;
        let is_manual = intent.terms.confirmation_method == ConfirmationMethod::Manual;
        let attempt = PaymentAttempt {
            verb: Verb::AuthenticateIntent,
            intent,
            method,
            makes_method: false,
            expand: Expansion::default(),
        };
        // It may have been detached, or used up, since the page was made.
        let error = match attempt.method.may_pay_for(customer) {
            Err(refusal) => Some(refused(refusal)),
            Ok(()) if self.is_complete => None,
            Ok(()) => Some(authentication_failed()),
        };
        if let Some(error) = error {
            let intent = attempt.intent.clone();
            attempt.fail(origin, tx, error, Vec::new()).await?;
            return Ok(FormOutcome::Landed(landing(&intent, &page, false)?));
        }
        if is_manual {
            let intent = attempt.intent.authenticated();
            let intent = store::payment_intents::update(tx, origin.account, &intent).await?;
            return Ok(FormOutcome::Landed(landing(&intent, &page, true)?));
        }
        Ok(FormOutcome::Asks(Box::new(attempt), page))
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

impl Command for AuthenticateIntent {
    async fn execute(&self, tx: &mut PgConnection) -> Result<Reply, Rejection> {
        match self.answer(tx).await? {
            FormOutcome::Landed(reply) => Ok(reply),
            FormOutcome::Asks(attempt, page) => {
                let intent = attempt.intent.clone();
                let reply = attempt.charge(&self.origin, tx, &self.slow_lane).await?;
                landing(&intent, &page, reply.status < 300)
            }
        }
    }
}

impl Begin for AuthenticateIntent {
    async fn begin(
        &self,
        tx: &mut PgConnection,
        operation: Uuid,
    ) -> Result<BeginOutcome, Rejection> {
        match self.answer(tx).await? {
            FormOutcome::Landed(reply) => Ok(BeginOutcome::Replied(reply)),
            FormOutcome::Asks(attempt, _) => attempt.write_down(&self.origin, tx, operation).await,
        }
    }
}

/// The page of an intent that the processor has answered about.
pub(super) fn page_of(intent: &PaymentIntent) -> Result<HolderPage, Rejection> {
    let lost = || Rejection::Failed(Failure::internal("an intent's page is gone"));
    intent.holder_page.clone().ok_or_else(lost)
}
