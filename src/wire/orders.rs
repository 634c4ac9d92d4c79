//! Orders as clients send and see them.

use std::marker::PhantomData;

use charge_once_strict_params::{Fields, Reason};
use serde::Serialize;

use super::{charges::ChargeView, names::OrderStatusView, prelude::*, source::SourceParam};
use crate::domain::order::{
    ITEM_TEXT_MAX_CHARS, ITEMS_MAX, Item, Order, OrderRefusal, OrderTerms, QUANTITY_MAX,
    TotalRefusal, total,
};

parameters! {
    /// The parameters of a new order.
    pub struct CreateOrderParams as "CreateOrder" {
        currency: Currency,
        items: Lines<ItemParams>,
        /// Your own reference.
        customer: Option<Reference>,
        /// Your own id of the order, unique in the account: a second create with it and the same
        /// content answers 200 with the order as it is then.
        client_order_id: Option<Reference>,
        metadata: MetadataParam,
        expand: Expand<ExpandOrder>,
    }
    example {
        "currency": "eur", "items": [{"sku": "mug", "quantity": 2, "unit_amount": 1200}],
        "metadata": {"channel": "web"},
    }

    /// One line.
    pub struct ItemParams as "CreateOrderItem" {
        /// Your stock-keeping unit.
        sku: Option<Text<ITEM_TEXT_MAX_CHARS>>,
        /// For people.
        description: Option<Text<ITEM_TEXT_MAX_CHARS>>,
        /// How many.
        quantity: Integer<1, QUANTITY_MAX>,
        /// Minor units.
        unit_amount: Amount<0>,
    }
    into Item

    /// How an order is paid.
    pub struct PayOrderParams as "PayOrder" {
        source: SourceParam,
        expand: Expand<ExpandOrder>,
    }
    example {"source": "tok_visa"}

    /// What may change of an order.
    pub struct UpdateOrderParams as "UpdateOrder" {
        metadata: MetadataChange,
        expand: Expand<ExpandOrder>,
    }
    example {"metadata": {"channel": "telephone"}}

    /// No parameters but how the reply is shown.
    pub struct CancelOrderParams as "Expand" {
        expand: Expand<ExpandOrder>,
    }
    example {}
}

impl From<CreateOrderParams> for OrderTerms {
    fn from(params: CreateOrderParams) -> Self {
        Self {
            amount: Money {
                minor_units: params.items.total,
                currency: params.currency,
            },
            items: params.items.items,
            customer: params.customer,
            client_order_id: params.client_order_id,
            metadata: params.metadata,
        }
    }
}

/// The parameter `items`: 1 to [`ITEMS_MAX`] lines, each with the parameters `P`.
pub struct Lines<P>(PhantomData<P>);

/// What an order or a checkout is for.
#[derive(Debug, Clone)]
pub struct ItemsAndTotal {
    /// Its lines.
    pub items: Vec<Item>,
    /// Their sum, in minor units.
    pub total: i64,
}

impl<P: ParameterSet + ToSchema + Into<Item>> ValueKind for Lines<P> {
    type Value = ItemsAndTotal;

    fn read(field: &mut Field<'_, '_>) -> Result<Option<ItemsAndTotal>, Error> {
        let item = |fields: &mut Fields<'_>| P::read(fields).map(P::into);
        let items = field.fields.objects(field.name, 1..=ITEMS_MAX, item)?;
        let total = total(&items).map_err(refused)?;
        Ok(Some(ItemsAndTotal { items, total }))
    }

    fn schema() -> RefOr<Schema> {
        list_of::<P>()
            .description(Some("The lines."))
            .min_items(Some(1))
            .max_items(Some(ITEMS_MAX))
            .into()
    }
}

fn refused(refusal: TotalRefusal) -> Error {
    let param = Some("items".to_owned());
    match refusal {
        TotalRefusal::Zero => Error {
            reason: Reason::Invalid,
            param,
            message: "The order's total must not be zero.".to_owned(),
        },
        TotalRefusal::TooLarge => ErrorCode::AmountTooLarge.as_refusal_of(param),
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

impl<'a> From<&'a OrderTerms> for OrderContent<'a> {
    fn from(new: &'a OrderTerms) -> Self {
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

views! {
    /// One line of an order.
    pub struct ItemView as Item from item: &Item {
        /// Quantity times unit amount, in minor units.
        amount: i64 [example = 2400] = item.amount();
        /// For people.
        maybe description: String = item.description.clone();
        /// 1 to 10 000.
        quantity: i64 [example = 2] = item.quantity;
        /// Your stock-keeping unit.
        maybe sku: String [example = "mug"] = item.sku.clone();
        /// Minor units, 0 to 99 999 999.
        unit_amount: i64 [example = 1200] = item.unit_amount;
    }

    /// An order, as clients see it.
    pub struct OrderView as Order from order: &Order where {
        let terms = &order.terms;
    } {
        /// `or_…`
        id: String [example = "or_01kar2w7n9e4xt8f5mq0v3z6yd"] = order.id.to_string();
        /// Always `order`.
        always object: &'static str = "order";
        /// The sum of the items, in minor units.
        amount: i64 [example = 2400] = terms.amount.minor_units;
        /// The charge that paid it; whole with `expand[]=charge`.
        maybe charge: Expandable<ChargeView> = Expandable::maybe(order.charge);
        /// Your own id of the order.
        maybe client_order_id: String = terms.client_order_id.clone();
        created = order.created_at.timestamp();
        /// ISO 4217, lower case.
        currency: String [example = "eur"] = terms.amount.currency.to_string();
        /// Your own reference.
        maybe customer: String = terms.customer.clone();
        /// The lines.
        items: Vec<ItemView> = terms.items.iter().map(ItemView::from).collect();
        /// Always false.
        always livemode: bool = false;
        metadata = terms.metadata.clone();
        /// Where it stands.
        status: OrderStatusView [example = "open"] = OrderStatusView(order.status);
    }
}

#[cfg(test)]
mod tests {
    use charge_once_strict_params::{Encoding, Params};
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
            let order = OrderTerms::from(CreateOrderParams::parse(&params).unwrap());
            let compared = OrderContent::from(&order);
            let canonical = serde_json_canonicalizer::to_string(&compared).unwrap();
            assert_eq!(canonical, content);
        }
    }
}
