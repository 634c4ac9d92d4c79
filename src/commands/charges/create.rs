//! `POST /charges`: ask the processor for the money and write down its answer.
//!
//! Locks    nothing
//! Writes   one charge, succeeded or failed; across a network it is pending meanwhile
//! Emits    charge.succeeded or charge.failed
//! Refuses  parameters that are missing, unknown or wrong
//! Fails    when the processor is down or its slow lane is full

use sqlx::PgConnection;
use uuid::Uuid;

use crate::commands::{
    Origin, SlowLane,
    card_answers::authorize,
    replies::{CREATED, declined},
};
use crate::{
    api::{
        charges::{ChargeView, CreateChargeParams},
        params::Params,
    },
    domain::{
        charge::{Authorization, Charge},
        event::EventType,
        ids::{AccountId, ChargeId},
        operation::{Answer, CardAuthorization, Effect, Operation},
    },
    idempotency::{Begin, BeginOutcome, Command, Rejection, Reply},
    store,
};

/// Creates a charge.
pub struct CreateCharge {
    /// The request's origin.
    pub origin: Origin,
    /// As decoded; checked here, so that a wrong one is a stored refusal.
    pub params: Params,
    /// For `tok_slow`, where the processor is simulated.
    pub slow_lane: SlowLane,
}

impl Command for CreateCharge {
    async fn execute(&self, tx: &mut PgConnection) -> Result<Reply, Rejection> {
        let CreateChargeParams {
            new,
            expand_refunds,
        } = CreateChargeParams::parse(&self.params)?;
        let id = ChargeId(Uuid::now_v7());
        let said = authorize(tx, new.card.card, &self.slow_lane).await?;
        let account = self.origin.account;
        let charge = store::charges::insert(tx, account, id, &new, None, Some(said)).await?;
        answer(&self.origin, tx, &charge, said, expand_refunds).await
    }
}

impl Begin for CreateCharge {
    async fn begin(
        &self,
        tx: &mut PgConnection,
        operation: Uuid,
    ) -> Result<BeginOutcome, Rejection> {
        let CreateChargeParams {
            new,
            expand_refunds,
        } = CreateChargeParams::parse(&self.params)?;
        let id = ChargeId(Uuid::now_v7());
        store::charges::insert(tx, self.origin.account, id, &new, None, None).await?;
        let effect = Effect::CreateCharge {
            authorization: CardAuthorization::of(id, &new),
            expand_refunds,
        };
        self.origin.begin_effect(tx, operation, effect).await
    }
}

/// Writes down the processor's answer for a pending charge.
pub(in crate::commands) async fn complete(
    origin: &Origin,
    tx: &mut PgConnection,
    operation: &Operation,
    authorization: &CardAuthorization,
    answer: Answer,
    expand_refunds: bool,
) -> Result<Reply, Rejection> {
    let (charge, said) = record_answer(tx, operation, authorization, answer).await?;
    self::answer(origin, tx, &charge, said, expand_refunds).await
}

/// Ends the pending charge of an authorization that was answered.
pub(in crate::commands) async fn record_answer(
    tx: &mut PgConnection,
    operation: &Operation,
    authorization: &CardAuthorization,
    answer: Answer,
) -> Result<(Charge, Authorization), Rejection> {
    let said = match answer {
        Answer::Done => Authorization::Approved,
        Answer::Declined(decline) => Authorization::Declined(decline),
    };
    let (account, processor) = (operation.account, &operation.processor);
    let CardAuthorization {
        charge, capture, ..
    } = *authorization;
    let charge = store::charges::complete(tx, account, charge, said, capture, processor).await?;
    Ok((charge, said))
}

/// Deletes the pending charge of an authorization that was never executed.
pub(in crate::commands) async fn release(
    tx: &mut PgConnection,
    account: AccountId,
    authorization: &CardAuthorization,
) -> Result<(), sqlx::Error> {
    store::charges::delete_pending(tx, account, authorization.charge).await
}

/// Reports the processor's answer, in the reply and in an event.
async fn answer(
    origin: &Origin,
    tx: &mut PgConnection,
    charge: &Charge,
    said: Authorization,
    expand_refunds: bool,
) -> Result<Reply, Rejection> {
    let view = ChargeView::from(charge);
    match said {
        Authorization::Approved => {
            origin.emit(tx, EventType::ChargeSucceeded, &view).await?;
            origin.charge(tx, CREATED, charge, expand_refunds).await
        }
        Authorization::Declined(decline) => {
            origin.emit(tx, EventType::ChargeFailed, &view).await?;
            declined(decline, charge)
        }
    }
}
