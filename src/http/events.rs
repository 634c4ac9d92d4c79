//! `/events`

use std::borrow::Cow;

use actix_web::{HttpRequest, HttpResponse, web};
use serde::Deserialize;
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{ObjectBuilder, RefOr, Schema, Type},
};

use super::{
    app::App,
    error::HttpError,
    error_responses::errors,
    list,
    parameters::PageQuery,
    request::{Caller, no_query, path_id, query_params},
};
use crate::{
    api::{events::EventView, list::List, params::REFERENCE_MAX_CHARS},
    domain::{event::EventType, ids::EventId},
    store::{self, events::Filter},
};

errors! {
    RetrieveEventErrors: Reading [ResourceMissing]
}

/// Retrieve an event
#[utoipa::path(
    get, path = "/events/{id}", tag = "Events", operation_id = "retrieveEvent",
    params(("id" = String, Path, description = "The event's id: evt_…")),
    responses(
        (status = 200, description = "The event.", body = EventView),
        RetrieveEventErrors,
    ),
)]
pub async fn retrieve(
    app: web::Data<App>,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, HttpError> {
    no_query(&request)?;
    let id = path_id(&request, EventId::parse, EventId::PREFIX)?;
    let account = caller.account;
    let event = app
        .read(account, move |connection| {
            Box::pin(store::events::find(connection, account, id))
        })
        .await?
        .ok_or_else(|| HttpError::missing_id(EventId::PREFIX))?;
    Ok(HttpResponse::Ok().json(EventView::from(event)))
}

/// The name of a type of event.
#[derive(Deserialize)]
#[expect(dead_code, reason = "describes a string; `list` reads it")]
pub(super) struct EventTypeParam(String);

impl PartialSchema for EventTypeParam {
    fn schema() -> RefOr<Schema> {
        let types = EventType::ALL.iter().map(|event_type| event_type.as_str());
        ObjectBuilder::new()
            .schema_type(Type::String)
            .enum_values(Some(types))
            .into()
    }
}

impl ToSchema for EventTypeParam {
    fn name() -> Cow<'static, str> {
        "EventType".into()
    }
}

errors! {
    ListEventsErrors: Reading []
}

/// List events
///
/// Every change of a charge, a refund or an order writes one, in the transaction that makes it. A
/// replay writes none.
#[utoipa::path(
    get, path = "/events", tag = "Events", operation_id = "listEvents",
    params(
        PageQuery,
        (
            "type" = Option<EventTypeParam>, Query,
            description = "Only events of this type.",
        ),
    ),
    responses(
        (status = 200, description = "A page, newest first.", body = List<EventView>),
        ListEventsErrors,
    ),
)]
pub async fn list(
    app: web::Data<App>,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, HttpError> {
    let params = query_params(&request)?;
    let mut fields = params.fields()?;
    let page = list::page(&mut fields, |text| EventId::parse(text).map(|id| id.0))?;
    let event_type = match fields.text("type", REFERENCE_MAX_CHARS)? {
        None => None,
        Some(text) => Some(
            EventType::parse(&text)
                .ok_or_else(|| fields.invalid("type", "Must be a type of event."))?,
        ),
    };
    fields.finish()?;
    let (account, cursor, filter) = (caller.account, page.cursor, Filter { event_type });
    let listed = app
        .read(account, move |connection| {
            Box::pin(async move { store::events::list(connection, account, &page, &filter).await })
        })
        .await?;
    let views = listed.map(|page| page.map(EventView::from));
    list::reply(caller.dialect, "/events", &cursor, list::AN_OBJECT, views)
}
