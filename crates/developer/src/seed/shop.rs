//! The data of a shop, made up.
//!
//! Promise: the same seed and number of orders make the same shop, in every release that doesn't
//! change this file. Every state of an object occurs.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

use super::plan::{
    Level, OrderStatus, Plan, PlannedCharge, PlannedCheckout, PlannedCustomer, PlannedIntent,
    PlannedItem, PlannedOrder, PlannedSetup,
};

/// Stock-keeping unit, name, price in cents.
const PRODUCTS: [(&str, &str, i64); 12] = [
    ("MUG-WHITE", "Mug, white", 1400),
    ("MUG-BLUE", "Mug, blue", 1600),
    ("TEAPOT", "Teapot, cast iron", 6900),
    ("TEA-GREEN-100", "Green tea, 100 g", 1250),
    ("TEA-BLACK-250", "Black tea, 250 g", 1890),
    ("COFFEE-500", "Coffee beans, 500 g", 1750),
    ("GRINDER", "Hand grinder", 8900),
    ("FILTERS-100", "Paper filters, 100", 550),
    ("SCALE", "Kitchen scale", 4500),
    ("KETTLE", "Gooseneck kettle", 11900),
    ("TRAY-OAK", "Oak tray", 3200),
    ("GIFT-WRAP", "Gift wrapping", 300),
];

/// Enough of each for every checkout of the largest shop.
const STOCK: i64 = 5000;

/// Sold out, so that a checkout of it is canceled.
const SOLD_OUT: (&str, &str, i64) = ("MUG-GOLD", "Mug, gold rim", 2900);

const CUSTOMERS: [&str; 16] = [
    "ada.lovelace",
    "alan.turing",
    "annie.easley",
    "barbara.liskov",
    "charles.babbage",
    "donald.knuth",
    "edsger.dijkstra",
    "frances.allen",
    "grace.hopper",
    "hedy.lamarr",
    "john.backus",
    "katherine.johnson",
    "margaret.hamilton",
    "niklaus.wirth",
    "radia.perlman",
    "tony.hoare",
];

const GOOD_CARDS: [&str; 3] = ["tok_visa", "tok_mastercard", "tok_amex"];

const BAD_CARDS: [&str; 6] = [
    "tok_chargeDeclined",
    "tok_chargeDeclinedInsufficientFunds",
    "tok_visa_chargeDeclinedLostCard",
    "tok_chargeDeclinedExpiredCard",
    "tok_chargeDeclinedIncorrectCvc",
    "tok_chargeDeclinedFraudulent",
];

/// Cards as payment methods. The holder of the last one must authenticate.
const GOOD_METHODS: [&str; 3] = ["pm_card_visa", "pm_card_mastercard", "pm_card_amex"];
const BAD_METHOD: &str = "pm_card_chargeDeclinedInsufficientFunds";
const ASKING_METHOD: &str = "pm_card_authenticationRequired";

const CURRENCY: &str = "usd";

/// A shop with so many orders, a third as many checkouts, half as many charges by themselves, a
/// sixth as many customers, who each have two payments, and as many payments of strangers.
pub(super) fn shop(seed: &str, orders: usize) -> Plan {
    let chance = Chance { seed };
    let (third, half, sixth) = (orders.div_ceil(3), orders.div_ceil(2), orders.div_ceil(6));
    let stock = PRODUCTS.iter().map(|(sku, _, _)| level(sku, STOCK));
    Plan {
        inventory: stock.chain([level(SOLD_OUT.0, 0)]).collect(),
        orders: (0..orders).map(|number| order(&chance, number)).collect(),
        checkouts: (0..third).map(|number| checkout(&chance, number)).collect(),
        charges: (0..half).map(|number| charge(&chance, number)).collect(),
        customers: (0..sixth).map(|number| customer(&chance, number)).collect(),
        payment_intents: (0..sixth)
            .map(|number| payment(&chance, "stranger", number))
            .collect(),
    }
}

fn level(sku: &str, quantity: i64) -> Level {
    Level {
        sku: sku.to_owned(),
        quantity,
    }
}

/// Of twelve orders in a row: seven are paid, one is paid and partly refunded, one wholly, one is
/// canceled, one is open, and one is open because its card was declined.
fn order(chance: &Chance<'_>, number: usize) -> PlannedOrder {
    let items = items(chance, "order", number);
    let amounts = items.iter().map(|item| item.quantity * item.unit_amount);
    let total: i64 = amounts.sum();
    let bad_card = Some(chance.pick(&BAD_CARDS, "bad card", number));
    let good_card = Some(chance.pick(&GOOD_CARDS, "card", number));
    let (status, source, refunds) = match number % 12 {
        3 => (OrderStatus::Paid, good_card, vec![total / 3]),
        5 => (OrderStatus::Canceled, None, vec![]),
        7 => (OrderStatus::Paid, bad_card, vec![]),
        9 => (OrderStatus::Paid, good_card, vec![total]),
        11 => (OrderStatus::Open, None, vec![]),
        _ => (OrderStatus::Paid, good_card, vec![]),
    };
    PlannedOrder {
        currency: CURRENCY.to_owned(),
        items,
        customer: Some(chance.customer("order", number)),
        client_order_id: Some(format!("seed-{}-{}", chance.seed, 1001 + number)),
        metadata: channel(chance, number),
        status,
        source: source.map(str::to_owned),
        refunds,
    }
}

/// Of six checkouts in a row: four are completed, one is declined, one is out of stock.
fn checkout(chance: &Chance<'_>, number: usize) -> PlannedCheckout {
    let mut items = items(chance, "checkout", number);
    if number % 6 == 2 {
        items.push(item(SOLD_OUT, 1));
    }
    let source = if number % 6 == 1 {
        chance.pick(&BAD_CARDS, "bad card of a checkout", number)
    } else {
        chance.pick(&GOOD_CARDS, "card of a checkout", number)
    };
    PlannedCheckout {
        currency: CURRENCY.to_owned(),
        items,
        source: Some(source.to_owned()),
        customer: Some(chance.customer("checkout", number)),
        metadata: channel(chance, number),
    }
}

/// Of eight charges in a row: two are taken at once, two are declined, one is only promised, one is
/// taken in part, one is taken later, and one is partly refunded twice.
fn charge(chance: &Chance<'_>, number: usize) -> PlannedCharge {
    let amount = 500 + 25 * chance.roll("amount", number, 800);
    let is_bad = matches!(number % 8, 1 | 6);
    let cards: &[_] = if is_bad { &BAD_CARDS } else { &GOOD_CARDS };
    let (capture, capture_amount, refunds) = match number % 8 {
        2 => (Some(false), None, vec![]),
        3 => (Some(false), Some(amount / 2), vec![]),
        4 => (None, None, vec![amount / 4, amount / 5]),
        5 => (Some(false), Some(amount), vec![]),
        _ => (None, None, vec![]),
    };
    let customer = chance.customer("charge", number);
    PlannedCharge {
        amount,
        currency: CURRENCY.to_owned(),
        source: Some(chance.pick(cards, "card of a charge", number).to_owned()),
        description: Some(format!("Repair {}", 301 + number)),
        receipt_email: Some(format!("{customer}@example.com")),
        customer: Some(customer),
        statement_descriptor: Some("TEA AND MUGS".to_owned()),
        metadata: channel(chance, number),
        capture,
        capture_amount,
        refunds,
    }
}

/// Of four setups in a row: one is ready, one is declined, one waits for the card's holder, and one
/// is canceled.
fn customer(chance: &Chance<'_>, number: usize) -> PlannedCustomer {
    let name = CUSTOMERS.get(number % CUSTOMERS.len());
    let name = name.copied().unwrap_or_default();
    let (method, confirm, cancel) = match number % 4 {
        1 => (Some(BAD_METHOD), true, false),
        2 => (Some(ASKING_METHOD), true, false),
        3 => (None, false, true),
        _ => (Some("pm_card_visa"), true, false),
    };
    let payments = [2 * number, 2 * number + 1];
    PlannedCustomer {
        email: Some(format!("{name}@example.com")),
        name: Some(name.to_owned()),
        metadata: channel(chance, number),
        payment_methods: vec![chance.pick(&GOOD_METHODS, "kept card", number).to_owned()],
        setup_intents: vec![PlannedSetup {
            payment_method: method.map(str::to_owned),
            confirm,
            cancel,
        }],
        payment_intents: payments
            .map(|payment_number| payment(chance, "customer", payment_number))
            .into(),
    }
}

/// Of eight payments in a row: one is paid, one declined, one promised, one taken in part, one
/// canceled, one waits for its card's holder, one has not been confirmed, and one is given back.
fn payment(chance: &Chance<'_>, of: &str, number: usize) -> PlannedIntent {
    let amount = 500 + 25 * chance.roll(&format!("payment of {of}"), number, 800);
    let method = match number % 8 {
        1 => BAD_METHOD,
        5 => ASKING_METHOD,
        _ => chance.pick(&GOOD_METHODS, &format!("method of {of}"), number),
    };
    let is_manual = matches!(number % 8, 2..5);
    PlannedIntent {
        amount,
        currency: CURRENCY.to_owned(),
        description: Some(format!("Tea club {}", 501 + number)),
        metadata: channel(chance, number),
        payment_method: Some(method.to_owned()),
        capture_method: is_manual.then(|| "manual".to_owned()),
        confirm: number % 8 != 6,
        capture_amount: (number % 8 == 3).then_some(amount / 2),
        cancel: number % 8 == 4,
        refunds: match number % 8 {
            7 => vec![amount / 3],
            _ => vec![],
        },
    }
}

fn items(chance: &Chance<'_>, of: &str, number: usize) -> Vec<PlannedItem> {
    let lines = 1 + chance.roll(&format!("lines of {of}"), number, 3);
    (0..lines)
        .map(|line| {
            let product = chance.pick(&PRODUCTS, &format!("product {line} of {of}"), number);
            let quantity = 1 + chance.roll(&format!("quantity {line} of {of}"), number, 3);
            item(product, quantity)
        })
        .collect()
}

fn item((sku, name, price): (&str, &str, i64), quantity: i64) -> PlannedItem {
    PlannedItem {
        sku: Some(sku.to_owned()),
        description: Some(name.to_owned()),
        quantity,
        unit_amount: price,
    }
}

fn channel(chance: &Chance<'_>, number: usize) -> BTreeMap<String, String> {
    let channel = chance.pick(&["web", "app", "store"], "channel", number);
    [("channel".to_owned(), channel.to_owned())].into()
}

/// Chance that is the same each time. No generator of random numbers promises its numbers to the
/// next release.
struct Chance<'a> {
    seed: &'a str,
}

impl Chance<'_> {
    /// A number from 0 to `sides - 1`.
    fn roll(&self, what: &str, number: usize, sides: u16) -> i64 {
        let digest = Sha256::digest(format!("{}/{what}/{number}", self.seed));
        let bytes = digest.iter().take(4);
        let bits = bytes.fold(0_i64, |all, byte| all << 8 | i64::from(*byte));
        bits % i64::from(sides)
    }

    fn pick<T: Copy>(&self, from: &[T], what: &str, number: usize) -> T {
        let sides = u16::try_from(from.len()).unwrap_or(u16::MAX);
        let at = usize::try_from(self.roll(what, number, sides)).unwrap_or_default();
        #[expect(
            clippy::indexing_slicing,
            reason = "less than the length of a list that is not empty"
        )]
        from[at]
    }

    fn customer(&self, of: &str, number: usize) -> String {
        self.pick(&CUSTOMERS, &format!("customer of {of}"), number)
            .to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_makes_the_same_shop_and_another_one_another() {
        assert_eq!(shop("a", 40), shop("a", 40));
        assert_ne!(shop("a", 40), shop("b", 40));
    }
}
