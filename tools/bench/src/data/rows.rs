//! What is written for a row of each table.

use super::{
    copy::CopyRows,
    originals::{Original, Originals, id_text},
    shape::{self, Id, ROWS_PER_ORDER, Shape, fingerprint, key, order_name, random},
};

#[derive(Debug)]
pub(crate) struct Rows {
    pub(crate) shape: Shape,
    pub(crate) originals: Originals,
}

/// Webhook endpoints: two of the large account, and one of each of ten others.
pub(crate) const ENDPOINTS: u64 = 12;

/// What waits until then does so during every measurement: the year 2100.
pub(crate) const FAR_FUTURE: u64 = 4_102_444_800_000_000;

/// Requests in flight, of several transactions each.
pub(super) fn unfinished(shape: &Shape) -> u64 {
    shape.rows / 10_000
}

/// The first half of the orders is paid, each by a charge beyond the last row.
pub(super) fn paid_orders(shape: &Shape) -> u64 {
    shape.rows / ROWS_PER_ORDER / 2
}

/// The older events have been deleted.
pub(super) fn events(shape: &Shape) -> u64 {
    shape.rows / 10
}

/// A fiftieth of the charges was partly refunded.
pub(super) fn refunded(shape: &Shape, n: u64) -> u64 {
    match n % 50 == 7 && n < shape.rows && !shape.is_declined(n) {
        true => shape.amount(n) / 2,
        false => 0,
    }
}

/// A fiftieth went to a processor across a network.
fn has_operation(shape: &Shape, n: u64) -> bool {
    n % 50 == 3 && n < shape.rows
}

const PROCESSOR: &str = "https://processor.example.com";

pub(super) fn request_id(shape: &Shape, n: u64) -> String {
    format!("req_{}", id_text(shape.id(Id::Request, n)))
}

pub(super) fn items(amount: u64) -> String {
    format!(r#"[{{"sku":"mug","description":"Two mugs","quantity":1,"unit_amount":{amount}}}]"#)
}

/// The values of charge `n` in the texts that `originals.rs` cuts, in its order.
fn values(shape: &Shape, n: u64) -> [String; 5] {
    [
        id_text(shape.id(Id::Charge, n)),
        shape.created_seconds(n).to_string(),
        shape.amount(n).to_string(),
        shape.customer(n),
        order_name(n),
    ]
}

fn original(rows: &Rows, n: u64) -> &Original {
    rows.originals.of(rows.shape.is_declined(n))
}

pub(super) fn write_key(rows: &Rows, n: u64, out: &mut CopyRows) {
    let Rows { shape, .. } = rows;
    let original = original(rows, n);
    let created = shape.created_micros(n);
    let body = shape.body(n);
    // Beyond the last row are the keys in flight, of checkouts that have not ended.
    let is_in_flight = n >= shape.rows;
    out.row(13)
        .uuid(shape.account_id(shape.account(n)))
        .text(&key(n).to_string())
        .small(original.same.fingerprint_version)
        .bytes(fingerprint(body.as_bytes()).bytes())
        .text("POST")
        .text(if is_in_flight {
            "/checkouts"
        } else {
            shape::PATH
        })
        .text(&request_id(shape, n))
        .time(created)
        .time(created + RETENTION_MICROS);
    if is_in_flight {
        let checkout = id_text(shape.id(Id::Checkout, n));
        out.null().null().null().text(&format!("co_{checkout}"));
        return;
    }
    let values = values(shape, n);
    out.small(original.status)
        .jsonb(&original.headers.fill(&values))
        .text(&original.body.fill(&values))
        .text(&format!("ch_{}", id_text(shape.id(Id::Charge, n))));
}

/// The longest retention that the program allows: a kept database can be measured for a year.
const RETENTION_MICROS: u64 = 400 * 24 * 3_600 * 1_000_000;

pub(super) fn write_charge(rows: &Rows, n: u64, out: &mut CopyRows) {
    let Rows { shape, originals } = rows;
    let order = n.checked_sub(shape.rows);
    // What paid an order was not declined.
    let original = match order {
        Some(_) => &originals.approved,
        None => original(rows, n),
    };
    let original = &original.same;
    let (amount, order_name) = (shape.amount(n), order_name(n));
    out.row(21)
        .uuid(shape.account_id(shape.account(n)))
        .uuid(shape.id(Id::Charge, n))
        .big(amount)
        .big(if original.captured { amount } else { 0 })
        .big(refunded(shape, n))
        .text("usd")
        .bool(original.captured)
        .text(&original.charge_status)
        .text(&original.card_brand)
        .text(&original.card_last4)
        .small(original.card_exp_month)
        .small(original.card_exp_year)
        .text(&shape.customer(n))
        .text(&format!("Order {order_name}"))
        .optional(original.failure_code.as_deref())
        .optional(original.decline_code.as_deref())
        .optional(original.failure_message.as_deref())
        .optional(order.map(|_| shape.id(Id::Order, n)))
        .optional(has_operation(shape, n).then_some(PROCESSOR))
        .jsonb(&format!(r#"{{"order_id":"{order_name}"}}"#))
        .time(shape.created_micros(n));
}

pub(super) fn write_order(Rows { shape, .. }: &Rows, number: u64, out: &mut CopyRows) {
    let n = shape.rows + number;
    let is_paid = number < paid_orders(shape);
    let items = items(shape.amount(n));
    out.row(12)
        .uuid(shape.account_id(shape.account(n)))
        .uuid(shape.id(Id::Order, n))
        .big(shape.amount(n))
        .text("usd")
        .text(&shape.customer(n))
        .text(&order_name(n))
        .bytes(fingerprint(items.as_bytes()).bytes())
        .jsonb(&items)
        .jsonb("{}")
        .text(if is_paid { "paid" } else { "open" })
        .optional(is_paid.then(|| shape.id(Id::Charge, n)))
        .time(shape.created_micros(n));
}

pub(super) fn write_event(rows: &Rows, number: u64, out: &mut CopyRows) {
    let Rows { shape, .. } = rows;
    let n = number * 10;
    let original = original(rows, n);
    out.row(7)
        .uuid(shape.account_id(shape.account(n)))
        .uuid(shape.id(Id::Event, n))
        .text(&original.same.event_type)
        .text(&original.event_object.fill(&values(shape, n)))
        .text(&request_id(shape, n))
        .text(&key(n).to_string())
        .time(shape.created_micros(n));
}

pub(super) fn account_of_endpoint(endpoint: u64) -> u64 {
    endpoint.saturating_sub(1)
}

/// Most deliveries have succeeded. A hundredth of the rows is pending: a part of those to the large
/// account's second endpoint, and all to three of the others.
fn is_pending(endpoint: u64, n: u64) -> bool {
    match endpoint {
        1 => random(n, 109) % 100 < 30,
        2..=4 => true,
        _ => false,
    }
}

pub(super) fn write_deliveries(Rows { shape, .. }: &Rows, number: u64, out: &mut CopyRows) {
    let n = number * 10;
    let account = shape.account(n);
    let endpoints = (0..ENDPOINTS).filter(|one| account_of_endpoint(*one) == account);
    for endpoint in endpoints {
        let created = shape.created_micros(n);
        out.row(10)
            .uuid(shape.account_id(account))
            .uuid(shape.id(Id::Delivery, n * ENDPOINTS + endpoint))
            .uuid(shape.id(Id::Endpoint, endpoint))
            .uuid(shape.id(Id::Event, n))
            // What is pending waits: a worker would look at each one that is ready.
            .bool(false);
        if is_pending(endpoint, n) {
            out.text("pending")
                .jsonb("[]")
                .time(FAR_FUTURE)
                .time(created)
                .null();
            continue;
        }
        let at = shape.created_seconds(n);
        let attempt =
            format!(r#"[{{"at":{at},"response_status":200,"error":null,"duration_ms":87}}]"#);
        out.text("succeeded")
            .jsonb(&attempt)
            .null()
            .time(created)
            .time(created + 1_000_000);
    }
}

pub(super) fn write_operation(Rows { shape, .. }: &Rows, n: u64, out: &mut CopyRows) {
    if !has_operation(shape, n) {
        return;
    }
    let is_declined = shape.is_declined(n);
    out.row(16)
        .uuid(shape.account_id(shape.account(n)))
        .uuid(shape.id(Id::Operation, n))
        .text("create_charge")
        .uuid(shape.id(Id::Charge, n))
        .big(shape.amount(n))
        .text("usd")
        .text(shape::card(is_declined))
        .bool(true)
        .text("ietf")
        .bool(false)
        .text(&request_id(shape, n))
        .text(&key(n).to_string())
        .text(PROCESSOR)
        .time(shape.created_micros(n))
        .time(shape.created_micros(n) + 200_000)
        .text(if is_declined { "declined" } else { "done" });
}
