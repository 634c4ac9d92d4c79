//! The steps of a checkout. Each is one transaction, or one operation in phases where the processor
//! is across a network, under a key that no client can send.
//!
//! Promise: a step runs once. The checkout's own table decides what has run, under its lock and in the
//! transaction that runs it; the step's idempotency record only tells who is at it.
//!
//! Locks    the checkout; for `allocate_inventory` the levels, in the order of their skus; for
//!          `create_refund` the charge
//! Writes   what the step is about, and its state
//! Emits    order.created · charge.succeeded or charge.failed · order.paid · refund.created and
//!          charge.refunded, or refund.failed · order.canceled
//! Fails    when the processor is down or its slow lane is full

use std::sync::Arc;

use sqlx::PgConnection;
use uuid::Uuid;

use super::{
    Mode, OK, Origin,
    create_charge::authorise,
    create_order::{content_hash, open},
    create_refund::{give_back, refunded},
    decline_of, json, must_have_taken_the_money,
};
use crate::{
    domain::{
        charge::{Authorisation, Charge, NewCharge},
        checkout::{CheckoutRun, StepName},
        error::ApiError,
        event::EventType,
        ids::{AccountId, ChargeId, CheckoutId, OrderId, RefundId},
        inventory::allocate,
        operation::{Verb, Word},
        params::Metadata,
        refund::{NewRefund, Refund},
    },
    idempotency::{Begin, Begun, Command, Failure, Rejection, Reply},
    processor::SimulatedProcessor,
    store::{self, refunds::NewStatus},
};

/// Runs one step of a checkout, if that is the one to be run.
pub struct RunStep {
    /// Whose checkout it is.
    pub account: AccountId,
    /// Which checkout.
    pub checkout: CheckoutId,
    /// Which step.
    pub step: StepName,
    /// Where cards are authorised, if that takes no network.
    pub processor: Arc<SimulatedProcessor>,
}

impl Command for RunStep {
    async fn execute(&self, tx: &mut PgConnection) -> Result<Reply, Rejection> {
        let Some(run) = self.lock(tx).await? else {
            return has_run();
        };
        match self.step {
            StepName::CreateOrder => create_order(tx, &run).await?,
            StepName::CreateCharge => {
                let (id, order, new) = charge_for(tx, &run).await?;
                let said = self.processor.authorise(new.card.card).await?;
                let order = Some(order);
                let charge =
                    store::charges::insert(tx, run.account, id, &new, order, Some(said)).await?;
                charged(&Origin::of(&run), tx, run.id, &charge, said).await?;
            }
            StepName::AllocateInventory => allocate_inventory(tx, &run).await?,
            StepName::CreateRefund => {
                let (charge, _, refund) = refund_of(tx, &run, Mode::OneTransaction).await?;
                given_back(&Origin::of(&run), tx, run.id, charge, refund).await?;
            }
            StepName::CancelOrder => cancel_order(tx, &run).await?,
        }
        has_run()
    }
}

/// Only two steps ask the processor; the others are one transaction in either mode.
impl Begin for RunStep {
    async fn begin(&self, tx: &mut PgConnection, operation: Uuid) -> Result<Begun, Rejection> {
        let Some(run) = self.lock(tx).await? else {
            return has_run().map(Begun::Replied);
        };
        let origin = Origin::of(&run);
        match self.step {
            StepName::CreateCharge => {
                let (id, order, new) = charge_for(tx, &run).await?;
                store::charges::insert(tx, run.account, id, &new, Some(order), None).await?;
                let instruction = authorise(id, &new);
                let verb = Verb::CreateCharge;
                origin
                    .write_down(tx, operation, verb, id, instruction, |operation| {
                        operation.order = Some(order);
                        operation.checkout = Some(run.id);
                    })
                    .await
            }
            StepName::CreateRefund => {
                let (charge, id, refund) = refund_of(tx, &run, Mode::Phases).await?;
                let instruction = give_back(charge, id, refund.amount);
                let verb = Verb::CreateRefund;
                origin
                    .write_down(tx, operation, verb, charge, instruction, |operation| {
                        operation.refund = Some(id);
                        operation.checkout = Some(run.id);
                    })
                    .await
            }
            StepName::CreateOrder | StepName::AllocateInventory | StepName::CancelOrder => {
                self.execute(tx).await.map(Begun::Replied)
            }
        }
    }
}

impl RunStep {
    /// The checkout, if this step is the one to be run. Nobody else runs one until the transaction
    /// ends.
    async fn lock(&self, tx: &mut PgConnection) -> Result<Option<CheckoutRun>, Rejection> {
        let run = store::checkouts::lock(tx, self.account, self.checkout)
            .await?
            .ok_or_else(|| lost("a checkout"))?;
        Ok((run.next() == Some(self.step)).then_some(run))
    }
}

/// What came of a step is in the checkout's table, so its record holds nothing; and a step that was run
/// is not run again, whatever became of its record. A step is never refused by its record either: a
/// decline or an empty shelf is written down, with what undoes the checkout.
pub(super) fn has_run() -> Result<Reply, Rejection> {
    json(OK, &serde_json::Map::new())
}

fn lost(what: &str) -> Rejection {
    Rejection::Failed(Failure::internal(format!(
        "{what} that an earlier step made is gone"
    )))
}

fn order_of(run: &CheckoutRun) -> Result<OrderId, Rejection> {
    run.order.ok_or_else(|| lost("an order"))
}

fn charge_of(run: &CheckoutRun) -> Result<ChargeId, Rejection> {
    run.charge().ok_or_else(|| lost("a charge"))
}

async fn create_order(tx: &mut PgConnection, run: &CheckoutRun) -> Result<(), Rejection> {
    let origin = Origin::of(run);
    let new = run.checkout.new_order().ok_or_else(|| lost("a currency"))?;
    let id = OrderId(Uuid::now_v7());
    let order = open(&origin, tx, id, &new, &content_hash(&new)?)
        .await?
        .ok_or_else(|| lost("an order"))?;
    store::checkouts::set_order(tx, run.account, run.id, id).await?;
    store::checkouts::finish_step(tx, run.account, run.id, StepName::CreateOrder, &order.id)
        .await?;
    Ok(())
}

/// The charge that is to be made for the order.
async fn charge_for(
    tx: &mut PgConnection,
    run: &CheckoutRun,
) -> Result<(ChargeId, OrderId, NewCharge), Rejection> {
    let id = order_of(run)?;
    let order = store::orders::find(tx, run.account, id)
        .await?
        .ok_or_else(|| lost("an order"))?;
    let new = order
        .charge_for(run.card)
        .ok_or_else(|| lost("a currency"))?;
    Ok((ChargeId(Uuid::now_v7()), id, new))
}

/// Writes down what the processor said of the charge. The order is paid by it later, once its items
/// are allocated: whoever ships when an order is paid must not hear of it before.
pub(super) async fn charged(
    origin: &Origin,
    tx: &mut PgConnection,
    checkout: CheckoutId,
    charge: &Charge,
    said: Authorisation,
) -> Result<(), Rejection> {
    let (account, step) = (origin.account, StepName::CreateCharge);
    match said {
        Authorisation::Approved => {
            origin.emit(tx, EventType::ChargeSucceeded, charge).await?;
            store::checkouts::finish_step(tx, account, checkout, step, &charge.id).await?;
        }
        Authorisation::Declined(decline) => {
            origin.emit(tx, EventType::ChargeFailed, charge).await?;
            let why = decline_of(decline, charge);
            let resource = Some(charge.id.as_str());
            store::checkouts::refuse_step(tx, account, checkout, step, resource, &why).await?;
        }
    }
    Ok(())
}

async fn allocate_inventory(tx: &mut PgConnection, run: &CheckoutRun) -> Result<(), Rejection> {
    let (account, step) = (run.account, StepName::AllocateInventory);
    let items = &run.checkout.items;
    let skus: Vec<String> = items.iter().filter_map(|item| item.sku.clone()).collect();
    let levels = store::inventory::lock_levels(tx, account, &skus).await?;
    match allocate(&levels, items) {
        Ok(taken) => {
            let origin = Origin::of(run);
            store::inventory::take(tx, account, &taken).await?;
            let order = store::orders::pay(tx, account, order_of(run)?, charge_of(run)?).await?;
            origin.emit(tx, EventType::OrderPaid, &order).await?;
            store::checkouts::finish_step(tx, account, run.id, step, &order.id).await?;
        }
        Err(out_of_stock) => {
            let why = ApiError::from(out_of_stock);
            store::checkouts::refuse_step(tx, account, run.id, step, None, &why).await?;
        }
    }
    Ok(())
}

/// A refund of the whole charge, if the processor that took the money can be asked for one now.
async fn refund_of(
    tx: &mut PgConnection,
    run: &CheckoutRun,
    mode: Mode,
) -> Result<(ChargeId, RefundId, Refund), Rejection> {
    if run.refund_waits {
        return Err(Rejection::Failed(Failure::unavailable(
            "the processor refused to give the money back, and a person should see why; the next \
             refund is made an hour after the last one",
        )));
    }
    let charge = lock_charge(tx, run).await?;
    let ties = store::charges::ties(tx, run.account, charge_of(run)?).await?;
    must_have_taken_the_money(mode, &ties)?;
    write_refund(tx, run, &charge, mode.of_refund()).await
}

async fn lock_charge(tx: &mut PgConnection, run: &CheckoutRun) -> Result<Charge, Rejection> {
    store::charges::lock(tx, run.account, charge_of(run)?)
        .await?
        .ok_or_else(|| lost("a charge"))
}

/// Writes a refund of the whole charge, which this transaction has locked. One that is on its way counts,
/// so there is no second one.
async fn write_refund(
    tx: &mut PgConnection,
    run: &CheckoutRun,
    charge: &Charge,
    status: NewStatus,
) -> Result<(ChargeId, RefundId, Refund), Rejection> {
    let (account, charge_id) = (run.account, charge_of(run)?);
    let amount = charge.refund(None).map_err(|refusal| {
        Rejection::Failed(Failure::internal(format!(
            "a checkout's charge can't be given back: {refusal:?}"
        )))
    })?;
    let new = NewRefund {
        charge: Some(charge_id),
        amount: None,
        reason: None,
        metadata: Metadata::new(),
        expand_charge: false,
    };
    let id = RefundId(Uuid::now_v7());
    let refund = store::refunds::insert(tx, account, id, charge_id, amount, &new, status).await?;
    Ok((charge_id, id, refund))
}

/// Says that the charge was given back.
pub(super) async fn given_back(
    origin: &Origin,
    tx: &mut PgConnection,
    checkout: CheckoutId,
    charge: ChargeId,
    refund: Refund,
) -> Result<(), Rejection> {
    let (account, step) = (origin.account, StepName::CreateRefund);
    store::checkouts::finish_step(tx, account, checkout, step, &refund.id).await?;
    refunded(origin, tx, charge, refund, false).await?;
    Ok(())
}

async fn cancel_order(tx: &mut PgConnection, run: &CheckoutRun) -> Result<(), Rejection> {
    let (account, step, origin) = (run.account, StepName::CancelOrder, Origin::of(run));
    let order = store::orders::cancel(tx, account, order_of(run)?).await?;
    origin.emit(tx, EventType::OrderCanceled, &order).await?;
    store::checkouts::finish_step(tx, account, run.id, step, &order.id).await?;
    Ok(())
}

/// Takes a person's word that the money of a canceled checkout was given back, though the processor
/// refused to do it when it was asked here.
pub struct RefundedElsewhere {
    /// Whose checkout it is.
    pub account: AccountId,
    /// Which checkout.
    pub checkout: CheckoutId,
    /// The refund that was refused.
    pub operation: Uuid,
    /// Who says so.
    pub person: String,
}

impl Command for RefundedElsewhere {
    async fn execute(&self, tx: &mut PgConnection) -> Result<Reply, Rejection> {
        let run = store::checkouts::lock(tx, self.account, self.checkout)
            .await?
            .ok_or_else(|| lost("a checkout"))?;
        if run.next() != Some(StepName::CreateRefund) {
            let cause = "the checkout doesn't wait for a refund any more";
            return Err(Rejection::Failed(Failure::unavailable(cause)));
        }
        let (account, id) = (self.account, self.operation);
        store::operators_words::insert(tx, account, id, Word::Done, &self.person).await?;
        let charge = lock_charge(tx, &run).await?;
        let (charge, _, refund) = write_refund(tx, &run, &charge, NewStatus::Succeeded).await?;
        given_back(&Origin::of(&run), tx, run.id, charge, refund).await?;
        has_run()
    }
}
