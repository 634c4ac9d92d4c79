//! Each member of an entity is a column of its table, and each column is one of its members.

use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};

use super::stored::StoredLedger;
use crate::domain::{
    charge::Charge, checkout::Checkout, customer::Customer, inventory::Inventory,
    operation::Operation, order::Order, payment_intent::PaymentIntent,
    payment_method::PaymentMethod, refund::Refund, setup_intent::SetupIntent,
};

/// Values of columns that don't take any text, or any JSON.
fn value(column: &str, kind: &str) -> Value {
    let address = json!({
        "city": "Ulm", "country": "DE", "line1": "1", "line2": "2", "postal_code": "89073",
        "state": "BW",
    });
    match (column, kind) {
        ("currency", _) => json!("eur"),
        ("status" | "status_before", _) => json!("succeeded"),
        ("card_token", _) => json!("tok_visa"),
        ("allow_redisplay", _) => json!("always"),
        ("automatic_payment_methods", _) => json!("never"),
        ("cancellation_reason", _) => json!("abandoned"),
        ("capture_method" | "confirmation_method", _) => json!("manual"),
        ("request_three_d_secure", _) => json!("challenge"),
        ("setup_future_usage" | "usage", _) => json!("off_session"),
        ("reason", _) => json!("duplicate"),
        ("dialect", _) => json!("stripe"),
        ("content_hash", _) => json!("\\x0badcafe"),
        ("items", _) => json!([
            { "amount": 6, "description": "a mug", "quantity": 2, "sku": "mug", "unit_amount": 3 },
        ]),
        // Each table has its own: a test gives it.
        ("details", _) => Value::Null,
        ("metadata", _) => json!({ "a": "1" }),
        ("address", _) => address,
        ("shipping", _) => json!({
            "address": address, "carrier": "a", "name": "b", "phone": "c", "tracking_number": "d",
        }),
        ("billing_details", _) => {
            json!({ "address": address, "email": "a", "name": "b", "phone": "c" })
        }
        (_, "uuid") => json!("01890a5d-ac96-774b-bcce-b302099a8057"),
        (_, "int2" | "int4" | "int8") => json!(7),
        (_, "bool") => json!(true),
        (_, "timestamptz") => json!("2026-11-28T12:00:00Z"),
        (_, "_text") => json!(["de"]),
        (_, "json") => json!({ "code": "card_declined" }),
        (_, "text") => json!(column),
        (_, other) => {
            assert_eq!(other, "one of the above", "{column}");
            Value::Null
        }
    }
}

/// A row of which every column has a value, with these among them.
fn row_of(ledger: &mut StoredLedger, table: &str, values: &[(&str, Value)]) -> Map<String, Value> {
    let columns = ledger.columns(table);
    let all = columns
        .iter()
        .map(|(name, kind)| (&**name, value(name, kind)));
    let all = all.chain(values.iter().cloned());
    all.map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Reads a row of which every column has a value, writes it, and compares. `apart` are columns that
/// the entity doesn't have.
fn compare<N: Serialize + DeserializeOwned>(
    ledger: &mut StoredLedger,
    table: &str,
    values: &[(&str, Value)],
    apart: &[&str],
) {
    let mut row = row_of(ledger, table, values);
    let entity: N = serde_json::from_value(row.clone().into()).unwrap();
    let mut written = serde_json::to_value(&entity).unwrap();
    let written = written.as_object_mut().unwrap();
    for (name, value) in written.iter_mut() {
        // What has happened is written as PostgreSQL's time.
        if *value == "now" {
            *value = row[name].clone();
        }
    }
    row.retain(|name, _| !apart.contains(&&**name));
    assert_eq!(Value::from(row), Value::from(written.clone()), "{table}");
}

#[test]
fn every_column_is_a_member_and_every_member_a_column() {
    let mut ledger = StoredLedger::start();
    let ledger = &mut ledger;
    compare::<Charge>(ledger, "charges", &[], &["account_id"]);
    let unpaid = ("status", json!("pending"));
    compare::<Refund>(ledger, "refunds", &[unpaid], &["account_id"]);
    let open = ("status", json!("open"));
    compare::<Order>(ledger, "orders", &[open], &["account_id", "canceled_at"]);
    // Its steps are a table of their own.
    let values = [("status", json!("in_progress")), ("steps", json!([]))];
    compare::<Checkout>(ledger, "checkouts", &values, &["account_id", "steps"]);
    let (details, older) = details_of(&CUSTOMER_DETAILS);
    compare::<Customer>(ledger, "customers", &[details], &older);
    compare::<Inventory>(ledger, "inventory", &[], &["account_id"]);
    compare::<SetupIntent>(ledger, "setup_intents", &[], &["account_id"]);
    let (details, mut apart) = details_of(&INTENT_DETAILS);
    let values = [("before_operation", Value::Null), details];
    // A release is what a cancellation of promised money is.
    apart.extend(["before_operation", "released"]);
    compare::<PaymentIntent>(ledger, "payment_intents", &values, &apart);
    // It has one fate.
    for (customer, used, detached) in [
        (true, false, false),
        (false, true, false),
        (false, false, true),
    ] {
        let at = |has: bool, kind: &str| if has { value("", kind) } else { Value::Null };
        let fate = [
            ("customer_id", at(customer, "uuid")),
            ("used_up_at", at(used, "timestamptz")),
            ("detached_at", at(detached, "timestamptz")),
        ];
        compare::<PaymentMethod>(ledger, "payment_methods", &fate, &["account_id"]);
    }
}

/// The members of `details`, each with the type of the column that a row without `details` has.
const CUSTOMER_DETAILS: [(&str, &str); 6] = [
    ("address", "jsonb"),
    ("description", "text"),
    ("name", "text"),
    ("phone", "text"),
    ("preferred_locales", "_text"),
    ("shipping", "jsonb"),
];
const INTENT_DETAILS: [(&str, &str); 4] = [
    ("description", "text"),
    ("receipt_email", "text"),
    ("shipping", "jsonb"),
    ("statement_descriptor_suffix", "text"),
];

/// The column of these members, and what the entity doesn't have of its row then.
fn details_of(members: &[(&'static str, &str)]) -> ((&'static str, Value), Vec<&'static str>) {
    let member = |(name, kind): &(&str, &str)| ((*name).to_owned(), value(name, kind));
    let details = members.iter().map(member).collect();
    let apart = members.iter().map(|(name, _)| *name).chain(["account_id"]);
    (("details", details), apart.collect())
}

#[test]
fn a_row_whose_details_are_columns_has_the_same_details() {
    let mut ledger = StoredLedger::start();
    let unasked = ("before_operation", Value::Null);
    let mut details_in = |table: &str, details: Value| {
        let row = row_of(&mut ledger, table, &[("details", details), unasked.clone()]);
        if table == "customers" {
            let customer: Customer = serde_json::from_value(row.into()).unwrap();
            return serde_json::to_value(&customer.details).unwrap();
        }
        let intent: PaymentIntent = serde_json::from_value(row.into()).unwrap();
        serde_json::to_value(&intent.terms.details).unwrap()
    };
    for (table, members) in [
        ("customers", &CUSTOMER_DETAILS[..]),
        ("payment_intents", &INTENT_DETAILS),
    ] {
        let ((_, details), _) = details_of(members);
        assert_eq!(details_in(table, Value::Null), details, "{table}");
        // What is given up there does not come back from a column.
        let name = members[1].0;
        let mut less = details.clone();
        less[name] = Value::Null;
        assert_eq!(details_in(table, less.clone()), less, "{table}");
    }
}

/// A charge that lost its intent could be captured and refunded by itself.
#[test]
fn a_charge_of_an_intent_whose_row_cannot_be_read_is_no_charge_without_one() {
    let mut ledger = StoredLedger::start();
    let unknown = ("billing_details", json!({ "email": "ann@example.com" }));
    let row = row_of(&mut ledger, "charges", &[unknown]);
    assert!(serde_json::from_value::<Charge>(row.into()).is_err());
    let none = ["payment_intent_id", "payment_method_id", "billing_details"];
    let none = none.map(|column| (column, Value::Null));
    let row = row_of(&mut ledger, "charges", &none);
    let charge: Charge = serde_json::from_value(row.into()).unwrap();
    assert_eq!(charge.by_intent, None);
}

/// Release 0.2 stored whether a reply shows more, and each verb had one reference to show.
#[test]
fn an_operation_of_the_release_before_shows_what_its_verb_showed() {
    let mut ledger = StoredLedger::start();
    for (verb, expand, paths, shown) in [
        ("capture_charge", true, Value::Null, &["refunds"][..]),
        ("capture_charge", false, Value::Null, &[]),
        ("capture_charge", true, json!(["customer"]), &["customer"]),
    ] {
        let none = Value::Null;
        let values = [
            ("verb", json!(verb)),
            ("expand", json!(expand)),
            ("expand_paths", paths),
            ("refund_id", none.clone()),
            ("order_id", none.clone()),
            ("checkout_id", none.clone()),
            ("payment_intent_id", none.clone()),
            ("card_token", none),
        ];
        let row = row_of(&mut ledger, "operations", &values);
        let operation: Operation = serde_json::from_value(row.into()).unwrap();
        assert_eq!(operation.asked.expand.0, shown);
    }
    let verb = ("verb", json!("capture_charge"));
    let none = row_of(&mut ledger, "operations", &[verb]);
    let error = serde_json::from_value::<Operation>(none.into()).unwrap_err();
    let error = error.to_string();
    assert!(error.contains("no verb of this release asks so"), "{error}");
}
