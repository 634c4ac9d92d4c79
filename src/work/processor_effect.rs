//! What every operation across the network has in common, whichever verb began it: reading it,
//! asking the processor, and handing the answer to the verb.
//!
//! Locks    what the operation is about: the checkout, the order, the intent, the charge, the
//!          method, the refund
//! Writes   the outcome, or releases what `begin` reserved; who resolved it, if a person did
//! Emits    as the verb does in one transaction; refund.failed

use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use uuid::Uuid;

use super::{Completion, in_transaction};
use crate::{
    commands::{Draft, Origin, Rows, SeenRows, Server, questions},
    domain::{
        ids::AccountId,
        operation::{Answer, Ask, Operation, Question, Resolution},
    },
    idempotency::{
        CallOutcome, Decide, ExternalEffect, Failure, Rejection, Reply, SharedEffect, SharedPhases,
    },
    processor::{CardProcessor, HttpProcessor, Instruction, InstructionOutcome},
    store,
    telemetry::traces,
};

/// The phases of verbs that ask a card processor across a network.
pub type NetworkPhases = SharedPhases<ProcessorEffect<HttpProcessor>>;

/// The effects of a card processor across a network.
pub struct ProcessorEffect<P> {
    /// The processor.
    pub processor: P,
    /// Its name in stored operations and charges.
    pub name: String,
    /// How long the processor remembers keys, less a margin for an instruction on its way. Later it
    /// would execute an instruction again, so operations are only looked up.
    pub send_again_within: Duration,
    /// In an operator's tool: the name of the person who resolves, which is stored.
    pub resolved_by: Option<String>,
}

impl<P> ProcessorEffect<P> {
    /// Stores a person's resolution with the operation as it is, before anything changes it.
    async fn keep_resolution(
        &self,
        tx: &mut PgConnection,
        operation: &Operation,
        resolution: Resolution,
    ) -> Result<(), sqlx::Error> {
        let Some(person) = &self.resolved_by else {
            return Ok(());
        };
        store::manual_resolutions::insert(tx, operation.account, operation.id, resolution, person)
            .await
    }
}

impl<P: CardProcessor> ExternalEffect for ProcessorEffect<P> {
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

    async fn call(&self, operation: &Operation, not_after: DateTime<Utc>) -> CallOutcome<Answer> {
        if operation.processor != self.name {
            // This attempt is certainly not executed. If an earlier one was sent there, it stays in
            // doubt until an operator resolves it.
            let cause = format!("it belongs to another processor, {}", operation.processor);
            return CallOutcome::NotExecuted(Failure::unavailable(cause));
        }
        let asked = if operation.age < self.send_again_within {
            let instruction = Instruction::from(&operation.asked.question.ask());
            let key = operation.id;
            self.processor.execute(key, &instruction, not_after).await
        } else {
            match self.processor.look_up(operation.id).await {
                // Nothing is certain about what was sent so long ago.
                InstructionOutcome::NotExecuted(cause) => InstructionOutcome::Unknown(cause),
                asked @ (InstructionOutcome::Answered(_) | InstructionOutcome::Unknown(_)) => asked,
            }
        };
        match asked {
            InstructionOutcome::Answered(answer) => CallOutcome::Answered(answer),
            InstructionOutcome::NotExecuted(cause) => {
                CallOutcome::NotExecuted(Failure::unavailable(cause))
            }
            InstructionOutcome::Unknown(cause) => CallOutcome::Unknown(Failure::unavailable(cause)),
        }
    }

    async fn complete(
        &self,
        tx: &mut PgConnection,
        operation: &Operation,
        answer: &Answer,
    ) -> Result<Reply, Failure> {
        let resolution = match answer {
            Answer::Done => Resolution::Done,
            Answer::Declined(_) => Resolution::Declined,
        };
        self.keep_resolution(tx, operation, resolution).await?;
        let completion = Completion::of(operation, *answer);
        let reply = completion.alone(tx).await.map_err(failed)?;
        if let (Question::CheckoutRefund(checkout, request), Answer::Declined(decline)) =
            (&operation.asked.question, answer)
        {
            tracing::error!(
                %checkout, charge = %request.charge, reason = decline.code.as_str(),
                "the processor refuses to give a canceled checkout's charge back"
            );
        }
        Ok(reply)
    }

    async fn release(&self, tx: &mut PgConnection, operation: &Operation) -> Result<(), Failure> {
        let account = operation.account;
        self.keep_resolution(tx, operation, Resolution::NotExecuted)
            .await?;
        store::operations::delete(tx, account, operation.id).await?;
        let question = &operation.asked.question;
        let origin = origin_of(operation);
        let server = Server::answered_by(&operation.processor);
        let reads = |seen: &SeenRows<'_>| questions::reads(question, seen);
        let withdraw = |draft: &mut Draft<'_>| questions::withdraw(question, draft);
        let withdrawn = in_transaction(&origin, server, tx, reads, withdraw);
        withdrawn.await.map_err(failed)
    }
}

impl<P: CardProcessor> SharedEffect for ProcessorEffect<P> {
    type Rows = Rows;
    type Completion = Completion;

    fn completion(&self, operation: &Operation, answer: &Answer) -> Completion {
        Completion::of(operation, *answer)
    }
}

impl Completion {
    fn of(operation: &Operation, answer: Answer) -> Self {
        Self {
            origin: origin_of(operation),
            operation: operation.clone(),
            answer,
        }
    }
}

/// The origin of an operation's request.
fn origin_of(operation: &Operation) -> Origin {
    Origin {
        account: operation.account,
        asked_by: operation.asked_by.clone(),
        traceparent: traces::traceparent(),
        path_id: String::new(),
    }
}

/// What an operation was asked for can't be refused any more.
fn failed(rejection: Rejection) -> Failure {
    match rejection {
        Rejection::Failed(failure) => failure,
        Rejection::Refused(reply) => Failure::internal(format!(
            "what the processor did is refused here, with {}",
            reply.status
        )),
    }
}

impl From<&Ask> for Instruction {
    fn from(ask: &Ask) -> Self {
        let charge = ask.charge().to_string();
        match ask {
            Ask::Authorize(authorization) => Self::Authorize {
                charge,
                amount: authorization.amount.minor_units,
                currency: authorization.amount.currency.to_string(),
                card: authorization.card_token.clone(),
                capture: authorization.capture,
            },
            Ask::Capture(request) => Self::Capture {
                charge,
                amount: request.amount,
            },
            Ask::Refund(request) => Self::Refund {
                charge,
                refund: request.refund.to_string(),
                amount: request.amount,
            },
        }
    }
}
