//! Lists: the page that a query asks for, and its reply.

use actix_web::{HttpRequest, HttpResponse};
use charge_once_pages::{Cursor, Listed, Page, PageQuery};
use charge_once_strict_params::ParameterSet;
use serde::Serialize;
use uuid::Uuid;

use super::{error::HttpError, request::query_params};
use crate::{
    webhooks::Slice,
    wire::{dialect::Dialect, list::List},
};

/// Reads the page of a list, and the parameters `Q` that the list has besides.
pub(super) fn query<Q: ParameterSet>(
    request: &HttpRequest,
    parse_id: impl Fn(&str) -> Option<Uuid>,
) -> Result<(Page, Q), HttpError> {
    let (page, query): (PageQuery, Q) = query_params(request)?;
    Ok((page.page(parse_id)?, query))
}

/// The page, as the lists of `crates/webhooks` are read.
pub(super) fn slice(page: &Page) -> Slice {
    Slice {
        cursor: page.cursor.key().copied(),
        below: page.below(),
        above: page.above(),
        created_from: page.created_from,
        created_before: page.created_before,
        newest_first: !matches!(page.cursor, Cursor::EndingBefore(_)),
        rows: page.rows(),
    }
}

/// The reply with one page of the list at `path`. `listed` is `None` where the cursor names
/// nothing, and `what` says what it should name.
pub fn reply<K, T: Serialize>(
    dialect: Dialect,
    path: &str,
    cursor: &Cursor<K>,
    what: &str,
    listed: Option<Listed<T>>,
) -> Result<HttpResponse, HttpError> {
    let Listed { data, has_more } = listed.ok_or_else(|| cursor.unknown(what))?;
    let url = format!("{}{path}", dialect.prefix());
    Ok(HttpResponse::Ok().json(List::new(data, has_more, url)))
}
