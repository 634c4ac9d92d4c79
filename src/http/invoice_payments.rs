//! `/invoice_payments`: always empty.
//!
//! charge-once has no invoices. But the gem `pay` (pay-rails) asks for the invoice of every charge,
//! and can't be used where that is an error.

use charge_once_strict_params::pages::Listed;
use charge_once_strict_params::{
    EXPAND_MAX, Error, Field, Parameter, ParameterSet, TextKind, TextOrFields,
    schema::{object, text},
};
use serde::Serialize;
use utoipa::{
    IntoParams, PartialSchema, ToSchema,
    openapi::{ArrayBuilder, ObjectBuilder, RefOr, Schema, path::Parameter as QueryParameter},
};

use super::prelude::*;

parameters! {
    /// Which payments of invoices are listed. None is ever found.
    struct ListInvoicePaymentsQuery {
        /// Only payments of this invoice.
        invoice: Option<Reference>,
        payment: PaymentOfInvoice,
        /// Only payments with this status.
        status: Option<PaymentStatus>,
        /// Accepted, and without effect: there is nothing to expand.
        expand: ExpandsNothing,
    }
}

parameters! {
    /// What paid an invoice.
    struct PaymentOfInvoiceQuery {
        /// Only payments of this kind.
        r#type: Option<PaymentType>,
        /// Only payments by this PaymentIntent.
        payment_intent: Option<Reference>,
    }
}

struct PaymentOfInvoice;

impl Parameter for PaymentOfInvoice {
    type Value = ();

    fn read(field: &mut Field<'_, '_>) -> Result<(), Error> {
        let wrong = field.invalid("Must be written as payment[type] and payment[payment_intent].");
        let mut fields = match field.fields.text_or_object(field.name)? {
            None => return Ok(()),
            Some(TextOrFields::Text(_)) => return Err(wrong),
            Some(TextOrFields::Fields(fields)) => fields,
        };
        PaymentOfInvoiceQuery::read(&mut fields)?;
        fields.finish()
    }

    fn schema(_about: String) -> RefOr<Schema> {
        ObjectBuilder::new().into()
    }

    fn in_query(name: &str, _about: String) -> Vec<QueryParameter> {
        let mut members = PaymentOfInvoiceQuery::into_params(|| None);
        for member in &mut members {
            member.name = format!("{name}[{}]", member.name);
        }
        members
    }
}

const PAYMENT_TYPES: [&str; 2] = ["payment_intent", "payment_record"];

struct PaymentType;

impl TextKind for PaymentType {
    type Value = ();
    const MUST_BE: &'static str = "Must be payment_intent or payment_record.";

    fn parse(text: &str) -> Option<()> {
        PAYMENT_TYPES.contains(&text).then_some(())
    }

    fn schema() -> ObjectBuilder {
        text().enum_values(Some(PAYMENT_TYPES))
    }
}

const PAYMENT_STATUSES: [&str; 3] = ["canceled", "open", "paid"];

struct PaymentStatus;

impl TextKind for PaymentStatus {
    type Value = ();
    const MUST_BE: &'static str = "Must be canceled or open or paid.";

    fn parse(text: &str) -> Option<()> {
        PAYMENT_STATUSES.contains(&text).then_some(())
    }

    fn schema() -> ObjectBuilder {
        text().enum_values(Some(PAYMENT_STATUSES))
    }
}

struct ExpandsNothing;

impl Parameter for ExpandsNothing {
    type Value = ();

    fn read(field: &mut Field<'_, '_>) -> Result<(), Error> {
        let names = field
            .fields
            .texts(field.name, 0..=EXPAND_MAX, EXPANDED_MAX_CHARS);
        names.map(|_| ())
    }

    fn schema(about: String) -> RefOr<Schema> {
        let names = text().max_length(Some(EXPANDED_MAX_CHARS));
        let list = ArrayBuilder::new().items(names).max_items(Some(EXPAND_MAX));
        list.description(Some(about)).into()
    }
}

/// Longest name that may be expanded, in characters.
const EXPANDED_MAX_CHARS: usize = 100;

/// A payment of an invoice. There is no such object, so a list of them can't hold one.
#[derive(Debug, Serialize)]
enum InvoicePayment {}

impl PartialSchema for InvoicePayment {
    fn schema() -> RefOr<Schema> {
        let kind = text().description(Some("Always invoice_payment."));
        object(&["There is no such object: charge-once has no invoices."])
            .property("object", kind)
            .into()
    }
}

impl ToSchema for InvoicePayment {}

/// List payments of invoices
///
/// Always empty, because there are no invoices. It is there for pay-rails alone, which asks for the
/// invoice of every charge.
#[utoipa::path(
    get, path = "/invoice_payments", tag = "Charges", operation_id = "listInvoicePayments",
    params(PageQuery, ListInvoicePaymentsQuery),
    responses(
        (status = 200, description = "No payments.", body = List<InvoicePayment>),
        ReadErrors,
    ),
)]
pub async fn list(caller: Caller, request: HttpRequest) -> HttpResult {
    let (page, _): (PageQuery, ListInvoicePaymentsQuery) = query_params(&request)?;
    // No cursor names an object of this list.
    page.page(|_| None)?;
    let nothing = Listed {
        data: Vec::<InvoicePayment>::new(),
        has_more: false,
    };
    reads::reply(caller.dialect, "/invoice_payments", nothing)
}
