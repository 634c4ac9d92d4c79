//! `/events`

use super::prelude::*;
use crate::{
    webhooks::events,
    wire::events::{EventFilter, EventTypes, EventView},
};

/// Retrieve an event
#[utoipa::path(
    get, path = "/events/{id}", tag = "Events", operation_id = "retrieveEvent",
    params(("id" = String, Path, description = "The event's id: evt_…")),
    responses((status = 200, description = "The event.", body = EventView), ObjectErrors),
)]
pub async fn retrieve(app: Data<App>, caller: Caller, request: HttpRequest) -> HttpResult {
    no_query(&request)?;
    let (account, id) = (caller.account, path_id::<EventId>(&request)?);
    let found = app.read(account, move |connection| {
        Box::pin(events::find(connection, account.0, id.0))
    });
    let event = found.await?.ok_or_else(|| reads::missing_id(caller, id))?;
    Ok(HttpResponse::Ok().json(EventView::from(event)))
}

parameters! {
    /// Which events are listed.
    struct ListEventsQuery {
        /// Only events of this type, or of a group of types: `charge.*`. Stripe's other types are
        /// known too, and none of them happens here.
        r#type: Option<EventFilter>,
        /// Only events of these types. Not together with type.
        types: EventTypes,
    }
}

/// List events
///
/// A change of an object writes one, in the transaction that makes it. A replay writes none.
#[utoipa::path(
    get, path = "/events", tag = "Events", operation_id = "listEvents",
    params(PageQuery, ListEventsQuery),
    responses(
        (status = 200, description = "A page, newest first.", body = List<EventView>),
        ReadErrors,
    ),
)]
pub async fn list(app: Data<App>, caller: Caller, request: HttpRequest) -> HttpResult {
    let (page, query) = reads::query::<EventId, ListEventsQuery>(&request)?;
    if query.r#type.is_some() && query.types.is_some() {
        return Err(ApiError::invalid("types", "Must not be combined with type.").into());
    }
    let account = caller.account;
    let listed = app.read(account, move |connection| {
        Box::pin(async move {
            let types = query.r#type.or(query.types);
            let slice = reads::slice(&page);
            let found = events::list(connection, account.0, &slice, types.as_deref()).await?;
            Ok(page.cut(found))
        })
    });
    let views = listed.await?.map(EventView::from);
    reads::reply(caller.dialect, "/events", views)
}
