//! 3 · One file, one verb, one transaction.
//!
//! Promise: a command is a value with the verb's parameters as they were decoded. It checks their
//! meaning, decides by the rules in `domain/`, writes through `store/`, and says how it ended: a
//! reply to commit, a refusal to store, or a failure. It never begins or commits.

mod cancel_order;
mod capture_charge;
mod checkout_steps;
mod create_charge;
mod create_checkout;
mod create_order;
mod create_refund;
mod create_webhook_endpoint;
pub mod expansions;
mod operations;
mod pay_order;
mod set_inventory;
mod update_charge;
mod update_order;
mod update_refund;

pub use cancel_order::CancelOrder;
pub use capture_charge::CaptureCharge;
pub use checkout_steps::{RefundedElsewhere, RunStep};
pub use create_charge::CreateCharge;
pub use create_checkout::{CreateCheckout, end_checkout, set_out_for_next_step};
pub use create_order::CreateOrder;
pub use create_refund::CreateRefund;
pub use create_webhook_endpoint::CreateWebhookEndpoint;
pub use operations::{NetworkPhases, ProcessorOperations};
pub use pay_order::PayOrder;
pub use set_inventory::SetInventory;
pub use update_charge::UpdateCharge;
pub use update_order::UpdateOrder;
pub use update_refund::UpdateRefund;

use serde::Serialize;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::{
    api::{
        dialect::Dialect,
        error::{ApiError, ErrorCode, ErrorType},
    },
    domain::{
        charge::Charge,
        event::EventType,
        ids::{AccountId, ChargeId, EventId},
        operation::{Instruction, Operation, Verb},
        order::Order,
        refund::{Refund, RefundStatus},
        test_cards::Decline,
    },
    idempotency::{BeginOutcome, Failure, Rejection, Reply},
    store::{self, charges::Ties, events::NewEvent},
};

/// Ends the message of a stored refusal: without it, a client would correct its request, keep the
/// key, and meet "key reused".
const STORED_REFUSAL: &str = " This answer is kept under the idempotency key: send a corrected \
                              request with a new key.";

/// Who asks, and in which request. Every command has one, and every event names it.
#[derive(Debug, Clone)]
pub struct Origin {
    /// Whose data it is about.
    pub account: AccountId,
    /// Decides what paths in the reply start with.
    pub dialect: Dialect,
    /// The `req_…` that executes.
    pub request_id: String,
    /// The key that it executes under.
    pub idempotency_key: String,
}

impl Origin {
    /// Writes an event, in the transaction that makes it happen; `object` is the view of what it
    /// happened to.
    async fn emit<T: Serialize>(
        &self,
        tx: &mut PgConnection,
        event_type: EventType,
        object: &T,
    ) -> Result<(), Rejection> {
        let object = serde_json::to_string(object).map_err(unserializable)?;
        let new = NewEvent {
            event_type,
            object: &object,
            request_id: &self.request_id,
            idempotency_key: &self.idempotency_key,
        };
        let id = EventId(Uuid::now_v7());
        Ok(store::events::insert(tx, self.account, id, new).await?)
    }

    /// Writes down what the processor is to be asked; `fill` adds what the verb has besides.
    async fn write_down(
        &self,
        tx: &mut PgConnection,
        id: Uuid,
        verb: Verb,
        charge: ChargeId,
        instruction: Instruction,
        fill: impl FnOnce(&mut Operation),
    ) -> Result<BeginOutcome, Rejection> {
        let mut operation = Operation {
            id,
            account: self.account,
            verb,
            instruction,
            charge,
            refund: None,
            order: None,
            checkout: None,
            dialect: self.dialect,
            expand: false,
            request_id: self.request_id.clone(),
            idempotency_key: self.idempotency_key.clone(),
            processor: String::new(),
            age: std::time::Duration::ZERO,
        };
        fill(&mut operation);
        store::operations::insert(tx, &operation).await?;
        Ok(BeginOutcome::Begun {
            resource_id: Some(operation.resource()),
        })
    }

    /// The reply with a charge, and with its refunds where they are asked for.
    async fn charge(
        &self,
        tx: &mut PgConnection,
        status: u16,
        charge: &Charge,
        expand_refunds: bool,
    ) -> Result<Reply, Rejection> {
        let (account, dialect) = (self.account, self.dialect);
        let view = expansions::charge_view(tx, account, dialect, charge, expand_refunds).await?;
        self.reply(status, "charges", view.id.clone(), &view)
    }

    /// The reply with a refund, and with its whole charge where that is asked for.
    async fn refund(
        &self,
        tx: &mut PgConnection,
        status: u16,
        refund: &Refund,
        expand_charge: bool,
    ) -> Result<Reply, Rejection> {
        let view = expansions::refund_view(tx, self.account, refund, expand_charge).await?;
        self.reply(status, "refunds", view.id.clone(), &view)
    }

    /// The reply with an order, and with its whole charge where that is asked for.
    async fn order(
        &self,
        tx: &mut PgConnection,
        status: u16,
        order: &Order,
        expand_charge: bool,
    ) -> Result<Reply, Rejection> {
        let view = expansions::order_view(tx, self.account, order, expand_charge).await?;
        self.reply(status, "orders", view.id.clone(), &view)
    }

    /// A reply about the object `id`; where that is new, it says where it lies.
    fn reply<T: Serialize>(
        &self,
        status: u16,
        collection: &str,
        id: String,
        object: &T,
    ) -> Result<Reply, Rejection> {
        let mut reply = json(status, object)?;
        if status == CREATED {
            let location = format!("{}/{collection}/{id}", self.dialect.prefix());
            reply.headers.push(("location".into(), location));
        }
        reply.resource_id = Some(id);
        Ok(reply)
    }
}

const OK: u16 = 200;
const CREATED: u16 = 201;

/// How a verb that moves money runs, which is where the processor is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// It is simulated in this process.
    OneTransaction,
    /// It is across a network.
    Phases,
}

impl Mode {
    /// How far a refund is when it is written.
    fn of_refund(self) -> RefundStatus {
        match self {
            Self::OneTransaction => RefundStatus::Succeeded,
            Self::Phases => RefundStatus::Pending,
        }
    }
}

/// Whether anything may be decided about the money of a charge that this transaction has locked.
async fn must_be_free(
    tx: &mut PgConnection,
    account: AccountId,
    charge: ChargeId,
    mode: Mode,
) -> Result<(), Rejection> {
    let ties = store::charges::ties(tx, account, charge).await?;
    if ties.is_unsettled {
        return Err(unsettled());
    }
    must_have_taken_the_money(mode, &ties)
}

/// Who took the money gives it back: a simulation would only say so, and a processor knows nothing of
/// what was simulated.
fn must_have_taken_the_money(mode: Mode, ties: &Ties) -> Result<(), Rejection> {
    let cause = match (mode, ties.is_across_a_network) {
        (Mode::OneTransaction, false) | (Mode::Phases, true) => return Ok(()),
        (Mode::OneTransaction, true) => {
            "the charge was made by a processor across a network, which takes PROCESSOR_URL"
        }
        (Mode::Phases, false) => "the charge was simulated, which takes no PROCESSOR_URL",
    };
    Err(Rejection::Failed(Failure::unsupported(cause)))
}

/// While a processor's answer is out, nobody else may decide about the same money: only settled
/// facts may refuse.
fn unsettled() -> Rejection {
    Rejection::Failed(Failure::busy(
        "another operation on this object is unsettled",
    ))
}

/// The account has no object with the id in `param`.
fn missing(param: &str) -> Rejection {
    ApiError::explained(ErrorCode::ResourceMissing)
        .with_param(param.to_owned())
        .into()
}

/// A decline is an outcome to keep, not a refusal to undo: its failed charge stays.
fn declined(decline: Decline, charge: &Charge) -> Result<Reply, Rejection> {
    let id = charge.id.to_string();
    let mut reply = error_reply(&ApiError::declined(decline, id.clone()))?;
    reply.resource_id = Some(id);
    Ok(reply)
}

fn unserializable(error: serde_json::Error) -> Rejection {
    Rejection::Failed(Failure::internal(error))
}

/// A reply with a JSON body.
fn json<T: Serialize>(status: u16, object: &T) -> Result<Reply, Rejection> {
    let body = serde_json::to_vec(object).map_err(unserializable)?;
    Ok(Reply::json(status, body))
}

/// The reply of an error that is a definite outcome.
fn error_reply(error: &ApiError) -> Result<Reply, Rejection> {
    let mut reply = json(error.code.status(), &error.envelope())?;
    let described_by = format!("<{}>; rel=\"describedby\"", error.code.doc_url());
    reply.headers.push(("link".into(), described_by));
    Ok(reply)
}

/// The reply of an error that is stored, and says so where a corrected request may follow.
fn stored_refusal(mut error: ApiError) -> Result<Reply, Rejection> {
    if error.code.error_type() == ErrorType::InvalidRequest {
        error.message.push_str(STORED_REFUSAL);
    }
    error_reply(&error)
}

/// A deterministic refusal: nothing that the command wrote survives, the reply is stored.
impl From<ApiError> for Rejection {
    fn from(error: ApiError) -> Self {
        stored_refusal(error).map_or_else(|rejection| rejection, Rejection::Refused)
    }
}
