//! The steps of a checkout. Each is one transaction, or one operation in phases where the processor
//! is across a network, under a key that no client can send.
//!
//! Promise: a step runs once. The checkout's own table decides what has run, under its lock and in
//! the transaction that runs it; the step's idempotency record shows which process runs it.
//!
//! Locks    the checkout; for `allocate_inventory` the levels, in the order of their skus; for
//!          `create_refund` the charge
//! Writes   what the step is about, and its state
//! Emits    order.created · charge.succeeded or charge.failed · order.paid · refund.created and
//!          charge.refunded, or refund.failed · order.canceled
//! Fails    when the processor is down or its slow lane is full

use charge_once_strict_params::Expansion;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::{
    commands::{
        Origin, SlowLane,
        card_answers::authorize,
        charges::create as create_charge,
        mode::{Mode, must_have_taken_the_money},
        orders::create::content_hash,
        refunds::create::{self as create_refund, refunded},
        replies::OK,
    },
    domain::{
        charge::{Authorization, Charge, NewCharge},
        checkout::{CheckoutRun, StepName},
        event::EventType,
        ids::{AccountId, ChargeId, CheckoutId, OrderId, RefundId},
        inventory::allocate,
        metadata::Metadata,
        operation::{
            Answer, Ask, CardAuthorization, Effect, Operation, RefundRequest, Resolution, Verb,
        },
        refund::{NewRefund, Refund, RefundStatus},
    },
    idempotency::{Begin, BeginOutcome, Command, Failure, Rejection, Reply},
    store,
    wire::{charges::ChargeView, error::ApiError, orders::OrderView},
};

/// Runs one step of a checkout, if that is the one to be run.
pub struct RunStep {
    /// The account of the checkout.
    pub account: AccountId,
    /// Which checkout.
    pub checkout: CheckoutId,
    /// Which step.
    pub step: StepName,
    /// For `tok_slow`, where the processor is simulated.
    pub slow_lane: SlowLane,
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
                let said = authorize(tx, new.card.card, &self.slow_lane).await?;
                let (account, order) = (run.account, Some(order));
                let charge =
                    store::charges::insert(tx, account, id, &new, order, Some(said)).await?;
                charged(&Origin::of(&run), tx, run.checkout.id, &charge, said).await?;
            }
            StepName::AllocateInventory => allocate_inventory(tx, &run).await?,
            StepName::CreateRefund => {
                let refund = refund_of(tx, &run, Mode::OneTransaction).await?;
                given_back(&Origin::of(&run), tx, run.checkout.id, &refund).await?;
            }
            StepName::CancelOrder => cancel_order(tx, &run).await?,
        }
        has_run()
    }
}

/// Only two steps ask the processor; the others are one transaction in either mode.
impl Begin for RunStep {
    async fn begin(
        &self,
        tx: &mut PgConnection,
        operation: Uuid,
    ) -> Result<BeginOutcome, Rejection> {
        let Some(run) = self.lock(tx).await? else {
            return has_run().map(BeginOutcome::Replied);
        };
        let origin = Origin::of(&run);
        match self.step {
            StepName::CreateCharge => {
                let (id, order, new) = charge_for(tx, &run).await?;
                store::charges::insert(tx, run.account, id, &new, Some(order), None).await?;
                let ask = Ask::Authorize(CardAuthorization::of(id, &new));
                let effect = Effect {
                    order: Some(order),
                    checkout: Some(run.checkout.id),
                    ..Effect::of(Verb::CreateCharge, ask)
                };
                origin.begin_effect(tx, operation, effect).await
            }
            StepName::CreateRefund => {
                let refund = refund_of(tx, &run, Mode::Phases).await?;
                let ask = Ask::Refund(RefundRequest::of(&refund));
                let effect = Effect {
                    checkout: Some(run.checkout.id),
                    ..Effect::of(Verb::CreateRefund, ask)
                };
                origin.begin_effect(tx, operation, effect).await
            }
            StepName::CreateOrder | StepName::AllocateInventory | StepName::CancelOrder => {
                self.execute(tx).await.map(BeginOutcome::Replied)
            }
        }
    }
}

impl RunStep {
    /// The checkout, if this step is the next one. Its lock prevents other steps until the
    /// transaction ends.
    async fn lock(&self, tx: &mut PgConnection) -> Result<Option<CheckoutRun>, Rejection> {
        let run = store::checkouts::lock(tx, self.account, self.checkout)
            .await?
            .ok_or_else(|| lost("a checkout"))?;
        Ok((run.checkout.next() == Some(self.step)).then_some(run))
    }
}

/// The outcome of a step is in the checkout's table, so its idempotency record holds nothing, and a
/// step that has run doesn't run again even if its record is gone. A step's record is never a
/// refusal either: a decline or a lack of stock is stored in the table, together with the
/// compensating steps.
fn has_run() -> Result<Reply, Rejection> {
    Ok(Reply::json(OK, &serde_json::Map::new())?)
}

fn lost(what: &str) -> Rejection {
    Rejection::Failed(Failure::internal(format!(
        "{what} that an earlier step made is gone"
    )))
}

fn order_of(run: &CheckoutRun) -> Result<OrderId, Rejection> {
    run.checkout.order.ok_or_else(|| lost("an order"))
}

fn charge_of(run: &CheckoutRun) -> Result<ChargeId, Rejection> {
    run.checkout.charge().ok_or_else(|| lost("a charge"))
}

async fn create_order(tx: &mut PgConnection, run: &CheckoutRun) -> Result<(), Rejection> {
    let origin = Origin::of(run);
    let new = run.checkout.new_order();
    let id = OrderId(Uuid::now_v7());
    let (account, content_hash) = (run.account, content_hash(&new)?);
    let order = store::orders::insert(tx, account, id, &new, &content_hash).await?;
    let view = OrderView::from(&order);
    origin.emit(tx, EventType::OrderCreated, &view).await?;
    store::checkouts::set_order(tx, account, run.checkout.id, id).await?;
    let step = StepName::CreateOrder;
    store::checkout_steps::finish(tx, account, run.checkout.id, step, &view.id).await?;
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
    Ok((ChargeId(Uuid::now_v7()), id, order.charge_for(run.card)))
}

/// Writes down the processor's answer for the charge of a checkout that this transaction has
/// locked.
pub(in crate::commands) async fn complete_charge(
    origin: &Origin,
    tx: &mut PgConnection,
    operation: &Operation,
    (checkout, order): (CheckoutId, OrderId),
    authorization: &CardAuthorization,
    answer: Answer,
) -> Result<Reply, Rejection> {
    // The same order of locks as when an order is paid in one transaction: the order first.
    store::orders::lock(tx, origin.account, order).await?;
    let (charge, said) = create_charge::record_answer(tx, operation, authorization, answer).await?;
    charged(origin, tx, checkout, &charge, said).await?;
    has_run()
}

/// Writes down the processor's answer for the refund of a checkout that this transaction has
/// locked.
pub(in crate::commands) async fn complete_refund(
    origin: &Origin,
    tx: &mut PgConnection,
    checkout: CheckoutId,
    request: &RefundRequest,
    answer: Answer,
) -> Result<Reply, Rejection> {
    match create_refund::record_answer(origin, tx, request, answer).await? {
        Ok(refund) => given_back(origin, tx, checkout, &refund).await?,
        Err(decline) => {
            // The money must go back, so the step stays pending.
            store::checkouts::count_refused_refund(tx, origin.account, checkout).await?;
            tracing::error!(
                %checkout, charge = %request.charge, reason = decline.code.as_str(),
                "the processor refuses to give a canceled checkout's charge back"
            );
        }
    }
    has_run()
}

/// Writes down the processor's answer about the charge. It pays the order later, once the items are
/// allocated: a shop that ships on `order.paid` must not see that event before.
async fn charged(
    origin: &Origin,
    tx: &mut PgConnection,
    checkout: CheckoutId,
    charge: &Charge,
    said: Authorization,
) -> Result<(), Rejection> {
    let (account, step) = (origin.account, StepName::CreateCharge);
    let (id, view) = (charge.id.to_string(), ChargeView::from(charge));
    match said {
        Authorization::Approved => {
            origin.emit(tx, EventType::ChargeSucceeded, &view).await?;
            store::checkout_steps::finish(tx, account, checkout, step, &id).await?;
        }
        Authorization::Declined(decline) => {
            origin.emit(tx, EventType::ChargeFailed, &view).await?;
            let why = ApiError::declined(decline, id.clone()).into();
            store::checkouts::refuse_step(tx, account, checkout, step, Some(&id), &why).await?;
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
            let view = OrderView::from(&order);
            origin.emit(tx, EventType::OrderPaid, &view).await?;
            store::checkout_steps::finish(tx, account, run.checkout.id, step, &view.id).await?;
        }
        Err(out_of_stock) => {
            let why = ApiError::from(out_of_stock).into();
            store::checkouts::refuse_step(tx, account, run.checkout.id, step, None, &why).await?;
        }
    }
    Ok(())
}

/// A refund of the whole charge, if the processor that took the money can be asked for one now.
async fn refund_of(
    tx: &mut PgConnection,
    run: &CheckoutRun,
    mode: Mode,
) -> Result<Refund, Rejection> {
    if run.refund_waits {
        return Err(Rejection::Failed(Failure::unavailable(
            "the processor refused to give the money back, and a person should see why; the next \
             refund is made an hour after the last one",
        )));
    }
    let charge = lock_charge(tx, run).await?;
    let links = store::charges::links(tx, run.account, charge_of(run)?).await?;
    must_have_taken_the_money(mode, &links)?;
    write_refund(tx, run, &charge, mode.of_refund()).await
}

async fn lock_charge(tx: &mut PgConnection, run: &CheckoutRun) -> Result<Charge, Rejection> {
    store::charges::lock(tx, run.account, charge_of(run)?)
        .await?
        .ok_or_else(|| lost("a charge"))
}

/// Writes a refund of the whole charge, which this transaction has locked. A pending refund counts,
/// so there is no second one.
async fn write_refund(
    tx: &mut PgConnection,
    run: &CheckoutRun,
    charge: &Charge,
    status: RefundStatus,
) -> Result<Refund, Rejection> {
    let amount = charge.refund(None).map_err(|refusal| {
        Rejection::Failed(Failure::internal(format!(
            "a checkout's charge can't be given back: {refusal:?}"
        )))
    })?;
    let new = NewRefund {
        charge: charge.id,
        amount,
        reason: None,
        metadata: Metadata::new(),
    };
    let id = RefundId(Uuid::now_v7());
    Ok(store::refunds::insert(tx, run.account, id, &new, status).await?)
}

/// Says that the charge was given back.
async fn given_back(
    origin: &Origin,
    tx: &mut PgConnection,
    checkout: CheckoutId,
    refund: &Refund,
) -> Result<(), Rejection> {
    let (account, step) = (origin.account, StepName::CreateRefund);
    store::checkout_steps::finish(tx, account, checkout, step, &refund.id.to_string()).await?;
    refunded(origin, tx, refund, &Expansion::default()).await?;
    Ok(())
}

async fn cancel_order(tx: &mut PgConnection, run: &CheckoutRun) -> Result<(), Rejection> {
    let (account, step, origin) = (run.account, StepName::CancelOrder, Origin::of(run));
    let order = store::orders::cancel(tx, account, order_of(run)?).await?;
    let view = OrderView::from(&order);
    origin.emit(tx, EventType::OrderCanceled, &view).await?;
    store::checkout_steps::finish(tx, account, run.checkout.id, step, &view.id).await?;
    Ok(())
}

/// Accepts a manual resolution that the money of a canceled checkout was returned, although the
/// refund was refused, by the processor or by an earlier resolution.
pub struct RefundedElsewhere {
    /// The account of the checkout.
    pub account: AccountId,
    /// Which checkout.
    pub checkout: CheckoutId,
    /// The refund that was refused.
    pub operation: Uuid,
    /// The person who says so.
    pub person: String,
}

impl Command for RefundedElsewhere {
    async fn execute(&self, tx: &mut PgConnection) -> Result<Reply, Rejection> {
        let run = store::checkouts::lock(tx, self.account, self.checkout)
            .await?
            .ok_or_else(|| lost("a checkout"))?;
        if run.checkout.next() != Some(StepName::CreateRefund) {
            let cause = "the checkout doesn't wait for a refund any more";
            return Err(Rejection::Failed(Failure::unavailable(cause)));
        }
        let (account, id) = (self.account, self.operation);
        store::manual_resolutions::insert(tx, account, id, Resolution::Done, &self.person).await?;
        let charge = lock_charge(tx, &run).await?;
        let refund = write_refund(tx, &run, &charge, RefundStatus::Succeeded).await?;
        given_back(&Origin::of(&run), tx, run.checkout.id, &refund).await?;
        has_run()
    }
}
