//! The origin of a command, and the events and replies that follow from it.

use std::time::Duration;

use serde::Serialize;

use crate::{
    commands::prelude::*,
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
    /// The key that it executes under; empty where a request needs none.
    pub idempotency_key: String,
    /// The trace in which it runs, as W3C Trace Context writes it: the request's, or that of its
    /// recovery. `None` while nothing is traced.
    pub traceparent: Option<String>,
}

impl Origin {
    /// The event of a change that is to be written, with what changed: `before` and `after` are the
    /// views of what it happened to, and `version` is the one that it has now.
    pub(crate) fn change<T: Serialize>(
        &self,
        event_type: EventType,
        before: &T,
        after: &T,
        version: i64,
    ) -> Result<NewEvent, Rejection> {
        let changed = webhooks::previous_attributes(before, after).map_err(Failure::internal)?;
        Ok(NewEvent {
            previous_attributes: Some(changed),
            ..self.new_event(event_type, after, version)?
        })
    }

    /// An event that is to be written; `object` is the view of what it happened to, and `version`
    /// the one that it has now.
    pub(crate) fn event<T: Serialize>(
        &self,
        event_type: EventType,
        object: &T,
        version: i64,
    ) -> Result<NewEvent, Rejection> {
        debug_assert!(
            !event_type.is_change(),
            "change tells what changed of {event_type:?}"
        );
        self.new_event(event_type, object, version)
    }

    fn new_event<T: Serialize>(
        &self,
        event_type: EventType,
        object: &T,
        version: i64,
    ) -> Result<NewEvent, Rejection> {
        // Written down, so that a later release with another default sends the same bytes again.
        let api_version = self.api_version.as_deref().unwrap_or(API_VERSION_DEFAULT);
        Ok(NewEvent {
            account_id: self.account.0,
            id: Uuid::now_v7(),
            event_type: event_type.as_str(),
            api_version: Some(api_version.to_owned()),
            object: serde_json::to_string(object).map_err(Failure::internal)?,
            object_version: Some(version),
            previous_attributes: None,
            request_id: self.request_id.clone(),
            idempotency_key: self.idempotency_key.clone(),
            traceparent: self.traceparent.clone(),
        })
    }

    /// What a processor is to be asked. With an empty name, that of the process that asks.
    pub(crate) fn operation(&self, id: Uuid, asked: Asked, processor: &str) -> Operation {
        Operation {
            id,
            account: self.account,
            asked,
            dialect: self.dialect,
            api_version: self.api_version.clone(),
            request_id: self.request_id.clone(),
            idempotency_key: self.idempotency_key.clone(),
            processor: processor.to_owned(),
            age: Duration::ZERO,
        }
    }

    /// A reply about the object `id`; where that is new, it says where it lies.
    pub(crate) fn reply<T: Serialize>(
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
