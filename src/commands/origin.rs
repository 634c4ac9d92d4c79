//! The origin of a command, and the events and replies that follow from it.

use std::time::Duration;

use serde::Serialize;

use crate::{
    commands::prelude::*,
    domain::operation::Asked,
    webhooks::{self, NewEvent},
    wire::api_version::API_VERSION_DEFAULT,
};

/// The account and the request that a command runs for. Every command has one, and every event
/// names its request.
#[derive(Debug, Clone)]
pub struct Origin {
    /// The account.
    pub account: AccountId,
    /// The request.
    pub asked_by: AskedBy,
    /// The trace in which it runs, as W3C Trace Context writes it: the request's, or that of its
    /// recovery. `None` while nothing is traced.
    pub traceparent: Option<String>,
    /// The text in the place of the path's id. Empty where there is no such place, in a recovery,
    /// and in a DELETE without a key.
    pub path_id: String,
}

impl Origin {
    /// An event that is to be written. `object` is the view of what it happened to, and `version`
    /// the one that it has now; an event that tells of a change has the view `before` it, too.
    pub(crate) fn event<T: Serialize>(
        &self,
        event_type: EventType,
        before: Option<&T>,
        object: &T,
        version: i64,
    ) -> Result<NewEvent, Rejection> {
        debug_assert_eq!(event_type.is_change(), before.is_some(), "{event_type:?}");
        let changed = before.map(|before| webhooks::previous_attributes(before, object));
        // Written down, so that a later release with another default sends the same bytes again.
        let api_version = self
            .asked_by
            .api_version
            .as_deref()
            .unwrap_or(API_VERSION_DEFAULT);
        Ok(NewEvent {
            account_id: self.account.0,
            id: Uuid::now_v7(),
            event_type: event_type.as_str(),
            api_version: Some(api_version.to_owned()),
            object: serde_json::to_string(object).map_err(Failure::internal)?,
            object_version: Some(version),
            previous_attributes: changed.transpose().map_err(Failure::internal)?,
            request_id: self.asked_by.request_id.clone(),
            idempotency_key: self.asked_by.idempotency_key.clone(),
            traceparent: self.traceparent.clone(),
        })
    }

    /// What a processor is to be asked. With an empty name, that of the process that asks.
    pub(crate) fn operation(&self, id: Uuid, asked: Asked, processor: &str) -> Operation {
        Operation {
            id,
            account: self.account,
            asked,
            asked_by: self.asked_by.clone(),
            processor: processor.to_owned(),
            age: Duration::ZERO,
        }
    }

    /// The account has no object with this id, which `param` names. `None`: the text in the path is
    /// no id of the kind.
    pub(crate) fn missing<Id: ObjectId>(&self, param: &str, id: Option<Id>) -> ApiError {
        let id = id.map(|id| id.to_string());
        let id = id.as_deref().unwrap_or(&self.path_id);
        ApiError::missing::<Id>(self.asked_by.dialect, param, id)
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
            let location = format!("{}/{collection}/{id}", self.asked_by.dialect.prefix());
            reply.headers.push(("location".into(), location));
        }
        reply.resource_id = Some(id);
        Ok(reply)
    }
}
