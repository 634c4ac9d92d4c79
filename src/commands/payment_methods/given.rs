//! Methods as verbs use them: named by a request or made on the way, attached, and used up.

use chrono::{DateTime, Utc};
use sha2::{Digest, Sha256};

use crate::{
    commands::prelude::*,
    domain::payment_method::{METHODS_OF_A_CUSTOMER_MAX, NewPaymentMethod, PaymentMethodRefusal},
    wire::payment_methods::{GivenMethod, refused},
};

/// Set in front of what is hashed, so that this hash can't be mistaken for another use of SHA-256.
const FINGERPRINT_TAG: &[u8] = b"charge-once card v1";
/// As long as Stripe's.
const FINGERPRINT_CHARS: usize = 16;

/// The method that a request gives, if it gives one; or why it can't.
pub(in crate::commands) type Given = Result<Option<GivenMethod>, ApiError>;

/// The card of a method that is made on the way.
pub(in crate::commands) fn card_of(given: Given) -> Option<Card> {
    match given {
        Ok(Some(GivenMethod::New(new))) => Some(new.card),
        Ok(Some(GivenMethod::Existing(_)) | None) | Err(_) => None,
    }
}

/// The rows that it takes to pay with the method that a request gives, or else with `default`. The
/// payment may make it `ready` for others, and leave a new one to the customer that it `keeps_for`.
pub(in crate::commands) fn reads(
    seen: &SeenRows<'_>,
    given: &Given,
    default: Option<PaymentMethodId>,
    makes_ready: bool,
    keeps_for: Option<CustomerId>,
) -> Vec<RowId> {
    let (id, is_new) = match given {
        Ok(Some(GivenMethod::New(_))) => (None, true),
        Ok(Some(GivenMethod::Existing(id))) => (*id, false),
        Ok(None) => (default, false),
        Err(_) => (None, false),
    };
    let mut rows = Vec::new();
    rows.extend(id.map(|id| match makes_ready {
        true => RowId::Method(id),
        false => RowId::MethodToPay(id),
    }));
    let found = id.and_then(|id| seen.get::<PaymentMethod>(id));
    let is_new = is_new || found.is_some_and(|found| found.attachment == Attachment::New);
    if let Some(customer) = keeps_for.filter(|_| is_new) {
        rows.extend([RowId::Customer(customer), RowId::MethodsOf(customer)]);
    }
    rows
}

/// The method that a request gives. No other payment holds it.
pub(in crate::commands) fn take(
    draft: &mut Draft<'_>,
    given: GivenMethod,
) -> Result<PaymentMethod, Rejection> {
    match given {
        GivenMethod::New(new) => Ok(make(draft, *new)),
        GivenMethod::Existing(id) => free(draft, id, "payment_method"),
    }
}

/// The method that `param` names. No payment holds it.
pub(in crate::commands) fn free(
    draft: &Draft<'_>,
    id: Option<PaymentMethodId>,
    param: &str,
) -> Result<PaymentMethod, Rejection> {
    let method = draft.find::<PaymentMethod>(id, param)?;
    must_be_free(draft, method)?;
    Ok(method.clone())
}

/// Fails while a processor is asked to charge a new method. The answer decides whether it is used
/// up, and whose it is, so no other verb may, whichever way this process runs.
pub(in crate::commands) fn must_be_free(
    draft: &Draft<'_>,
    method: &PaymentMethod,
) -> Result<(), Rejection> {
    if method.may_be_held() && draft.open_work(RowId::Method(method.id)).operation {
        let busy = "a payment with this method has no answer yet";
        return Err(Rejection::Failed(Failure::busy(busy)));
    }
    Ok(())
}

/// Makes a new method that belongs to no customer yet.
pub(in crate::commands) fn make(draft: &mut Draft<'_>, new: NewPaymentMethod) -> PaymentMethod {
    draft.put(unwritten_method(draft.origin.account, new, draft.now))
}

/// A method that is written nowhere yet.
pub fn unwritten_method(
    account: AccountId,
    new: NewPaymentMethod,
    now: DateTime<Utc>,
) -> PaymentMethod {
    let fingerprint = fingerprint(account, &new.card);
    PaymentMethod::made(PaymentMethodId(Uuid::now_v7()), new, fingerprint, now)
}

/// Tells an account whether two methods are the same card, and says nothing of its number to
/// others. The account's id is the key: it makes the value another one in another account. Such a
/// key is no secret, and needs to be none, because only the numbers of test cards come here.
fn fingerprint(account: AccountId, card: &Card) -> String {
    let number = card
        .test_card
        .number
        .unwrap_or_else(|| card.test_card.token());
    let hash = Sha256::new()
        .chain_update(FINGERPRINT_TAG)
        .chain_update(account.0.as_bytes())
        .chain_update(number.as_bytes())
        .finalize();
    let mut text = hex::encode(hash);
    text.truncate(FINGERPRINT_CHARS);
    text
}

/// The customer that a request names, unless they were deleted.
pub(in crate::commands) fn customer(
    draft: &Draft<'_>,
    id: Option<CustomerId>,
) -> Result<CustomerId, Rejection> {
    let found = id.and_then(|id| draft.customer(id));
    let there = found.filter(|customer| !customer.deleted);
    let found = there.map(|customer| customer.id);
    found.ok_or_else(|| draft.origin.missing("customer", id).into())
}

/// Attaches a method to a customer, or leaves it as it is if it belongs to them. Refuses a card
/// that its issuer is known to decline, and more methods than a customer may have. A refusal has
/// drafted nothing.
pub(in crate::commands) fn attach_to(
    draft: &mut Draft<'_>,
    method: PaymentMethod,
    customer: CustomerId,
) -> Result<PaymentMethod, Rejection> {
    let is_new = method.attach(customer).map_err(not_attachable)?;
    if !is_new {
        return Ok(method);
    }
    if let Some(decline) = method.test_card.early_decline() {
        return Err(declined(decline, &method)?.into());
    }
    if let Some(refusal) = refusal_of_one_more(draft, customer) {
        return Err(refusal.into());
    }
    put_attached(draft, method, customer)
}

/// What a successful payment makes of its method: a new one is attached to `keep`, or used up. That
/// can't be refused, because the money has moved: where the customer was deleted in the meantime,
/// or has no room, the method is used up too.
pub(in crate::commands) fn mark_used(
    draft: &mut Draft<'_>,
    method: PaymentMethod,
    keep: Option<CustomerId>,
) -> Result<PaymentMethod, Rejection> {
    if method.attachment != Attachment::New {
        return Ok(method);
    }
    let keep = keep.filter(|customer| refusal_of_one_more(draft, *customer).is_none());
    match keep {
        Some(customer) => put_attached(draft, method, customer),
        None => Ok(draft.put(PaymentMethod {
            attachment: Attachment::UsedUp,
            ..method
        })),
    }
}

/// Why a customer, who is locked, can't have another method: they were deleted, or have no room.
fn refusal_of_one_more(draft: &Draft<'_>, customer: CustomerId) -> Option<ApiError> {
    let found = draft.get::<Customer>(customer);
    if found.is_none_or(|customer| customer.deleted) {
        return Some(draft.origin.missing("customer", Some(customer)));
    }
    let has_room = draft.methods_of(customer) < METHODS_OF_A_CUSTOMER_MAX;
    (!has_room).then(|| {
        let message = format!(
            "A customer has at most {METHODS_OF_A_CUSTOMER_MAX} payment methods. Detach one first."
        );
        ApiError::invalid("customer", message)
    })
}

fn put_attached(
    draft: &mut Draft<'_>,
    method: PaymentMethod,
    customer: CustomerId,
) -> Result<PaymentMethod, Rejection> {
    let attached = PaymentMethod {
        attachment: Attachment::To(customer),
        ..method
    };
    draft.put_with(EventType::PaymentMethodAttached, attached)
}

/// The error of a card that is declined before anything is charged. It holds the method.
pub(in crate::commands) fn declined(
    decline: Decline,
    method: &PaymentMethod,
) -> Result<ApiError, Rejection> {
    let mut error = ApiError::of_decline(decline);
    error.about.payment_method = Some(whole(method)?);
    Ok(error)
}

/// A method that belongs to another customer is refused by its state, not by the parameter.
fn not_attachable(refusal: PaymentMethodRefusal) -> ApiError {
    let mut error = refused(refusal).with_param(None);
    if refusal == PaymentMethodRefusal::OtherCustomer {
        error.code = ErrorCode::PaymentMethodUnexpectedState;
    }
    error
}
