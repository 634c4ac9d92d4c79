//! `POST /orders`: write down what a customer wants to buy.
//!
//! Locks    nothing; waits for a racing create of the same client_order_id
//! Writes   one open order, or none where its natural key names one already
//! Emits    order.created
//! Refuses  parameters that are missing, unknown or wrong; a client_order_id with other content

use chrono::{DateTime, Utc};
use sha2::{Digest, Sha256};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::commands::{
    Creation, Origin,
    creation::NewObject,
    replies::{CREATED, OK},
};
use crate::{
    api::{
        error::{ApiError, ErrorCode},
        orders::{CreateOrderParams, OrderContent, OrderView},
        params::Params,
    },
    domain::{
        event::EventType,
        ids::OrderId,
        order::{NewOrder, Order},
    },
    idempotency::{Command, Decide, Decision, Failure, Rejection, Reply},
    store::{self, orders::NewRow},
};

/// Creates an order.
pub struct CreateOrder {
    /// The request's origin.
    pub origin: Origin,
    /// As decoded; checked here, so that a wrong one is a stored refusal.
    pub params: Params,
}

impl Command for CreateOrder {
    async fn execute(&self, tx: &mut PgConnection) -> Result<Reply, Rejection> {
        let CreateOrderParams { new, expand_charge } = CreateOrderParams::parse(&self.params)?;
        let content_hash = content_hash(&new)?;
        let id = OrderId(Uuid::now_v7());
        let (status, order) = match open(&self.origin, tx, id, &new, &content_hash).await? {
            Some(order) => (CREATED, order),
            None => (OK, self.existing(tx, &new, &content_hash).await?),
        };
        self.origin.order(tx, status, &order, expand_charge).await
    }
}

impl Decide for CreateOrder {
    type Rows = Creation;

    fn decide(&self, now: DateTime<Utc>) -> Result<Decision<Creation>, Rejection> {
        let CreateOrderParams { new, .. } = CreateOrderParams::parse(&self.params)?;
        if new.client_order_id.is_some() {
            let natural_key = "whether an order has this client_order_id is to be read";
            return Err(Rejection::Failed(Failure::unavailable(natural_key)));
        }
        let id = OrderId(Uuid::now_v7());
        // No charge has paid it that could be expanded.
        let view = OrderView::from(&Order::opened(id, &new, now));
        let reply = self
            .origin
            .reply(CREATED, "orders", view.id.clone(), &view)?;
        let content_hash = content_hash(&new)?;
        Ok(Decision {
            reply,
            rows: Some(Creation {
                account: self.origin.account,
                object: NewObject::Order {
                    id,
                    new,
                    content_hash,
                },
                event: self.origin.event(EventType::OrderCreated, &view)?,
            }),
        })
    }

    fn weight(&self) -> usize {
        self.params.weight()
    }
}

/// What tells the content of an order from another's.
pub(in crate::commands) fn content_hash(new: &NewOrder) -> Result<Vec<u8>, Rejection> {
    let content = serde_json_canonicalizer::to_vec(&OrderContent::from(new))
        .map_err(|error| Rejection::Failed(Failure::internal(error)))?;
    Ok(Sha256::digest(&content).to_vec())
}

/// Opens an order and emits its event. `None`: its natural key names one already.
pub(in crate::commands) async fn open(
    origin: &Origin,
    tx: &mut PgConnection,
    id: OrderId,
    new: &NewOrder,
    content_hash: &[u8],
) -> Result<Option<Order>, Rejection> {
    let row = NewRow {
        account: origin.account,
        id,
        new,
        content_hash,
    };
    let order = store::orders::insert(tx, row).await?;
    if let Some(order) = &order {
        let view = OrderView::from(order);
        origin.emit(tx, EventType::OrderCreated, &view).await?;
    }
    Ok(order)
}

impl CreateOrder {
    /// The order that has this `client_order_id` already: a create under another idempotency key,
    /// by a client that lost its own. The same content answers with the order as it is now.
    async fn existing(
        &self,
        tx: &mut PgConnection,
        new: &NewOrder,
        content_hash: &[u8],
    ) -> Result<Order, Rejection> {
        let account = self.origin.account;
        let taken = "the natural key was taken, and its order is not there";
        let lost = || Rejection::Failed(Failure::internal(taken));
        let client_order_id = new.client_order_id.as_deref().ok_or_else(lost)?;
        let (id, same_content) =
            store::orders::find_by_client_order_id(tx, account, client_order_id, content_hash)
                .await?
                .ok_or_else(lost)?;
        if !same_content {
            return Err(ApiError::new(
                ErrorCode::ParameterInvalid,
                "Another order of this account has this client_order_id, with other content.",
            )
            .with_param("client_order_id".to_owned())
            .into());
        }
        store::orders::find(tx, account, id).await?.ok_or_else(lost)
    }
}
