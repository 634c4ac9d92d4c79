//! The answers of a processor across a network about intents, whichever verb asked.
//!
//! Locks, in this order: the intent, its charge, the method, the customer.

use charge_once_strict_params::Expansion;
use sqlx::PgConnection;

use super::{
    attempt::{PaymentAttempt, sets_up},
    authenticate::{landing, page_of},
    cancel, capture,
    found::{lock, whole},
};
use crate::commands::{
    Origin, RowId, SeenRows,
    charges::create::record_answer,
    payment_methods::given,
    processor_effect::origin_of,
    refunds::create as refunds,
    replies::{STORED_DECLINE, error_reply},
    work::in_transaction,
};
use crate::{
    domain::{
        ids::{ChargeId, PaymentIntentId},
        operation::{Answer, Ask, CardAuthorization, Operation, Verb},
        test_cards::Decline,
    },
    idempotency::{Failure, Rejection, Reply},
    store,
    wire::{error::ApiError, payment_methods::PaymentMethodView},
};

/// Writes down the processor's answer about an intent.
pub(in crate::commands) async fn complete(
    origin: &Origin,
    tx: &mut PgConnection,
    operation: &Operation,
    intent: PaymentIntentId,
    answer: Answer,
) -> Result<Reply, Rejection> {
    let expand = &operation.effect.expand;
    match &operation.effect.ask {
        Ask::Authorize(authorization) => {
            confirmed(origin, tx, operation, intent, authorization, answer, expand).await
        }
        Ask::Capture(request) => {
            capture::complete(origin, tx, intent, *request, answer, expand).await
        }
        Ask::Refund(request) => cancel::complete(origin, tx, intent, request, answer, expand).await,
    }
}

/// Ends a confirmation that waited for the card's answer.
async fn confirmed(
    origin: &Origin,
    tx: &mut PgConnection,
    operation: &Operation,
    intent: PaymentIntentId,
    authorization: &CardAuthorization,
    answer: Answer,
    expand: &Expansion,
) -> Result<Reply, Rejection> {
    let intent = lock(tx, origin.account, Some(intent)).await?.resumed();
    let reads = |_: &SeenRows<'_>| vec![RowId::Charge(authorization.charge)];
    let processor = Some(operation.processor.as_str());
    let ended = in_transaction(origin, processor, tx, reads, |draft| {
        record_answer(draft, authorization, answer)
    });
    let (charge, said) = ended.await?;
    let lost = || Rejection::Failed(Failure::internal("an intent's charge has no method"));
    let method = charge.by_intent.as_ref().ok_or_else(lost)?.method;
    let method = given::lock_held(origin, tx, Some(method), sets_up(&intent.terms)).await?;
    let verb = operation.effect.verb;
    let asked = intent.clone();
    let attempt = PaymentAttempt {
        verb,
        intent,
        method,
        makes_method: false,
        expand: expand.clone(),
    };
    let reply = attempt.answered(origin, tx, &charge, said).await?;
    if verb == Verb::AuthenticateIntent {
        return landing(&asked, &page_of(&asked)?, reply.status < 300);
    }
    Ok(reply)
}

/// Undoes what a verb wrote for an instruction that was never executed: the intent is as it was
/// before, and a new one is forgotten. So is the method that came with the request.
pub(in crate::commands) async fn release(
    tx: &mut PgConnection,
    operation: &Operation,
    intent: PaymentIntentId,
) -> Result<(), Rejection> {
    let account = operation.account;
    lock(tx, account, Some(intent)).await?;
    let charge = operation.effect.ask.charge();
    let mut method = None;
    match &operation.effect.ask {
        Ask::Authorize(_) => method = store::charges::delete_pending(tx, account, charge).await?,
        Ask::Refund(request) => {
            let (origin, reads) = (origin_of(operation), |seen: &SeenRows<'_>| {
                refunds::reads(seen, request)
            });
            let withdrawn = in_transaction(&origin, None, tx, reads, |draft| {
                refunds::withdraw(draft, request)
            });
            withdrawn.await?;
        }
        // A capture reserves nothing.
        Ask::Capture(_) => {}
    }
    if operation.effect.verb == Verb::CreateIntent {
        store::payment_intents::delete_processing(tx, account, intent).await?;
    } else {
        store::payment_intents::restore(tx, account, intent).await?;
    }
    if let Some(method) = method {
        store::payment_methods::forget_made_for(tx, account, method, charge).await?;
    }
    Ok(())
}

/// The processor's definite no about the promised money of an intent, which is as it was before.
pub(super) async fn declined_by_processor(
    origin: &Origin,
    tx: &mut PgConnection,
    intent: PaymentIntentId,
    charge: ChargeId,
    decline: Decline,
) -> Result<Reply, Rejection> {
    let intent = store::payment_intents::restore(tx, origin.account, intent).await?;
    let mut error = ApiError::declined(decline, charge.to_string());
    error.message.push_str(STORED_DECLINE);
    if let Some(method) = intent.terms.payment_method
        && let Some(method) = store::payment_methods::find(tx, origin.account, method).await?
    {
        let method = serde_json::to_string(&PaymentMethodView::from(&method));
        error.about.payment_method = Some(method.map_err(Failure::internal)?);
    }
    error.about.payment_intent = Some(whole(&intent)?);
    let mut reply = error_reply(&error)?;
    reply.resource_id = Some(intent.id.to_string());
    Ok(reply)
}
