//! `/events`

use actix_web::{HttpRequest, HttpResponse, web};

use super::{
    App,
    error::EdgeError,
    list,
    request::{Caller, no_query, query_params},
};
use crate::{
    api::{events::EventView, list::List, params::REFERENCE_MAX_CHARS},
    domain::{event::EventType, ids::EventId},
    store::{self, events::Filter},
};

/// Retrieve an event
#[utoipa::path(
    get, path = "/events/{id}", tag = "Events", operation_id = "retrieveEvent",
    params(("id" = String, Path, description = "The event's id: evt_…")),
    responses((status = 200, description = "The event.", body = EventView)),
)]
pub async fn retrieve(
    app: web::Data<App>,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, EdgeError> {
    no_query(&request)?;
    let id =
        EventId::parse(request.match_info().query("id")).ok_or_else(|| EdgeError::missing("id"))?;
    let event = app
        .read(move |connection| Box::pin(store::events::find(connection, caller.account, id)))
        .await?
        .ok_or_else(|| EdgeError::missing("id"))?;
    Ok(HttpResponse::Ok().json(EventView::from(event)))
}

/// List events
///
/// Every change of a charge, a refund or an order writes one, in the transaction that makes it. A
/// replay writes none.
#[utoipa::path(
    get, path = "/events", tag = "Events", operation_id = "listEvents",
    params(
        super::openapi::PageQuery,
        (
            "type" = Option<super::openapi::EventTypeParam>, Query,
            description = "Only events of this type.",
        ),
    ),
    responses((status = 200, description = "A page, newest first.", body = List<EventView>)),
)]
pub async fn list(
    app: web::Data<App>,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, EdgeError> {
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
        .read(move |connection| {
            Box::pin(async move { store::events::list(connection, account, &page, &filter).await })
        })
        .await?;
    let views = listed.map(|page| page.map(EventView::from));
    list::reply(caller.dialect, "/events", cursor, views)
}
