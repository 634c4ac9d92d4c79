//! Methods as other commands use them: found or made, attached, and used up.
//!
//! Locks are taken in one order: intent, charge, method, customer.

use sha2::{Digest, Sha256};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::commands::{Origin, replies::missing};
use crate::{
    domain::{
        charge::Card,
        customer::Customer,
        event::EventType,
        ids::{AccountId, CustomerId, PaymentMethodId},
        payment_method::{
            Attachment, METHODS_OF_A_CUSTOMER_MAX, NewPaymentMethod, PaymentMethod,
            PaymentMethodRefusal,
        },
        test_cards::Decline,
    },
    idempotency::{Failure, Rejection},
    store,
    wire::{
        error::{ApiError, ErrorCode},
        payment_methods::{GivenMethod, PaymentMethodView, refused},
    },
};

/// Set in front of what is hashed, so that this hash can't be mistaken for another use of SHA-256.
const FINGERPRINT_TAG: &[u8] = b"charge-once card v1";
/// As long as Stripe's.
const FINGERPRINT_CHARS: usize = 16;

/// The method that a request gives: an existing one, which is locked as by [`lock_to_pay`] from now
/// on, or a new one.
pub(in crate::commands) async fn take(
    origin: &Origin,
    tx: &mut PgConnection,
    given: GivenMethod,
    changes_it: bool,
) -> Result<PaymentMethod, Rejection> {
    match given {
        GivenMethod::New(new) => Ok(keep(origin, tx, &new).await?),
        GivenMethod::Existing(id) => lock_to_pay(origin, tx, id, changes_it).await,
    }
}

/// Reads and locks the method of a payment, as [`lock_held`] does, and fails while another payment
/// holds it.
pub(in crate::commands) async fn lock_to_pay(
    origin: &Origin,
    tx: &mut PgConnection,
    id: Option<PaymentMethodId>,
    changes_it: bool,
) -> Result<PaymentMethod, Rejection> {
    let method = lock_held(origin, tx, id, changes_it).await?;
    must_be_free(origin, tx, &method).await?;
    Ok(method)
}

/// Reads and locks the method of a payment that may hold it. A customer's method stays what it is,
/// unless this payment `changes_it`. So such payments share its lock, and only a detachment and
/// what else changes it wait for them. A new method pays once: its payments wait for each other.
pub(in crate::commands) async fn lock_held(
    origin: &Origin,
    tx: &mut PgConnection,
    id: Option<PaymentMethodId>,
    changes_it: bool,
) -> Result<PaymentMethod, Rejection> {
    if let Some(id) = id.filter(|_| !changes_it) {
        if let Some(attached) = store::payment_methods::share(tx, origin.account, id).await? {
            return Ok(attached);
        }
        // A row that was detached while `share` waited for it stays locked, shared with all that
        // waited too. None of them may ask for more. It ended for good, so reading it is enough.
        let found = store::payment_methods::find(tx, origin.account, id).await?;
        if let Some(ended) = found.filter(PaymentMethod::has_ended) {
            return Ok(ended);
        }
    }
    lock_named(origin, tx, id, "payment_method").await
}

/// Reads and locks the method that `param` names, and fails while a payment holds it.
pub(in crate::commands) async fn lock(
    origin: &Origin,
    tx: &mut PgConnection,
    id: Option<PaymentMethodId>,
    param: &str,
) -> Result<PaymentMethod, Rejection> {
    let method = lock_named(origin, tx, id, param).await?;
    must_be_free(origin, tx, &method).await?;
    Ok(method)
}

/// Fails while a processor is asked to charge a new method, which this transaction has locked. The
/// answer decides whether it is used up, and whose it is, so no other verb may, whichever way this
/// process runs.
pub(in crate::commands) async fn must_be_free(
    origin: &Origin,
    tx: &mut PgConnection,
    method: &PaymentMethod,
) -> Result<(), Rejection> {
    if method.may_be_held()
        && store::charges::is_pending_with(tx, origin.account, method.id).await?
    {
        let busy = "a payment with this method has no answer yet";
        return Err(Rejection::Failed(Failure::busy(busy)));
    }
    Ok(())
}

async fn lock_named(
    origin: &Origin,
    tx: &mut PgConnection,
    id: Option<PaymentMethodId>,
    param: &str,
) -> Result<PaymentMethod, Rejection> {
    let none = || missing(param, PaymentMethodId::PREFIX);
    let id = id.ok_or_else(none)?;
    let found = store::payment_methods::lock(tx, origin.account, id).await?;
    found.ok_or_else(none)
}

/// Writes a new method that belongs to no customer yet.
pub(in crate::commands) async fn keep(
    origin: &Origin,
    tx: &mut PgConnection,
    new: &NewPaymentMethod,
) -> Result<PaymentMethod, sqlx::Error> {
    let id = PaymentMethodId(Uuid::now_v7());
    let fingerprint = fingerprint(origin.account, &new.card);
    store::payment_methods::insert(tx, origin.account, id, new, &fingerprint).await
}

/// Tells an account whether two methods are the same card, and says nothing of its number to
/// others. The account's id is the key: it makes the value another one in another account. Such a
/// key is no secret, and needs to be none, because only the numbers of test cards come here.
fn fingerprint(account: AccountId, card: &Card) -> String {
    let number = card.card.number.unwrap_or_else(|| card.card.token());
    let hash = Sha256::new()
        .chain_update(FINGERPRINT_TAG)
        .chain_update(account.0.as_bytes())
        .chain_update(number.as_bytes())
        .finalize();
    let mut text = hex::encode(hash);
    text.truncate(FINGERPRINT_CHARS);
    text
}

/// The customer that `param` names, unless it was deleted. Takes no lock: what may only happen to a
/// customer who exists locks the row, as [`attach_to`] does.
pub(in crate::commands) async fn find_customer(
    tx: &mut PgConnection,
    account: AccountId,
    id: Option<CustomerId>,
    param: &str,
) -> Result<Customer, Rejection> {
    let none = || missing(param, CustomerId::PREFIX);
    let id = id.ok_or_else(none)?;
    let found = store::customers::find(tx, account, id).await?;
    found.filter(|customer| !customer.deleted).ok_or_else(none)
}

/// Attaches a method, which the caller has locked, to a customer, or leaves it as it is if it
/// belongs to them. Locks the customer, so that a deletion comes before or after. Refuses a card
/// that its issuer is known to decline, and more methods than a customer may have.
pub(in crate::commands) async fn attach_to(
    origin: &Origin,
    tx: &mut PgConnection,
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
    if let Some(refusal) = refusal_of_one_more(origin, tx, customer).await? {
        return Err(refusal.into());
    }
    let attached = PaymentMethod {
        attachment: Attachment::To(customer),
        ..method
    };
    write_attached(origin, tx, attached).await
}

/// What a successful payment makes of its method, which the caller has locked: a new one is
/// attached to `keep`, or used up. That can't be refused, because the money has moved: where the
/// customer was deleted in the meantime, or has no room, the method is used up too.
pub(in crate::commands) async fn mark_used(
    origin: &Origin,
    tx: &mut PgConnection,
    method: PaymentMethod,
    keep: Option<CustomerId>,
) -> Result<PaymentMethod, Rejection> {
    if method.attachment != Attachment::New {
        return Ok(method);
    }
    let keep = match keep {
        Some(customer) => match refusal_of_one_more(origin, tx, customer).await? {
            None => Some(customer),
            Some(_) => None,
        },
        None => None,
    };
    let used = PaymentMethod {
        attachment: method.used(keep),
        ..method
    };
    match keep {
        Some(_) => write_attached(origin, tx, used).await,
        None => Ok(store::payment_methods::update(tx, origin.account, used).await?),
    }
}

/// Why a customer can't have another method: it was deleted, or has no room. Locks the customer, so
/// that the answer stays true until the transaction ends.
async fn refusal_of_one_more(
    origin: &Origin,
    tx: &mut PgConnection,
    customer: CustomerId,
) -> Result<Option<ApiError>, sqlx::Error> {
    let found = store::customers::lock(tx, origin.account, customer).await?;
    if found.is_none_or(|customer| customer.deleted) {
        return Ok(Some(ApiError::missing("customer", CustomerId::PREFIX)));
    }
    let count = store::payment_methods::count(tx, origin.account, customer).await?;
    Ok((count >= METHODS_OF_A_CUSTOMER_MAX).then(too_many_methods))
}

async fn write_attached(
    origin: &Origin,
    tx: &mut PgConnection,
    method: PaymentMethod,
) -> Result<PaymentMethod, Rejection> {
    let method = store::payment_methods::update(tx, origin.account, method).await?;
    let view = PaymentMethodView::from(&method);
    origin
        .emit(tx, EventType::PaymentMethodAttached, &view)
        .await?;
    Ok(method)
}

/// The error of a card that is declined before anything is charged. It holds the method.
pub(in crate::commands) fn declined(
    decline: Decline,
    method: &PaymentMethod,
) -> Result<ApiError, Rejection> {
    let view = serde_json::to_string(&PaymentMethodView::from(method));
    let mut error = ApiError::of_decline(decline);
    error.about.payment_method = Some(view.map_err(Failure::internal)?);
    Ok(error)
}

/// A method that belongs to another customer is refused by its state, not by the parameter.
fn not_attachable(refusal: PaymentMethodRefusal) -> ApiError {
    let error = refused(refusal).with_param(None);
    match refusal {
        PaymentMethodRefusal::OtherCustomer => ApiError {
            code: ErrorCode::PaymentMethodUnexpectedState,
            ..error
        },
        PaymentMethodRefusal::UsedUp
        | PaymentMethodRefusal::Detached
        | PaymentMethodRefusal::CustomerMissing
        | PaymentMethodRefusal::NotAttached => error,
    }
}

fn too_many_methods() -> ApiError {
    let message = format!(
        "A customer has at most {METHODS_OF_A_CUSTOMER_MAX} payment methods. Detach one first."
    );
    ApiError::new(ErrorCode::ParameterInvalid, message).with_param("customer".to_owned())
}
