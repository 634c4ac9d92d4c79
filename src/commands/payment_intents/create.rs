//! `POST /payment_intents`: begin a payment, and confirm it at once if the client says so.
//!
//! [`CreateBareIntent`] decides without reading. [`CreateIntent`] is for intents that name a
//! customer or a method, or that are confirmed at once.
//!
//! Locks    the method, then the customer that it is attached to
//! Writes   one intent; a new method, if its card comes with the request; of a confirmation, what
//!          that writes
//! Emits    payment_intent.created, and what a confirmation emits
//! Refuses  parameters that are missing, unknown or wrong; a customer or a method that isn't there;
//!          a method that may not be used for it
//! Fails    as a confirmation does

use std::sync::Arc;

use charge_once_strict_params::{Expansion, Params};
use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use uuid::Uuid;

use super::attempt::{ConfirmOutcome, PaymentAttempt, sets_up};
use crate::commands::{
    Draft, Origin, RowId, Rules, Said, SeenRows, SlowLane, Verdict,
    holder_pages::{client_secret, holder_page},
    payment_methods::given::{find_customer, take},
    replies::{CREATED, checked},
};
use crate::{
    domain::{
        event::EventType,
        ids::PaymentIntentId,
        operation::Verb,
        payment_intent::{IntentTerms, PaymentIntent},
    },
    idempotency::{Begin, BeginOutcome, Command, Rejection, Reply, transaction_time},
    store,
    wire::{
        error::{ApiError, ErrorCode},
        payment_intents::{CreatePaymentIntentParams, PaymentIntentView, must_be_possible},
        payment_methods::{GivenMethod, refused},
    },
};

/// The new intent of a request.
fn begun(terms: IntentTerms, now: DateTime<Utc>) -> PaymentIntent {
    let id = PaymentIntentId(Uuid::now_v7());
    PaymentIntent::begun(id, client_secret(id), terms, now)
}

/// Creates an intent that no other row decides about, and that makes no other row: it names no
/// customer and no method, and confirms nothing.
pub struct CreateBareIntent(pub CreatePaymentIntentParams);

impl CreateBareIntent {
    /// Whether the request asks for such an intent. A wrong request is refused in the other shape.
    pub fn can_run(params: &Params) -> bool {
        checked::<CreatePaymentIntentParams>(params).is_ok_and(|params| params.is_bare())
    }
}

impl Rules for CreateBareIntent {
    fn reads(&self, _: &SeenRows<'_>) -> Vec<RowId> {
        Vec::new()
    }

    fn decide(&self, draft: &mut Draft<'_>) -> Result<Verdict, Rejection> {
        let params = self.0.clone();
        params.confirmation()?;
        let intent = draft.put(begun(params.terms(None)?, draft.now));
        draft.emit(
            EventType::PaymentIntentCreated,
            &PaymentIntentView::from(&intent),
        )?;
        // Nothing of it is there that could be expanded.
        Ok(Verdict::Said(Said::show(
            CREATED,
            intent,
            &Expansion::default(),
        )))
    }
}

/// Creates any other intent, and confirms it at once if the client says so.
pub struct CreateIntent {
    /// The request's origin.
    pub origin: Origin,
    /// As decoded; checked here, so that a wrong one is a stored refusal.
    pub params: Params,
    /// For `tok_slow`, where the processor is simulated.
    pub slow_lane: SlowLane,
    /// What the address of the holder's page begins with.
    pub public_url: Arc<str>,
}

impl CreateIntent {
    /// Writes the intent. What follows is the reply, or the card that is to be asked.
    async fn follow(&self, tx: &mut PgConnection) -> Result<ConfirmOutcome, Rejection> {
        let mut params: CreatePaymentIntentParams = checked(&self.params)?;
        let confirmation = params.confirmation()?;
        let (return_url, expand) = (params.return_url.take(), params.expand.clone());
        let given = params.given()?;
        if confirmation.is_some() && given.is_none() {
            let message = "An intent that is confirmed at once needs a payment method.";
            let error = ApiError::new(ErrorCode::ParameterMissing, message);
            return Err(error.with_param("payment_method".to_owned()).into());
        }
        let (origin, account) = (&self.origin, self.origin.account);
        let customer = match params.customer.take() {
            None => None,
            Some(id) => Some(find_customer(tx, account, id, "customer").await?.id),
        };
        // Without the method's id, which its lock is waited for.
        let mut terms = params.terms(customer)?;
        if let Some(confirmation) = confirmation {
            must_be_possible(confirmation, &terms, false, return_url.as_deref())?;
        }
        let makes_method = matches!(given, Some(GivenMethod::New(_)));
        let method = match given {
            None => None,
            Some(given) => Some(take(origin, tx, given, sets_up(&terms)).await?),
        };
        if let Some(method) = &method {
            method.may_pay_for(customer).map_err(refused)?;
            terms.payment_method = Some(method.id);
        }
        let intent = begun(terms, transaction_time(tx).await?);
        store::payment_intents::insert_all(tx, &[(account, &intent)]).await?;
        let (Some(method), Some(confirmation)) = (method, confirmation) else {
            let view = PaymentIntentView::from(&intent);
            let event_type = EventType::PaymentIntentCreated;
            origin.emit(tx, event_type, &view).await?;
            let reply = origin.show(tx, CREATED, view.id, &intent, &expand).await?;
            return Ok(ConfirmOutcome::Replied(reply));
        };
        let page = holder_page(&self.public_url, account, intent.id, return_url);
        let attempt = PaymentAttempt {
            verb: Verb::CreateIntent,
            intent,
            method,
            makes_method,
            expand,
        };
        attempt.confirm(origin, tx, confirmation, page).await
    }
}

impl Command for CreateIntent {
    async fn execute(&self, tx: &mut PgConnection) -> Result<Reply, Rejection> {
        match self.follow(tx).await? {
            ConfirmOutcome::Replied(reply) => Ok(reply),
            ConfirmOutcome::Asks(attempt) => {
                attempt.charge(&self.origin, tx, &self.slow_lane).await
            }
        }
    }
}

impl Begin for CreateIntent {
    async fn begin(
        &self,
        tx: &mut PgConnection,
        operation: Uuid,
    ) -> Result<BeginOutcome, Rejection> {
        match self.follow(tx).await? {
            ConfirmOutcome::Replied(reply) => Ok(BeginOutcome::Replied(reply)),
            ConfirmOutcome::Asks(attempt) => attempt.write_down(&self.origin, tx, operation).await,
        }
    }
}
