//! A ledger without a database: random sequences of verbs beside a reference that knows money only.
//!
//! Each verb decides from the rows that it names, and from no other.

mod columns;
mod stored;

use std::{cell::RefCell, fmt::Display};

use charge_once_strict_params::{Encoding, ParameterSet, Params};
use chrono::DateTime;
use proptest::{collection::vec, option, prelude::*, test_runner::TestRunner};
use serde_json::{Value, json};

use super::*;
use crate::{
    commands::{
        AuthenticateIntent, AuthenticateSetup, CancelIntent, CancelOrder, CancelSetupIntent,
        CaptureCharge, CaptureIntent, ConfirmIntent, CreateCharge, CreateCustomer, CreateIntent,
        CreateOrder, CreateRefund, CreateSetupIntent, DetachPaymentMethod, Noun, PayOrder,
        SetInventory, UpdateIntent, Verdict, checkouts,
    },
    domain::{
        charge::ChargeStatus,
        checkout::{Checkout, NewCheckout, StepName},
        customer::Customer,
        dialect::Dialect,
        ids::{AccountId, ChargeId, CheckoutId, OrderId, PaymentIntentId, SetupIntentId},
        inventory::Inventory,
        operation::AskedBy,
        order::{Order, OrderStatus},
        payment_intent::{CaptureMethod, HolderPage, IntentStatus, PaymentIntent},
        payment_method::{Attachment, PaymentMethod},
        refund::Refund,
        setup_intent::{SetupIntent, SetupStatus},
    },
    idempotency::Rows as _,
    wire::checkouts::CreateCheckoutParams,
};
use stored::StoredLedger;

/// What an intent is confirmed with. A saved card is that of a customer.
#[derive(Debug, Clone, Copy, PartialEq)]
enum IntentCard {
    Visa,
    Declining,
    /// It is attached and set up, and declines each charge.
    DecliningLater,
    /// Its holder must authenticate, each time.
    Asking,
    Saved(usize),
}

/// One request. Objects are counted from the first one, and wrap around.
#[derive(Debug, Clone, Copy)]
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
    /// At a price.
    Order(i64),
    Pay {
        order: usize,
        declines: bool,
    },
    Cancel(usize),
    Customer,
    /// Of this customer.
    Detach(usize),
    NewIntent(NewIntent),
    Intent(usize, IntentOp),
    Setup {
        customer: Option<usize>,
        card: IntentCard,
    },
    CancelSetup(usize),
    AuthenticateSetup {
        setup: usize,
        passes: bool,
    },
    Stock {
        sku: usize,
        quantity: i64,
    },
    Checkout {
        sku: usize,
        quantity: i64,
        declines: bool,
    },
}

#[derive(Debug, Clone, Copy)]
struct NewIntent {
    amount: i64,
    manual: bool,
    customer: Option<usize>,
    card: Option<IntentCard>,
    confirm: bool,
}

/// One request about an intent that is there.
#[derive(Debug, Clone, Copy)]
enum IntentOp {
    /// Another method.
    SetMethod(IntentCard),
    /// Another amount, or else another description.
    Update(Option<i64>),
    Confirm {
        /// Or with the method that it has.
        card: Option<IntentCard>,
        off_session: bool,
    },
    Authenticate {
        passes: bool,
    },
    Capture(Option<i64>),
    Cancel,
    Refund(Option<i64>),
}

/// What is sold, and what one of each costs.
const SKUS: [(&str, i64); 2] = [("cup", 7), ("mug", 30)];

fn op() -> impl Strategy<Value = LedgerOp> {
    let amount = || option::of(1..150_i64);
    let card = || {
        prop_oneof![
            3 => Just(IntentCard::Visa),
            1 => Just(IntentCard::Declining),
            1 => Just(IntentCard::DecliningLater),
            2 => Just(IntentCard::Asking),
            2 => any::<usize>().prop_map(IntentCard::Saved),
        ]
    };
    let at = any::<usize>;
    let likely = prop::bool::weighted;
    let intent_op = prop_oneof![
        2 => card().prop_map(IntentOp::SetMethod),
        2 => amount().prop_map(IntentOp::Update),
        4 => (option::weighted(0.7, card()), likely(0.2)).prop_map(
            |(card, off_session)| IntentOp::Confirm { card, off_session }),
        3 => likely(0.7).prop_map(|passes| IntentOp::Authenticate { passes }),
        3 => amount().prop_map(IntentOp::Capture),
        2 => Just(IntentOp::Cancel),
        3 => amount().prop_map(IntentOp::Refund),
    ];
    prop_oneof![
        2 => (1..150_i64, any::<bool>(), likely(0.2)).prop_map(
            |(amount, capture, declines)| LedgerOp::Charge { amount, capture, declines }),
        3 => (at(), amount()).prop_map(|(of, amount)| LedgerOp::Capture { of, amount }),
        6 => (at(), amount()).prop_map(|(of, amount)| LedgerOp::Refund { of, amount }),
        1 => (1..150_i64).prop_map(LedgerOp::Order),
        2 => (at(), likely(0.3)).prop_map(|(order, declines)| LedgerOp::Pay { order, declines }),
        1 => at().prop_map(LedgerOp::Cancel),
        1 => Just(LedgerOp::Customer),
        1 => at().prop_map(LedgerOp::Detach),
        4 => (
            1..150_i64, any::<bool>(), option::of(at()), option::of(card()), likely(0.8),
        ).prop_map(|(amount, manual, customer, card, confirm)| {
            LedgerOp::NewIntent(NewIntent { amount, manual, customer, card, confirm })
        }),
        // The sum of the weights above.
        19 => (at(), intent_op).prop_map(|(intent, op)| LedgerOp::Intent(intent, op)),
        2 => (option::of(at()), card()).prop_map(
            |(customer, card)| LedgerOp::Setup { customer, card }),
        1 => at().prop_map(LedgerOp::CancelSetup),
        1 => (at(), any::<bool>()).prop_map(
            |(setup, passes)| LedgerOp::AuthenticateSetup { setup, passes }),
        1 => (0..2_usize, 0..9_i64).prop_map(
            |(sku, quantity)| LedgerOp::Stock { sku, quantity }),
        2 => (0..2_usize, 1..4_i64, likely(0.2)).prop_map(
            |(sku, quantity, declines)| LedgerOp::Checkout { sku, quantity, declines }),
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
    of_intent: bool,
}

/// What the reference knows of an order.
#[derive(Debug, Clone, PartialEq)]
struct ExpectedOrder {
    price: i64,
    status: OrderStatus,
}

/// What the reference knows of an intent.
#[derive(Debug, Clone, PartialEq)]
struct ExpectedIntent {
    amount: i64,
    manual: bool,
    customer: Option<usize>,
    status: IntentStatus,
    charge: Option<usize>,
    has_method: bool,
    has_error: bool,
}

impl ExpectedIntent {
    /// It has a method, or none, and is to be confirmed.
    fn with(&mut self, has_method: bool) {
        self.has_method = has_method;
        self.status = match has_method {
            true => IntentStatus::RequiresConfirmation,
            false => IntentStatus::RequiresPaymentMethod,
        };
    }

    /// Its method has failed.
    fn fail(&mut self) {
        self.with(false);
        self.has_error = true;
    }
}

#[derive(Debug, Default, PartialEq)]
struct ReferenceLedger {
    charges: Vec<ExpectedCharge>,
    orders: Vec<ExpectedOrder>,
    intents: Vec<ExpectedIntent>,
    /// What each intent would be confirmed with.
    methods: Vec<Option<IntentCard>>,
    setups: Vec<SetupStatus>,
    /// Whether each customer has the card.
    customers: Vec<bool>,
    /// How many of each are left.
    levels: [i64; 2],
}

impl ReferenceLedger {
    /// Does it, and says whether it succeeds.
    fn run(&mut self, op: LedgerOp) -> bool {
        match op {
            LedgerOp::Charge {
                amount,
                capture,
                declines,
            } => self.charge(amount, capture, declines, None),
            LedgerOp::Capture { of, amount } => {
                !self.charges[of].of_intent && self.capture(of, amount)
            }
            LedgerOp::Refund { of, amount } => self.refund(of, amount),
            LedgerOp::Order(price) => {
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
            LedgerOp::Cancel(at) => {
                let is_open = self.orders[at].status == OrderStatus::Open;
                if is_open {
                    self.orders[at].status = OrderStatus::Canceled;
                }
                is_open
            }
            LedgerOp::Customer => {
                self.customers.push(true);
                true
            }
            LedgerOp::Detach(customer) => std::mem::take(&mut self.customers[customer]),
            LedgerOp::NewIntent(new) => self.intent(new),
            LedgerOp::Intent(at, op) => self.run_on_intent(at, op),
            LedgerOp::Setup { customer, card } => self.setup(customer, card),
            LedgerOp::CancelSetup(at) => {
                let is_open = self.setups[at].is_open();
                if is_open {
                    self.setups[at] = SetupStatus::Canceled;
                }
                is_open
            }
            LedgerOp::AuthenticateSetup { setup, passes } => {
                let is_awaited = self.setups[setup] == SetupStatus::RequiresAction;
                if is_awaited {
                    self.setups[setup] = match passes {
                        true => SetupStatus::Succeeded,
                        false => SetupStatus::RequiresPaymentMethod,
                    };
                }
                is_awaited
            }
            LedgerOp::Stock { sku, quantity } => {
                self.levels[sku] = quantity;
                true
            }
            LedgerOp::Checkout {
                sku,
                quantity,
                declines,
            } => self.checkout(sku, quantity, declines),
        }
    }

    fn run_on_intent(&mut self, at: usize, op: IntentOp) -> bool {
        match op {
            IntentOp::SetMethod(card) => self.set_method(at, card),
            IntentOp::Update(amount) => self.update(at, amount),
            IntentOp::Confirm { card, off_session } => self.confirm(at, card, off_session),
            IntentOp::Authenticate { passes } => self.authenticate(at, passes),
            IntentOp::Capture(amount) => self.capture_intent(at, amount),
            IntentOp::Cancel => self.cancel_intent(at),
            IntentOp::Refund(amount) => {
                let charge = self.intents[at].charge;
                charge.is_some_and(|charge| self.refund(charge, amount))
            }
        }
    }

    /// All of it, or nothing: no money, no items, a canceled order.
    fn checkout(&mut self, sku: usize, quantity: i64, declines: bool) -> bool {
        let (price, order) = (SKUS[sku].1 * quantity, self.orders.len());
        let is_charged = self.charge(price, true, declines, Some(order));
        let is_sold = is_charged && self.levels[sku] >= quantity;
        if is_charged && !is_sold {
            self.charges.last_mut().unwrap().back = price;
        }
        let status = match is_sold {
            true => OrderStatus::Paid,
            false => OrderStatus::Canceled,
        };
        self.orders.push(ExpectedOrder { price, status });
        if is_sold {
            self.levels[sku] -= quantity;
        }
        is_sold
    }

    fn charge(&mut self, amount: i64, capture: bool, declines: bool, pays: Option<usize>) -> bool {
        self.charges.push(ExpectedCharge {
            promised: if declines { 0 } else { amount },
            taken: (capture || declines).then_some(if declines { 0 } else { amount }),
            back: 0,
            is_released: false,
            pays,
            of_intent: false,
        });
        !declines
    }

    fn capture(&mut self, of: usize, amount: Option<i64>) -> bool {
        let charge = &mut self.charges[of];
        let amount = amount.unwrap_or(charge.promised);
        let may = charge.taken.is_none() && !charge.is_released && amount <= charge.promised;
        if may {
            charge.taken = Some(amount);
        }
        may
    }

    fn refund(&mut self, of: usize, amount: Option<i64>) -> bool {
        let charge = &mut self.charges[of];
        let left = charge.taken.unwrap_or(charge.promised) - charge.back;
        let amount = amount.unwrap_or(left);
        let is_part = charge.taken.is_none() && amount < left;
        // What an intent was only promised is released with the intent.
        let is_promise = charge.of_intent && charge.taken.is_none();
        if left == 0 || amount > left || is_part || is_promise {
            return false;
        }
        charge.back += amount;
        charge.is_released = charge.taken.is_none();
        if let (Some(order), true) = (charge.pays, amount == left) {
            self.orders[order].status = OrderStatus::Refunded;
        }
        true
    }

    fn intent(&mut self, new: NewIntent) -> bool {
        if new.card.is_some_and(|card| !self.fits(new.customer, card)) {
            return false;
        }
        self.intents.push(ExpectedIntent {
            amount: new.amount,
            manual: new.manual,
            customer: new.customer,
            status: IntentStatus::RequiresPaymentMethod,
            charge: None,
            has_method: false,
            has_error: false,
        });
        self.methods.push(None);
        let at = self.intents.len() - 1;
        match new.card {
            None => true,
            card if new.confirm => self.confirm(at, card, false),
            Some(card) => self.set_method(at, card),
        }
    }

    fn set_method(&mut self, at: usize, card: IntentCard) -> bool {
        let ExpectedIntent {
            status, customer, ..
        } = self.intents[at];
        let may = status.is_unpaid() && self.fits(customer, card);
        if may {
            self.methods[at] = Some(card);
            self.intents[at].with(true);
            self.intents[at].has_error = false;
        }
        may
    }

    fn update(&mut self, at: usize, amount: Option<i64>) -> bool {
        let intent = &mut self.intents[at];
        if amount.is_some() && !intent.status.is_unpaid() {
            return false;
        }
        if let Some(amount) = amount.filter(|amount| *amount != intent.amount) {
            intent.amount = amount;
            intent.with(intent.has_method);
        }
        intent.has_error = false;
        true
    }

    /// Whether a customer may pay with a card: a saved one has an owner.
    fn fits(&self, customer: Option<usize>, card: IntentCard) -> bool {
        let IntentCard::Saved(owner) = card else {
            return true;
        };
        customer == Some(owner) && self.customers[owner]
    }

    fn setup(&mut self, customer: Option<usize>, card: IntentCard) -> bool {
        let fits = self.fits(customer, card);
        if fits {
            self.setups.push(match card {
                IntentCard::Declining => SetupStatus::RequiresPaymentMethod,
                IntentCard::Asking => SetupStatus::RequiresAction,
                IntentCard::Visa | IntentCard::DecliningLater | IntentCard::Saved(_) => {
                    SetupStatus::Succeeded
                }
            });
        }
        fits && card != IntentCard::Declining
    }

    fn confirm(&mut self, at: usize, card: Option<IntentCard>, off_session: bool) -> bool {
        let ExpectedIntent {
            status, customer, ..
        } = self.intents[at];
        let card = card.or(self.methods[at]).filter(|_| status.is_unpaid());
        let Some(card) = card.filter(|card| self.fits(customer, *card)) else {
            return false;
        };
        self.methods[at] = Some(card);
        match card {
            IntentCard::Asking if !off_session => {
                let intent = &mut self.intents[at];
                intent.with(true);
                intent.status = IntentStatus::RequiresAction;
                intent.has_error = false;
                true
            }
            IntentCard::Asking | IntentCard::Declining | IntentCard::DecliningLater => {
                self.pay_intent(at, true)
            }
            IntentCard::Visa | IntentCard::Saved(_) => self.pay_intent(at, false),
        }
    }

    fn authenticate(&mut self, at: usize, passes: bool) -> bool {
        let is_awaited = self.intents[at].status == IntentStatus::RequiresAction;
        if is_awaited && passes {
            self.pay_intent(at, false);
        } else if is_awaited {
            self.methods[at] = None;
            self.intents[at].fail();
        }
        is_awaited
    }

    fn pay_intent(&mut self, at: usize, declines: bool) -> bool {
        let ExpectedIntent { amount, manual, .. } = self.intents[at];
        let charge = self.charges.len();
        self.charge(amount, !manual, declines, None);
        self.charges[charge].of_intent = true;
        let intent = &mut self.intents[at];
        if declines {
            self.methods[at] = None;
            intent.fail();
            return false;
        }
        intent.with(true);
        intent.has_error = false;
        intent.charge = Some(charge);
        intent.status = match manual {
            true => IntentStatus::RequiresCapture,
            false => IntentStatus::Succeeded,
        };
        true
    }

    fn capture_intent(&mut self, at: usize, amount: Option<i64>) -> bool {
        let ExpectedIntent { status, charge, .. } = self.intents[at];
        let may = status == IntentStatus::RequiresCapture && self.capture(charge.unwrap(), amount);
        if may {
            self.intents[at].status = IntentStatus::Succeeded;
        }
        may
    }

    fn cancel_intent(&mut self, at: usize) -> bool {
        let ExpectedIntent { status, charge, .. } = self.intents[at];
        let is_promised = status == IntentStatus::RequiresCapture;
        if !is_promised && !status.is_unpaid() {
            return false;
        }
        if is_promised {
            let charge = &mut self.charges[charge.unwrap()];
            charge.is_released = true;
            charge.back = charge.promised;
        }
        self.intents[at].status = IntentStatus::Canceled;
        true
    }
}

/// The rows that verbs have left, in memory.
struct MemoryLedger<'a> {
    origin: Origin,
    rows: Rows,
    /// Where the same verbs run as well.
    stored: Option<&'a mut StoredLedger>,
    charges: Vec<ChargeId>,
    orders: Vec<OrderId>,
    intents: Vec<PaymentIntentId>,
    setups: Vec<SetupIntentId>,
    /// Customers with the cards that came with them.
    customers: Vec<PaymentMethod>,
}

impl<'a> MemoryLedger<'a> {
    fn new(account: AccountId, stored: Option<&'a mut StoredLedger>) -> Self {
        let asked_by = AskedBy {
            dialect: Dialect::Stripe,
            api_version: None,
            request_id: "req_1".to_owned(),
            idempotency_key: "key-1".to_owned(),
        };
        Self {
            origin: Origin {
                account,
                asked_by,
                traceparent: None,
                path_id: String::new(),
            },
            rows: Rows::default(),
            stored,
            charges: Vec::new(),
            orders: Vec::new(),
            intents: Vec::new(),
            setups: Vec::new(),
            customers: Vec::new(),
        }
    }

    /// The rows that a command names, in three rounds at most.
    fn named<V: Rules>(&self, command: &RunVerb<V>) -> Rows {
        let mut named = Rows::default();
        for _ in 0..3 {
            for (_, row) in command.reads(&named) {
                self.show(&mut named, &row);
                named.read.insert((self.origin.account, row));
            }
        }
        let names = command.reads(&named);
        let is_read = names.iter().all(|name| named.read.contains(name));
        assert!(is_read, "more than three rounds: {names:?}");
        named
    }

    fn show(&self, to: &mut Rows, row: &RowId) {
        let account = self.origin.account;
        let (from, tables) = (&self.rows, &mut to.tables);
        let methods = || from.tables.methods.of(account);
        match row {
            RowId::Intent(id) => tables.intents.hold(one(from, account, *id)),
            RowId::Setup(id) => tables.setups.hold(one(from, account, *id)),
            RowId::Charge(id) => tables.charges.hold(one(from, account, *id)),
            RowId::Order(id) => tables.orders.hold(one(from, account, *id)),
            RowId::Refund(id) => tables.refunds.hold(one(from, account, *id)),
            RowId::Method(id) | RowId::MethodToPay(id) => {
                tables.methods.hold(one(from, account, *id));
            }
            RowId::Customer(id) => tables.customers.hold(one(from, account, *id)),
            RowId::CustomerSeen(id) => {
                let seen = one::<Customer>(from, account, *id).pop();
                to.customers_seen
                    .extend(seen.map(|(_, seen)| ((account, *id), seen)));
            }
            RowId::MethodsOf(id) => {
                let count = methods().filter(|method| method.customer() == Some(*id));
                let count = i64::try_from(count.count()).unwrap();
                to.methods_of.insert((account, *id), count);
            }
            RowId::Checkout(id) => tables.checkouts.hold(one(from, account, *id)),
            RowId::Level(sku) => tables.levels.hold(one(from, account, sku.clone())),
            RowId::OrderNamed(_) => {}
        }
    }

    /// As in a batch: what it writes is seen by the requests after it. A refusal writes nothing.
    /// Members of the body that are null are left out.
    fn run<P: ParameterSet, V: Rules>(
        &mut self,
        mut body: Value,
        verb: impl FnOnce(P) -> V,
    ) -> u16 {
        let members = body.as_object_mut().unwrap();
        members.retain(|_, value| !value.is_null());
        let params = Params::new(Encoding::Json, Ok(members.clone()));
        let verb = P::parse(&params).map(verb).map_err(ApiError::from);
        self.run_rules(verb)
    }

    /// As [`run`](Self::run), about the object that a path would name.
    fn run_on<P: ParameterSet, V: Rules>(
        &mut self,
        id: impl Display,
        body: Value,
        verb: fn(&str, P) -> V,
    ) -> u16 {
        self.run(body, |params| verb(&id.to_string(), params))
    }

    fn command<V: Rules>(&self, verb: Result<V, ApiError>) -> RunVerb<V> {
        RunVerb {
            origin: self.origin.clone(),
            verb,
            weight: 0,
            expand: Expansion::default(),
            slow_lane: SlowLane::new(4),
            processor: None,
            public_url: Some("http://localhost".into()),
        }
    }

    fn run_rules<V: Rules>(&mut self, verb: Result<V, ApiError>) -> u16 {
        let command = self.command(verb);
        let named = self.named(&command);
        let decision = match &mut self.stored {
            None => command.decide(&named, DateTime::UNIX_EPOCH),
            Some(stored) => stored.run(&command, &named),
        };
        let Decision { reply, changes } = match decision {
            Err(Rejection::Refused(reply)) => return reply.status,
            decided => decided.unwrap(),
        };
        let Some(changes) = changes else {
            // A page that isn't awaited, or an update to what is there already.
            assert!([200, 410].contains(&reply.status), "{}", reply.status);
            return reply.status;
        };
        let tables = &changes.tables;
        extend(&mut self.charges, tables.charges.added(), |one| one.id);
        extend(&mut self.orders, tables.orders.added(), |one| one.id);
        extend(&mut self.intents, tables.intents.added(), |one| one.id);
        extend(&mut self.setups, tables.setups.added(), |one| one.id);
        let mut methods = tables.methods.added().into_iter();
        if !tables.customers.added().is_empty()
            && let Some((_, method)) = methods.next()
        {
            self.customers.push(method.clone());
        }
        self.rows.apply(changes);
        // As if it were read again.
        self.settle();
        reply.status
    }

    /// Makes what was written what is stored.
    fn settle(&mut self) {
        fn settle<N: Noun>(rows: &mut Rows, account: AccountId) {
            let stored: Vec<_> = N::table(&rows.tables).of(account).cloned().collect();
            N::table_mut(&mut rows.tables)
                .hold(stored.into_iter().map(|one| (account, one)).collect());
        }
        let (rows, account) = (&mut self.rows, self.origin.account);
        settle::<Checkout>(rows, account);
        settle::<PaymentIntent>(rows, account);
        settle::<SetupIntent>(rows, account);
        settle::<Charge>(rows, account);
        settle::<Order>(rows, account);
        settle::<Refund>(rows, account);
        settle::<PaymentMethod>(rows, account);
        settle::<Customer>(rows, account);
        settle::<Inventory>(rows, account);
    }

    fn charge(&self, at: usize) -> &Charge {
        self.rows
            .get(self.origin.account, self.charges[at])
            .unwrap()
    }

    fn do_op(&mut self, op: LedgerOp) -> u16 {
        let card = |declines| match declines {
            true => "tok_chargeDeclined",
            false => "tok_visa",
        };
        match op {
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
                let body = json!({"amount": amount});
                self.run_on(self.charges[of], body, CaptureCharge::of)
            }
            LedgerOp::Refund { of, amount } => {
                let body = json!({"charge": self.charges[of].to_string(), "amount": amount});
                self.run(body, CreateRefund)
            }
            LedgerOp::Order(price) => {
                let item = json!({"quantity": 1, "unit_amount": price});
                let body = json!({"currency": "usd", "items": [item]});
                self.run(body, CreateOrder)
            }
            LedgerOp::Pay { order, declines } => {
                let body = json!({"source": card(declines)});
                self.run_on(self.orders[order], body, PayOrder::of)
            }
            LedgerOp::Cancel(at) => self.run_on(self.orders[at], json!({}), CancelOrder::of),
            LedgerOp::Customer => {
                let body = json!({"payment_method": "pm_card_visa"});
                self.run(body, CreateCustomer)
            }
            LedgerOp::Detach(customer) => {
                let id = self.customers[customer].id;
                self.run_on(id, json!({}), DetachPaymentMethod::of)
            }
            LedgerOp::Stock { sku, quantity } => {
                let sku = SKUS[sku].0.as_bytes().to_vec();
                let verb = |params| SetInventory { sku, params };
                self.run(json!({"quantity": quantity}), verb)
            }
            LedgerOp::Checkout {
                sku,
                quantity,
                declines,
            } => self.checkout(sku, quantity, card(declines)),
            LedgerOp::Setup { customer, card } => self.create_setup(customer, card),
            LedgerOp::AuthenticateSetup { setup, passes } => {
                self.authenticate_setup(self.setups[setup], passes)
            }
            LedgerOp::CancelSetup(at) => {
                self.run_on(self.setups[at], json!({}), CancelSetupIntent::of)
            }
            LedgerOp::NewIntent(new) => self.create_intent(new),
            LedgerOp::Intent(at, op) => self.do_intent_op(self.intents[at], op),
        }
    }

    fn create_setup(&mut self, customer: Option<usize>, card: IntentCard) -> u16 {
        let body = json!({"confirm": true, "payment_method_types": ["card"],
                          "payment_method": self.named_card(card),
                          "customer": customer.map(|at| self.named_customer(at))});
        self.run(body, CreateSetupIntent)
    }

    fn authenticate_setup(&mut self, id: SetupIntentId, passes: bool) -> u16 {
        let setup = self.rows.get::<SetupIntent>(self.origin.account, id);
        let verb = AuthenticateSetup {
            id,
            token: token(setup.unwrap().holder_page.as_ref()),
            is_complete: passes,
        };
        self.run_rules(Ok(verb))
    }

    /// Begins a checkout, runs its steps one after the other, and ends it.
    fn checkout(&mut self, sku: usize, quantity: i64, card: &str) -> u16 {
        let (sku, price) = SKUS[sku];
        let item = json!({"sku": sku, "quantity": quantity, "unit_amount": price});
        let body = json!({"currency": "usd", "source": card, "items": [item]});
        let id = CheckoutId(Uuid::now_v7());
        let begin = |params: CreateCheckoutParams| BeginCheckout(id, params.into());
        self.run(body, begin);
        loop {
            let checkout = self.rows.get::<Checkout>(self.origin.account, id).unwrap();
            let Some(step) = checkout.next() else { break };
            let step = checkouts::RunStep { checkout: id, step };
            self.run_rules(Ok(step));
        }
        self.run_rules(Ok(EndCheckout(id)))
    }

    fn create_intent(&mut self, new: NewIntent) -> u16 {
        let body = json!({
            "amount": new.amount, "currency": "usd", "payment_method_types": ["card"],
            "capture_method": new.manual.then_some("manual"),
            "customer": new.customer.map(|at| self.named_customer(at)),
            "confirm": new.card.map(|_| new.confirm),
            "payment_method": new.card.map(|card| self.named_card(card)),
        });
        self.run(body, CreateIntent)
    }

    fn do_intent_op(&mut self, id: PaymentIntentId, op: IntentOp) -> u16 {
        match op {
            IntentOp::SetMethod(card) => {
                let body = json!({"payment_method": self.named_card(card)});
                self.run_on(id, body, UpdateIntent::of)
            }
            IntentOp::Update(amount) => {
                let description = amount.is_none().then_some("another");
                let body = json!({"amount": amount, "description": description});
                self.run_on(id, body, UpdateIntent::of)
            }
            IntentOp::Confirm { card, off_session } => {
                let card = card.map(|card| self.named_card(card));
                let off_session = off_session.then_some(true);
                let body = json!({"payment_method": card, "off_session": off_session});
                self.run_on(id, body, ConfirmIntent::of)
            }
            IntentOp::Authenticate { passes } => {
                let intent = self.rows.get::<PaymentIntent>(self.origin.account, id);
                let verb = AuthenticateIntent {
                    id,
                    token: token(intent.unwrap().holder_page.as_ref()),
                    is_complete: passes,
                };
                self.run_rules(Ok(verb))
            }
            IntentOp::Capture(amount) => {
                let body = json!({"amount_to_capture": amount});
                self.run_on(id, body, CaptureIntent::of)
            }
            IntentOp::Cancel => self.run_on(id, json!({}), CancelIntent::of),
            IntentOp::Refund(amount) => {
                let body = json!({"payment_intent": id.to_string(), "amount": amount});
                self.run(body, CreateRefund)
            }
        }
    }

    fn named_customer(&self, at: usize) -> String {
        self.customers[at].customer().unwrap().to_string()
    }

    fn named_card(&self, card: IntentCard) -> String {
        match card {
            IntentCard::Visa => "pm_card_visa".to_owned(),
            IntentCard::Declining => "pm_card_chargeDeclined".to_owned(),
            IntentCard::DecliningLater => "pm_card_chargeCustomerFail".to_owned(),
            IntentCard::Asking => "pm_card_authenticationRequired".to_owned(),
            IntentCard::Saved(customer) => self.customers[customer].id.to_string(),
        }
    }

    /// What the reference would know of it.
    fn known(&self) -> ReferenceLedger {
        let account = self.origin.account;
        let charge = |id: &ChargeId| {
            let charge: &Charge = self.rows.get(account, *id).unwrap();
            let is_paid = charge.status == ChargeStatus::Succeeded;
            let has_ended = charge.captured || !is_paid;
            ExpectedCharge {
                promised: i64::from(is_paid) * charge.amount.minor_units,
                taken: has_ended.then_some(charge.amount_captured),
                back: charge.amount_refunded,
                is_released: charge.released,
                pays: charge.order.map(|id| position(&self.orders, &id)),
                of_intent: charge.by_intent.is_some(),
            }
        };
        let order = |id: &OrderId| {
            let order: &Order = self.rows.get(account, *id).unwrap();
            ExpectedOrder {
                price: order.terms.amount.minor_units,
                status: order.status,
            }
        };
        let intent = |id: &PaymentIntentId| {
            let intent: &PaymentIntent = self.rows.get(account, *id).unwrap();
            let mut customers = self.customers.iter().map(PaymentMethod::customer);
            let customer = intent.terms.customer;
            ExpectedIntent {
                amount: intent.terms.amount.minor_units,
                manual: intent.terms.capture_method == CaptureMethod::Manual,
                customer: customer.map(|id| customers.position(|one| one == Some(id)).unwrap()),
                status: intent.status,
                charge: intent.charge.map(|id| position(&self.charges, &id)),
                has_method: intent.terms.payment_method.is_some(),
                has_error: intent.last_payment_error.is_some(),
            }
        };
        let setup = |id: &SetupIntentId| {
            let setup = self.rows.get::<SetupIntent>(account, *id);
            setup.unwrap().status
        };
        let has_card = |method: &PaymentMethod| {
            let method: &PaymentMethod = self.rows.get(account, method.id).unwrap();
            method.attachment != Attachment::Detached
        };
        ReferenceLedger {
            charges: self.charges.iter().map(charge).collect(),
            orders: self.orders.iter().map(order).collect(),
            intents: self.intents.iter().map(intent).collect(),
            methods: Vec::new(),
            setups: self.setups.iter().map(setup).collect(),
            customers: self.customers.iter().map(has_card).collect(),
            levels: SKUS.map(|(sku, _)| {
                let level = self.rows.get::<Inventory>(account, sku.to_owned());
                level.map_or(0, |level| level.quantity)
            }),
        }
    }
}

/// The beginning of a checkout, as of a verb.
struct BeginCheckout(CheckoutId, NewCheckout);

impl Rules for BeginCheckout {
    fn reads(&self, _: &SeenRows<'_>) -> Vec<RowId> {
        Vec::new()
    }

    fn decide(&self, draft: &mut Draft<'_>) -> Result<Verdict, Rejection> {
        checkouts::begin(draft, self.0, self.1.clone());
        Ok(Verdict::Answered(Said::Reply(Reply::raw_json(200, "{}"))))
    }
}

/// The end of a checkout, as of a verb.
struct EndCheckout(CheckoutId);

impl Rules for EndCheckout {
    fn reads(&self, _: &SeenRows<'_>) -> Vec<RowId> {
        vec![RowId::Checkout(self.0)]
    }

    fn decide(&self, draft: &mut Draft<'_>) -> Result<Verdict, Rejection> {
        Ok(Verdict::Answered(Said::Reply(checkouts::end(
            draft, self.0,
        )?)))
    }
}

fn one<N: Noun>(rows: &Rows, account: AccountId, id: N::Id) -> Vec<(AccountId, N)> {
    let found = rows.get::<N>(account, id).cloned();
    found.into_iter().map(|one| (account, one)).collect()
}

fn extend<N, I: PartialEq>(known: &mut Vec<I>, added: Vec<(AccountId, &N)>, id: fn(&N) -> I) {
    for id in added.into_iter().map(|(_, one)| id(one)) {
        if !known.contains(&id) {
            known.push(id);
        }
    }
}

fn position<I: PartialEq>(known: &[I], id: &I) -> usize {
    known.iter().position(|one| one == id).unwrap()
}

/// What opens a page; where there is none, nothing does.
fn token(page: Option<&HolderPage>) -> String {
    let token = page.and_then(|page| page.url.rsplit('/').next());
    token.unwrap_or_default().to_owned()
}

/// Makes the operation one on an object that is there; `None` if there is none.
fn on(ledger: &MemoryLedger<'_>, op: &mut LedgerOp) -> Option<()> {
    let wrap = |at: &mut usize, len: usize| {
        *at = at.checked_rem(len)?;
        Some(())
    };
    let customer = |at: &mut usize| wrap(at, ledger.customers.len());
    let owner = |card: &mut IntentCard| {
        let IntentCard::Saved(owner) = card else {
            return Some(());
        };
        customer(owner)
    };
    match op {
        LedgerOp::Capture { of, .. } | LedgerOp::Refund { of, .. } => {
            wrap(of, ledger.charges.len())
        }
        LedgerOp::Pay { order, .. } | LedgerOp::Cancel(order) => wrap(order, ledger.orders.len()),
        LedgerOp::Detach(at) => customer(at),
        LedgerOp::NewIntent(new) => {
            new.customer.iter_mut().try_for_each(customer)?;
            new.card.iter_mut().try_for_each(owner)
        }
        LedgerOp::Intent(at, op) => {
            wrap(at, ledger.intents.len())?;
            match op {
                IntentOp::SetMethod(card) => owner(card),
                IntentOp::Confirm { card, .. } => card.iter_mut().try_for_each(owner),
                IntentOp::Update(_)
                | IntentOp::Authenticate { .. }
                | IntentOp::Capture(_)
                | IntentOp::Cancel
                | IntentOp::Refund(_) => Some(()),
            }
        }
        LedgerOp::Setup { customer: of, card } => {
            of.iter_mut().try_for_each(customer)?;
            owner(card)
        }
        LedgerOp::CancelSetup(setup) | LedgerOp::AuthenticateSetup { setup, .. } => {
            wrap(setup, ledger.setups.len())
        }
        LedgerOp::Charge { .. }
        | LedgerOp::Order(_)
        | LedgerOp::Customer
        | LedgerOp::Stock { .. }
        | LedgerOp::Checkout { .. } => Some(()),
    }
}

/// Runs a sequence, and compares what it leaves with the reference after each step.
fn check(ledger: &mut MemoryLedger<'_>, ops: Vec<LedgerOp>) -> Result<(), TestCaseError> {
    let mut reference = ReferenceLedger::default();
    for mut op in ops {
        if on(ledger, &mut op).is_none() {
            continue;
        }
        let is_done = reference.run(op);
        let status = ledger.do_op(op);
        prop_assert_eq!(status < 300, is_done, "{:?}: {}", op, status);
        let known = ReferenceLedger {
            methods: reference.methods.clone(),
            ..ledger.known()
        };
        prop_assert_eq!(&known, &reference, "{:?}", op);
    }
    for id in &ledger.intents {
        let intent: &PaymentIntent = ledger.rows.get(ledger.origin.account, *id).unwrap();
        let (status, charge) = (intent.status, intent.charge);
        let charge = charge.map(|id| ledger.charge(position(&ledger.charges, &id)));
        let taken = charge.map_or(0, |charge| charge.amount_captured);
        prop_assert_eq!(intent.amount_received, taken);
        let promised = charge.filter(|charge| charge.is_only_promised());
        let promised = promised.map_or(0, |charge| charge.amount.minor_units);
        prop_assert_eq!(intent.amount_capturable, promised);
        let is_awaited = status == IntentStatus::RequiresAction;
        prop_assert_eq!(intent.holder_page.is_some(), is_awaited);
        let is_canceled = status == IntentStatus::Canceled;
        prop_assert_eq!(intent.canceled_at.is_some(), is_canceled);
    }
    // What is given back has a refund each.
    for (at, id) in ledger.charges.iter().enumerate() {
        let refunds = ledger.rows.tables.refunds.of(ledger.origin.account);
        let of_charge = refunds.filter(|refund| refund.charge == *id);
        let sum: i64 = of_charge.map(|refund| refund.amount.minor_units).sum();
        prop_assert_eq!(ledger.charge(at).amount_refunded, sum);
    }
    Ok(())
}

/// How many sequences run on PostgreSQL: a few in CI, and some thousand in `make check-long`.
fn stored_sequences() -> u32 {
    let sequences = std::env::var("LEDGER_SEQUENCES");
    sequences.map_or(200, |number| number.parse().unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn verbs_move_money_as_the_reference_does(ops in vec(op(), 1..40)) {
        check(&mut MemoryLedger::new(AccountId(Uuid::from_u128(1)), None), ops)?;
    }
}

/// As for a late process, where the record of the step has expired.
#[test]
fn a_step_that_has_run_changes_nothing_when_it_runs_again() {
    let mut ledger = MemoryLedger::new(AccountId(Uuid::from_u128(1)), None);
    let stock = LedgerOp::Stock {
        sku: 0,
        quantity: 9,
    };
    let sale = LedgerOp::Checkout {
        sku: 0,
        quantity: 1,
        declines: false,
    };
    for op in [stock, sale] {
        assert!(ledger.do_op(op) < 300);
    }
    let checkouts = &ledger.rows.tables.checkouts;
    let checkout = checkouts.of(ledger.origin.account).next().unwrap().id;
    for step in StepName::ALL {
        let command = ledger.command(Ok(checkouts::RunStep {
            checkout,
            step: *step,
        }));
        let decided = command.decide(&ledger.named(&command), DateTime::UNIX_EPOCH);
        assert!(decided.unwrap().changes.is_none(), "{step:?}");
    }
}

#[test]
fn postgresql_holds_what_the_ledger_in_memory_does() {
    let mut runner = TestRunner::new(ProptestConfig {
        failure_persistence: None,
        cases: stored_sequences(),
        ..ProptestConfig::default()
    });
    let stored = RefCell::new(StoredLedger::start());
    let run = runner.run(&vec(op(), 1..40), |ops| {
        let mut stored = stored.borrow_mut();
        let account = stored.begin();
        let mut ledger = MemoryLedger::new(account, Some(&mut stored));
        check(&mut ledger, ops)?;
        let rows = ledger.rows;
        stored.holds(&rows);
        Ok(())
    });
    run.unwrap();
}
