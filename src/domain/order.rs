//! An order: what a customer wants to buy, its total, and where it stands.

use serde::{Serializer, ser::SerializeStruct};

use super::{
    charge::{Card, NewCharge},
    money::AMOUNT_MAX,
    prelude::*,
};

/// The most lines that an order has.
pub const ITEMS_MAX: usize = 100;
/// The most pieces that a line has.
pub const QUANTITY_MAX: i64 = 10_000;
/// Longest stock-keeping unit and item description, in characters.
pub const ITEM_TEXT_MAX_CHARS: usize = 255;

/// One line of an order.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Item {
    /// The client's stock-keeping unit.
    pub sku: Option<String>,
    /// For people.
    pub description: Option<String>,
    /// 1 to 10 000.
    pub quantity: i64,
    /// The price of one, in minor units: 0 to 99 999 999.
    pub unit_amount: i64,
}

impl Item {
    /// What the line costs, in minor units. At most 10^4 times 10^8: no overflow.
    pub fn amount(&self) -> i64 {
        self.quantity * self.unit_amount
    }
}

/// With what the line costs, which the release before reads.
impl Serialize for Item {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut item = serializer.serialize_struct("Item", 5)?;
        item.serialize_field("amount", &self.amount())?;
        item.serialize_field("description", &self.description)?;
        item.serialize_field("quantity", &self.quantity)?;
        item.serialize_field("sku", &self.sku)?;
        item.serialize_field("unit_amount", &self.unit_amount)?;
        item.end()
    }
}

/// Why lines have no total.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TotalRefusal {
    /// All of them together cost nothing.
    Zero,
    /// They cost more than [`AMOUNT_MAX`].
    TooLarge,
}

/// The sum of the lines, in minor units. At most 100 times 10^12: no overflow either.
pub fn total(items: &[Item]) -> Result<i64, TotalRefusal> {
    match items.iter().map(Item::amount).sum() {
        0 => Err(TotalRefusal::Zero),
        total if total > AMOUNT_MAX => Err(TotalRefusal::TooLarge),
        total => Ok(total),
    }
}

/// What a customer wants to buy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderTerms {
    /// The sum of the items.
    #[serde(flatten)]
    pub amount: Money,
    /// The client's own id of the order. A checkout's order has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_order_id: Option<String>,
    /// The client's own reference.
    pub customer: Option<String>,
    /// 1 to 100 lines.
    pub items: Vec<Item>,
    /// The client's own names.
    pub metadata: Metadata,
}

named! {
    /// Where an order stands.
    ///
    /// ```text
    /// open ── pay ──▶ paid ── all of its charge refunded ──▶ refunded
    ///   └─── cancel ─▶ canceled
    /// ```
    pub enum OrderStatus {
        /// To be paid or canceled. A declined payment leaves it open.
        Open,
        /// It has its one charge.
        Paid,
        /// Closed for good, without a charge.
        Canceled,
        /// All of its charge was given back.
        Refunded,
    }
}

/// Why an order can't leave its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OrderRefusal {
    /// It was paid, whether refunded since or not.
    AlreadyPaid,
    /// It was canceled.
    Canceled,
}

impl OrderStatus {
    /// Paying and canceling both need an order that neither has happened to.
    pub fn must_be_open(self) -> Result<(), OrderRefusal> {
        match self {
            Self::Open => Ok(()),
            Self::Paid | Self::Refunded => Err(OrderRefusal::AlreadyPaid),
            Self::Canceled => Err(OrderRefusal::Canceled),
        }
    }
}

/// An order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// Which one.
    pub id: OrderId,
    /// What was ordered.
    #[serde(flatten)]
    pub terms: OrderTerms,
    /// The charge that paid it.
    #[serde(rename = "charge_id")]
    pub charge: Option<ChargeId>,
    /// Where it stands.
    pub status: OrderStatus,
    /// What tells its content from another order's: a SHA-256.
    #[serde(with = "columns::bytes")]
    pub content_hash: Vec<u8>,
    /// 1 when it is written, and one more with each change.
    pub version: i64,
    /// When it was written, by the database's clock.
    pub created_at: DateTime<Utc>,
}

impl Order {
    /// The order that `terms` open.
    pub fn opened(
        id: OrderId,
        terms: OrderTerms,
        content_hash: Vec<u8>,
        created_at: DateTime<Utc>,
    ) -> Self {
        Self {
            id,
            terms,
            charge: None,
            status: OrderStatus::Open,
            content_hash,
            version: 1,
            created_at,
        }
    }

    /// The charge that pays all of it with `card`.
    pub fn charge_for(&self, card: Card) -> NewCharge {
        NewCharge {
            amount: self.terms.amount,
            card,
            capture: true,
            customer: self.terms.customer.clone(),
            description: None,
            statement_descriptor: None,
            receipt_email: None,
            metadata: Metadata::new(),
        }
    }
}
