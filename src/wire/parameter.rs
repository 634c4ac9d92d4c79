//! The kinds of parameters that know money and ids, and what `expand` can name.
//!
//! `crates/strict-params` has the general kinds, and says what a kind is.

use std::marker::PhantomData;

use charge_once_strict_params::{
    Error, Field, ID_MAX_CHARS, Integer, Text, TextKind, ValueKind, expandable,
    schema::{id_pattern, text, with_example},
};
use utoipa::openapi::{ObjectBuilder, RefOr, Schema, SchemaFormat, Type};

use super::error::{ErrorCode, no_such};
use crate::domain::{
    ids::{ChargeId, CustomerId, ObjectId, OrderId, PaymentIntentId, PaymentMethodId, RequestId},
    money::{AMOUNT_MAX, Currency},
    payment_intent::{
        AllowRedirects, CancellationReason, CaptureMethod, ConfirmationMethod, FutureUsage,
        ThreeDSecure,
    },
    payment_method::AllowRedisplay,
    refund::RefundReason,
    setup_intent::SetupCancellationReason,
};

/// A reference of the client's own.
pub type Reference = Text<255>;
/// Text for people.
pub type Description = Text<1_000>;

/// What a card statement shows of a charge, by Stripe's rules: Latin letters, at least one of them,
/// and ASCII without what statements can't show. Stripe wants five characters of the whole line. It
/// puts the merchant's own name before the text of a card's charge, so a shorter text is allowed.
pub struct StatementDescriptor;

impl TextKind for StatementDescriptor {
    type Value = String;
    const MAX_CHARS: usize = 22;
    const MUST_BE: &'static str =
        "Must have a letter, only Latin letters, and none of < > \\ ' \" *.";

    fn parse(text: &str) -> Option<String> {
        let is_shown = |c: char| matches!(c, ' '..='~') && !r#"<>\'"*"#.contains(c);
        let fits = text.chars().any(is_latin_letter)
            && text.chars().all(|c| is_latin_letter(c) || is_shown(c));
        fits.then(|| text.to_owned())
    }

    fn schema() -> ObjectBuilder {
        const LETTERS: &str = r"A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f";
        const SHOWN: &str = r" !#-&(-)+-;=?-\[\]-~";
        let pattern = format!("^[{SHOWN}{LETTERS}]*[{LETTERS}][{SHOWN}{LETTERS}]*$");
        let descriptor = text()
            .max_length(Some(Self::MAX_CHARS))
            .pattern(Some(pattern));
        with_example(descriptor, "MUGS AND TEA")
    }
}

/// ASCII, Latin-1 and Latin Extended-A and -B, without their two signs of arithmetic.
fn is_latin_letter(c: char) -> bool {
    c.is_ascii_alphabetic()
        || matches!(c, '\u{c0}'..='\u{d6}' | '\u{d8}'..='\u{f6}' | '\u{f8}'..='\u{24f}')
}

/// Says why a flag can't be `true` here.
pub trait NeverTrue {
    /// The message of the refusal.
    const WHY: &'static str;
}

/// A flag of Stripe's that may be given, but only as `false`.
pub struct OnlyFalse<N>(PhantomData<N>);

impl<N: NeverTrue> ValueKind for OnlyFalse<N> {
    type Value = ();
    const EMPTY_IS_NONE: bool = false;

    fn read(field: &mut Field<'_, '_>) -> Result<Option<()>, Error> {
        match field.fields.boolean(field.name)? {
            Some(true) => Err(field.invalid(N::WHY)),
            given => Ok(given.map(|_| ())),
        }
    }

    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::Boolean)
            .enum_values(Some([false]))
            .into()
    }
}

/// An amount in minor units, from `LEAST` to [`AMOUNT_MAX`].
pub struct Amount<const LEAST: i64 = 1>;

impl<const LEAST: i64> ValueKind for Amount<LEAST> {
    type Value = i64;
    const EMPTY_IS_NONE: bool = false;

    fn read(field: &mut Field<'_, '_>) -> Result<Option<i64>, Error> {
        match field.fields.number(field.name) {
            None => Ok(None),
            Some(Some(amount)) if amount > AMOUNT_MAX => {
                let param = field.fields.param(field.name);
                Err(ErrorCode::AmountTooLarge.as_refusal_of(param))
            }
            Some(Some(amount)) if amount >= LEAST => Ok(Some(amount)),
            Some(_) => Err(field.invalid(format!(
                "Must be an integer from {LEAST} to {AMOUNT_MAX}, in minor units."
            ))),
        }
    }

    fn schema() -> RefOr<Schema> {
        <Integer<LEAST, AMOUNT_MAX> as ValueKind>::schema()
    }
}

impl TextKind for Currency {
    type Value = Self;
    const MUST_BE: &'static str = "Must be the ISO 4217 code of a currency in use, such as usd.";

    fn parse(text: &str) -> Option<Self> {
        Self::parse(text)
    }

    fn schema() -> ObjectBuilder {
        let code = text()
            .format(Some(SchemaFormat::Custom("iso-4217".to_owned())))
            .pattern(Some("^[A-Za-z]{3}$"))
            .description(Some("The ISO 4217 code of a currency in use, in any case."));
        with_example(code, "usd")
    }
}

/// What requests below `/v1` are granted: an id that can't be one names an object that is not
/// there, in Stripe's words. Elsewhere, only [`IdOf`] takes it.
pub const STRIPES_WORDS: &str = "stripes_words";

/// Text that names an object by its id. Below `/v1`, such text that `is_no_id` is refused.
pub fn id_text<Id: ObjectId>(
    field: &mut Field<'_, '_>,
    is_no_id: impl FnOnce(&str) -> bool,
) -> Result<Option<String>, Error> {
    let text = field.fields.text(field.name, ID_MAX_CHARS)?;
    if field.fields.is_granted(STRIPES_WORDS)
        && let Some(text) = text.as_deref().filter(|text| is_no_id(text))
    {
        let param = field.fields.param(field.name);
        return Err(ErrorCode::ResourceMissing.as_refusal(param, &no_such::<Id>(text)));
    }
    Ok(text)
}

/// Makes parameters of ids: `ids!(empty is none: true; CustomerId)` makes `CustomerId` a
/// [`ValueKind`], which an empty value leaves out.
macro_rules! ids {
    (empty is none: $empty_is_none:literal; $($id:ident),+) => {$(
        impl ValueKind for $id {
            type Value = Self;
            const EMPTY_IS_NONE: bool = $empty_is_none;

            fn read(field: &mut Field<'_, '_>) -> Result<Option<Self>, Error> {
                match <IdOf<Self> as ValueKind>::read(field)? {
                    Some(None) => Err(field.invalid("Must be the id of an object of that kind.")),
                    read => Ok(read.flatten()),
                }
            }

            fn schema() -> RefOr<Schema> {
                text().pattern(Some(id_pattern(Self::PREFIX))).into()
            }
        }
    )+};
}

ids!(empty is none: true; CustomerId, RequestId);
// What is charged or refunded.
ids!(empty is none: false; ChargeId, OrderId, PaymentIntentId, PaymentMethodId);

/// Text that names an object. A command gets `None` for text that can't be such an id, and answers
/// as it does for an object that is not there.
pub struct IdOf<T>(PhantomData<T>);

impl<T: ValueKind<Value = T> + ObjectId> ValueKind for IdOf<T> {
    type Value = Option<T>;
    const EMPTY_IS_NONE: bool = T::EMPTY_IS_NONE;

    fn read(field: &mut Field<'_, '_>) -> Result<Option<Option<T>>, Error> {
        let text = id_text::<T>(field, |text| T::parse(text).is_none())?;
        Ok(text.map(|text| T::parse(&text)))
    }

    fn schema() -> RefOr<Schema> {
        <T as ValueKind>::schema()
    }
}

/// Makes parameters of enums of the domain, which are written by their names:
/// `enums!(empty is none: false; CaptureMethod)` makes `CaptureMethod` a [`ValueKind`], which may
/// not be empty.
macro_rules! enums {
    (empty is none: $empty_is_none:literal; $($name:ident),+) => {$(
        impl ValueKind for $name {
            type Value = Self;
            const EMPTY_IS_NONE: bool = $empty_is_none;

            fn read(field: &mut Field<'_, '_>) -> Result<Option<Self>, Error> {
                let Some(text) = field.fields.text(field.name, usize::MAX)? else {
                    return Ok(None);
                };
                let known = Self::parse(&text).map(Some);
                known.ok_or_else(|| {
                    let names: Vec<_> = Self::ALL.iter().map(|one| one.as_str()).collect();
                    field.invalid(format!("Must be one of {}.", names.join(", ")))
                })
            }

            fn schema() -> RefOr<Schema> {
                let names: Vec<_> = Self::ALL.iter().map(|one| one.as_str()).collect();
                text().pattern(Some(format!("^({})$", names.join("|")))).into()
            }
        }
    )+};
}

enums!(
    empty is none: true;
    AllowRedirects,
    AllowRedisplay,
    CancellationReason,
    ConfirmationMethod,
    FutureUsage,
    RefundReason,
    SetupCancellationReason,
    ThreeDSecure
);
// When money is taken.
enums!(empty is none: false; CaptureMethod);

// Stripe's names. Most are of what is not here: the member stays null or missing.
expandable! {
    pub ExpandCharge, ExpandCharges = [
        "application", "application_fee", "balance_transaction", "customer", "customer.default_source",
        "customer.sources", "dispute", "failure_balance_transaction", "invoice", "on_behalf_of",
        "payment_intent", "payment_intent.payment_method", "refunds",
        "refunds.data.balance_transaction", "review", "source_transfer", "transfer",
        "transfer_data.destination"
    ]: "Shows this member of the charge whole, if it is here.";
    pub ExpandNewCharge, ExpandNewCharges = [
        "application", "application_fee", "balance_transaction", "dispute",
        "failure_balance_transaction", "invoice", "on_behalf_of", "payment_intent", "refunds",
        "refunds.data.balance_transaction", "review", "source_transfer", "transfer",
        "transfer_data.destination"
    ]: "Shows this member of a new charge whole, if it is here. Its customer is your own reference, and it has no \
        intent.";
    pub ExpandRefund, ExpandRefunds = [
        "balance_transaction", "charge", "charge.balance_transaction", "failure_balance_transaction",
        "payment_intent", "source_transfer_reversal", "transfer_reversal"
    ]: "Shows this member of the refund whole, if it is here.";
    pub ExpandOrder, ExpandOrders = ["charge"]: "Shows this member of the order whole.";
    pub ExpandCustomer, ExpandCustomers = [
        "cash_balance", "default_source", "discount.promotion_code", "invoice_credit_balance",
        "invoice_settings.default_payment_method", "sources", "sources.data", "subscriptions",
        "subscriptions.data", "tax", "tax_ids", "tax_ids.data", "test_clock"
    ]: "Shows this member of the customer whole, if it is here.";
    pub ExpandPaymentMethod, ExpandPaymentMethods = [
        "customer", "customer.default_source", "customer.sources"
    ]: "Shows this member of the payment method whole, if it is here.";
    pub ExpandPaymentIntent, ExpandPaymentIntents = [
        "application", "charges", "charges.data", "charges.data.balance_transaction",
        "charges.data.refunds", "customer", "customer.default_source", "customer.sources", "invoice",
        "latest_charge", "latest_charge.application_fee", "latest_charge.balance_transaction",
        "latest_charge.payment_intent", "latest_charge.refunds",
        "latest_charge.refunds.data.balance_transaction", "latest_charge.transfer", "on_behalf_of",
        "payment_method", "review", "source", "transfer_data.destination"
    ]: "Shows this member of the payment intent whole, if it is here.";
    pub ExpandSetupIntent, ExpandSetupIntents = [
        "application", "customer", "customer.default_source", "customer.sources", "latest_attempt",
        "mandate", "on_behalf_of", "payment_method", "single_use_mandate"
    ]: "Shows this member of the setup intent whole, if it is here.";
}
