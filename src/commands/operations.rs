//! What every operation across the network has in common, whichever request began it: reading it,
//! asking the processor, and writing down its answer.
//!
//! Locks    what the operation is about: the checkout, the order, the charge, the refund
//! Writes   the outcome, or the release of what `begin` reserved; the name behind a manual resolution
//! Emits    as the verb does in one transaction; refund.failed

use std::time::Duration;

use sqlx::PgConnection;
use uuid::Uuid;

use super::{
    Origin, capture_charge::capture, checkout_steps, create_charge, create_refund::refunded,
    declined, pay_order::paid,
};
use crate::{
    api::refunds::RefundView,
    domain::{
        charge::Authorization,
        event::EventType,
        ids::AccountId,
        operation::{Answer, Instruction, Operation, Verb, Word},
        test_cards::Decline,
    },
    idempotency::{CallOutcome, ExternalEffect, Failure, Phases, Rejection, Reply},
    processor::{Asked, CardProcessor, HttpProcessor},
    store,
};

/// The phases of commands that ask a card processor across a network.
pub type NetworkPhases = Phases<ProcessorOperations<HttpProcessor>>;

/// The operations of a card processor across a network.
pub struct ProcessorOperations<P> {
    /// Whom to ask.
    pub processor: P,
    /// What operations and charges remember it by.
    pub name: String,
    /// How long the processor remembers keys, less a margin for an instruction on its way. Later it
    /// would execute an instruction again, so operations are only looked up.
    pub send_again_within: Duration,
    /// In an operator's tool, the person who resolves the operation. The name is stored.
    pub by_the_word_of: Option<String>,
}

impl<P> ProcessorOperations<P> {
    /// Before anything is done by it: the operation is kept as it waited.
    async fn keep_word(
        &self,
        tx: &mut PgConnection,
        operation: &Operation,
        word: Word,
    ) -> Result<(), sqlx::Error> {
        let Some(person) = &self.by_the_word_of else {
            return Ok(());
        };
        store::operators_words::insert(tx, operation.account, operation.id, word, person).await
    }
}

impl<P: CardProcessor> ExternalEffect for ProcessorOperations<P> {
    const KIND: &'static str = "processor";
    type Operation = Operation;
    type Answer = Answer;

    async fn read(
        &self,
        tx: &mut PgConnection,
        account_id: Uuid,
        operation: Uuid,
    ) -> Result<Operation, Failure> {
        store::operations::find(tx, AccountId(account_id), operation, &self.name)
            .await?
            .ok_or_else(|| Failure::internal("a key in flight has no operation"))
    }

    async fn call(&self, operation: &Operation) -> CallOutcome<Answer> {
        if operation.processor != self.name {
            // This attempt is certainly not executed. If an earlier one was sent there, it stays in doubt,
            // which is for an operator to ask.
            let cause = format!("it belongs to another processor, {}", operation.processor);
            return CallOutcome::NotExecuted(Failure::unavailable(cause));
        }
        let asked = if operation.age < self.send_again_within {
            let Operation {
                id, instruction, ..
            } = operation;
            self.processor.execute(*id, instruction).await
        } else {
            match self.processor.look_up(operation.id).await {
                // Nothing is certain about what was sent so long ago.
                Asked::NotExecuted(cause) => Asked::Unknown(cause),
                asked @ (Asked::Answered(_) | Asked::Unknown(_)) => asked,
            }
        };
        match asked {
            Asked::Answered(answer) => CallOutcome::Answered(answer),
            Asked::NotExecuted(cause) => CallOutcome::NotExecuted(Failure::unavailable(cause)),
            Asked::Unknown(cause) => CallOutcome::Unknown(Failure::unavailable(cause)),
        }
    }

    async fn complete(
        &self,
        tx: &mut PgConnection,
        operation: &Operation,
        answer: &Answer,
    ) -> Result<Reply, Failure> {
        let origin = Origin {
            account: operation.account,
            dialect: operation.dialect,
            request_id: operation.request_id.clone(),
            idempotency_key: operation.idempotency_key.clone(),
        };
        // Before its steps: the same order of locks as in a step that is one transaction.
        if let Some(checkout) = operation.checkout {
            store::checkouts::lock(tx, operation.account, checkout).await?;
        }
        let word = match answer {
            Answer::Done => Word::Done,
            Answer::Declined(_) => Word::Declined,
        };
        self.keep_word(tx, operation, word).await?;
        // Before anything that looks for unsettled operations.
        store::operations::settle(tx, operation.account, operation.id, *answer).await?;
        let settled = match operation.verb {
            Verb::CreateCharge | Verb::PayOrder => {
                authorised(&origin, tx, operation, *answer).await
            }
            Verb::CaptureCharge => captured(&origin, tx, operation, *answer).await,
            Verb::CreateRefund => given_back(&origin, tx, operation, *answer).await,
        };
        settled.map_err(|rejection| match rejection {
            Rejection::Failed(failure) => failure,
            Rejection::Refused(reply) => Failure::internal(format!(
                "what the processor did is refused here, with {}",
                reply.status
            )),
        })
    }

    async fn release(&self, tx: &mut PgConnection, operation: &Operation) -> Result<(), Failure> {
        let account = operation.account;
        self.keep_word(tx, operation, Word::NotExecuted).await?;
        store::operations::delete(tx, account, operation.id).await?;
        match (operation.verb, operation.refund) {
            (Verb::CreateCharge | Verb::PayOrder, _) => {
                store::charges::delete_pending(tx, account, operation.charge).await?;
            }
            (Verb::CreateRefund, Some(refund)) => {
                store::refunds::delete_pending(tx, account, refund).await?;
            }
            (Verb::CreateRefund, None) | (Verb::CaptureCharge, _) => {}
        }
        Ok(())
    }
}

fn inconsistent() -> Rejection {
    Rejection::Failed(Failure::internal(
        "an operation's verb and its instruction don't belong together",
    ))
}

async fn authorised(
    origin: &Origin,
    tx: &mut PgConnection,
    operation: &Operation,
    answer: Answer,
) -> Result<Reply, Rejection> {
    let Instruction::Authorise { capture, .. } = operation.instruction else {
        return Err(inconsistent());
    };
    let said = match answer {
        Answer::Done => Authorization::Approved,
        Answer::Declined(decline) => Authorization::Declined(decline),
    };
    let (account, id) = (operation.account, operation.charge);
    // The same order of locks as when an order is paid in one transaction: the order first.
    if let Some(order) = operation.order {
        store::orders::lock(tx, account, order).await?;
    }
    let charge =
        store::charges::settle(tx, account, id, said, capture, &operation.processor).await?;
    match (operation.checkout, operation.order) {
        (Some(checkout), _) => {
            checkout_steps::charged(origin, tx, checkout, &charge, said).await?;
            checkout_steps::has_run()
        }
        (None, Some(order)) => paid(origin, tx, order, &charge, said, operation.expand).await,
        (None, None) => create_charge::answer(origin, tx, &charge, said, operation.expand).await,
    }
}

async fn captured(
    origin: &Origin,
    tx: &mut PgConnection,
    operation: &Operation,
    answer: Answer,
) -> Result<Reply, Rejection> {
    let Instruction::Capture { amount, .. } = operation.instruction else {
        return Err(inconsistent());
    };
    match answer {
        Answer::Done => capture(origin, tx, operation.charge, amount, operation.expand).await,
        Answer::Declined(decline) => refused(origin, tx, operation, decline).await,
    }
}

async fn given_back(
    origin: &Origin,
    tx: &mut PgConnection,
    operation: &Operation,
    answer: Answer,
) -> Result<Reply, Rejection> {
    let (account, charge) = (operation.account, operation.charge);
    let id = operation.refund.ok_or_else(inconsistent)?;
    store::charges::lock(tx, account, charge).await?;
    match answer {
        Answer::Done => {
            let refund = store::refunds::succeed(tx, account, id).await?;
            if let Some(checkout) = operation.checkout {
                checkout_steps::given_back(origin, tx, checkout, &refund).await?;
                return checkout_steps::has_run();
            }
            refunded(origin, tx, &refund, operation.expand).await
        }
        Answer::Declined(decline) => {
            let refund = store::refunds::fail(tx, account, id).await?;
            let view = RefundView::from(&refund);
            origin.emit(tx, EventType::RefundFailed, &view).await?;
            if let Some(checkout) = operation.checkout {
                // Money that was taken for nothing must go back: the step stays to be run.
                store::checkouts::count_refused_refund(tx, account, checkout).await?;
                tracing::error!(
                    %checkout, %charge, reason = decline.code.as_str(),
                    "the processor refuses to give a canceled checkout's charge back"
                );
                return checkout_steps::has_run();
            }
            refused(origin, tx, operation, decline).await
        }
    }
}

/// The processor's definite no about a charge that stays as it was.
async fn refused(
    origin: &Origin,
    tx: &mut PgConnection,
    operation: &Operation,
    decline: Decline,
) -> Result<Reply, Rejection> {
    let charge = store::charges::find(tx, origin.account, operation.charge)
        .await?
        .ok_or_else(inconsistent)?;
    declined(decline, &charge)
}
