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

use std::sync::Arc;

use charge_once_strict_params::Expansion;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::{
    commands::{
        Draft, Origin, RowId, SlowLane,
        card_answers::authorize,
        charges,
        orders::{cancel, open, pay},
        refunds::create as create_refund,
        replies::{OK, lost},
        unfinished::must_have_taken_the_money,
        work::in_transaction,
    },
    domain::{
        charge::Charge,
        checkout::{CheckoutRun, StepName},
        ids::{AccountId, ChargeId, CheckoutId, OrderId},
        inventory::{Inventory, allocate},
        metadata::Metadata,
        operation::{
            Answer, Ask, CardAuthorization, Effect, RefundRequest, Resolution, StepQuestion,
        },
        order::Order,
    },
    idempotency::{Begin, BeginOutcome, Command, Failure, Rejection, Reply},
    store,
    wire::error::ApiError,
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
    /// The name of the processor across a network, if there is one.
    pub processor: Option<Arc<str>>,
}

impl Command for RunStep {
    async fn execute(&self, tx: &mut PgConnection) -> Result<Reply, Rejection> {
        let Some(run) = self.lock(tx).await? else {
            return has_run();
        };
        match self.step {
            StepName::CreateOrder => create_order(tx, &run).await?,
            StepName::CreateCharge => {
                let (order, ask) = charge_for(tx, &run).await?;
                let answer = authorize(tx, &Ask::Authorize(ask.clone()), &self.slow_lane).await?;
                let of = (run.checkout.id, order);
                charged(&Origin::of(&run), None, tx, of, &ask, answer).await?;
            }
            StepName::AllocateInventory => allocate_inventory(tx, &run).await?,
            StepName::CreateRefund => {
                let request = self.refund_of(tx, &run).await?;
                give_back(&Origin::of(&run), tx, run.checkout.id, &request).await?;
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
                let (order, card) = charge_for(tx, &run).await?;
                let question = StepQuestion::Charge(order, card);
                let effect = Effect::Step(run.checkout.id, question);
                origin.begin_effect(tx, operation, effect).await
            }
            StepName::CreateRefund => {
                let question = StepQuestion::Refund(self.refund_of(tx, &run).await?);
                let effect = Effect::Step(run.checkout.id, question);
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

    /// Begins a refund of the whole charge, if the processor that took the money can be asked for
    /// one now.
    async fn refund_of(
        &self,
        tx: &mut PgConnection,
        run: &CheckoutRun,
    ) -> Result<RefundRequest, Rejection> {
        if run.refund_waits {
            return Err(Rejection::Failed(Failure::unavailable(
                "the processor refused to give the money back, and a person should see why; the \
                 next refund is made an hour after the last one",
            )));
        }
        let processor = self.processor.as_deref();
        write_refund(tx, run, processor, must_have_taken_the_money).await
    }
}

/// The outcome of a step is in the checkout's table, so its idempotency record holds nothing, and a
/// step that has run doesn't run again even if its record is gone. A step's record is never a
/// refusal either: a decline or a lack of stock is stored in the table, together with the
/// compensating steps.
fn has_run() -> Result<Reply, Rejection> {
    Ok(Reply::json(OK, &serde_json::Map::new())?)
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
    let opened = in_transaction(&origin, None, tx, |_| Vec::new(), |draft| open(draft, new));
    let id = opened.await?.id;
    let (account, step) = (run.account, StepName::CreateOrder);
    store::checkouts::set_order(tx, account, run.checkout.id, id).await?;
    store::checkout_steps::finish(tx, account, run.checkout.id, step, &id.to_string()).await?;
    Ok(())
}

/// Begins the charge that is to be made for the order.
async fn charge_for(
    tx: &mut PgConnection,
    run: &CheckoutRun,
) -> Result<(OrderId, CardAuthorization), Rejection> {
    let id = order_of(run)?;
    let origin = Origin::of(run);
    let begun = in_transaction(
        &origin,
        None,
        tx,
        |_| vec![RowId::Order(id)],
        |draft| {
            let order = draft.get::<Order>(id).ok_or_else(|| lost("an order"))?;
            let new = order.charge_for(run.card);
            Ok(charges::open(draft, &new, Some(id)))
        },
    );
    Ok((id, begun.await?))
}

/// Writes down the processor's answer for the charge of a checkout that this transaction has
/// locked.
pub(in crate::commands) async fn complete_charge(
    origin: &Origin,
    processor: Option<&str>,
    tx: &mut PgConnection,
    of: (CheckoutId, OrderId),
    authorization: &CardAuthorization,
    answer: Answer,
) -> Result<Reply, Rejection> {
    charged(origin, processor, tx, of, authorization, answer).await?;
    has_run()
}

/// Writes down the processor's answer for the refund of a checkout that this transaction has
/// locked.
pub(in crate::commands) async fn complete_refund(
    origin: &Origin,
    processor: Option<&str>,
    tx: &mut PgConnection,
    checkout: CheckoutId,
    request: &RefundRequest,
    answer: Answer,
) -> Result<Reply, Rejection> {
    match answer {
        Answer::Done => give_back(origin, tx, checkout, request).await?,
        Answer::Declined(decline) => {
            let failed = in_transaction(
                origin,
                processor,
                tx,
                |seen| create_refund::reads(seen, request),
                |draft| create_refund::end(draft, request, answer),
            );
            drop(failed.await?);
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
    processor: Option<&str>,
    tx: &mut PgConnection,
    (checkout, order): (CheckoutId, OrderId),
    authorization: &CardAuthorization,
    answer: Answer,
) -> Result<(), Rejection> {
    let (account, step) = (origin.account, StepName::CreateCharge);
    let ended = in_transaction(
        origin,
        processor,
        tx,
        |_| vec![RowId::Order(order), RowId::Charge(authorization.charge)],
        |draft| charges::end(draft, authorization, answer),
    );
    let (charge, decline) = ended.await?;
    let id = charge.id.to_string();
    match decline {
        None => store::checkout_steps::finish(tx, account, checkout, step, &id).await?,
        Some(decline) => {
            let why = ApiError::declined(decline, id.clone()).into();
            store::checkouts::refuse_step(tx, account, checkout, step, Some(&id), &why).await?;
        }
    }
    Ok(())
}

async fn allocate_inventory(tx: &mut PgConnection, run: &CheckoutRun) -> Result<(), Rejection> {
    let (account, step) = (run.account, StepName::AllocateInventory);
    let (order, charge, items) = (order_of(run)?, charge_of(run)?, &run.checkout.items);
    let origin = Origin::of(run);
    let skus = items.iter().filter_map(|item| item.sku.clone());
    let levels = skus.map(RowId::Level);
    let reads: Vec<RowId> = levels.chain([RowId::Order(order)]).collect();
    let allocated = in_transaction(
        &origin,
        None,
        tx,
        |_| reads.clone(),
        |draft| {
            let level = |sku: &str| draft.get::<Inventory>(sku.to_owned());
            let left = |sku: &str| level(sku).map_or(0, |level| level.quantity);
            let taken = match allocate(left, items) {
                Ok(taken) => taken,
                Err(out_of_stock) => return Ok(Err(out_of_stock)),
            };
            for (sku, quantity) in taken {
                let level = draft.get::<Inventory>(sku).ok_or_else(|| lost("a level"))?;
                let left = level.quantity - quantity;
                let level = level.clone().with(left, draft.now);
                draft.put(level);
            }
            Ok(Ok(pay(draft, order, charge)?.id))
        },
    );
    match allocated.await? {
        Ok(order) => {
            let id = order.to_string();
            store::checkout_steps::finish(tx, account, run.checkout.id, step, &id).await?;
        }
        Err(out_of_stock) => {
            let why = ApiError::from(out_of_stock).into();
            store::checkouts::refuse_step(tx, account, run.checkout.id, step, None, &why).await?;
        }
    }
    Ok(())
}

/// Begins a refund of the whole charge if it `may` be given back. A pending refund counts, so there
/// is no second one.
async fn write_refund(
    tx: &mut PgConnection,
    run: &CheckoutRun,
    processor: Option<&str>,
    may: impl FnOnce(&Draft<'_>, &Charge) -> Result<(), Rejection>,
) -> Result<RefundRequest, Rejection> {
    let id = charge_of(run)?;
    let origin = Origin::of(run);
    let begun = in_transaction(
        &origin,
        processor,
        tx,
        |_| vec![RowId::Charge(id)],
        |draft| {
            let charge = draft
                .get::<Charge>(id)
                .ok_or_else(|| lost("a charge"))?
                .clone();
            may(draft, &charge)?;
            let amount = charge.refund(None).map_err(|refusal| {
                Rejection::Failed(Failure::internal(format!(
                    "a checkout's charge can't be given back: {refusal:?}"
                )))
            })?;
            let refund = create_refund::open(draft, charge, amount, None, Metadata::new());
            Ok(RefundRequest::of(&refund))
        },
    );
    begun.await
}

/// Ends the refund, and says that the charge was given back.
async fn give_back(
    origin: &Origin,
    tx: &mut PgConnection,
    checkout: CheckoutId,
    request: &RefundRequest,
) -> Result<(), Rejection> {
    let (account, step) = (origin.account, StepName::CreateRefund);
    let refund = request.refund.to_string();
    store::checkout_steps::finish(tx, account, checkout, step, &refund).await?;
    let ended = in_transaction(
        origin,
        None,
        tx,
        |seen| create_refund::reads(seen, request),
        |draft| create_refund::answered(draft, request, Answer::Done, &Expansion::default()),
    );
    ended.await?;
    Ok(())
}

async fn cancel_order(tx: &mut PgConnection, run: &CheckoutRun) -> Result<(), Rejection> {
    let (account, step, id) = (run.account, StepName::CancelOrder, order_of(run)?);
    let origin = Origin::of(run);
    let canceled = in_transaction(
        &origin,
        None,
        tx,
        |_| vec![RowId::Order(id)],
        |draft| {
            let order = draft.get::<Order>(id).ok_or_else(|| lost("an order"))?;
            cancel(draft, order.clone())
        },
    );
    canceled.await?;
    store::checkout_steps::finish(tx, account, run.checkout.id, step, &id.to_string()).await?;
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
        let request = write_refund(tx, &run, None, |_, _| Ok(())).await?;
        give_back(&Origin::of(&run), tx, run.checkout.id, &request).await?;
        has_run()
    }
}
