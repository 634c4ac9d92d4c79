//! The origin of a command, and the events and replies that follow from it.

use std::time::Duration;

use serde::Serialize;
use sqlx::PgConnection;
use uuid::Uuid;

use super::{expansions, replies::CREATED};
use crate::{
    domain::{
        charge::Charge,
        event::EventType,
        ids::AccountId,
        operation::{Effect, Operation},
        order::Order,
        refund::Refund,
    },
    idempotency::{BeginOutcome, Failure, Rejection, Reply},
    store,
    webhooks::{self, NewEvent},
    wire::{api_version::API_VERSION_DEFAULT, dialect::Dialect},
};

/// The account and the request that a command runs for. Every command has one, and every event
/// names its request.
#[derive(Debug, Clone)]
pub struct Origin {
    /// The account.
    pub account: AccountId,
    /// Decides what paths in the reply start with.
    pub dialect: Dialect,
    /// The version of Stripe's API that the request names; its events name the same one.
    pub api_version: Option<String>,
    /// The `req_…` that executes.
    pub request_id: String,
    /// The key that it executes under.
    pub idempotency_key: String,
    /// The trace in which it runs, as W3C Trace Context writes it: the request's, or that of its
    /// recovery. `None` while nothing is traced.
    pub traceparent: Option<String>,
}

impl Origin {
    /// Writes an event, in the transaction that makes it happen; `object` is the view of what it
    /// happened to.
    pub(super) async fn emit<T: Serialize>(
        &self,
        tx: &mut PgConnection,
        event_type: EventType,
        object: &T,
    ) -> Result<(), Rejection> {
        let event = self.event(event_type, object)?;
        Ok(webhooks::emit(tx, &[event]).await?)
    }

    /// Writes the event of a change, with what changed: `before` and `after` are the views of what
    /// it happened to.
    pub(super) async fn emit_change<T: Serialize>(
        &self,
        tx: &mut PgConnection,
        event_type: EventType,
        before: &T,
        after: &T,
    ) -> Result<(), Rejection> {
        let changed = webhooks::previous_attributes(before, after).map_err(Failure::internal)?;
        let event = NewEvent {
            previous_attributes: Some(changed),
            ..self.new_event(event_type, after)?
        };
        Ok(webhooks::emit(tx, &[event]).await?)
    }

    /// An event that is to be written; `object` is the view of what it happened to.
    pub(super) fn event<T: Serialize>(
        &self,
        event_type: EventType,
        object: &T,
    ) -> Result<NewEvent, Rejection> {
        debug_assert!(
            !event_type.is_change(),
            "emit_change tells what changed of {event_type:?}"
        );
        self.new_event(event_type, object)
    }

    fn new_event<T: Serialize>(
        &self,
        event_type: EventType,
        object: &T,
    ) -> Result<NewEvent, Rejection> {
        // Written down, so that a later release with another default sends the same bytes again.
        let api_version = self.api_version.as_deref().unwrap_or(API_VERSION_DEFAULT);
        Ok(NewEvent {
            account_id: self.account.0,
            id: Uuid::now_v7(),
            event_type: event_type.as_str(),
            api_version: Some(api_version.to_owned()),
            object: serde_json::to_string(object).map_err(Failure::internal)?,
            previous_attributes: None,
            request_id: self.request_id.clone(),
            idempotency_key: self.idempotency_key.clone(),
            traceparent: self.traceparent.clone(),
        })
    }

    /// Writes down what the processor is to be asked, before it is asked.
    pub(super) async fn begin_effect(
        &self,
        tx: &mut PgConnection,
        id: Uuid,
        effect: Effect,
    ) -> Result<BeginOutcome, Rejection> {
        let resource_id = Some(effect.resource());
        let operation = Operation {
            id,
            account: self.account,
            effect,
            dialect: self.dialect,
            api_version: self.api_version.clone(),
            request_id: self.request_id.clone(),
            idempotency_key: self.idempotency_key.clone(),
            processor: String::new(),
            age: Duration::ZERO,
        };
        store::operations::insert(tx, &operation).await?;
        Ok(BeginOutcome::Begun { resource_id })
    }

    /// The reply with a charge, and with its refunds where they are asked for.
    pub(super) async fn charge(
        &self,
        tx: &mut PgConnection,
        status: u16,
        charge: &Charge,
        expand_refunds: bool,
    ) -> Result<Reply, Rejection> {
        let (account, dialect) = (self.account, self.dialect);
        let view = expansions::charge_view(tx, account, dialect, charge, expand_refunds).await?;
        self.reply(status, "charges", view.id.clone(), &view)
    }

    /// The reply with a refund, and with its whole charge where that is asked for.
    pub(super) async fn refund(
        &self,
        tx: &mut PgConnection,
        status: u16,
        refund: &Refund,
        expand_charge: bool,
    ) -> Result<Reply, Rejection> {
        let view = expansions::refund_view(tx, self.account, refund, expand_charge).await?;
        self.reply(status, "refunds", view.id.clone(), &view)
    }

    /// The reply with an order, and with its whole charge where that is asked for.
    pub(super) async fn order(
        &self,
        tx: &mut PgConnection,
        status: u16,
        order: &Order,
        expand_charge: bool,
    ) -> Result<Reply, Rejection> {
        let view = expansions::order_view(tx, self.account, order, expand_charge).await?;
        self.reply(status, "orders", view.id.clone(), &view)
    }

    /// A reply about the object `id`; where that is new, it says where it lies.
    pub(super) fn reply<T: Serialize>(
        &self,
        status: u16,
        collection: &str,
        id: String,
        object: &T,
    ) -> Result<Reply, Rejection> {
        let mut reply = Reply::json(status, object)?;
        if status == CREATED {
            let location = format!("{}/{collection}/{id}", self.dialect.prefix());
            reply.headers.push(("location".into(), location));
        }
        reply.resource_id = Some(id);
        Ok(reply)
    }
}
