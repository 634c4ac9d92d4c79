//! `POST /payment_intents/{id}/cancel`: give a payment up; what was promised is released.
//!
//! Locks    the intent, then its charge
//! Writes   the intent's end; if money was promised, one refund that releases it, which is pending
//!          while a processor across a network is asked
//! Emits    refund.created and charge.refunded, if money was promised; payment_intent.canceled
//! Refuses  an intent whose money was taken, or that was canceled
//! Fails    while an answer about the intent is out; if another processor authorized its charge

use charge_once_strict_params::{Expansion, Params};
use chrono::Utc;
use sqlx::PgConnection;
use uuid::Uuid;

use super::{
    found::{lock, lock_charge, lock_settled, unexpected},
    phases::declined_by_processor,
};
use crate::commands::{
    Origin, RowId, SeenRows,
    mode::Mode,
    refunds::create::{self as refunds, open},
    replies::{OK, checked, lost},
    work::in_transaction,
};
use crate::{
    domain::{
        charge::Charge,
        event::EventType,
        ids::PaymentIntentId,
        metadata::Metadata,
        operation::{Answer, Ask, Effect, RefundRequest, Verb},
        payment_intent::{CancellationReason, IntentStatus, PaymentIntent},
        refund::Refund,
    },
    idempotency::{Begin, BeginOutcome, Command, Rejection, Reply},
    store,
    wire::payment_intents::{CancelPaymentIntentParams, PaymentIntentView},
};

/// Cancels an intent.
pub struct CancelIntent {
    /// The request's origin.
    pub origin: Origin,
    /// The intent, as the path names it.
    pub id: String,
    /// As decoded; checked here, so that a wrong one is a stored refusal.
    pub params: Params,
}

/// A cancellation that may be made, of an intent that this transaction has locked.
struct DecidedCancellation {
    intent: PaymentIntent,
    reason: Option<CancellationReason>,
    /// Releases what was promised.
    refund: Option<Refund>,
    expand: Expansion,
}

impl CancelIntent {
    async fn decide(
        &self,
        tx: &mut PgConnection,
        mode: Mode,
    ) -> Result<DecidedCancellation, Rejection> {
        let params: CancelPaymentIntentParams = checked(&self.params)?;
        let intent = lock_settled(tx, self.origin.account, &self.id, mode).await?;
        intent
            .must_be_cancelable()
            .map_err(|status| unexpected(&intent, "cancel", status))?;
        let refund = match intent.status == IntentStatus::RequiresCapture {
            true => Some(self.release(tx, &intent, mode).await?),
            false => None,
        };
        Ok(DecidedCancellation {
            intent,
            reason: params.cancellation_reason,
            refund,
            expand: params.expand,
        })
    }

    /// Writes the refund that releases what was promised.
    async fn release(
        &self,
        tx: &mut PgConnection,
        intent: &PaymentIntent,
        mode: Mode,
    ) -> Result<Refund, Rejection> {
        let charge = lock_charge(tx, &self.origin, intent, mode).await?.id;
        let amount = intent.amount_capturable;
        let reads = |_: &SeenRows<'_>| vec![RowId::Charge(charge)];
        in_transaction(&self.origin, None, tx, reads, |draft| {
            let found = draft.get::<Charge>(charge).cloned();
            let charge = found.ok_or_else(|| lost("an intent's charge"))?;
            Ok(open(draft, charge, amount, None, Metadata::new()))
        })
        .await
    }
}

impl Command for CancelIntent {
    async fn execute(&self, tx: &mut PgConnection) -> Result<Reply, Rejection> {
        let DecidedCancellation {
            intent,
            reason,
            refund,
            expand,
        } = self.decide(tx, Mode::OneTransaction).await?;
        let request = refund.as_ref().map(RefundRequest::of);
        cancel(&self.origin, tx, intent, reason, request.as_ref(), &expand).await
    }
}

impl Begin for CancelIntent {
    async fn begin(
        &self,
        tx: &mut PgConnection,
        operation: Uuid,
    ) -> Result<BeginOutcome, Rejection> {
        let DecidedCancellation {
            mut intent,
            reason,
            refund,
            expand,
        } = self.decide(tx, Mode::Phases).await?;
        let origin = &self.origin;
        let Some(refund) = refund else {
            let reply = cancel(origin, tx, intent, reason, None, &expand).await?;
            return Ok(BeginOutcome::Replied(reply));
        };
        store::payment_intents::remember(tx, origin.account, intent.id).await?;
        // It is shown when the intent is canceled.
        intent.cancellation_reason = reason;
        store::payment_intents::update(tx, origin.account, &intent).await?;
        let ask = Ask::Refund(RefundRequest::of(&refund));
        let effect = Effect {
            intent: Some(intent.id),
            expand,
            ..Effect::of(Verb::CancelIntent, ask)
        };
        origin.begin_effect(tx, operation, effect).await
    }
}

/// Writes down the processor's answer. After a decline, the money is still promised.
pub(super) async fn complete(
    origin: &Origin,
    tx: &mut PgConnection,
    intent: PaymentIntentId,
    request: &RefundRequest,
    answer: Answer,
    expand: &Expansion,
) -> Result<Reply, Rejection> {
    let intent = lock(tx, origin.account, Some(intent)).await?;
    match answer {
        Answer::Done => {
            let reason = intent.cancellation_reason;
            cancel(origin, tx, intent, reason, Some(request), expand).await
        }
        Answer::Declined(decline) => {
            let reads = |seen: &SeenRows<'_>| refunds::reads(seen, request);
            let failed = in_transaction(origin, None, tx, reads, |draft| {
                refunds::end(draft, request, answer)
            });
            drop(failed.await?);
            declined_by_processor(origin, tx, intent.id, request.charge, decline).await
        }
    }
}

/// Closes the intent, and reports it in events and in the reply.
async fn cancel(
    origin: &Origin,
    tx: &mut PgConnection,
    intent: PaymentIntent,
    reason: Option<CancellationReason>,
    refund: Option<&RefundRequest>,
    expand: &Expansion,
) -> Result<Reply, Rejection> {
    if let Some(request) = refund {
        let reads = |seen: &SeenRows<'_>| refunds::reads(seen, request);
        let ended = in_transaction(origin, None, tx, reads, |draft| {
            refunds::answered(draft, request, Answer::Done, &Expansion::default())
        });
        ended.await?;
    }
    // The row says when, by the database's clock.
    let intent = intent.canceled(Utc::now(), reason);
    let intent = store::payment_intents::update(tx, origin.account, &intent).await?;
    let view = PaymentIntentView::from(&intent);
    let event_type = EventType::PaymentIntentCanceled;
    origin.emit(tx, event_type, &view).await?;
    origin.show(tx, OK, view.id, &intent, expand).await
}
