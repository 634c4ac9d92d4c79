//! The tables that are filled, with their columns.

use super::{
    copy::CopyRows,
    rows::{
        ENDPOINTS, FAR_FUTURE, Rows, account_of_endpoint, events, items, paid_orders, refunded,
        request_id, unfinished, write_charge, write_deliveries, write_event, write_key,
        write_operation, write_order,
    },
    shape::{Id, ROWS_PER_ORDER, Shape, key, random},
};

pub(crate) struct FilledTable {
    pub(crate) name: &'static str,
    pub(crate) columns: &'static str,
    /// How many numbers `write` is called with.
    pub(crate) numbers: fn(&Shape) -> u64,
    /// Writes the rows of a number: one, several or none.
    pub(crate) write: fn(&Rows, u64, &mut CopyRows),
}

pub(crate) static TABLES: [FilledTable; 11] = [
    FilledTable {
        name: "idempotency_keys",
        columns: "account_id, key, fingerprint_version, fingerprint, method, path, request_id, \
                  created_at, expires_at, status, headers, body, resource_id",
        numbers: |shape| shape.rows + unfinished(shape),
        write: write_key,
    },
    FilledTable {
        name: "idempotency_leases",
        columns: "account_id, key, kind, operation, token, leased_until, recover_after",
        numbers: unfinished,
        write: |Rows { shape, .. }, number, out| {
            let n = shape.rows + number;
            out.row(7)
                .uuid(shape.account_id(shape.account(n)))
                .text(&key(n).to_string())
                .text("checkout")
                .uuid(shape.id(Id::Checkout, n))
                .uuid(key(n + shape.rows))
                .time(FAR_FUTURE)
                .time(FAR_FUTURE);
        },
    },
    FilledTable {
        name: "charges",
        columns: "account_id, id, amount, amount_captured, amount_refunded, currency, captured, \
                  status, card_brand, card_last4, card_exp_month, card_exp_year, customer, \
                  description, failure_code, decline_code, failure_message, order_id, processor, \
                  metadata, created_at",
        numbers: |shape| shape.rows + paid_orders(shape),
        write: write_charge,
    },
    FilledTable {
        name: "orders",
        columns: "account_id, id, amount, currency, customer, client_order_id, content_hash, items, \
                  metadata, status, charge_id, created_at",
        numbers: |shape| shape.rows / ROWS_PER_ORDER,
        write: write_order,
    },
    FilledTable {
        name: "refunds",
        columns: "account_id, id, charge_id, amount, currency, status, metadata, created_at",
        numbers: |shape| shape.rows,
        write: |Rows { shape, .. }, n, out| {
            let refunded = refunded(shape, n);
            if refunded > 0 {
                out.row(8)
                    .uuid(shape.account_id(shape.account(n)))
                    .uuid(shape.id(Id::Refund, n))
                    .uuid(shape.id(Id::Charge, n))
                    .big(refunded)
                    .text("usd")
                    .text("succeeded")
                    .jsonb("{}")
                    .time(shape.created_micros(n) + 3_600_000_000);
            }
        },
    },
    FilledTable {
        name: "events",
        columns: "account_id, id, type, object, request_id, idempotency_key, created_at",
        numbers: events,
        write: write_event,
    },
    FilledTable {
        name: "webhook_endpoints",
        columns: "account_id, id, url, enabled_events, metadata, secret, created_at",
        numbers: |_| ENDPOINTS,
        write: |Rows { shape, .. }, endpoint, out| {
            out.row(7)
                .uuid(shape.account_id(account_of_endpoint(endpoint)))
                .uuid(shape.id(Id::Endpoint, endpoint))
                .text("http://127.0.0.1:9/")
                // Charges that are made while something is measured wake no endpoint.
                .texts(&["charge.refunded"])
                .jsonb("{}")
                .text(&format!("whsec_{:032x}", random(endpoint, 110)))
                .time(shape.created_micros(0));
        },
    },
    FilledTable {
        name: "webhook_deliveries",
        columns: "account_id, id, endpoint_id, event_id, ready, status, attempts, next_attempt_at, \
                  created_at, delivered_at",
        numbers: events,
        write: write_deliveries,
    },
    FilledTable {
        name: "checkouts",
        columns: "account_id, id, amount, currency, items, metadata, card_token, card_exp_month, \
                  card_exp_year, dialect, request_id, idempotency_key, created_at",
        numbers: unfinished,
        write: |Rows { shape, .. }, number, out| {
            let n = shape.rows + number;
            out.row(13)
                .uuid(shape.account_id(shape.account(n)))
                .uuid(shape.id(Id::Checkout, n))
                .big(shape.amount(n))
                .text("usd")
                .jsonb(&items(shape.amount(n)))
                .jsonb("{}")
                .text("tok_visa")
                .small(12)
                .small(2099)
                .text("ietf")
                .text(&request_id(shape, n))
                .text(&key(n).to_string())
                .time(shape.created_micros(n));
        },
    },
    FilledTable {
        name: "checkout_steps",
        columns: "account_id, checkout_id, position, name, state, attempts",
        numbers: unfinished,
        write: |Rows { shape, .. }, number, out| {
            let n = shape.rows + number;
            let steps = [
                (1, "create_order"),
                (2, "create_charge"),
                (3, "allocate_inventory"),
            ];
            for (position, name) in steps {
                out.row(6)
                    .uuid(shape.account_id(shape.account(n)))
                    .uuid(shape.id(Id::Checkout, n))
                    .small(position)
                    .text(name)
                    .text("pending")
                    .int(i32::from(position == 1));
            }
        },
    },
    FilledTable {
        name: "operations",
        columns: "account_id, id, verb, charge_id, amount, currency, card_token, capture, dialect, \
                  expand, request_id, idempotency_key, processor, created_at, completed_at, outcome",
        numbers: |shape| shape.rows,
        write: write_operation,
    },
];
