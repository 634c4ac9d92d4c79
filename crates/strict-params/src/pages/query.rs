//! The parameters of a list: how many objects, from where, and created when.

use crate::{AnyId, Error, Field, Integer, Parameter, ParameterSet, parameters};
use chrono::{DateTime, Utc};
use utoipa::{
    IntoParams,
    openapi::{ObjectBuilder, RefOr, Schema, path::Parameter as QueryParameter},
};
use uuid::Uuid;

use crate::pages::{Cursor, Page};

/// Objects on a page, if the query doesn't say how many.
pub const LIMIT_DEFAULT: i64 = 10;
/// Most objects on a page of any list.
pub const LIMIT_MAX: i64 = 100;

/// The parameter that names the object in front of the page.
pub const STARTING_AFTER: &str = "starting_after";
/// The parameter that names the object behind the page.
pub const ENDING_BEFORE: &str = "ending_before";

/// The last second of the year 9999: later than any object, and within what Postgres stores.
const TIME_MAX: i64 = 253_402_300_799;

parameters! {
    /// The parameters that every list by time has.
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
    /// The page that is asked for, in a list of objects whose ids `parse_id` reads. Refuses a
    /// cursor that is no such id, and two cursors.
    pub fn page(self, parse_id: impl Fn(&str) -> Option<Uuid>) -> Result<Page, Error> {
        let key = |name: &str, text: Option<String>| match text.map(|text| parse_id(&text)) {
            None => Ok(None),
            Some(Some(id)) => Ok(Some(id)),
            Some(None) => {
                let message = "Must be an id of the kind that is listed.";
                Err(Error::invalid(Some(name.to_owned()), message))
            }
        };
        let after = key(STARTING_AFTER, self.starting_after)?;
        let before = key(ENDING_BEFORE, self.ending_before)?;
        let (created_from, created_before) = self.created;
        Ok(Page {
            limit: self.limit,
            cursor: Cursor::of(after, before)?,
            created_from,
            created_before,
        })
    }
}

impl<K> Cursor<K> {
    /// The place that at most one of the two parameters names. Refuses two.
    pub fn of(starting_after: Option<K>, ending_before: Option<K>) -> Result<Self, Error> {
        match (starting_after, ending_before) {
            (None, None) => Ok(Self::Start),
            (Some(key), None) => Ok(Self::StartingAfter(key)),
            (None, Some(key)) => Ok(Self::EndingBefore(key)),
            (Some(_), Some(_)) => {
                let message = "Must not be combined with starting_after.";
                Err(Error::invalid(Some(ENDING_BEFORE.to_owned()), message))
            }
        }
    }
}

/// How many objects are on a page: 1 to [`LIMIT_MAX`], and `DEFAULT` if a query doesn't say.
pub struct Limit<const DEFAULT: i64>;

impl<const DEFAULT: i64> Parameter for Limit<DEFAULT> {
    type Value = i64;

    fn read(field: &mut Field<'_, '_>) -> Result<i64, Error> {
        let limit = <Option<Integer<1, LIMIT_MAX>> as Parameter>::read(field)?;
        Ok(limit.unwrap_or(DEFAULT))
    }

    fn schema(about: String) -> RefOr<Schema> {
        let mut schema = <Integer<1, LIMIT_MAX> as Parameter>::schema(about);
        if let RefOr::T(Schema::Object(integer)) = &mut schema {
            integer.default = Some(DEFAULT.into());
        }
        schema
    }
}

type Moment = Option<DateTime<Utc>>;

/// `created[gt|gte|lt|lte]` in unix seconds, as a half-open interval, or `created` for one second.
/// `created` is shown without its fraction, so "later than 5" begins at 6, not right after 5.
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

    fn read(field: &mut Field<'_, '_>) -> Result<(Moment, Moment), Error> {
        let next = |second: i64| second + 1;
        let moment = |second: Option<i64>| DateTime::from_timestamp(second?, 0);
        let given = field.fields.given(field.name);
        if given.is_some_and(|value| !value.is_object()) {
            let second = <Option<Integer<0, TIME_MAX>> as Parameter>::read(field)?;
            return Ok((moment(second), moment(second.map(next))));
        }
        let Some(mut fields) = field.fields.object(field.name)? else {
            return Ok((None, None));
        };
        let CreatedQuery { gt, gte, lt, lte } = CreatedQuery::read(&mut fields)?;
        fields.finish()?;
        let from = gte.max(gt.map(next));
        let before = lt.into_iter().chain(lte.map(next)).min();
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
        let about =
            "Created in this second, in unix seconds. Not together with the ends of a time.";
        let second = <Option<Integer<0, TIME_MAX>> as Parameter>::in_query(name, about.to_owned());
        second.into_iter().chain(ends).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use crate::{Encoding, Params};

    use super::*;

    fn page(query: &str) -> Result<Page, Option<String>> {
        let tree = Encoding::Form.decode(query.as_bytes(), &[]);
        let query = PageQuery::parse(&Params::new(Encoding::Form, tree));
        let page = query.and_then(|query| query.page(|text| text.parse().ok()));
        page.map_err(|error| error.param)
    }

    #[test]
    fn a_query_asks_for_one_place_and_whole_seconds() {
        let at = |second| DateTime::from_timestamp(second, 0);
        let all = page("").unwrap();
        assert_eq!((all.limit, all.cursor), (LIMIT_DEFAULT, Cursor::Start));
        assert_eq!((all.created_from, all.created_before), (None, None));
        let some = page("created[gt]=5&created[gte]=3&created[lt]=9&created[lte]=9").unwrap();
        assert_eq!((some.created_from, some.created_before), (at(6), at(9)));
        let one = page("created=5").unwrap();
        assert_eq!((one.created_from, one.created_before), (at(5), at(6)));
        let id = Uuid::max();
        let last = page(&format!("limit=100&ending_before={id}")).unwrap();
        let before = Cursor::EndingBefore(id);
        assert_eq!((last.limit, last.cursor), (LIMIT_MAX, before));
        let both = format!("starting_after={id}&ending_before={id}");
        for (query, param) in [
            ("limit=101", "limit"),
            ("limit=0", "limit"),
            ("starting_after=x", STARTING_AFTER),
            ("ending_before=x", ENDING_BEFORE),
            (&both, ENDING_BEFORE),
            ("created=x", "created"),
            ("created=-1", "created"),
            ("created=253402300800", "created"),
            ("created[ge]=5", "created[ge]"),
        ] {
            assert_eq!(page(query), Err(Some(param.to_owned())), "{query}");
        }
    }
}
