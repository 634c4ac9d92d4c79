//! A ledger without a database: random sequences of verbs beside a reference that knows money only.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may stop at the first surprise"
)]

use charge_once_strict_params::{Encoding, ParameterSet, Params};
use chrono::DateTime;
use proptest::{collection::vec, option, prelude::*};
use serde_json::{Value, json};

use super::*;
use crate::{
    commands::{CancelOrder, CaptureCharge, CreateCharge, CreateOrder, CreateRefund, PayOrder},
    domain::{
        charge::ChargeStatus,
        dialect::Dialect,
        ids::{ChargeId, OrderId},
        order::OrderStatus,
    },
    idempotency::Rows as _,
};

/// One request. Objects are counted from the first one, and wrap around.
#[derive(Debug, Clone)]
enum LedgerOp {
    Charge {
        amount: i64,
        capture: bool,
        declines: bool,
    },
    Capture {
        of: usize,
        amount: Option<i64>,
    },
    Refund {
        of: usize,
        amount: Option<i64>,
    },
    Order {
        price: i64,
    },
    Pay {
        order: usize,
        declines: bool,
    },
    Cancel {
        order: usize,
    },
}

fn op() -> impl Strategy<Value = LedgerOp> {
    let amount = || option::of(1..150_i64);
    prop_oneof![
        2 => (1..150_i64, any::<bool>(), prop::bool::weighted(0.2)).prop_map(
            |(amount, capture, declines)| LedgerOp::Charge { amount, capture, declines }),
        3 => (any::<usize>(), amount()).prop_map(|(of, amount)| LedgerOp::Capture { of, amount }),
        6 => (any::<usize>(), amount()).prop_map(|(of, amount)| LedgerOp::Refund { of, amount }),
        1 => (1..150_i64).prop_map(|price| LedgerOp::Order { price }),
        2 => (any::<usize>(), prop::bool::weighted(0.3)).prop_map(
            |(order, declines)| LedgerOp::Pay { order, declines }),
        1 => any::<usize>().prop_map(|order| LedgerOp::Cancel { order }),
    ]
}

/// What the reference knows of a charge.
#[derive(Debug, Clone, PartialEq)]
struct ExpectedCharge {
    promised: i64,
    taken: Option<i64>,
    back: i64,
    is_released: bool,
    pays: Option<usize>,
}

/// What the reference knows of an order.
#[derive(Debug, Clone, PartialEq)]
struct ExpectedOrder {
    price: i64,
    status: OrderStatus,
}

#[derive(Debug, Default)]
struct ReferenceLedger {
    charges: Vec<ExpectedCharge>,
    orders: Vec<ExpectedOrder>,
}

impl ReferenceLedger {
    /// Does it, and says whether it succeeds.
    fn run(&mut self, op: &LedgerOp) -> bool {
        match *op {
            LedgerOp::Charge {
                amount,
                capture,
                declines,
            } => self.charge(amount, capture, declines, None),
            LedgerOp::Capture { of, amount } => {
                let charge = &mut self.charges[of];
                let amount = amount.unwrap_or(charge.promised);
                let may =
                    charge.taken.is_none() && !charge.is_released && amount <= charge.promised;
                if may {
                    charge.taken = Some(amount);
                }
                may
            }
            LedgerOp::Refund { of, amount } => self.refund(of, amount),
            LedgerOp::Order { price } => {
                let status = OrderStatus::Open;
                self.orders.push(ExpectedOrder { price, status });
                true
            }
            LedgerOp::Pay { order, declines } => {
                let ExpectedOrder { price, status } = self.orders[order];
                let is_paid =
                    status == OrderStatus::Open && self.charge(price, true, declines, Some(order));
                if is_paid {
                    self.orders[order].status = OrderStatus::Paid;
                }
                is_paid
            }
            LedgerOp::Cancel { order } => {
                let is_open = self.orders[order].status == OrderStatus::Open;
                if is_open {
                    self.orders[order].status = OrderStatus::Canceled;
                }
                is_open
            }
        }
    }

    fn charge(&mut self, amount: i64, capture: bool, declines: bool, pays: Option<usize>) -> bool {
        self.charges.push(ExpectedCharge {
            promised: if declines { 0 } else { amount },
            taken: (capture || declines).then_some(if declines { 0 } else { amount }),
            back: 0,
            is_released: false,
            pays,
        });
        !declines
    }

    fn refund(&mut self, of: usize, amount: Option<i64>) -> bool {
        let charge = &mut self.charges[of];
        let left = charge.taken.unwrap_or(charge.promised) - charge.back;
        let amount = amount.unwrap_or(left);
        let is_part = charge.taken.is_none() && amount < left;
        if left == 0 || amount > left || is_part {
            return false;
        }
        charge.back += amount;
        charge.is_released = charge.taken.is_none();
        if let (Some(order), true) = (charge.pays, amount == left) {
            self.orders[order].status = OrderStatus::Refunded;
        }
        true
    }
}

/// The rows that verbs have left, in memory.
struct MemoryLedger {
    origin: Origin,
    rows: Rows,
    charges: Vec<ChargeId>,
    orders: Vec<OrderId>,
}

impl MemoryLedger {
    fn new() -> Self {
        let origin = Origin {
            account: AccountId(Uuid::from_u128(1)),
            dialect: Dialect::Stripe,
            api_version: None,
            request_id: "req_1".to_owned(),
            idempotency_key: "key-1".to_owned(),
            traceparent: None,
        };
        Self {
            origin,
            rows: Rows::default(),
            charges: Vec::new(),
            orders: Vec::new(),
        }
    }

    /// As in a batch: what it writes is seen by the requests after it. A refusal writes nothing.
    fn run<P: ParameterSet, V: Rules>(&mut self, body: Value, verb: impl FnOnce(P) -> V) -> u16 {
        let params = Params::new(Encoding::Json, Ok(body.as_object().unwrap().clone()));
        let command = RunVerb {
            origin: self.origin.clone(),
            verb: P::parse(&params).map(verb).map_err(ApiError::from),
            weight: params.weight(),
            slow_lane: SlowLane::new(4),
            processor: None,
        };
        let decision = command.decide(&self.rows, DateTime::UNIX_EPOCH);
        let Decision { reply, changes } = match decision {
            Err(Rejection::Refused(reply)) => return reply.status,
            decided => decided.unwrap(),
        };
        let changes = changes.unwrap();
        let (charges, orders) = (
            changes.tables.charges.added(),
            changes.tables.orders.added(),
        );
        let is_known = |id: &ChargeId| self.charges.contains(id);
        let charges = charges.iter().map(|(_, charge)| charge.id);
        let charges: Vec<_> = charges.filter(|id| !is_known(id)).collect();
        let is_known = |id: &OrderId| self.orders.contains(id);
        let orders = orders.iter().map(|(_, order)| order.id);
        let orders: Vec<_> = orders.filter(|id| !is_known(id)).collect();
        self.charges.extend(charges);
        self.orders.extend(orders);
        self.rows.apply(changes);
        reply.status
    }

    fn charge(&self, at: usize) -> &Charge {
        self.rows
            .get(self.origin.account, self.charges[at])
            .unwrap()
    }

    fn order(&self, at: usize) -> &Order {
        self.rows.get(self.origin.account, self.orders[at]).unwrap()
    }

    fn do_op(&mut self, op: &LedgerOp) -> u16 {
        let card = |declines| {
            if declines {
                "tok_chargeDeclined"
            } else {
                "tok_visa"
            }
        };
        match *op {
            LedgerOp::Charge {
                amount,
                capture,
                declines,
            } => {
                let body = json!({"amount": amount, "currency": "usd", "capture": capture,
                                  "source": card(declines)});
                self.run(body, CreateCharge)
            }
            LedgerOp::Capture { of, amount } => {
                let id = self.charges[of].to_string();
                self.run(with_amount(json!({}), amount), |params| CaptureCharge {
                    id,
                    params,
                })
            }
            LedgerOp::Refund { of, amount } => {
                let body = json!({"charge": self.charges[of].to_string()});
                self.run(with_amount(body, amount), CreateRefund)
            }
            LedgerOp::Order { price } => {
                let item = json!({"quantity": 1, "unit_amount": price});
                self.run(json!({"currency": "usd", "items": [item]}), CreateOrder)
            }
            LedgerOp::Pay { order, declines } => {
                let id = self.orders[order].to_string();
                self.run(json!({"source": card(declines)}), |params| PayOrder {
                    id,
                    params,
                })
            }
            LedgerOp::Cancel { order } => {
                let id = self.orders[order].to_string();
                self.run(json!({}), |params| CancelOrder { id, params })
            }
        }
    }

    /// What the reference would know of it.
    fn known(&self) -> (Vec<ExpectedCharge>, Vec<ExpectedOrder>) {
        let charges = (0..self.charges.len()).map(|at| {
            let charge = self.charge(at);
            let is_paid = charge.status == ChargeStatus::Succeeded;
            let has_ended = charge.captured || !is_paid;
            ExpectedCharge {
                promised: if is_paid {
                    charge.amount.minor_units
                } else {
                    0
                },
                taken: has_ended.then_some(charge.amount_captured),
                back: charge.amount_refunded,
                is_released: charge.released,
                pays: charge
                    .order
                    .map(|id| self.orders.iter().position(|one| *one == id).unwrap()),
            }
        });
        let orders = (0..self.orders.len()).map(|at| {
            let order = self.order(at);
            let price = order.amount.minor_units;
            ExpectedOrder {
                price,
                status: order.status,
            }
        });
        (charges.collect(), orders.collect())
    }
}

fn with_amount(mut body: Value, amount: Option<i64>) -> Value {
    if let Some(amount) = amount {
        body["amount"] = amount.into();
    }
    body
}

/// The same operation on an object that is there; `None` if there is none.
fn on(ledger: &MemoryLedger, mut op: LedgerOp) -> Option<LedgerOp> {
    match &mut op {
        LedgerOp::Capture { of, .. } | LedgerOp::Refund { of, .. } => {
            *of = of.checked_rem(ledger.charges.len())?;
        }
        LedgerOp::Pay { order, .. } | LedgerOp::Cancel { order } => {
            *order = order.checked_rem(ledger.orders.len())?;
        }
        LedgerOp::Charge { .. } | LedgerOp::Order { .. } => {}
    }
    Some(op)
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn verbs_move_money_as_the_reference_does(ops in vec(op(), 1..40)) {
        let (mut ledger, mut reference) = (MemoryLedger::new(), ReferenceLedger::default());
        for op in ops {
            let Some(op) = on(&ledger, op) else { continue };
            let is_done = reference.run(&op);
            let status = ledger.do_op(&op);
            prop_assert_eq!(status < 300, is_done, "{:?}: {}", op, status);
            let (charges, orders) = ledger.known();
            prop_assert_eq!(&charges, &reference.charges, "{:?}", op);
            prop_assert_eq!(&orders, &reference.orders, "{:?}", op);
        }
        // What is given back has a refund each.
        for (at, id) in ledger.charges.iter().enumerate() {
            let refunds = ledger.rows.tables.refunds.of(ledger.origin.account);
            let of_charge = refunds.filter(|refund| refund.charge == *id);
            let sum: i64 = of_charge.map(|refund| refund.amount.minor_units).sum();
            prop_assert_eq!(ledger.charge(at).amount_refunded, sum);
        }
    }
}
