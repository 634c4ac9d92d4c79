//! Lists: limits, cursors, time filters, and their reply.

use actix_web::HttpResponse;
use chrono::{DateTime, Utc};
use serde::Serialize;
use uuid::Uuid;

use crate::{
    domain::{
        dialect::Dialect,
        error::ApiError,
        params::{Fields, TextOrFields},
    },
    store::page::{Cursor, Listed, Page},
};

const LIMIT_DEFAULT: i64 = 10;
const LIMIT_MAX: i64 = 100;

/// Longest cursor that is worth parsing, in characters; an id has 29.
const CURSOR_MAX_CHARS: usize = 255;

/// The last second of the year 9999: later than any object, and within what Postgres stores.
const TIME_MAX: i64 = 253_402_300_799;

/// A page as it was asked for, with the name of the parameter that holds its cursor.
#[derive(Debug)]
pub struct AskedPage {
    /// What to read.
    pub page: Page,
    /// The parameter and the id, for the refusal of a cursor that names nothing.
    pub cursor: Option<(&'static str, Uuid)>,
}

/// Reads `limit`, `starting_after`, `ending_before` and `created[gt|gte|lt|lte]`.
pub fn page(
    fields: &mut Fields<'_>,
    parse_id: impl Fn(&str) -> Option<Uuid>,
) -> Result<AskedPage, ApiError> {
    let limit = fields
        .integer("limit", 1..=LIMIT_MAX)?
        .unwrap_or(LIMIT_DEFAULT);
    let after = cursor(fields, "starting_after", &parse_id)?;
    let before = cursor(fields, "ending_before", &parse_id)?;
    let (cursor, named) = match (after, before) {
        (None, None) => (Cursor::Newest, None),
        (Some(id), None) => (Cursor::StartingAfter(id), Some(("starting_after", id))),
        (None, Some(id)) => (Cursor::EndingBefore(id), Some(("ending_before", id))),
        (Some(_), Some(_)) => {
            let message = "Must not be combined with starting_after.";
            return Err(fields.invalid("ending_before", message));
        }
    };
    let (created_from, created_before) = created(fields)?;
    Ok(AskedPage {
        page: Page {
            limit,
            cursor,
            created_from,
            created_before,
        },
        cursor: named,
    })
}

type Moment = Option<DateTime<Utc>>;

/// `created[gt|gte|lt|lte]` in unix seconds, as a half-open interval. `created` is shown without
/// its fraction, so "later than 5" begins at 6, not right after 5.
fn created(fields: &mut Fields<'_>) -> Result<(Moment, Moment), ApiError> {
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

fn cursor(
    fields: &mut Fields<'_>,
    name: &'static str,
    parse_id: impl Fn(&str) -> Option<Uuid>,
) -> Result<Option<Uuid>, ApiError> {
    let Some(text) = fields.text(name, CURSOR_MAX_CHARS)? else {
        return Ok(None);
    };
    match parse_id(&text) {
        Some(id) => Ok(Some(id)),
        None => Err(unknown_cursor(fields, name)),
    }
}

/// A cursor must name an object of the caller's own.
pub fn unknown_cursor(fields: &Fields<'_>, name: &str) -> ApiError {
    fields.invalid(name, "Must be the id of an object in this list.")
}

/// `{"object":"list","data":[…],"has_more":…,"url":…}`
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct List<T> {
    /// Always `list`.
    #[schema(example = "list")]
    pub object: &'static str,
    /// Newest first.
    pub data: Vec<T>,
    /// Whether there are more beyond this page.
    pub has_more: bool,
    /// The path of the list, without its host.
    #[schema(example = "/charges")]
    pub url: String,
}

/// The reply with one page.
pub fn reply<T: Serialize>(dialect: Dialect, collection: &str, listed: Listed<T>) -> HttpResponse {
    HttpResponse::Ok().json(List {
        object: "list",
        data: listed.data,
        has_more: listed.has_more,
        url: format!("{}/{collection}", dialect.prefix()),
    })
}
