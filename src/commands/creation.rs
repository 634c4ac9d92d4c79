//! What new charges, orders and bare payment intents write: the rows of many requests, in one
//! statement for each table.

use sqlx::PgConnection;

use crate::{
    domain::{
        charge::{Authorization, NewCharge},
        ids::{AccountId, ChargeId, OrderId},
        order::NewOrder,
        payment_intent::PaymentIntent,
    },
    idempotency::Rows,
    store,
    webhooks::{self, NewEvent},
};

/// A new object with its event.
#[derive(Debug)]
pub struct Creation {
    pub(super) account: AccountId,
    pub(super) object: NewObject,
    pub(super) event: NewEvent,
}

/// What is created.
#[derive(Debug)]
pub(super) enum NewObject {
    Charge {
        id: ChargeId,
        new: NewCharge,
        said: Authorization,
    },
    Order {
        id: OrderId,
        new: NewOrder,
        content_hash: Vec<u8>,
    },
    Intent(Box<PaymentIntent>),
}

impl Creation {
    /// Writes them. `false`: an order's `client_order_id` is taken, and there is no event. Of a
    /// single order, nothing was written then.
    pub(super) async fn write_unless_taken(
        tx: &mut PgConnection,
        creations: Vec<Self>,
    ) -> Result<bool, sqlx::Error> {
        let (mut charges, mut orders, mut intents) = (Vec::new(), Vec::new(), Vec::new());
        for creation in &creations {
            let account = creation.account;
            match &creation.object {
                NewObject::Charge { id, new, said } => charges.push(store::charges::NewChargeRow {
                    account,
                    id: *id,
                    new,
                    order: None,
                    said: Some(*said),
                }),
                NewObject::Order {
                    id,
                    new,
                    content_hash,
                } => orders.push(store::orders::NewOrderRow {
                    account,
                    id: *id,
                    new,
                    content_hash,
                }),
                NewObject::Intent(intent) => intents.push((account, &**intent)),
            }
        }
        if !charges.is_empty() {
            store::charges::insert_all(tx, &charges).await?;
        }
        if !orders.is_empty() {
            let written = store::orders::insert_all(tx, &orders).await?;
            if written.len() != orders.len() {
                return Ok(false);
            }
        }
        if !intents.is_empty() {
            store::payment_intents::insert_all(tx, &intents).await?;
        }
        let events: Vec<NewEvent> = creations.into_iter().map(|new| new.event).collect();
        webhooks::emit(tx, &events).await?;
        Ok(true)
    }
}

impl Rows for Creation {
    async fn write(tx: &mut PgConnection, creations: Vec<Self>) -> Result<(), sqlx::Error> {
        match Self::write_unless_taken(tx, creations).await? {
            true => Ok(()),
            false => Err(sqlx::Error::RowNotFound),
        }
    }
}
