//! Lists: limits, cursors, time filters, and their reply.

use actix_web::HttpResponse;
use charge_once_strict_params::{Error, Fields, TextOrFields};
use chrono::{DateTime, Utc};
use serde::Serialize;
use uuid::Uuid;

use super::error::HttpError;
use crate::{
    api::{dialect::Dialect, list::List},
    store::page::{Cursor, Listed, NamePage, Page},
};

const LIMIT_DEFAULT: i64 = 10;
/// Most objects on a page of any list.
pub(super) const LIMIT_MAX: i64 = 100;

const STARTING_AFTER: &str = "starting_after";
const ENDING_BEFORE: &str = "ending_before";

/// Longest id that is worth parsing, in characters; one has about 30.
const ID_MAX_CHARS: usize = 255;

/// The last second of the year 9999: later than any object, and within what Postgres stores.
const TIME_MAX: i64 = 253_402_300_799;

/// Reads `limit`, `starting_after`, `ending_before` and `created[gt|gte|lt|lte]`.
pub fn page(
    fields: &mut Fields<'_>,
    parse_id: impl Fn(&str) -> Option<Uuid>,
) -> Result<Page, Error> {
    let limit = limit(fields)?;
    let after = cursor(fields, STARTING_AFTER, &parse_id)?;
    let before = cursor(fields, ENDING_BEFORE, &parse_id)?;
    let cursor = one_of(fields, after, before)?;
    let (created_from, created_before) = created(fields)?;
    Ok(Page {
        limit,
        cursor,
        created_from,
        created_before,
    })
}

/// Reads `limit`, `starting_after` and `ending_before` of a list by name; a name has at most
/// `chars_max` characters.
pub fn name_page(fields: &mut Fields<'_>, chars_max: usize) -> Result<NamePage, Error> {
    let limit = limit(fields)?;
    let after = fields.text(STARTING_AFTER, chars_max)?;
    let before = fields.text(ENDING_BEFORE, chars_max)?;
    let cursor = one_of(fields, after, before)?;
    Ok(NamePage { limit, cursor })
}

fn limit(fields: &mut Fields<'_>) -> Result<i64, Error> {
    let limit = fields.integer("limit", 1..=LIMIT_MAX)?;
    Ok(limit.unwrap_or(LIMIT_DEFAULT))
}

/// The place that at most one of the two parameters names.
fn one_of<K>(fields: &Fields<'_>, after: Option<K>, before: Option<K>) -> Result<Cursor<K>, Error> {
    match (after, before) {
        (None, None) => Ok(Cursor::Start),
        (Some(key), None) => Ok(Cursor::StartingAfter(key)),
        (None, Some(key)) => Ok(Cursor::EndingBefore(key)),
        (Some(_), Some(_)) => {
            Err(fields.invalid(ENDING_BEFORE, "Must not be combined with starting_after."))
        }
    }
}

type Moment = Option<DateTime<Utc>>;

/// `created[gt|gte|lt|lte]` in unix seconds, as a half-open interval. `created` is shown without
/// its fraction, so "later than 5" begins at 6, not right after 5.
fn created(fields: &mut Fields<'_>) -> Result<(Moment, Moment), Error> {
    let wrong = fields.invalid(
        "created",
        "Must be written as created[gt], [gte], [lt] or [lte].",
    );
    let mut created = match fields.text_or_object("created")? {
        None => return Ok((None, None)),
        Some(TextOrFields::Text(_)) => return Err(wrong),
        Some(TextOrFields::Fields(created)) => created,
    };
    let mut seconds = |name| created.integer(name, 0..=TIME_MAX);
    let (gt, gte, lt, lte) = (
        seconds("gt")?,
        seconds("gte")?,
        seconds("lt")?,
        seconds("lte")?,
    );
    created.finish()?;
    let next = |second: i64| second + 1;
    let from = gte.max(gt.map(next));
    let before = lt.into_iter().chain(lte.map(next)).min();
    let moment = |second: Option<i64>| DateTime::from_timestamp(second?, 0);
    Ok((moment(from), moment(before)))
}

/// A filter by the id of another object.
pub fn id<T>(
    fields: &mut Fields<'_>,
    name: &'static str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, Error> {
    match fields.text(name, ID_MAX_CHARS)? {
        None => Ok(None),
        Some(text) => match parse(&text) {
            Some(id) => Ok(Some(id)),
            None => Err(fields.invalid(name, "Must be the id of an object of that kind.")),
        },
    }
}

fn cursor(
    fields: &mut Fields<'_>,
    name: &'static str,
    parse_id: impl Fn(&str) -> Option<Uuid>,
) -> Result<Option<Uuid>, Error> {
    let Some(text) = fields.text(name, ID_MAX_CHARS)? else {
        return Ok(None);
    };
    match parse_id(&text) {
        Some(id) => Ok(Some(id)),
        None => Err(unknown_cursor(name, AN_OBJECT)),
    }
}

/// What the cursor of a list by id names.
pub(super) const AN_OBJECT: &str = "the id of an object";

/// A cursor must name an object of the caller's own; `what` says how it names one.
fn unknown_cursor(name: &str, what: &str) -> Error {
    let message = format!("Must be {what} in this list.");
    Error::invalid(Some(name.to_owned()), &message)
}

/// The reply with one page of the list at `path`. `listed` is `None` where the cursor names nothing,
/// and `what` says what it should name.
pub fn reply<K, T: Serialize>(
    dialect: Dialect,
    path: &str,
    cursor: &Cursor<K>,
    what: &str,
    listed: Option<Listed<T>>,
) -> Result<HttpResponse, HttpError> {
    let param = match cursor {
        Cursor::EndingBefore(_) => ENDING_BEFORE,
        Cursor::StartingAfter(_) | Cursor::Start => STARTING_AFTER,
    };
    let Listed { data, has_more } = listed.ok_or_else(|| unknown_cursor(param, what))?;
    let url = format!("{}{path}", dialect.prefix());
    Ok(HttpResponse::Ok().json(List::new(data, has_more, url)))
}
