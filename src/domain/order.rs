//! What an order is made of, and how its total is computed.

use serde::{Deserialize, Serialize};

use super::{
    charge::{Card, Charge, NewCharge, REFERENCE_MAX_CHARS, currency, source},
    error::{ApiError, ErrorCode},
    list::Expandable,
    money::{AMOUNT_MAX, Currency},
    params::{Fields, Metadata, MetadataChange, Params},
};

/// The most lines that an order has.
pub const ITEMS_MAX: usize = 100;
const QUANTITY_MAX: i64 = 10_000;
/// Longest stock-keeping unit and item description, in characters.
pub const ITEM_TEXT_MAX_CHARS: usize = 255;

/// One line of an order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Item {
    /// Quantity times unit amount, in minor units.
    #[schema(example = 2400)]
    pub amount: i64,
    /// For people.
    #[schema(required = true)]
    pub description: Option<String>,
    /// 1 to 10 000.
    #[schema(example = 2)]
    pub quantity: i64,
    /// Your stock-keeping unit.
    #[schema(required = true, example = "mug")]
    pub sku: Option<String>,
    /// Minor units, 0 to 99 999 999.
    #[schema(example = 1200)]
    pub unit_amount: i64,
}

/// The checked parameters of a new order. Serialised, it is the content that a second create with
/// the same `client_order_id` is compared by.
#[derive(Debug, Clone, Serialize)]
pub struct NewOrder {
    /// The sum of the items, in minor units.
    pub amount: i64,
    /// What the amounts count.
    #[serde(serialize_with = "as_text")]
    pub currency: Currency,
    /// 1 to 100 lines.
    pub items: Vec<Item>,
    /// The client's own reference.
    pub customer: Option<String>,
    /// The client's own id of the order.
    pub client_order_id: Option<String>,
    /// The client's own names.
    pub metadata: Metadata,
    /// Whether the reply shows the whole charge: how the order is shown is not what it is.
    #[serde(skip)]
    pub expand_charge: bool,
}

fn as_text<S: serde::Serializer>(currency: &Currency, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(currency)
}

impl NewOrder {
    /// Checks the parameters of `POST /orders` and computes the total.
    pub fn parse(params: &Params) -> Result<Self, ApiError> {
        let mut fields = params.fields()?;
        let currency = currency(&mut fields)?;
        let items = fields.objects("items", 1..=ITEMS_MAX, item)?;
        let amount = total(&items)?;
        let new_order = Self {
            amount,
            currency,
            items,
            customer: fields.text("customer", REFERENCE_MAX_CHARS)?,
            client_order_id: fields.text("client_order_id", REFERENCE_MAX_CHARS)?,
            metadata: fields.metadata()?,
            expand_charge: fields.expands("charge")?,
        };
        fields.finish()?;
        Ok(new_order)
    }
}

/// The checked parameters of a change to an order.
#[derive(Debug, Clone)]
pub struct OrderUpdate {
    /// The client's own names.
    pub metadata: MetadataChange,
    /// Whether the reply shows the whole charge.
    pub expand_charge: bool,
}

impl OrderUpdate {
    /// Checks the parameters of `POST /orders/{id}`.
    pub fn parse(params: &Params) -> Result<Self, ApiError> {
        let mut fields = params.fields()?;
        let update = Self {
            metadata: fields.metadata_change()?,
            expand_charge: fields.expands("charge")?,
        };
        fields.finish()?;
        Ok(update)
    }
}

/// The checked parameters of a payment.
#[derive(Debug, Clone)]
pub struct Payment {
    /// The card that pays.
    pub card: Card,
    /// Whether the reply shows the whole charge.
    pub expand_charge: bool,
}

impl Payment {
    /// Checks the parameters of `POST /orders/{id}/pay`.
    pub fn parse(params: &Params) -> Result<Self, ApiError> {
        let mut fields = params.fields()?;
        let payment = Self {
            card: source(&mut fields)?,
            expand_charge: fields.expands("charge")?,
        };
        fields.finish()?;
        Ok(payment)
    }
}

/// The checked parameters of a cancellation: there are none but `expand`.
#[derive(Debug, Clone)]
pub struct Cancellation {
    /// Whether the reply shows the whole charge.
    pub expand_charge: bool,
}

impl Cancellation {
    /// Checks the parameters of `POST /orders/{id}/cancel`.
    pub fn parse(params: &Params) -> Result<Self, ApiError> {
        let mut fields = params.fields()?;
        let expand_charge = fields.expands("charge")?;
        fields.finish()?;
        Ok(Self { expand_charge })
    }
}

/// Where an order stands.
///
/// ```text
/// open ── pay ──▶ paid ── all of its charge refunded ──▶ refunded
///   └─── cancel ─▶ canceled
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
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

/// Why an order can't leave its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OrderRefusal {
    /// It was paid, whether refunded since or not.
    AlreadyPaid,
    /// It was canceled.
    Canceled,
}

impl OrderStatus {
    /// All of them.
    pub const ALL: &'static [Self] = &[Self::Open, Self::Paid, Self::Canceled, Self::Refunded];

    /// Its name, in replies and in the table.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Paid => "paid",
            Self::Canceled => "canceled",
            Self::Refunded => "refunded",
        }
    }

    /// The status with this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|status| status.as_str() == name)
    }

    /// Paying and cancelling both need an order that neither has happened to.
    pub fn must_be_open(self) -> Result<(), OrderRefusal> {
        match self {
            Self::Open => Ok(()),
            Self::Paid | Self::Refunded => Err(OrderRefusal::AlreadyPaid),
            Self::Canceled => Err(OrderRefusal::Canceled),
        }
    }
}

impl From<OrderRefusal> for ApiError {
    fn from(refusal: OrderRefusal) -> Self {
        Self::explained(match refusal {
            OrderRefusal::AlreadyPaid => ErrorCode::OrderAlreadyPaid,
            OrderRefusal::Canceled => ErrorCode::OrderCanceled,
        })
        .with_param("id".to_owned())
    }
}

/// One line.
pub(super) fn item(fields: &mut Fields<'_>) -> Result<Item, ApiError> {
    let sku = fields.text("sku", ITEM_TEXT_MAX_CHARS)?;
    let description = fields.text("description", ITEM_TEXT_MAX_CHARS)?;
    let Some(quantity) = fields.integer("quantity", 1..=QUANTITY_MAX)? else {
        return Err(fields.missing("quantity"));
    };
    let Some(unit_amount) = fields.amount("unit_amount", 0)? else {
        return Err(fields.missing("unit_amount"));
    };
    // At most 10^4 times 10^8: no overflow.
    Ok(Item {
        amount: quantity * unit_amount,
        description,
        quantity,
        sku,
        unit_amount,
    })
}

/// The sum of the lines. At most 100 times 10^12: no overflow either.
pub(super) fn total(items: &[Item]) -> Result<i64, ApiError> {
    match items.iter().map(|item| item.amount).sum() {
        0 => Err(ApiError::new(
            ErrorCode::ParameterInvalid,
            "The order's total must not be zero.",
        )
        .with_param("items".to_owned())),
        total if total > AMOUNT_MAX => {
            Err(ApiError::explained(ErrorCode::AmountTooLarge).with_param("items".to_owned()))
        }
        total => Ok(total),
    }
}

impl Order {
    /// The charge that pays all of it with `card`; `None` if its currency isn't one.
    pub fn charge_for(&self, card: Card) -> Option<NewCharge> {
        Some(NewCharge {
            amount: self.amount,
            currency: Currency::parse(&self.currency)?,
            card,
            capture: true,
            customer: self.customer.clone(),
            description: None,
            statement_descriptor: None,
            receipt_email: None,
            metadata: Metadata::new(),
            expand_refunds: false,
        })
    }
}

/// An order, as clients see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct Order {
    /// `or_…`
    #[schema(example = "or_01kar2w7n9e4xt8f5mq0v3z6yd")]
    pub id: String,
    /// Always `order`.
    #[schema(example = "order")]
    pub object: &'static str,
    /// The sum of the items, in minor units.
    #[schema(example = 2400)]
    pub amount: i64,
    /// The charge that paid it; whole with `expand[]=charge`.
    #[schema(required = true)]
    pub charge: Option<Expandable<Charge>>,
    /// Your own id of the order.
    #[schema(required = true)]
    pub client_order_id: Option<String>,
    /// Unix seconds.
    #[schema(example = 1_795_000_000)]
    pub created: i64,
    /// ISO 4217, lower case.
    #[schema(example = "eur")]
    pub currency: String,
    /// Your own reference.
    #[schema(required = true)]
    pub customer: Option<String>,
    /// The lines.
    pub items: Vec<Item>,
    /// Always false.
    #[schema(example = false)]
    pub livemode: bool,
    /// Your own names.
    #[schema(value_type = BTreeMap<String, String>)]
    pub metadata: Metadata,
    /// Where it stands.
    #[schema(example = "open")]
    pub status: OrderStatus,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
    use serde_json::{Value, json};

    use super::*;
    use crate::domain::params::Encoding;

    /// Every order keeps a hash of these bytes. If they ever changed, no create with a
    /// `client_order_id` from before the upgrade would be recognised as the same: its client would
    /// be told that its own order has other content. Another serialisation needs a version beside
    /// the hash, as fingerprints have one.
    #[test]
    fn the_content_of_an_order_is_serialised_as_always() {
        let whole = json!({
            "client_order_id": "web-6735", "currency": "EUR", "customer": "Zoë",
            "items": [
                {"sku": "mug", "description": "A \"mug\"", "quantity": 2, "unit_amount": 1200},
                {"quantity": 1, "unit_amount": 0},
            ],
            "metadata": {"channel": "web", "campaign": ""},
        });
        let bare = json!({"currency": "usd", "items": [{"quantity": 1, "unit_amount": 1}]});
        for (body, content) in [
            (
                whole,
                concat!(
                    r#"{"amount":2400,"client_order_id":"web-6735","currency":"eur","#,
                    r#""customer":"Zoë","items":["#,
                    r#"{"amount":2400,"description":"A \"mug\"","quantity":2,"sku":"mug","#,
                    r#""unit_amount":1200},"#,
                    r#"{"amount":0,"description":null,"quantity":1,"sku":null,"unit_amount":0}],"#,
                    r#""metadata":{"channel":"web"}}"#,
                ),
            ),
            (
                bare,
                concat!(
                    r#"{"amount":1,"client_order_id":null,"currency":"usd","customer":null,"#,
                    r#""items":[{"amount":1,"description":null,"quantity":1,"sku":null,"#,
                    r#""unit_amount":1}],"metadata":{}}"#,
                ),
            ),
        ] {
            let Value::Object(tree) = body else {
                unreachable!("both are objects")
            };
            let params = Params {
                encoding: Encoding::Json,
                tree: Ok(tree),
            };
            let order = NewOrder::parse(&params).unwrap();
            let canonical = serde_json_canonicalizer::to_string(&order).unwrap();
            assert_eq!(canonical, content);
        }
    }
}
