//! `POST /payment_intents/{id}/confirm`: charge the card, or send its holder to a page first.
//!
//! Locks    the intent, then the method, then the customer that it is attached to
//! Writes   one charge, and what became of the intent and the method; across a network the charge
//!          is pending and the intent processing meanwhile
//! Emits    charge.succeeded, payment_method.attached, and payment_intent.succeeded or
//!          payment_intent.amount_capturable_updated; or charge.failed and
//!          payment_intent.payment_failed; or payment_intent.requires_action
//! Refuses  an intent whose money was promised, or that was canceled; a method that may not be used
//!          for it
//! Fails    when the processor is down or its slow lane is full; while an answer about the intent
//!          is out

use std::sync::Arc;

use charge_once_strict_params::Params;
use sqlx::PgConnection;
use uuid::Uuid;

use super::{
    attempt::{ConfirmOutcome, PaymentAttempt, sets_up},
    found::{lock_settled, refusal, unexpected},
};
use crate::commands::{
    Origin, SlowLane,
    holder_pages::holder_page,
    mode::Mode,
    payment_methods::given::{lock_to_pay, take},
    replies::checked,
};
use crate::{
    domain::operation::Verb,
    idempotency::{Begin, BeginOutcome, Command, Rejection, Reply},
    wire::{
        payment_intents::{ConfirmPaymentIntentParams, must_be_possible},
        payment_methods::GivenMethod,
    },
};

/// Confirms an intent.
pub struct ConfirmIntent {
    /// The request's origin.
    pub origin: Origin,
    /// The intent, as the path names it.
    pub id: String,
    /// As decoded; checked here, so that a wrong one is a stored refusal.
    pub params: Params,
    /// For `tok_slow`, where the processor is simulated.
    pub slow_lane: SlowLane,
    /// What the address of the holder's page begins with.
    pub public_url: Arc<str>,
}

impl ConfirmIntent {
    async fn follow(&self, tx: &mut PgConnection, mode: Mode) -> Result<ConfirmOutcome, Rejection> {
        let mut params: ConfirmPaymentIntentParams = checked(&self.params)?;
        let confirmation = params.confirmation();
        let (return_url, expand) = (params.return_url.take(), params.expand.clone());
        let given = params.given()?;
        let origin = &self.origin;
        let before = lock_settled(tx, origin.account, &self.id, mode).await?;
        let refuse = |status| unexpected(&before, "confirm", status);
        before.must_be_confirmable().map_err(refuse)?;
        let three_d_secure = params.three_d_secure(before.terms.request_three_d_secure);
        let mut intent = before.clone().updated(params.change()).map_err(refuse)?;
        let is_authenticated = intent.is_authenticated;
        let terms = &mut intent.terms;
        terms.request_three_d_secure = three_d_secure;
        must_be_possible(confirmation, terms, is_authenticated, return_url.as_deref())?;
        let makes_method = matches!(given, Some(GivenMethod::New(_)));
        let method = match (given, terms.payment_method) {
            (Some(given), _) => take(origin, tx, given, sets_up(terms)).await?,
            (None, Some(id)) => lock_to_pay(origin, tx, Some(id), sets_up(terms)).await?,
            (None, None) => {
                let message = "You cannot confirm this PaymentIntent because it's missing a \
                               payment method. Send payment_method or payment_method_data.";
                return Err(refusal(&before, message.to_owned()));
            }
        };
        let page = holder_page(&self.public_url, origin.account, intent.id, return_url);
        let attempt = PaymentAttempt {
            verb: Verb::ConfirmIntent,
            intent,
            method,
            makes_method,
            expand,
        };
        attempt.confirm(origin, tx, confirmation, page).await
    }
}

impl Command for ConfirmIntent {
    async fn execute(&self, tx: &mut PgConnection) -> Result<Reply, Rejection> {
        match self.follow(tx, Mode::OneTransaction).await? {
            ConfirmOutcome::Replied(reply) => Ok(reply),
            ConfirmOutcome::Asks(attempt) => {
                attempt.charge(&self.origin, tx, &self.slow_lane).await
            }
        }
    }
}

impl Begin for ConfirmIntent {
    async fn begin(
        &self,
        tx: &mut PgConnection,
        operation: Uuid,
    ) -> Result<BeginOutcome, Rejection> {
        match self.follow(tx, Mode::Phases).await? {
            ConfirmOutcome::Replied(reply) => Ok(BeginOutcome::Replied(reply)),
            ConfirmOutcome::Asks(attempt) => attempt.write_down(&self.origin, tx, operation).await,
        }
    }
}
