//! `POST /orders`: write down what a customer wants to buy.
//!
//! Locks    nothing; waits for a racing create of the same client_order_id
//! Writes   one open order, or none where its natural key names one already
//! Emits    order.created
//! Refuses  parameters that are missing, unknown or wrong; a client_order_id with other content

use charge_once_strict_params::Params;
use chrono::{DateTime, Utc};
use sha2::{Digest, Sha256};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::commands::{
    Creation, Origin,
    creation::NewObject,
    replies::{CREATED, OK, checked},
};
use crate::{
    domain::{
        event::EventType,
        ids::OrderId,
        order::{NewOrder, Order},
    },
    idempotency::{Decide, Decision, Failure, Rejection, Reply},
    store,
    wire::{
        error::{ApiError, ErrorCode},
        orders::{CreateOrderParams, OrderContent, OrderView},
    },
};

/// Creates an order.
pub struct CreateOrder {
    /// The request's origin.
    pub origin: Origin,
    /// As decoded; checked here, so that a wrong one is a stored refusal.
    pub params: Params,
}

impl Decide for CreateOrder {
    type Rows = Creation;

    fn decide(&self, now: DateTime<Utc>) -> Result<Decision<Creation>, Rejection> {
        let new = NewOrder::from(checked::<CreateOrderParams>(&self.params)?);
        if new.client_order_id.is_some() {
            let natural_key = "whether an order has this client_order_id is to be read";
            return Err(Rejection::Failed(Failure::unavailable(natural_key)));
        }
        let (reply, creation) = self.opened(new, now)?;
        Ok(Decision {
            reply,
            rows: Some(creation),
        })
    }

    async fn decide_alone(
        &self,
        tx: &mut PgConnection,
        now: DateTime<Utc>,
    ) -> Result<Decision<Creation>, Rejection> {
        let params: CreateOrderParams = checked(&self.params)?;
        let expand = params.expand.clone();
        let new = NewOrder::from(params);
        let natural_key = new.client_order_id.clone();
        let content_hash = content_hash(&new)?;
        let (created, creation) = self.opened(new, now)?;
        let reply = if Creation::write_unless_taken(tx, vec![creation]).await? {
            created
        } else {
            let order = self.existing(tx, natural_key, &content_hash).await?;
            let id = order.id.to_string();
            self.origin.show(tx, OK, id, &order, &expand).await?
        };
        Ok(Decision { reply, rows: None })
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

impl CreateOrder {
    /// The order that is opened, with its event, and the reply.
    fn opened(&self, new: NewOrder, now: DateTime<Utc>) -> Result<(Reply, Creation), Rejection> {
        let id = OrderId(Uuid::now_v7());
        // No charge has paid it that could be expanded.
        let view = OrderView::from(&Order::opened(id, &new, now));
        let reply = self
            .origin
            .reply(CREATED, "orders", view.id.clone(), &view)?;
        let creation = Creation {
            account: self.origin.account,
            object: NewObject::Order {
                id,
                content_hash: content_hash(&new)?,
                new,
            },
            event: self.origin.event(EventType::OrderCreated, &view)?,
        };
        Ok((reply, creation))
    }

    /// The order that has this `client_order_id` already: a create under another idempotency key,
    /// by a client that lost its own. The same content answers with the order as it is now.
    async fn existing(
        &self,
        tx: &mut PgConnection,
        natural_key: Option<String>,
        content_hash: &[u8],
    ) -> Result<Order, Rejection> {
        let account = self.origin.account;
        let taken = "the natural key was taken, and its order is not there";
        let lost = || Rejection::Failed(Failure::internal(taken));
        let client_order_id = natural_key.ok_or_else(lost)?;
        let (id, same_content) =
            store::orders::find_by_client_order_id(tx, account, &client_order_id, content_hash)
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
