//! `POST /charges`: ask the processor for the money and write down its answer.
//!
//! Locks    nothing but the account, shared, through the foreign key
//! Writes   one charge, succeeded or failed; across a network it is pending meanwhile
//! Emits    charge.succeeded or charge.failed
//! Refuses  parameters that are missing, unknown or wrong
//! Fails    when the processor is down or its slow lane is full

use std::sync::Arc;

use sqlx::PgConnection;
use uuid::Uuid;

use super::{CREATED, Origin, declined};
use crate::{
    api::{
        charges::{ChargeView, CreateChargeParams},
        params::Params,
    },
    domain::{
        charge::{Authorization, Charge, NewCharge},
        event::EventType,
        ids::ChargeId,
        operation::{Instruction, Verb},
    },
    idempotency::{Begin, BeginOutcome, Command, Rejection, Reply},
    processor::SimulatedProcessor,
    store,
};

/// Creates a charge.
pub struct CreateCharge {
    /// Who charges.
    pub origin: Origin,
    /// As decoded; checked here, so that a wrong one is a stored refusal.
    pub params: Params,
    /// Where cards are authorized without a network.
    pub processor: Arc<SimulatedProcessor>,
}

impl Command for CreateCharge {
    async fn execute(&self, tx: &mut PgConnection) -> Result<Reply, Rejection> {
        let CreateChargeParams {
            new,
            expand_refunds,
        } = CreateChargeParams::parse(&self.params)?;
        let id = ChargeId(Uuid::now_v7());
        let said = self.processor.authorise(new.card.card).await?;
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
        let instruction = authorise(id, &new);
        let verb = Verb::CreateCharge;
        self.origin
            .write_down(tx, operation, verb, id, instruction, |operation| {
                operation.expand = expand_refunds;
            })
            .await
    }
}

/// What the processor is asked for a new charge.
pub(super) fn authorise(id: ChargeId, new: &NewCharge) -> Instruction {
    Instruction::Authorise {
        charge: id.to_string(),
        amount: new.amount.minor_units,
        currency: new.amount.currency.to_string(),
        card: new.card.card.token().to_owned(),
        capture: new.capture,
    }
}

/// Says what the processor said, to the client and in an event.
pub(super) async fn answer(
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
