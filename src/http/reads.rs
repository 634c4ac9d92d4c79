//! What reads answer: an object, or the page of a list that a query asks for.

use actix_web::{HttpRequest, HttpResponse};
use charge_once_strict_params::pages::{
    Cursor, ENDING_BEFORE, Listed, Page, PageQuery, STARTING_AFTER,
};
use charge_once_strict_params::{Expansion, ParameterSet};
use serde::Serialize;

use super::{
    app::App,
    error::{HttpError, HttpResult},
    request::{Caller, dialect_of, query_params},
};
use crate::{
    database::{PgConnection, Reading},
    domain::ids::ObjectId,
    webhooks::Slice,
    wire::{dialect::Dialect, error::ApiError, list::List},
    work::expansions::{Shown, view},
};

/// Reads the page of a list of objects with such ids, and the parameters `Q` that the list has
/// besides.
pub(super) fn query<Id: ObjectId, Q: ParameterSet>(
    request: &HttpRequest,
) -> Result<(Page, Q), HttpError> {
    let (page, query): (PageQuery, Q) = query_params(request)?;
    if dialect_of(request) == Dialect::Stripe {
        let cursors = [
            (STARTING_AFTER, &page.starting_after),
            (ENDING_BEFORE, &page.ending_before),
        ];
        for (name, text) in cursors {
            if let Some(text) = text.as_deref().filter(|text| Id::parse(text).is_none()) {
                return Err(ApiError::missing::<Id>(Dialect::Stripe, name, text).into());
            }
        }
    }
    Ok((page.page(|text| Id::parse(text).map(Id::uuid))?, query))
}

/// The object that `find` finds, as the caller sees it, with what `expand` names shown whole.
pub(super) async fn shown<T: Shown + 'static>(
    app: &App,
    caller: Caller,
    expand: Expansion,
    find: impl for<'c> FnOnce(&'c mut PgConnection) -> Reading<'c, Option<T>> + Send + 'static,
) -> Result<Option<T::View>, HttpError> {
    app.snapshot(caller.account, move |connection| {
        Box::pin(async move {
            let Some(object) = find(&mut *connection).await? else {
                return Ok(None);
            };
            let shown = view(connection, caller, &object, &expand);
            shown.await.map(Some)
        })
    })
    .await
}

/// What is answered where the account has no object with the id in the path.
pub(super) fn missing_id<Id: ObjectId>(caller: Caller, id: Id) -> HttpError {
    HttpError::missing_id::<Id>(caller.dialect, &id.to_string())
}

/// The reply with the object that `find` finds, or a 404 about the `id` of the path.
pub(super) async fn one<Id: ObjectId, T: Shown + 'static>(
    app: &App,
    caller: Caller,
    expand: Expansion,
    id: Id,
    find: impl for<'c> FnOnce(&'c mut PgConnection) -> Reading<'c, Option<T>> + Send + 'static,
) -> HttpResult {
    let shown = shown(app, caller, expand, find).await?;
    Ok(HttpResponse::Ok().json(shown.ok_or_else(|| missing_id(caller, id))?))
}

/// The reply with the page that `list` reads of the list at `path`, with what `expand` names shown
/// whole.
pub(super) async fn listed<T: Shown + 'static>(
    app: &App,
    caller: Caller,
    path: &str,
    page: Page,
    expand: Expansion,
    list: impl for<'c> FnOnce(&'c mut PgConnection, &'c Page) -> Reading<'c, Listed<T>> + Send + 'static,
) -> HttpResult {
    let listed = app.snapshot(caller.account, move |connection| {
        Box::pin(async move {
            let Listed { data, has_more } = list(&mut *connection, &page).await?;
            let data = T::views(connection, caller, &data, &expand).await?;
            Ok(Listed { data, has_more })
        })
    });
    reply(caller.dialect, path, listed.await?)
}

/// The page, as the lists of `crates/webhooks` are read.
pub(crate) fn slice(page: &Page) -> Slice {
    Slice {
        below: page.below(),
        above: page.above(),
        created_from: page.created_from,
        created_before: page.created_before,
        newest_first: !matches!(page.cursor, Cursor::EndingBefore(_)),
        rows: page.rows(),
    }
}

/// The reply with one page of the list at `path`.
pub fn reply<T: Serialize>(dialect: Dialect, path: &str, listed: Listed<T>) -> HttpResult {
    let url = format!("{}{path}", dialect.prefix());
    Ok(HttpResponse::Ok().json(List::new(listed.data, listed.has_more, url)))
}
