//! `POST /payment_intents/{id}/capture`: take what was promised, once; the rest is released.
//!
//! Locks    the intent, then its charge
//! Writes   the captured amount and the descriptor, on both; metadata of the intent
//! Emits    charge.captured, payment_intent.succeeded
//! Refuses  an intent of which nothing is promised, or was taken; more than was promised
//! Fails    while another operation on the charge has no outcome; if another processor
//!          authorized it

use charge_once_strict_params::{Expansion, Params};
use sqlx::PgConnection;
use uuid::Uuid;

use super::{
    found::{lock, lock_charge, lock_settled, refusal},
    phases::declined_by_processor,
};
use crate::commands::{
    Origin, RowId, SeenRows,
    mode::Mode,
    replies::{OK, checked, lost},
    work::in_transaction,
};
use crate::{
    domain::{
        charge::Charge,
        event::EventType,
        ids::PaymentIntentId,
        operation::{Answer, Ask, CaptureRequest, Effect, Verb},
        payment_intent::{IntentCaptureRefusal, PaymentIntent},
    },
    idempotency::{Begin, BeginOutcome, Command, Failure, Rejection, Reply},
    store,
    wire::{
        charges::ChargeView,
        error::{ApiError, ErrorCode},
        payment_intents::{CapturePaymentIntentParams, PaymentIntentView},
    },
};

/// Captures an intent.
pub struct CaptureIntent {
    /// The request's origin.
    pub origin: Origin,
    /// The intent, as the path names it.
    pub id: String,
    /// As decoded; checked here, so that a wrong one is a stored refusal.
    pub params: Params,
}

/// A capture that may be made, of an intent and a charge that this transaction has locked.
struct DecidedIntentCapture {
    intent: PaymentIntent,
    charge: Charge,
    amount: i64,
    expand: Expansion,
}

impl CaptureIntent {
    async fn decide(
        &self,
        tx: &mut PgConnection,
        mode: Mode,
    ) -> Result<DecidedIntentCapture, Rejection> {
        let params: CapturePaymentIntentParams = checked(&self.params)?;
        let account = self.origin.account;
        let before = lock_settled(tx, account, &self.id, mode).await?;
        let amount = before
            .capture(params.amount_to_capture)
            .map_err(|refused| refuse(&before, refused))?;
        let charge = lock_charge(tx, &self.origin, &before, mode).await?;
        let mut intent = before.clone();
        let metadata = params.metadata.apply(intent.terms.metadata);
        intent.terms.metadata = metadata.map_err(ApiError::from)?;
        let suffix = &mut intent.terms.statement_descriptor_suffix;
        *suffix = params.statement_descriptor_suffix.apply(suffix.take());
        if mode == Mode::Phases {
            store::payment_intents::remember(tx, account, intent.id).await?;
        }
        if intent != before {
            intent = store::payment_intents::update(tx, account, &intent).await?;
        }
        Ok(DecidedIntentCapture {
            intent,
            charge,
            amount,
            expand: params.expand,
        })
    }
}

fn refuse(intent: &PaymentIntent, refused: IntentCaptureRefusal) -> Rejection {
    match refused {
        IntentCaptureRefusal::UnexpectedStatus(status) => refusal(
            intent,
            format!(
                "This PaymentIntent could not be captured because it has a status of {}. Only one \
                 that requires_capture can be.",
                status.as_str()
            ),
        ),
        IntentCaptureRefusal::TooLarge { capturable } => {
            let message =
                format!("At most {capturable} minor units can be captured of this intent.");
            let error = ApiError::new(ErrorCode::CaptureAmountTooLarge, message);
            error.with_param("amount_to_capture".to_owned()).into()
        }
    }
}

impl Command for CaptureIntent {
    async fn execute(&self, tx: &mut PgConnection) -> Result<Reply, Rejection> {
        let DecidedIntentCapture {
            intent,
            charge,
            amount,
            expand,
        } = self.decide(tx, Mode::OneTransaction).await?;
        capture(&self.origin, tx, intent, charge, amount, &expand).await
    }
}

impl Begin for CaptureIntent {
    async fn begin(
        &self,
        tx: &mut PgConnection,
        operation: Uuid,
    ) -> Result<BeginOutcome, Rejection> {
        let decided = self.decide(tx, Mode::Phases).await?;
        let ask = Ask::Capture(CaptureRequest {
            charge: decided.charge.id,
            amount: decided.amount,
        });
        let effect = Effect {
            intent: Some(decided.intent.id),
            expand: decided.expand,
            ..Effect::of(Verb::CaptureIntent, ask)
        };
        self.origin.begin_effect(tx, operation, effect).await
    }
}

/// Writes down the processor's answer. After a decline, the money is still promised.
pub(super) async fn complete(
    origin: &Origin,
    tx: &mut PgConnection,
    intent: PaymentIntentId,
    request: CaptureRequest,
    answer: Answer,
    expand: &Expansion,
) -> Result<Reply, Rejection> {
    let intent = lock(tx, origin.account, Some(intent)).await?;
    match answer {
        Answer::Done => {
            let gone = || Rejection::Failed(Failure::internal("a charge is gone"));
            let charge = store::charges::lock(tx, origin.account, request.charge).await?;
            let (charge, amount) = (charge.ok_or_else(gone)?, request.amount);
            capture(origin, tx, intent, charge, amount, expand).await
        }
        Answer::Declined(decline) => {
            declined_by_processor(origin, tx, intent.id, request.charge, decline).await
        }
    }
}

/// Takes the money, and reports it in events and in the reply. `before` is locked.
async fn capture(
    origin: &Origin,
    tx: &mut PgConnection,
    intent: PaymentIntent,
    before: Charge,
    amount: i64,
    expand: &Expansion,
) -> Result<Reply, Rejection> {
    let reads = |_: &SeenRows<'_>| vec![RowId::Charge(before.id)];
    let suffix = intent.terms.statement_descriptor_suffix.clone();
    let charge = in_transaction(origin, None, tx, reads, |draft| {
        let charge = draft.get::<Charge>(before.id).cloned();
        let charge = charge.filter(|charge| !charge.captured);
        let mut charge = charge.ok_or_else(|| lost("an intent's charge, not captured,"))?;
        if let (Some(of), Some(suffix)) = (&mut charge.by_intent, suffix) {
            of.statement_descriptor_suffix = Some(suffix);
        }
        Ok(draft.put(charge.taken(amount)))
    });
    let charge = charge.await?;
    let intent = intent.captured(amount);
    let intent = store::payment_intents::update(tx, origin.account, &intent).await?;
    let view = PaymentIntentView::from(&intent);
    let (before, charge) = (ChargeView::from(&before), ChargeView::from(&charge));
    origin
        .emit_change(tx, EventType::ChargeCaptured, &before, &charge)
        .await?;
    origin
        .emit(tx, EventType::PaymentIntentSucceeded, &view)
        .await?;
    origin.show(tx, OK, view.id, &intent, expand).await
}
