//! What a card is asked for, by whichever verb, and where the answer goes.
//!
//! The same functions run whether the answer comes at once, in the transaction that asked, or from
//! a processor across a network, in a later one.

use super::{
    charges::{capture, create as create_charge},
    checkouts::steps as checkout_steps,
    found_intents as found,
    orders::pay as pay_order,
    payment_intents::{attempt, cancel, capture as capture_intent},
    refunds::create as create_refund,
};
use crate::commands::prelude::*;

/// The rows that the answer needs, or the withdrawal.
pub(crate) fn reads(question: &Question, seen: &SeenRows<'_>) -> Vec<RowId> {
    match question {
        Question::Charge(card) => vec![RowId::Charge(card.charge)],
        Question::Capture(request) => vec![RowId::Charge(request.charge)],
        Question::Refund(request) => create_refund::reads(seen, request),
        Question::OrderPayment(of, card) => vec![RowId::Charge(card.charge), RowId::Order(*of)],
        Question::IntentPayment(intent, _, card) => attempt::reads(seen, *intent, card),
        Question::CheckoutPayment(checkout, order, card) => vec![
            RowId::Checkout(*checkout),
            RowId::Charge(card.charge),
            RowId::Order(*order),
        ],
        Question::CheckoutRefund(checkout, request) => {
            let mut rows = create_refund::reads(seen, request);
            rows.push(RowId::Checkout(*checkout));
            rows
        }
        Question::IntentCapture(intent, request) => {
            let mut rows = found::reads_to_answer(seen, *intent);
            rows.push(RowId::Charge(request.charge));
            rows
        }
        Question::IntentCancellation(intent, request) => {
            let mut rows = found::reads_to_answer(seen, *intent);
            rows.extend(create_refund::reads(seen, request));
            rows
        }
    }
}

/// Hands the answer to the verb that asked.
pub(crate) fn answered(
    question: &Question,
    answer: Answer,
    draft: &mut Draft<'_>,
) -> Result<Said, Rejection> {
    match question {
        Question::Charge(card) => create_charge::answered(draft, card, answer),
        Question::Capture(request) => capture::answered(draft, *request, answer),
        Question::Refund(request) => create_refund::answered(draft, request, answer),
        Question::OrderPayment(order, card) => pay_order::answered(draft, *order, card, answer),
        Question::IntentPayment(intent, by, card) => {
            attempt::answered(draft, (*intent, *by), card, answer)
        }
        Question::IntentCapture(intent, request) => {
            capture_intent::answered(draft, *intent, *request, answer)
        }
        Question::IntentCancellation(intent, request) => {
            cancel::answered(draft, *intent, request, answer)
        }
        Question::CheckoutPayment(checkout, _, card) => {
            checkout_steps::paid(draft, *checkout, card, answer)
        }
        Question::CheckoutRefund(checkout, request) => {
            checkout_steps::gave_back(draft, *checkout, request, answer)
        }
    }
}

/// Undoes what a question reserved that was never executed.
pub(crate) fn withdraw(question: &Question, draft: &mut Draft<'_>) -> Result<(), Rejection> {
    match question {
        Question::Charge(card)
        | Question::OrderPayment(_, card)
        | Question::CheckoutPayment(_, _, card) => create_charge::withdraw(draft, card).map(drop),
        Question::Refund(request) | Question::CheckoutRefund(_, request) => {
            create_refund::withdraw(draft, request)
        }
        // A capture reserves nothing.
        Question::Capture(_) => Ok(()),
        Question::IntentPayment(intent, by, card) => attempt::withdraw(draft, (*intent, *by), card),
        Question::IntentCapture(intent, _) => found::restore(draft, *intent).map(drop),
        Question::IntentCancellation(intent, request) => {
            create_refund::withdraw(draft, request)?;
            found::restore(draft, *intent).map(drop)
        }
    }
}
