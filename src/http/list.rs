//! Lists: limits, cursors, time filters, and their reply.

use actix_web::{HttpRequest, HttpResponse};
use charge_once_strict_params::{Error, TextOrFields};
use chrono::{DateTime, Utc};
use serde::Serialize;
use utoipa::{
    IntoParams,
    openapi::{ObjectBuilder, RefOr, Schema, path::Parameter as QueryParameter},
};
use uuid::Uuid;

use super::{error::HttpError, request::query_params};
use crate::{
    store::page::{Cursor, Listed, Page},
    webhooks::Slice,
    wire::{
        dialect::Dialect,
        error::ApiError,
        list::List,
        parameter::{
            Field, ID_MAX_CHARS, Integer, Parameter, ParameterSet, ValueKind, id_pattern,
            parameters, text,
        },
    },
};

pub(super) const LIMIT_DEFAULT: i64 = 10;
/// Most objects on a page of any list.
pub(super) const LIMIT_MAX: i64 = 100;

pub(super) const STARTING_AFTER: &str = "starting_after";
const ENDING_BEFORE: &str = "ending_before";

/// The last second of the year 9999: later than any object, and within what Postgres stores.
const TIME_MAX: i64 = 253_402_300_799;

parameters! {
    /// The parameters that every list has.
    pub struct PageQuery {
        /// Objects on a page.
        limit: Limit<LIMIT_DEFAULT>,
        /// The page after this object: older ones.
        starting_after: Option<AnyId>,
        /// The page before this object: newer ones. Not together with starting_after.
        ending_before: Option<AnyId>,
        created: Created,
    }
}

impl PageQuery {
    /// The page that is asked for, in a list of objects whose ids `parse_id` reads.
    pub fn page(self, parse_id: impl Fn(&str) -> Option<Uuid>) -> Result<Page, Error> {
        let key = |name, text: Option<String>| match text.map(|text| parse_id(&text)) {
            None => Ok(None),
            Some(Some(id)) => Ok(Some(id)),
            Some(None) => Err(unknown_cursor(name, AN_OBJECT)),
        };
        let after = key(STARTING_AFTER, self.starting_after)?;
        let before = key(ENDING_BEFORE, self.ending_before)?;
        let (created_from, created_before) = self.created;
        Ok(Page {
            limit: self.limit,
            cursor: one_of(after, before)?,
            created_from,
            created_before,
        })
    }
}

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

/// The place that at most one of the two parameters names.
pub(super) fn one_of<K>(after: Option<K>, before: Option<K>) -> Result<Cursor<K>, Error> {
    match (after, before) {
        (None, None) => Ok(Cursor::Start),
        (Some(key), None) => Ok(Cursor::StartingAfter(key)),
        (None, Some(key)) => Ok(Cursor::EndingBefore(key)),
        (Some(_), Some(_)) => {
            let message = "Must not be combined with starting_after.";
            Err(Error::invalid(Some(ENDING_BEFORE.to_owned()), message))
        }
    }
}

/// How many objects are on a page.
pub struct Limit<const DEFAULT: i64>;

impl<const DEFAULT: i64> Parameter for Limit<DEFAULT> {
    type Value = i64;

    fn read(field: &mut Field<'_, '_>) -> Result<i64, ApiError> {
        Ok(field
            .fields
            .integer(field.name, 1..=LIMIT_MAX)?
            .unwrap_or(DEFAULT))
    }

    fn schema(about: String) -> RefOr<Schema> {
        let mut schema = <Integer<1, LIMIT_MAX> as Parameter>::schema(about);
        if let RefOr::T(Schema::Object(integer)) = &mut schema {
            integer.default = Some(DEFAULT.into());
        }
        schema
    }
}

/// Text that names an object of the list: every id has this syntax.
pub struct AnyId;

impl ValueKind for AnyId {
    type Value = String;

    fn read(field: &mut Field<'_, '_>) -> Result<Option<String>, ApiError> {
        Ok(field.fields.text(field.name, ID_MAX_CHARS)?)
    }

    fn schema() -> RefOr<Schema> {
        text().pattern(Some(id_pattern("[a-z]+"))).into()
    }
}

type Moment = Option<DateTime<Utc>>;

/// `created[gt|gte|lt|lte]` in unix seconds, as a half-open interval. `created` is shown without
/// its fraction, so "later than 5" begins at 6, not right after 5.
pub struct Created;

parameters! {
    /// The ends of the interval.
    struct CreatedQuery {
        /// Created later than this, in unix seconds.
        gt: Option<Integer<0, TIME_MAX>>,
        /// Created at this or later, in unix seconds.
        gte: Option<Integer<0, TIME_MAX>>,
        /// Created earlier than this, in unix seconds.
        lt: Option<Integer<0, TIME_MAX>>,
        /// Created at this or earlier, in unix seconds.
        lte: Option<Integer<0, TIME_MAX>>,
    }
}

impl Parameter for Created {
    type Value = (Moment, Moment);

    fn read(field: &mut Field<'_, '_>) -> Result<(Moment, Moment), ApiError> {
        let message = "Must be written as created[gt], [gte], [lt] or [lte].";
        let wrong = field.invalid(message);
        let mut fields = match field.fields.text_or_object(field.name)? {
            None => return Ok((None, None)),
            Some(TextOrFields::Text(_)) => return Err(wrong),
            Some(TextOrFields::Fields(fields)) => fields,
        };
        let CreatedQuery { gt, gte, lt, lte } = CreatedQuery::read(&mut fields, field.params)?;
        fields.finish()?;
        let next = |second: i64| second + 1;
        let from = gte.max(gt.map(next));
        let before = lt.into_iter().chain(lte.map(next)).min();
        let moment = |second: Option<i64>| DateTime::from_timestamp(second?, 0);
        Ok((moment(from), moment(before)))
    }

    fn schema(_about: String) -> RefOr<Schema> {
        ObjectBuilder::new().into()
    }

    fn in_query(name: &str, _about: String) -> Vec<QueryParameter> {
        let mut ends = CreatedQuery::into_params(|| None);
        for end in &mut ends {
            end.name = format!("{name}[{}]", end.name);
        }
        ends
    }
}

/// What the cursor of a list by id names.
pub(super) const AN_OBJECT: &str = "the id of an object";

/// A cursor must name an object of the caller's own; `what` says how it names one.
fn unknown_cursor(name: &str, what: &str) -> Error {
    let message = format!("Must be {what} in this list.");
    Error::invalid(Some(name.to_owned()), &message)
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
    let param = match cursor {
        Cursor::EndingBefore(_) => ENDING_BEFORE,
        Cursor::StartingAfter(_) | Cursor::Start => STARTING_AFTER,
    };
    let Listed { data, has_more } = listed.ok_or_else(|| unknown_cursor(param, what))?;
    let url = format!("{}{path}", dialect.prefix());
    Ok(HttpResponse::Ok().json(List::new(data, has_more, url)))
}
