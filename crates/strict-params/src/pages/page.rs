//! Which part of a list is asked for.

use chrono::{DateTime, TimeDelta, Utc};
use uuid::Uuid;

/// How far an object's id and its `created_at` may be apart. The id is made by a machine's clock,
/// and `created_at` is the beginning of the transaction by the database's. So a program must keep
/// the difference of the clocks and the time of a transaction below this in sum: at most half of it
/// each.
///
/// Ids aren't made from the transaction's time: of two transactions that wait for the same row, the
/// one that began first may write last, and an object's events would be in the wrong order.
pub const ID_SLACK: TimeDelta = TimeDelta::seconds(60);

/// A page of a list, newest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// 1 to 100 objects.
    pub limit: i64,
    /// Where the page lies.
    pub cursor: Cursor,
    /// Created at this moment or after.
    pub created_from: Option<DateTime<Utc>>,
    /// Created before this moment.
    pub created_before: Option<DateTime<Utc>>,
}

/// A page of a list that is in the order of its objects' names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamePage {
    /// 1 to 100 objects.
    pub limit: i64,
    /// Where the page lies.
    pub cursor: Cursor<String>,
}

/// Where a page lies, by what the list is ordered by: ids, or names.
///
/// It is a place in the order, whether or not the list has an object there: a program that pages
/// while it deletes goes on behind what it has deleted. A place tells nothing of other lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cursor<K = Uuid> {
    /// Where the list begins: at the newest object, or at the first name.
    Start,
    /// Right after this object.
    StartingAfter(K),
    /// Right before this object: the ones next to it, still in the order of the list.
    EndingBefore(K),
}

impl<K> Cursor<K> {
    /// Whether the page is read against the order of the list, because its end is given.
    fn is_turned(&self) -> bool {
        matches!(self, Self::EndingBefore(_))
    }
}

/// Reads a page of a list that is newest first: `in_order_of!(page, rows, 7)` is
/// `rows!("DESC", 7)`, or `rows!("ASC", 7)` where the page ends before an object. The two orders
/// are two statements: each walks an index and stops.
#[macro_export]
macro_rules! in_order_of {
    ($page:expr, $rows:ident $(, $more:tt)*) => {
        match $page.cursor {
            $crate::pages::Cursor::Start | $crate::pages::Cursor::StartingAfter(_) => {
                $rows!("DESC" $(, $more)*)
            }
            $crate::pages::Cursor::EndingBefore(_) => $rows!("ASC" $(, $more)*),
        }
    };
}

/// Objects of one page, and whether there are more beyond it.
#[derive(Debug)]
pub struct Listed<T> {
    /// In the order of the list.
    pub data: Vec<T>,
    /// More in the direction of the page.
    pub has_more: bool,
}

impl<T> Listed<T> {
    /// The same page of something made of each object.
    pub fn map<U>(self, of: impl FnMut(T) -> U) -> Listed<U> {
        Listed {
            data: self.data.into_iter().map(of).collect(),
            has_more: self.has_more,
        }
    }
}

impl Page {
    /// What to ask the database for: one row more than the page holds tells whether there are more.
    #[must_use]
    pub fn rows(&self) -> i64 {
        self.limit + 1
    }

    /// The objects' ids are greater than this.
    ///
    /// Of objects that were created at a certain moment or after, too: an id begins with the time
    /// of a machine's clock, so an index finds where they begin. The filter on `created_at` stays
    /// the exact one.
    #[must_use]
    pub fn above(&self) -> Uuid {
        let cursor = match self.cursor {
            Cursor::EndingBefore(id) => id,
            Cursor::Start | Cursor::StartingAfter(_) => Uuid::nil(),
        };
        let created = self.created_from.map(|from| first_id(from - ID_SLACK));
        created.map_or(cursor, |created| created.max(cursor))
    }

    /// The objects' ids are less than this.
    #[must_use]
    pub fn below(&self) -> Uuid {
        let cursor = match self.cursor {
            Cursor::StartingAfter(id) => id,
            Cursor::Start | Cursor::EndingBefore(_) => Uuid::max(),
        };
        let created = self.created_before;
        let created = created.map(|before| first_id(before + ID_SLACK));
        created.map_or(cursor, |created| created.min(cursor))
    }

    /// Cuts the extra row off, and turns a page that was read towards newer objects around.
    pub fn cut<T>(&self, rows: Vec<T>) -> Listed<T> {
        cut(rows, self.limit, self.cursor.is_turned())
    }
}

impl NamePage {
    /// What to ask the database for, as [`Page::rows`].
    #[must_use]
    pub fn rows(&self) -> i64 {
        self.limit + 1
    }

    /// Cuts the extra row off, and turns a page that was read towards the first name around.
    pub fn cut<T>(&self, rows: Vec<T>) -> Listed<T> {
        cut(rows, self.limit, self.cursor.is_turned())
    }
}

fn cut<T>(mut rows: Vec<T>, limit: i64, is_turned: bool) -> Listed<T> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let has_more = rows.len() > limit;
    rows.truncate(limit);
    if is_turned {
        rows.reverse();
    }
    Listed {
        data: rows,
        has_more,
    }
}

/// Greater than the id of every row that was created before `at`, by the database's clock.
#[must_use]
pub fn id_after(at: DateTime<Utc>) -> Uuid {
    first_id(at + ID_SLACK)
}

/// Not greater than any UUIDv7 that is made at this moment or after, and greater than all earlier
/// ones.
fn first_id(at: DateTime<Utc>) -> Uuid {
    // A UUIDv7 begins with 48 bits of milliseconds.
    let milliseconds = u128::try_from(at.timestamp_millis()).unwrap_or(0);
    Uuid::from_u128(milliseconds << 80)
}

#[cfg(test)]
mod tests {
    use uuid::Timestamp;

    use super::*;

    fn page(cursor: Cursor, from: Option<i64>, before: Option<i64>) -> Page {
        let at = |seconds: Option<i64>| DateTime::from_timestamp(seconds?, 0);
        Page {
            limit: 10,
            cursor,
            created_from: at(from),
            created_before: at(before),
        }
    }

    fn id_made_at(seconds: u64) -> Uuid {
        Uuid::new_v7(Timestamp::from_unix(uuid::NoContext, seconds, 0))
    }

    #[test]
    fn a_page_without_limits_holds_every_id() {
        let page = page(Cursor::Start, None, None);
        assert_eq!((page.above(), page.below()), (Uuid::nil(), Uuid::max()));
    }

    #[test]
    fn ids_of_the_wanted_time_are_on_the_page_and_those_far_from_it_are_not() {
        let page = page(Cursor::Start, Some(10_000), Some(20_000));
        let holds = |seconds| {
            let id = id_made_at(seconds);
            page.above() < id && id < page.below()
        };
        for near in [9_941, 10_000, 15_000, 19_999, 20_059] {
            assert!(holds(near), "{near}");
        }
        for far in [0, 9_939, 20_061, 4_000_000_000] {
            assert!(!holds(far), "{far}");
        }
    }

    #[test]
    fn the_narrower_of_cursor_and_time_counts() {
        let (early, late) = (id_made_at(1_000), id_made_at(30_000));
        let after = |id| page(Cursor::StartingAfter(id), Some(10_000), Some(20_000));
        assert_eq!(after(early).below(), early);
        assert!(after(late).below() < late);
        let before = |id| page(Cursor::EndingBefore(id), Some(10_000), Some(20_000));
        assert_eq!(before(late).above(), late);
        assert!(before(early).above() > early);
    }

    #[test]
    fn a_time_before_1970_is_no_limit() {
        assert_eq!(page(Cursor::Start, Some(-5), None).above(), Uuid::nil());
    }
}
