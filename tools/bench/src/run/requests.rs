//! The requests of each kind of work, and the replies that they should have.

use std::sync::atomic::{AtomicU64, Ordering};

use hyper::Method;
use sqlx::PgConnection;
use uuid::Uuid;

use super::cases::{REPLAYED, STORED, Work};
use crate::{
    data::{Shape, api_key, id_text, random},
    load::Call,
};

/// One account sends everything: the cost of looking up API keys is not what is measured.
const ACCOUNT: u64 = 0;

/// Charges that are refunded, a cent at a time. Each can take a hundred refunds, and gets a few.
const REFUNDABLE: i64 = 20_000;

/// Charges that are captured, each once: more than all rounds capture.
const PROMISED: u64 = 400_000;

/// Customers, each with one method.
const CUSTOMERS: u64 = 1_000;

const ORDER: &str = r#"{"currency":"usd","items":[{"quantity":1,"unit_amount":2000}]}"#;

/// A payment that is confirmed at once. Its card is a template, of which the service makes a
/// payment method, as it does of a card that a customer has just typed in.
const PAYMENT: &str = r#"{"amount":2000,"confirm":true,"currency":"usd","payment_method":"pm_card_visa","payment_method_types":["card"]}"#;

/// A charge of nothing. A command decides that, so the refusal is stored.
const INVALID: &str = r#"{"amount":0,"currency":"usd","source":"tok_visa"}"#;

const CUSTOMER_BODY: &str = r#"{"email":"jenny@example.com","name":"Jenny Rosen"}"#;

/// Kinds of prepared rows, as they are in their ids.
const CUSTOMER: u64 = 1;
const METHOD: u64 = 2;
const PROMISED_CHARGE: u64 = 3;
const LARGE_CHARGE: u64 = 4;

fn prepared_id(kind: u64, n: u64) -> Uuid {
    Uuid::from_u64_pair(
        0x0190_0000_0000_7000,
        0x8000_0000_0000_0000 | (kind << 32) | n,
    )
}

fn prepared(prefix: &str, kind: u64, n: u64) -> String {
    format!("{prefix}_{}", id_text(prepared_id(kind, n)))
}

/// Writes the rows that requests name and that no other work here makes: customers with a method
/// each, charges to be captured, and one that all give back.
pub(super) async fn prepare(shape: &Shape, connection: &mut PgConnection) -> anyhow::Result<()> {
    let ids = |kind, count| (0..count).map(|n| prepared_id(kind, n)).collect::<Vec<_>>();
    let account = account_id(shape);
    let customers = "INSERT INTO customers (account_id, id, metadata, preferred_locales)
                     SELECT $1, id, '{}', '{}' FROM UNNEST($2::uuid[]) AS id";
    let methods = "INSERT INTO payment_methods
                          (account_id, id, customer_id, card_token, card_brand, card_last4,
                           card_exp_month, card_exp_year, card_fingerprint, card_has_cvc,
                           allow_redisplay, billing_details, metadata)
                   SELECT $1, id, customer, 'tok_visa', 'visa', '4242', 12, 2099, '', true,
                          'unspecified', '{\"address\": {}}', '{}'
                     FROM UNNEST($2::uuid[], $3::uuid[]) AS new (id, customer)";
    let charges = "INSERT INTO charges
                          (account_id, id, amount, amount_captured, currency, captured, status,
                           card_brand, card_last4, card_exp_month, card_exp_year, metadata)
                   SELECT $1, id, $3, CASE WHEN $4 THEN $3 ELSE 0 END, 'usd', $4, 'succeeded',
                          'visa', '4242', 12, 2099, '{}'
                     FROM UNNEST($2::uuid[]) AS id";
    let of_customers = ids(CUSTOMER, CUSTOMERS);
    sqlx::query(customers)
        .bind(account)
        .bind(&of_customers)
        .execute(&mut *connection)
        .await?;
    sqlx::query(methods)
        .bind(account)
        .bind(ids(METHOD, CUSTOMERS))
        .bind(&of_customers)
        .execute(&mut *connection)
        .await?;
    for (kind, count, amount, is_captured) in [
        (PROMISED_CHARGE, PROMISED, 2_000_i64, false),
        (LARGE_CHARGE, 1, 99_999_999, true),
    ] {
        sqlx::query(charges)
            .bind(account)
            .bind(ids(kind, count))
            .bind(amount)
            .bind(is_captured)
            .execute(&mut *connection)
            .await?;
    }
    Ok(())
}

#[derive(Debug)]
pub(super) struct Material {
    pub(super) shape: Shape,
    pub(super) refundable: Vec<String>,
    captured: AtomicU64,
}

impl Material {
    /// Reads what is stored: approved charges of the processor that every server but one knows.
    pub(super) async fn read(shape: Shape, connection: &mut PgConnection) -> anyhow::Result<Self> {
        let ids: Vec<Uuid> = sqlx::query_scalar(
            "SELECT id FROM charges
              WHERE account_id = $1 AND captured AND amount_refunded = 0 AND processor IS NULL
              ORDER BY id LIMIT $2",
        )
        .bind(account_id(&shape))
        .bind(REFUNDABLE)
        .fetch_all(connection)
        .await?;
        anyhow::ensure!(!ids.is_empty(), "the service stored no charge");
        let refundable = ids.into_iter().map(|id| format!("ch_{}", id_text(id)));
        Ok(Self {
            shape,
            refundable: refundable.collect(),
            captured: AtomicU64::new(0),
        })
    }
}

pub(super) fn account_id(shape: &Shape) -> Uuid {
    shape.account_id(ACCOUNT)
}

/// Makes the request with a number. `None` for work that is more than such requests.
pub(super) fn requests(work: Work) -> Option<fn(&Material, u64) -> Call> {
    match work {
        Work::Alive => Some(|_, _| Call::get("/livez".to_owned(), String::new())),
        Work::Create => Some(create),
        Work::Pay => Some(|_, _| post("/payment_intents", PAYMENT.to_owned(), 201)),
        Work::PaySaved => Some(|_, number| {
            let n = random(number, 3_004) % CUSTOMERS;
            let (customer, method) = (prepared("cus", CUSTOMER, n), prepared("pm", METHOD, n));
            let body = format!(
                r#"{{"amount":2000,"confirm":true,"currency":"usd","customer":"{customer}","payment_method":"{method}","payment_method_types":["card"]}}"#
            );
            post("/payment_intents", body, 201)
        }),
        Work::Order => Some(|_, _| post("/orders", ORDER.to_owned(), 201)),
        Work::Refund => Some(refund),
        Work::RefundOne => Some(|_, _| refund_of(&prepared("ch", LARGE_CHARGE, 0))),
        Work::Capture => Some(|material, _| {
            let n = material.captured.fetch_add(1, Ordering::Relaxed);
            let charge = prepared("ch", PROMISED_CHARGE, n);
            post(&format!("/charges/{charge}/capture"), "{}".to_owned(), 200)
        }),
        Work::Customer => Some(|_, _| post("/customers", CUSTOMER_BODY.to_owned(), 201)),
        Work::Declined => Some(|material, number| {
            let row = (number..).find(|n| material.shape.is_declined(*n));
            charge(&material.shape, row.unwrap_or(number))
        }),
        Work::Refused => Some(|_, _| post("/charges", INVALID.to_owned(), 400)),
        Work::ReplayOne => Some(|material, _| replay(&material.shape, material.shape.approved(0))),
        Work::ReplayMany => {
            Some(|material, number| replay(&material.shape, random(number, 3_000) % REPLAYED))
        }
        Work::ReplayAll => {
            Some(|material, number| replay(&material.shape, random(number, 3_001) % STORED))
        }
        Work::Mixed => Some(mixed),
        Work::InFlight | Work::Classic | Work::Bare => None,
    }
}

/// The request that stores row `n`, which replays repeat.
pub(super) fn first_use(shape: &Shape, n: u64) -> Call {
    Call {
        is_replay: false,
        ..replay(shape, n)
    }
}

pub(super) fn replay(shape: &Shape, n: u64) -> Call {
    with_api_key(shape.replay(n))
}

/// A request with a key of its own.
pub(super) fn post(path: &str, body: String, status: u16) -> Call {
    Call {
        method: Method::POST,
        path: path.to_owned(),
        api_key: api_key(ACCOUNT),
        idempotency_key: Some(Uuid::new_v4().to_string()),
        body: body.into_bytes(),
        status,
        is_replay: false,
    }
}

fn create(material: &Material, number: u64) -> Call {
    charge(&material.shape, material.shape.approved(number))
}

fn refund(material: &Material, number: u64) -> Call {
    let place = random(number, 3_002) % (material.refundable.len() as u64).max(1);
    let charge = usize::try_from(place).ok();
    let charge = charge.and_then(|place| material.refundable.get(place));
    refund_of(charge.map_or("", String::as_str))
}

fn refund_of(charge: &str) -> Call {
    let body = format!(r#"{{"amount":1,"charge":"{charge}"}}"#);
    post("/refunds", body, 201)
}

/// Of ten requests, seven are new charges, two are replays and one is a list.
fn mixed(material: &Material, number: u64) -> Call {
    match number % 10 {
        0..=6 => create(material, number),
        7 | 8 => replay(&material.shape, random(number, 3_003) % REPLAYED),
        _ => Call::get("/charges?limit=10".to_owned(), api_key(ACCOUNT)),
    }
}

/// A request like that of row `n`, with a key of its own.
fn charge(shape: &Shape, n: u64) -> Call {
    with_api_key(shape.create(n, Uuid::new_v4().to_string()))
}

fn with_api_key(call: Call) -> Call {
    Call {
        api_key: api_key(ACCOUNT),
        ..call
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use anyhow::Context;

    use super::*;

    fn material() -> Material {
        Material {
            shape: Shape {
                rows: STORED,
                until_micros: 1_795_000_000_000_000,
            },
            refundable: vec!["ch_1".to_owned(), "ch_2".to_owned()],
            captured: AtomicU64::new(0),
        }
    }

    fn calls(work: Work, count: u64) -> anyhow::Result<Vec<Call>> {
        let (request, material) = (requests(work).context("requests")?, material());
        Ok((0..count).map(|n| request(&material, n)).collect())
    }

    #[test]
    fn a_replay_repeats_a_request_that_was_made() -> anyhow::Result<()> {
        let shape = material().shape;
        let made = (0..STORED).map(|n| first_use(&shape, n));
        let made: HashMap<_, _> = made.map(|call| (call.idempotency_key, call.body)).collect();
        assert_eq!(made.len() as u64, STORED);
        for work in [Work::ReplayOne, Work::ReplayMany, Work::ReplayAll] {
            for call in calls(work, 1_000)? {
                assert!(call.is_replay);
                assert_eq!(made.get(&call.idempotency_key), Some(&call.body));
            }
        }
        Ok(())
    }

    #[test]
    fn new_requests_have_keys_of_their_own_and_the_status_that_fits() -> anyhow::Result<()> {
        let mut keys = HashSet::new();
        for (work, status) in [
            (Work::Create, 201),
            (Work::Pay, 201),
            (Work::Order, 201),
            (Work::Refund, 201),
            (Work::RefundOne, 201),
            (Work::Capture, 200),
            (Work::Customer, 201),
            (Work::PaySaved, 201),
            (Work::Declined, 402),
            (Work::Refused, 400),
        ] {
            for call in calls(work, 100)? {
                assert_eq!((call.status, call.is_replay), (status, false), "{work:?}");
                assert!(keys.insert(call.idempotency_key), "{work:?}");
                serde_json::from_slice::<serde_json::Value>(&call.body)?;
            }
        }
        Ok(())
    }

    #[test]
    fn mixed_work_has_its_shares() -> anyhow::Result<()> {
        let calls = calls(Work::Mixed, 1_000)?;
        let count = |is: fn(&Call) -> bool| calls.iter().filter(|call| is(call)).count();
        assert_eq!(count(|call| call.is_replay), 200);
        assert_eq!(count(|call| call.method == Method::GET), 100);
        assert_eq!(count(|call| call.status == 201 && !call.is_replay), 700);
        Ok(())
    }
}
