//! `POST /charges/{id}/capture`: take what was promised, once; the rest is released.
//!
//! Locks    the charge
//! Writes   the captured amount
//! Emits    charge.captured
//! Refuses  a charge that failed, was captured or was released; more than was promised; one of an
//!          intent, which is captured instead
//! Fails    while another operation on the charge has no outcome; if another processor
//!          authorized it

use charge_once_strict_params::{Expansion, Params};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::commands::{
    Origin,
    mode::{Mode, must_be_free},
    replies::{OK, checked, declined_by_processor, missing},
};
use crate::{
    domain::{
        charge::ChargeRefusal,
        event::EventType,
        ids::ChargeId,
        operation::{Answer, Ask, CaptureRequest, Effect, Verb},
    },
    idempotency::{Begin, BeginOutcome, Command, Rejection, Reply},
    store,
    wire::{
        charges::{CaptureChargeParams, ChargeView, refused},
        error::{ApiError, ErrorCode},
    },
};

/// Captures a charge.
pub struct CaptureCharge {
    /// The request's origin.
    pub origin: Origin,
    /// The charge, as the path names it.
    pub id: String,
    /// As decoded; checked here, so that a wrong one is a stored refusal.
    pub params: Params,
}

/// A capture that may be made, of a charge that this transaction has locked.
struct DecidedCapture {
    request: CaptureRequest,
    expand: Expansion,
}

impl CaptureCharge {
    async fn decide(&self, tx: &mut PgConnection, mode: Mode) -> Result<DecidedCapture, Rejection> {
        let params: CaptureChargeParams = checked(&self.params)?;
        let account = self.origin.account;
        let id = ChargeId::parse(&self.id).ok_or_else(|| missing("id", ChargeId::PREFIX))?;
        let charge = store::charges::lock(tx, account, id)
            .await?
            .ok_or_else(|| missing("id", ChargeId::PREFIX))?;
        must_be_free(tx, account, id, mode).await?;
        if let Some(of) = &charge.by_intent {
            let message = format!("The charge is an intent's: capture {} instead.", of.intent);
            let error = ApiError::new(ErrorCode::ParameterInvalid, message);
            return Err(error.with_param("id".to_owned()).into());
        }
        let amount = charge
            .capture(params.amount)
            .map_err(|refusal| refused(refusal, "id"))?;
        Ok(DecidedCapture {
            request: CaptureRequest { charge: id, amount },
            expand: params.expand,
        })
    }
}

impl Command for CaptureCharge {
    async fn execute(&self, tx: &mut PgConnection) -> Result<Reply, Rejection> {
        let decided = self.decide(tx, Mode::OneTransaction).await?;
        capture(&self.origin, tx, decided.request, &decided.expand).await
    }
}

impl Begin for CaptureCharge {
    async fn begin(
        &self,
        tx: &mut PgConnection,
        operation: Uuid,
    ) -> Result<BeginOutcome, Rejection> {
        let decided = self.decide(tx, Mode::Phases).await?;
        let ask = Ask::Capture(decided.request);
        let effect = Effect {
            expand: decided.expand,
            ..Effect::of(Verb::CaptureCharge, ask)
        };
        self.origin.begin_effect(tx, operation, effect).await
    }
}

/// Writes down the processor's answer. After a decline the charge stays as it was.
pub(in crate::commands) async fn complete(
    origin: &Origin,
    tx: &mut PgConnection,
    request: &CaptureRequest,
    answer: Answer,
    expand: &Expansion,
) -> Result<Reply, Rejection> {
    match answer {
        Answer::Done => capture(origin, tx, *request, expand).await,
        Answer::Declined(decline) => {
            declined_by_processor(origin, tx, request.charge, decline).await
        }
    }
}

/// Takes the money, and reports it in an event and in the reply.
async fn capture(
    origin: &Origin,
    tx: &mut PgConnection,
    CaptureRequest { charge, amount }: CaptureRequest,
    expand: &Expansion,
) -> Result<Reply, Rejection> {
    let charge = store::charges::capture(tx, origin.account, charge, amount, None)
        .await?
        .ok_or_else(|| refused(ChargeRefusal::AlreadyCaptured, "id"))?;
    let before = ChargeView::from(&charge.before_capture());
    let view = ChargeView::from(&charge);
    origin
        .emit_change(tx, EventType::ChargeCaptured, &before, &view)
        .await?;
    origin.show(tx, OK, view.id, &charge, expand).await
}
