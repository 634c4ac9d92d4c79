//! `POST /charges`: ask the processor for the money and write down its answer.
//!
//! Locks    nothing
//! Writes   one charge, succeeded or failed; across a network it is pending meanwhile
//! Emits    charge.succeeded or charge.failed
//! Refuses  parameters that are missing, unknown or wrong
//! Fails    when the processor is down or its slow lane is full

use charge_once_strict_params::{Expansion, Params};
use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::commands::{
    Creation, Origin, SlowLane,
    card_answers::authorize,
    creation::NewObject,
    expansions,
    replies::{CREATED, checked, declined},
};
use crate::{
    domain::{
        charge::{Authorization, Charge, NewCharge},
        event::EventType,
        ids::ChargeId,
        operation::{Answer, Ask, CardAuthorization, Effect, Operation, Verb},
    },
    idempotency::{Begin, BeginOutcome, Decide, Decision, Failure, Rejection, Reply},
    store,
    wire::charges::{ChargeView, CreateChargeParams},
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

impl Decide for CreateCharge {
    type Rows = Creation;

    fn decide(&self, now: DateTime<Utc>) -> Result<Decision<Creation>, Rejection> {
        let params: CreateChargeParams = checked(&self.params)?;
        let waits = || Failure::unavailable("the processor takes its time, or is down");
        let said = Authorization::at_once(params.source.card).ok_or_else(waits)?;
        self.charged(params, said, now)
    }

    async fn decide_alone(
        &self,
        tx: &mut PgConnection,
        now: DateTime<Utc>,
    ) -> Result<Decision<Creation>, Rejection> {
        let params: CreateChargeParams = checked(&self.params)?;
        let said = authorize(tx, params.source.card, &self.slow_lane).await?;
        self.charged(params, said, now)
    }

    fn weight(&self) -> usize {
        self.params.weight()
    }
}

impl CreateCharge {
    /// The charge that the processor has answered about, with its event and the reply.
    fn charged(
        &self,
        params: CreateChargeParams,
        said: Authorization,
        now: DateTime<Utc>,
    ) -> Result<Decision<Creation>, Rejection> {
        let expand = params.expand.clone();
        let new = NewCharge::from(params);
        let id = ChargeId(Uuid::now_v7());
        let charge = Charge::made(id, &new, None, Some(said), now);
        let (event_type, view, reply) = report(&self.origin, &charge, said, &expand)?;
        Ok(Decision {
            reply,
            rows: Some(Creation {
                account: self.origin.account,
                object: NewObject::Charge { id, new, said },
                event: self.origin.event(event_type, &view)?,
            }),
        })
    }
}

impl Begin for CreateCharge {
    async fn begin(
        &self,
        tx: &mut PgConnection,
        operation: Uuid,
    ) -> Result<BeginOutcome, Rejection> {
        let params: CreateChargeParams = checked(&self.params)?;
        let expand = params.expand.clone();
        let new = NewCharge::from(params);
        let id = ChargeId(Uuid::now_v7());
        store::charges::insert(tx, self.origin.account, id, &new, None, None).await?;
        let ask = Ask::Authorize(CardAuthorization::of(id, &new));
        let effect = Effect {
            expand,
            ..Effect::of(Verb::CreateCharge, ask)
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
    expand: &Expansion,
) -> Result<Reply, Rejection> {
    let (charge, said) = record_answer(tx, operation, authorization, answer).await?;
    let (event_type, view, reply) = report(origin, &charge, said, expand)?;
    origin.emit(tx, event_type, &view).await?;
    Ok(reply)
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

/// The event of the processor's answer, with what it shows, and the reply. No refund and no intent
/// of a new charge is there that could be expanded.
fn report(
    origin: &Origin,
    charge: &Charge,
    said: Authorization,
    expand: &Expansion,
) -> Result<(EventType, ChargeView, Reply), Rejection> {
    let view = ChargeView::from(charge);
    let (event_type, reply) = match said {
        Authorization::Approved if expand.under("refunds").is_some() => {
            let mut expanded = view.clone();
            expanded.refunds = Some(expansions::refunds_of(charge.id, None, origin.audience()));
            (EventType::ChargeSucceeded, created(origin, &expanded)?)
        }
        Authorization::Approved => (EventType::ChargeSucceeded, created(origin, &view)?),
        Authorization::Declined(decline) => (EventType::ChargeFailed, declined(decline, charge)?),
    };
    Ok((event_type, view, reply))
}

fn created(origin: &Origin, view: &ChargeView) -> Result<Reply, Rejection> {
    origin.reply(CREATED, "charges", view.id.clone(), view)
}
