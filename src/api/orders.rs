//! Orders as clients send and see them.

use charge_once_strict_params::Fields;
use serde::Serialize;

use super::{
    charge_views::ChargeView,
    error::{ApiError, ErrorCode},
    list::Expandable,
    metadata::{metadata, metadata_change},
    names::OrderStatusView,
    params::{Params, REFERENCE_MAX_CHARS, amount, currency},
    source::source,
};
use crate::domain::{
    charge::{Card, Charge},
    metadata::{Metadata, MetadataChange},
    money::Money,
    order::{
        ITEM_TEXT_MAX_CHARS, ITEMS_MAX, Item, NewOrder, Order, OrderRefusal, QUANTITY_MAX,
        TotalRefusal, total,
    },
};

/// The parameters of `POST /orders`.
#[derive(Debug, Clone)]
pub struct CreateOrderParams {
    /// What is to be opened.
    pub new: NewOrder,
    /// Whether the reply shows the whole charge.
    pub expand_charge: bool,
}

impl CreateOrderParams {
    /// Checks them and computes the total.
    pub fn parse(params: &Params) -> Result<Self, ApiError> {
        let mut fields = params.fields()?;
        let currency = currency(&mut fields)?;
        let items = fields.objects("items", 1..=ITEMS_MAX, item)?;
        let minor_units = total(&items)?;
        let new = NewOrder {
            amount: Money {
                minor_units,
                currency,
            },
            items,
            customer: fields.text("customer", REFERENCE_MAX_CHARS)?,
            client_order_id: fields.text("client_order_id", REFERENCE_MAX_CHARS)?,
            metadata: metadata(&mut fields)?,
        };
        let expand_charge = fields.expands("charge")?;
        fields.finish()?;
        Ok(Self { new, expand_charge })
    }
}

/// The parameters of `POST /orders/{id}`.
#[derive(Debug, Clone)]
pub struct UpdateOrderParams {
    /// The client's own names.
    pub metadata: MetadataChange,
    /// Whether the reply shows the whole charge.
    pub expand_charge: bool,
}

impl UpdateOrderParams {
    /// Checks them.
    pub fn parse(params: &Params) -> Result<Self, ApiError> {
        let mut fields = params.fields()?;
        let update = Self {
            metadata: metadata_change(&mut fields)?,
            expand_charge: fields.expands("charge")?,
        };
        fields.finish()?;
        Ok(update)
    }
}

/// The parameters of `POST /orders/{id}/pay`.
#[derive(Debug, Clone)]
pub struct PayOrderParams {
    /// The card that pays.
    pub card: Card,
    /// Whether the reply shows the whole charge.
    pub expand_charge: bool,
}

impl PayOrderParams {
    /// Checks them.
    pub fn parse(params: &Params) -> Result<Self, ApiError> {
        let mut fields = params.fields()?;
        let payment = Self {
            card: source(&mut fields, params.allows_lost_reply)?,
            expand_charge: fields.expands("charge")?,
        };
        fields.finish()?;
        Ok(payment)
    }
}

/// The parameters of `POST /orders/{id}/cancel`: there are none but `expand`.
#[derive(Debug, Clone)]
pub struct CancelOrderParams {
    /// Whether the reply shows the whole charge.
    pub expand_charge: bool,
}

impl CancelOrderParams {
    /// Checks them.
    pub fn parse(params: &Params) -> Result<Self, ApiError> {
        let mut fields = params.fields()?;
        let expand_charge = fields.expands("charge")?;
        fields.finish()?;
        Ok(Self { expand_charge })
    }
}

/// One line.
pub(super) fn item(fields: &mut Fields<'_>) -> Result<Item, ApiError> {
    let sku = fields.text("sku", ITEM_TEXT_MAX_CHARS)?;
    let description = fields.text("description", ITEM_TEXT_MAX_CHARS)?;
    let Some(quantity) = fields.integer("quantity", 1..=QUANTITY_MAX)? else {
        return Err(fields.missing("quantity").into());
    };
    let Some(unit_amount) = amount(fields, "unit_amount", 0)? else {
        return Err(fields.missing("unit_amount").into());
    };
    Ok(Item {
        sku,
        description,
        quantity,
        unit_amount,
    })
}

impl From<TotalRefusal> for ApiError {
    fn from(refusal: TotalRefusal) -> Self {
        match refusal {
            TotalRefusal::Zero => Self::new(
                ErrorCode::ParameterInvalid,
                "The order's total must not be zero.",
            ),
            TotalRefusal::TooLarge => Self::explained(ErrorCode::AmountTooLarge),
        }
        .with_param("items".to_owned())
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

/// What an order is for. Serialized, it is what a second create with the same `client_order_id` is
/// compared by.
#[derive(Debug, Serialize)]
pub struct OrderContent<'a> {
    amount: i64,
    client_order_id: Option<&'a str>,
    currency: String,
    customer: Option<&'a str>,
    items: Vec<ItemView>,
    metadata: &'a Metadata,
}

impl<'a> From<&'a NewOrder> for OrderContent<'a> {
    fn from(new: &'a NewOrder) -> Self {
        Self {
            amount: new.amount.minor_units,
            client_order_id: new.client_order_id.as_deref(),
            currency: new.amount.currency.to_string(),
            customer: new.customer.as_deref(),
            items: new.items.iter().map(ItemView::from).collect(),
            metadata: &new.metadata,
        }
    }
}

/// One line of an order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[schema(as = Item)]
pub struct ItemView {
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

impl From<&Item> for ItemView {
    fn from(item: &Item) -> Self {
        Self {
            amount: item.amount(),
            description: item.description.clone(),
            quantity: item.quantity,
            sku: item.sku.clone(),
            unit_amount: item.unit_amount,
        }
    }
}

/// An order, as clients see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[schema(as = Order)]
pub struct OrderView {
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
    pub charge: Option<Expandable<ChargeView>>,
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
    pub items: Vec<ItemView>,
    /// Always false.
    #[schema(example = false)]
    pub livemode: bool,
    /// Your own names.
    #[schema(value_type = BTreeMap<String, String>)]
    pub metadata: Metadata,
    /// Where it stands.
    #[schema(example = "open")]
    pub status: OrderStatusView,
}

impl OrderView {
    /// The order with the whole charge that paid it.
    #[must_use]
    pub fn with_charge(mut self, charge: &Charge) -> Self {
        self.charge = Some(Expandable::Object(Box::new(charge.into())));
        self
    }
}

impl From<&Order> for OrderView {
    fn from(order: &Order) -> Self {
        Self {
            id: order.id.to_string(),
            object: "order",
            amount: order.amount.minor_units,
            charge: order.charge.map(|id| Expandable::Id(id.to_string())),
            client_order_id: order.client_order_id.clone(),
            created: order.created_at.timestamp(),
            currency: order.amount.currency.to_string(),
            customer: order.customer.clone(),
            items: order.items.iter().map(ItemView::from).collect(),
            livemode: false,
            metadata: order.metadata.clone(),
            status: OrderStatusView(order.status),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
    use charge_once_strict_params::Encoding;
    use serde_json::{Value, json};

    use super::*;

    /// Every order keeps a hash of these bytes. If they ever changed, no create with a
    /// `client_order_id` from before the upgrade would be recognized as the same: its client would
    /// be told that its own order has other content. Another serialization needs a version beside
    /// the hash, as fingerprints have one.
    #[test]
    fn the_content_of_an_order_is_serialized_as_always() {
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
            let params = Params::new(Encoding::Json, Ok(tree));
            let order = CreateOrderParams::parse(&params).unwrap();
            let compared = OrderContent::from(&order.new);
            let canonical = serde_json_canonicalizer::to_string(&compared).unwrap();
            assert_eq!(canonical, content);
        }
    }
}
