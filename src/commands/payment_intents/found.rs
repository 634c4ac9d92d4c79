//! The intent that a verb is about, and its refusals, which hold the whole intent.
//!
//! Each verb locks its intent first, so what a refusal shows is what decided it, and no other verb
//! changes it before the refusal is stored. A client that sees `succeeded` or `canceled` there
//! knows that what it wanted has happened.

use sqlx::PgConnection;

use crate::commands::{
    Draft, Origin, RowId,
    mode::{Mode, must_be_finished, must_have_taken_the_money, open_work},
    replies::missing,
};
use crate::{
    domain::{
        charge::Charge,
        ids::{AccountId, ChargeId, PaymentIntentId},
        payment_intent::{IntentStatus, PaymentIntent, UnexpectedStatus},
    },
    idempotency::{Failure, Rejection},
    store,
    wire::{
        error::{ApiError, ErrorCode},
        payment_intents::PaymentIntentView,
    },
};

/// Locks the intent that a path names by `id`, and fails while a processor has not answered about
/// its money: its status isn't known then.
pub(super) async fn lock_settled(
    tx: &mut PgConnection,
    account: AccountId,
    id: &str,
    mode: Mode,
) -> Result<PaymentIntent, Rejection> {
    let intent = lock(tx, account, PaymentIntentId::parse(id)).await?;
    must_be_settled(tx, account, &intent, mode).await?;
    Ok(intent)
}

/// Locks the intent that a path names.
pub(super) async fn lock(
    tx: &mut PgConnection,
    account: AccountId,
    id: Option<PaymentIntentId>,
) -> Result<PaymentIntent, Rejection> {
    let none = || missing("intent", PaymentIntentId::PREFIX);
    let id = id.ok_or_else(none)?;
    let found = store::payment_intents::lock(tx, account, id).await?;
    found.ok_or_else(none)
}

/// Fails while a processor has not answered about the money of an intent that this transaction has
/// locked.
pub(super) async fn must_be_settled(
    tx: &mut PgConnection,
    account: AccountId,
    intent: &PaymentIntent,
    mode: Mode,
) -> Result<(), Rejection> {
    let Some(charge) = unsettled_charge(intent) else {
        return Ok(());
    };
    must_be_finished(mode, open_work(tx, account, charge).await?)
}

/// The charge of an intent that a processor may be asked about.
fn unsettled_charge(intent: &PaymentIntent) -> Option<ChargeId> {
    match intent.status {
        IntentStatus::Processing => intent.latest_charge,
        IntentStatus::RequiresCapture => intent.charge,
        IntentStatus::RequiresPaymentMethod
        | IntentStatus::RequiresConfirmation
        | IntentStatus::RequiresAction
        | IntentStatus::Succeeded
        | IntentStatus::Canceled => None,
    }
}

/// Locks the charge that promised an intent's money, about which nothing is unfinished.
///
/// The intent's lock keeps the money still. An update of the charge's own words takes only this
/// one, and an event shows all of the charge.
pub(super) async fn lock_charge(
    tx: &mut PgConnection,
    origin: &Origin,
    intent: &PaymentIntent,
    mode: Mode,
) -> Result<Charge, Rejection> {
    let lost = || Rejection::Failed(Failure::internal("an intent's charge is gone"));
    let charge = intent.charge.ok_or_else(lost)?;
    let found = store::charges::lock(tx, origin.account, charge).await?;
    let charge = found.ok_or_else(lost)?;
    // First: what is unfinished may be finished, and this never changes.
    must_have_taken_the_money(mode, &charge)?;
    must_be_finished(mode, open_work(tx, origin.account, charge.id).await?)?;
    Ok(charge)
}

/// All of the intent, for an error.
pub(super) fn whole(intent: &PaymentIntent) -> Result<String, Rejection> {
    let view = serde_json::to_string(&PaymentIntentView::from(intent));
    Ok(view.map_err(Failure::internal)?)
}

/// The refusal of a verb that needs another status. `verb` completes "You cannot".
pub(super) fn unexpected(
    intent: &PaymentIntent,
    verb: &str,
    UnexpectedStatus(status): UnexpectedStatus,
) -> Rejection {
    let because = match status {
        IntentStatus::Succeeded => {
            "it has already succeeded after being previously confirmed".to_owned()
        }
        IntentStatus::RequiresPaymentMethod
        | IntentStatus::RequiresConfirmation
        | IntentStatus::RequiresAction
        | IntentStatus::Processing
        | IntentStatus::RequiresCapture
        | IntentStatus::Canceled => {
            format!("it has a status of {status}", status = status.as_str())
        }
    };
    refusal(
        intent,
        format!("You cannot {verb} this PaymentIntent because {because}."),
    )
}

/// A refusal for the state that the intent is in.
pub(super) fn refusal(intent: &PaymentIntent, message: String) -> Rejection {
    let mut error = ApiError::new(ErrorCode::PaymentIntentUnexpectedState, message);
    match whole(intent) {
        Err(failed) => failed,
        Ok(intent) => {
            error.about.payment_intent = Some(intent);
            error.into()
        }
    }
}

/// The charge that promised or took an intent's money, for a refund.
pub(in crate::commands) fn charge_of(
    draft: &Draft<'_>,
    id: Option<PaymentIntentId>,
) -> Result<ChargeId, Rejection> {
    let none = || missing("payment_intent", PaymentIntentId::PREFIX);
    let id = id.ok_or_else(none)?;
    let intent = draft.get::<PaymentIntent>(id).ok_or_else(none)?;
    if let Some(charge) = unsettled_charge(intent) {
        let open = draft.open_work(RowId::Charge(charge));
        must_be_finished(Mode::of(draft.processor), open)?;
    }
    intent.charge.ok_or_else(|| {
        let message =
            format!("This PaymentIntent ({id}) does not have a successful charge to refund.");
        refusal(intent, message)
    })
}
