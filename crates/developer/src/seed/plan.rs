//! What to create: the format of `--file`, and its limits.
//!
//! Promise: a file that can't be created whole for a reason that is known here is refused before
//! anything is sent, with the entry and the field at fault. Everything else the service checks.

use std::{collections::BTreeMap, fs::File, io::Read, path::Path};

use serde::{Deserialize, Serialize};

use crate::BoxError;

/// Bytes of a file.
const FILE_MAX: u64 = 4 * 1024 * 1024;

/// Entries of a file: a few minutes' work.
const ENTRIES_MAX: usize = 5000;

/// Refunds of one charge.
const REFUNDS_MAX: usize = 20;

/// Everything that is to be there in the end.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Plan {
    /// Set first, because checkouts take from it.
    pub(super) inventory: Vec<Level>,
    pub(super) orders: Vec<PlannedOrder>,
    pub(super) checkouts: Vec<PlannedCheckout>,
    pub(super) charges: Vec<PlannedCharge>,
    pub(super) customers: Vec<PlannedCustomer>,
    /// Those of no customer.
    pub(super) payment_intents: Vec<PlannedIntent>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Level {
    pub(super) sku: String,
    pub(super) quantity: i64,
}

/// A line of an order or a checkout.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PlannedItem {
    pub(super) sku: Option<String>,
    pub(super) description: Option<String>,
    pub(super) quantity: i64,
    pub(super) unit_amount: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum OrderStatus {
    #[default]
    Open,
    Paid,
    Canceled,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PlannedOrder {
    pub(super) currency: String,
    pub(super) items: Vec<PlannedItem>,
    pub(super) customer: Option<String>,
    pub(super) client_order_id: Option<String>,
    #[serde(default)]
    pub(super) metadata: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) status: OrderStatus,
    /// What it is paid with.
    pub(super) source: Option<String>,
    /// Amounts that are given back once it is paid, one refund each.
    #[serde(default)]
    pub(super) refunds: Vec<i64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PlannedCheckout {
    pub(super) currency: String,
    pub(super) items: Vec<PlannedItem>,
    pub(super) source: Option<String>,
    pub(super) customer: Option<String>,
    #[serde(default)]
    pub(super) metadata: BTreeMap<String, String>,
}

/// A charge without an order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PlannedCharge {
    pub(super) amount: i64,
    pub(super) currency: String,
    pub(super) source: Option<String>,
    pub(super) customer: Option<String>,
    pub(super) description: Option<String>,
    pub(super) receipt_email: Option<String>,
    pub(super) statement_descriptor: Option<String>,
    #[serde(default)]
    pub(super) metadata: BTreeMap<String, String>,
    /// `false` only promises the money.
    pub(super) capture: Option<bool>,
    /// With `capture` false: how much of it is taken after all.
    pub(super) capture_amount: Option<i64>,
    /// Amounts that are given back, one refund each.
    #[serde(default)]
    pub(super) refunds: Vec<i64>,
}

/// A customer, with the cards that are kept and the payments that are made.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct PlannedCustomer {
    pub(super) email: Option<String>,
    pub(super) name: Option<String>,
    pub(super) metadata: BTreeMap<String, String>,
    /// Test cards that are attached, such as `pm_card_visa`.
    pub(super) payment_methods: Vec<String>,
    pub(super) setup_intents: Vec<PlannedSetup>,
    pub(super) payment_intents: Vec<PlannedIntent>,
}

/// A card that is made ready for later payments.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct PlannedSetup {
    pub(super) payment_method: Option<String>,
    /// Whether the card is asked.
    pub(super) confirm: bool,
    pub(super) cancel: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PlannedIntent {
    pub(super) amount: i64,
    pub(super) currency: String,
    pub(super) description: Option<String>,
    #[serde(default)]
    pub(super) metadata: BTreeMap<String, String>,
    pub(super) payment_method: Option<String>,
    /// `manual` only promises the money.
    pub(super) capture_method: Option<String>,
    /// Whether the card is charged.
    #[serde(default)]
    pub(super) confirm: bool,
    /// How much of a promise is taken after all.
    pub(super) capture_amount: Option<i64>,
    #[serde(default)]
    pub(super) cancel: bool,
    /// Amounts that are given back, one refund each.
    #[serde(default)]
    pub(super) refunds: Vec<i64>,
}

impl Plan {
    pub(super) fn read(path: &Path) -> Result<Self, BoxError> {
        let shown = path.display();
        let mut text = String::new();
        File::open(path)
            .and_then(|file| file.take(FILE_MAX + 1).read_to_string(&mut text))
            .map_err(|error| format!("--file {shown} can't be read: {error}"))?;
        if text.len() as u64 > FILE_MAX {
            return Err(format!("--file {shown} must have at most 4 MiB").into());
        }
        Self::parse(&text).map_err(|error| format!("--file {shown}: {error}").into())
    }

    fn parse(text: &str) -> Result<Self, String> {
        // serde would take a list for an object's members in their order.
        if !text.trim_start().starts_with('{') {
            return Err("it must be a JSON object, in braces".to_owned());
        }
        let mut json = serde_json::Deserializer::from_str(text);
        let plan: Self =
            serde_path_to_error::deserialize(&mut json).map_err(|error| error.to_string())?;
        json.end().map_err(|error| error.to_string())?;
        plan.check()?;
        Ok(plan)
    }

    pub(super) fn len(&self) -> usize {
        let of_customer = |customer: &PlannedCustomer| {
            let setups = customer.setup_intents.len();
            1 + customer.payment_methods.len() + setups + customer.payment_intents.len()
        };
        self.inventory.len()
            + self.orders.len()
            + self.checkouts.len()
            + self.charges.len()
            + self.payment_intents.len()
            + self.customers.iter().map(of_customer).sum::<usize>()
    }

    fn check(&self) -> Result<(), String> {
        let count = self.len();
        if count == 0 {
            return Err(
                "nothing to create: it must have inventory, orders, checkouts, charges, customers \
                 or payment_intents"
                    .to_owned(),
            );
        }
        if count > ENTRIES_MAX {
            return Err(format!("at most {ENTRIES_MAX} entries, and it has {count}"));
        }
        for (index, order) in self.orders.iter().enumerate() {
            let at = format!("orders[{index}]");
            check_refunds(&at, &order.refunds)?;
            if order.status != OrderStatus::Paid
                && (order.source.is_some() || !order.refunds.is_empty())
            {
                return Err(format!(
                    "{at}.status: must be \"paid\", because the order has a source or refunds"
                ));
            }
        }
        for (index, charge) in self.charges.iter().enumerate() {
            let at = format!("charges[{index}]");
            check_refunds(&at, &charge.refunds)?;
            if charge.capture_amount.is_some() && charge.capture != Some(false) {
                return Err(format!(
                    "{at}.capture: must be false, because the charge has a capture_amount"
                ));
            }
        }
        check_intents("payment_intents", &self.payment_intents)?;
        for (index, customer) in self.customers.iter().enumerate() {
            let at = format!("customers[{index}].payment_intents");
            check_intents(&at, &customer.payment_intents)?;
        }
        Ok(())
    }
}

fn check_intents(list: &str, intents: &[PlannedIntent]) -> Result<(), String> {
    for (index, intent) in intents.iter().enumerate() {
        let at = format!("{list}[{index}]");
        check_refunds(&at, &intent.refunds)?;
        let takes = intent.capture_amount.is_some();
        if takes && intent.capture_method.as_deref() != Some("manual") {
            return Err(format!(
                "{at}.capture_method: must be \"manual\", because the payment has a capture_amount"
            ));
        }
        if (takes || !intent.refunds.is_empty()) && (!intent.confirm || intent.cancel) {
            return Err(format!(
                "{at}.confirm: must be true, and cancel false, because money is taken or given back"
            ));
        }
    }
    Ok(())
}

fn check_refunds(at: &str, refunds: &[i64]) -> Result<(), String> {
    if refunds.len() > REFUNDS_MAX {
        return Err(format!("{at}.refunds: at most {REFUNDS_MAX}"));
    }
    match refunds.iter().position(|amount| *amount < 1) {
        Some(index) => Err(format!("{at}.refunds[{index}]: must be at least 1")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
    use super::*;

    #[test]
    fn what_is_wrong_is_told_with_its_entry_and_field() {
        let order = r#"{"currency":"usd","items":[{"quantity":1,"unit_amount":5}]"#;
        for (text, told) in [
            ("", "must be a JSON object"),
            ("[]", "must be a JSON object"),
            ("{", "EOF while parsing"),
            ("{}", "nothing to create"),
            (r#"{"charge":[]}"#, "charge: unknown field `charge`"),
            (
                r#"{"charges":[{"amount":1,"currency":"usd"},{"currency":"usd"}]}"#,
                "charges[1]: missing field `amount`",
            ),
            (
                r#"{"orders":[{"currency":"usd","items":[{"quantity":"2","unit_amount":5}]}]}"#,
                "orders[0].items[0].quantity: invalid type: string \"2\"",
            ),
            (
                r#"{"checkouts":[{"currency":"usd","items":[{"price":5}]}]}"#,
                "checkouts[0].items[0].price: unknown field",
            ),
            (
                &format!(r#"{{"orders":[{order},"status":"sold"}}]}}"#),
                "orders[0].status: unknown variant `sold`",
            ),
            (
                &format!(r#"{{"orders":[{order},"refunds":[5]}}]}}"#),
                "orders[0].status: must be \"paid\"",
            ),
            (
                &format!(r#"{{"orders":[{order},"status":"paid","refunds":[5,0]}}]}}"#),
                "orders[0].refunds[1]: must be at least 1",
            ),
            (
                r#"{"charges":[{"amount":9,"currency":"usd","capture_amount":5}]}"#,
                "charges[0].capture: must be false",
            ),
            (r#"{"inventory":[{"sku":"a","quantity":1}]} x"#, "trailing"),
            (
                r#"{"payment_intents":[{"amount":9,"currency":"usd","confirm":true,"capture_amount":5}]}"#,
                "payment_intents[0].capture_method: must be \"manual\"",
            ),
            (
                r#"{"customers":[{"payment_intents":[{"amount":9,"currency":"usd","refunds":[5]}]}]}"#,
                "customers[0].payment_intents[0].confirm: must be true",
            ),
        ] {
            let refused = Plan::parse(text).unwrap_err();
            assert!(refused.contains(told), "{text}: {refused}");
        }
    }

    #[test]
    fn a_plan_has_an_end() {
        let levels = vec![r#"{"sku":"a","quantity":1}"#; ENTRIES_MAX + 1].join(",");
        let refused = Plan::parse(&format!(r#"{{"inventory":[{levels}]}}"#)).unwrap_err();
        let told = "at most 5000 entries, and it has 5001";
        assert!(refused.contains(told), "{refused}");
    }
}
